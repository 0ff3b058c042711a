"""Interleaving nests: a short last axis of the result, read from planes (channels first to last).

Several neighbouring points of the long axis are computed as one vector per step of the short axis;
the vectors are woven together in registers and stored as one contiguous run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import Emitter, Env
from braze.codegen.cpu.llvm.function import I8, I32, KernelFunction, i64
from braze.codegen.cpu.llvm.vector import with_element
from braze.codegen.cpu.loops.normal_form import Form
from braze.codegen.cpu.loops.rows import Rows
from braze.codegen.cpu.loops.schedule import flat_slope, lanes_of
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import product
from braze.core.dtypes import BOOL
from braze.expr.guards import depends_on_data, topological

_LONGEST = 4


@dataclass(frozen=True)
class Weave:
    """short: the axis (of `count` steps) that is contiguous in the result; long: the next one."""

    short: int
    long: int
    count: int
    lanes: int


def find_weave(form: Form, target: CpuTarget) -> Weave | None:
    """The interleaving of a nest, or None when it is not one."""
    nest = form.nest
    if nest.inner or nest.reduces or nest.serial or len(nest.stores) != 1:
        return None
    (store,) = nest.stores
    if store.mode != "set" or any(depends_on_data(i) for i in store.index):
        return None
    spec = form.specs[store.slot]
    lanes = lanes_of(form, target)
    for short, count in form.extents.items():
        if not isinstance(count, int) or not 2 <= count <= _LONGEST:
            continue
        if flat_slope(store.index, spec, short) != 1:
            continue
        for long, extent in form.extents.items():
            enough = not isinstance(extent, int) or extent >= 2 * lanes
            if long == short or not enough or lanes < 4:
                continue
            if flat_slope(store.index, spec, long) == count and _even(form, long):
                return Weave(short, long, count, lanes)
    return None


def _even(form: Form, axis: int) -> bool:
    """True when every load is a vector or the same in all lanes along `axis`."""
    for e in topological(form.roots):
        if e.op == "load" and flat_slope(e.args, form.specs[e.slot], axis) not in (0, 1):
            return False
    return True


class WeaveWriter:
    """Writes an interleaving nest at the end of `fn`'s current block."""

    def __init__(self, fn: KernelFunction, form: Form, weave: Weave, parallel: bool) -> None:
        self.fn = fn
        self.form = form
        self.weave = weave
        self.parallel = parallel
        (self.store,) = form.nest.stores
        self.buffers = [buffer for buffer, _ in form.slots]

    def write(self) -> None:
        """The whole nest; what does not fill a vector is done point by point."""
        fn, b, weave = self.fn, self.fn.builder, self.weave
        extents = self.form.extents
        others = [k for k in extents if k not in (weave.short, weave.long)]
        loops = Rows(fn, extents)
        count = product(extents[k] for k in others)
        part, (begin, end) = loops.share(count, extents[weave.long], weave.lanes, self.parallel)
        whole = b.mul(b.sdiv(b.sub(end, begin), i64(weave.lanes)), i64(weave.lanes))
        whole = b.add(begin, whole)
        with loops.over(others, part) as values:
            axes = {k: (v, False) for k, v in values.items()}
            with fn.loop(begin, whole, weave.lanes) as p:
                self._vectors(axes, p)
            with fn.loop(whole, end) as p:
                for k in range(weave.count):
                    emitter = self._emitter(axes, p, k, 1)
                    value = emitter.value(self.store.expr)
                    spec = self.form.specs[self.store.slot]
                    buffer = self.buffers[self.store.slot]
                    emitter.memory.store(buffer, spec, self.store.index, value)

    def _emitter(
        self, axes: dict[int, tuple[ir.Value, bool]], p: ir.Value, k: int, width: int
    ) -> Emitter:
        here = {**axes, self.weave.long: (p, width > 1), self.weave.short: (i64(k), False)}
        env = Env(self.form.specs, here, extents=self.form.extents, buffers=self.buffers)
        return Emitter(self.fn, env, width, self.form.roots)

    def _vectors(self, axes: dict[int, tuple[ir.Value, bool]], p: ir.Value) -> None:
        lanes, count = self.weave.lanes, self.weave.count
        spec = self.form.specs[self.store.slot]
        woven: list[Any] = []
        for k in range(count):
            emitter = self._emitter(axes, p, k, lanes)
            value = emitter.lanes.splat(emitter.value(self.store.expr))
            if spec.dtype is BOOL:
                value = self.fn.builder.zext(value, with_element(value.type, I8))
            else:
                value = emitter.memory.to_memory(value, spec.dtype)
            woven.append(value)
        first = self._emitter(axes, p, 0, 1)
        place = first.memory.address(self.buffers[self.store.slot], spec, self.store.index)
        for number, run in enumerate(self._weave(woven)):
            self.fn.store(run, self.fn.at(place, number * lanes, run.type.element))

    def _weave(self, vectors: list[ir.Value]) -> list[ir.Value]:
        """Elements vectors[j % n][j // n] for all j, as n vectors."""
        b, lanes, count = self.fn.builder, self.weave.lanes, self.weave.count
        pairs = [vectors[:2], vectors[2:] or vectors[:1]]
        both = []
        for pair in pairs:
            x, y = pair[0], pair[-1]
            order = ir.Constant(ir.VectorType(I32, 2 * lanes), list(range(2 * lanes)))
            both.append(b.shuffle_vector(x, y, order))
        runs = []
        for number in range(count):
            places = []
            for j in range(number * lanes, (number + 1) * lanes):
                source, lane = j % count, j // count
                places.append(source // 2 * 2 * lanes + source % 2 * lanes + lane)
            order = ir.Constant(ir.VectorType(I32, lanes), places)
            runs.append(b.shuffle_vector(both[0], both[1], order))
        return runs
