"""Transposing nests: square tiles that are read along one axis and written along another.

A tile is loaded as rows along the axis that is contiguous in the transposed operands, turned in
registers by repeated interleaving, and stored along the axis that is contiguous in the result.
What does not fill a tile is done element by element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import Emitter, Env
from braze.codegen.cpu.llvm.function import I8, I32, KernelFunction, i64
from braze.codegen.cpu.llvm.vector import constant, with_element
from braze.codegen.cpu.loops.normal_form import Form
from braze.codegen.cpu.loops.schedule import flat_slope, lanes_of
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import Dim, product
from braze.core.dtypes import BOOL
from braze.expr.fold import rewrite
from braze.expr.guards import depends_on_data, load_guards, topological
from braze.expr.loops import Store
from braze.expr.scalar import Expr, hole

_LARGEST = 16


@dataclass(frozen=True)
class Tile:
    """across: axis of the stores; along: axis of the rows that are turned; turned: their loads."""

    across: int
    along: int
    size: int
    turned: tuple[Expr, ...]


def find_tile(form: Form, target: CpuTarget) -> Tile | None:
    """The tiling of a nest that needs transposing, or None."""
    nest = form.nest
    if (
        nest.inner
        or nest.reduces
        or nest.serial
        or len(nest.stores) != 1
        or nest.stores[0].mode != "set"
    ):
        return None
    (store,) = nest.stores
    if any(depends_on_data(i) for i in store.index):
        return None
    size = min(lanes_of(form, target), _LARGEST)
    guards = load_guards(form.roots)
    for across in form.extents:
        if flat_slope(store.index, form.specs[store.slot], across) != 1:
            continue
        for along in form.extents:
            turned = _turned(form, store, across, along, guards)
            if turned and _fits(form.extents, across, along, size):
                return Tile(across, along, size, turned)
    return None


def _fits(extents: dict[int, Dim], across: int, along: int, size: int) -> bool:
    lengths = (extents[across], extents[along])
    return size >= 4 and all(not isinstance(n, int) or n >= size for n in lengths)


def _turned(
    form: Form, store: Store, across: int, along: int, guards: dict[Expr, Expr | None]
) -> tuple[Expr, ...]:
    """Loads to be turned; empty when there are none or when another access is uneven."""
    found = []
    if across == along:
        return ()
    for e in topological([store.expr]):
        if e.op != "load":
            continue
        spec = form.specs[e.slot]
        if flat_slope(e.args, spec, across) in (0, 1):
            continue
        if flat_slope(e.args, spec, along) != 1 or guards[e] is not None:
            return ()
        if any(depends_on_data(i) for i in e.args):
            return ()
        found.append(e)
    return tuple(found)


class TileWriter:
    """Writes a nest in tiles at the end of `fn`'s current block."""

    def __init__(self, fn: KernelFunction, form: Form, tile: Tile, parallel: bool) -> None:
        self.fn = fn
        self.form = form
        self.tile = tile
        self.parallel = parallel
        (self.store,) = form.nest.stores
        self.buffers = [buffer for buffer, _ in form.slots]
        number = {e: k for k, e in enumerate(tile.turned)}
        self.expr = rewrite(
            self.store.expr, lambda e: hole(number[e], e.dtype) if e in number else None
        )

    def write(self) -> None:
        """The whole nest; workers share the rows, or the blocks across when there are few."""
        fn, b, tile = self.fn, self.fn.builder, self.tile
        extents = self.form.extents
        others = [k for k in extents if k not in (tile.across, tile.along)]
        count = fn.dim(product(extents[k] for k in others))
        width, length = fn.dim(extents[tile.across]), fn.dim(extents[tile.along])
        rows = (i64(0), count)
        part = (i64(0), width)
        if self.parallel:
            many = b.icmp_signed(">=", count, b.mul(fn.num_workers, i64(4)))
            mine, block = fn.split(count), fn.split(width, tile.size)
            rows = tuple(b.select(many, m, r) for m, r in zip(mine, rows, strict=True))
            part = tuple(b.select(many, p, m) for p, m in zip(part, block, strict=True))
        with fn.loop(*rows) as row:
            axes: dict[int, tuple[ir.Value, bool]] = {}
            rest = row
            for k in reversed(others):
                size = fn.dim(extents[k])
                axes[k] = (b.srem(rest, size), False)
                rest = b.sdiv(rest, size)
            self._plane(axes, part, length)

    def _plane(
        self,
        axes: dict[int, tuple[ir.Value, bool]],
        part: tuple[ir.Value, ir.Value],
        length: ir.Value,
    ) -> None:
        fn, size = self.fn, self.tile.size
        begin, end = part
        b = fn.builder
        full = b.add(begin, self._floor(b.sub(end, begin)))
        even = self._floor(length)
        with fn.loop(begin, full, size) as p:
            with fn.loop(0, even, size) as q:
                self._tile(axes, p, q)
            with fn.loop(even, length) as q:
                self._vector(axes, p, q)
        with fn.loop(full, end) as p, fn.loop(0, length) as q:
            self._element(axes, p, q)

    def _floor(self, value: ir.Value) -> ir.Value:
        size = i64(self.tile.size)
        return self.fn.builder.mul(self.fn.builder.sdiv(value, size), size)

    def _env(
        self,
        axes: dict[int, tuple[ir.Value, bool]],
        p: tuple[ir.Value, bool],
        q: tuple[ir.Value, bool],
    ) -> Env:
        here = {**axes, self.tile.across: p, self.tile.along: q}
        return Env(self.form.specs, here, extents=self.form.extents, buffers=self.buffers)

    def _tile(self, axes: dict[int, tuple[ir.Value, bool]], p: ir.Value, q: ir.Value) -> None:
        b, size = self.fn.builder, self.tile.size
        turned: list[list[ir.Value]] = []
        for e in self.tile.turned:
            rows = []
            for k in range(size):
                env = self._env(axes, (b.add(p, i64(k)), False), (q, True))
                rows.append(Emitter(self.fn, env, size, [e]).value(e))
            turned.append(self._turn(rows, e))
        for k in range(size):
            env = self._env(axes, (p, True), (b.add(q, i64(k)), False))
            self._finish(replace(env, holes=[columns[k] for columns in turned]), size)

    def _finish(self, env: Env, width: int) -> None:
        store = self.store
        emitter = Emitter(self.fn, env, width, [self.expr, *store.index])
        spec = self.form.specs[store.slot]
        value = emitter.value(self.expr)
        emitter.memory.store(self.buffers[store.slot], spec, store.index, value)

    def _turn(self, rows: list[ir.Value], e: Expr) -> list[ir.Value]:
        """Transpose square rows: interleaving the two halves log2(size) times turns them."""
        b, size = self.fn.builder, self.tile.size
        if e.dtype is BOOL:
            rows = [b.zext(r, with_element(r.type, I8)) for r in rows]
        orders = []
        for start in (0, size // 2):
            lanes = [k // 2 + start + (size if k % 2 else 0) for k in range(size)]
            orders.append(ir.Constant(ir.VectorType(I32, size), lanes))
        for _ in range(size.bit_length() - 1):
            half = size // 2
            pairs = zip(rows[:half], rows[half:], strict=True)
            rows = [b.shuffle_vector(x, y, order) for x, y in pairs for order in orders]
        if e.dtype is BOOL:
            rows = [b.icmp_unsigned("!=", r, constant(r.type, 0)) for r in rows]
        return rows

    def _vector(self, axes: dict[int, tuple[ir.Value, bool]], p: ir.Value, q: ir.Value) -> None:
        """One vector across, its turned loads lane by lane."""
        env = self._env(axes, (p, True), (q, False))
        emitter = Emitter(self.fn, env, self.tile.size, self.tile.turned)
        holes = [emitter.value(e) for e in self.tile.turned]
        self._finish(replace(env, holes=holes), self.tile.size)

    def _element(self, axes: dict[int, tuple[ir.Value, bool]], p: ir.Value, q: ir.Value) -> None:
        env = self._env(axes, (p, False), (q, False))
        emitter = Emitter(self.fn, env, 1, self.tile.turned)
        self._finish(replace(env, holes=[emitter.value(e) for e in self.tile.turned]), 1)
