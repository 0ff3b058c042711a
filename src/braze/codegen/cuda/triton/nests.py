"""Generic loop nests as Triton kernels: pointwise, reductions, scans and serial updates.

One program computes a block of `rows` outer points. Inner axes are walked in blocks of `columns`
points. Where a pointwise nest turns axes (it reads along another one than it writes), a program
takes a block of rows of the one and columns of the other, so that both run along memory. A kernel
with several nests becomes one launch a nest, since a later nest may read everything an earlier one
wrote; nests that see nothing of each other share a launch, each with programs of its own. Serial
nests (scatter) run in one program, point by point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from braze.codegen.cuda.triton.arith import TritonArith
from braze.codegen.cuda.triton.emit import Emitter, Scope
from braze.codegen.cuda.triton.reductions import Block, combined, reduce_rows, scan_rows, winner
from braze.codegen.cuda.triton.scalars import register_type
from braze.codegen.cuda.triton.source import RELEASE, WAIT, Source, Val
from braze.codegen.cuda.triton.together import groups, nest_roots
from braze.core.dims import Dim, DimExpr, product
from braze.core.dtypes import BOOL, DType
from braze.expr.bounds import in_range
from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.fusion.kernel import Packing, TensorMap

MOST_UNROLLED = 64  # inner points that are written out where a step takes one
UPDATES = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@dataclass(frozen=True)
class TritonSource:
    """One launch: a Triton function as text.

    pointers: (name, Triton element type) in argument order, inputs, outputs, `scratch` if there is
    any, `status`, `counters` if there are any; params: sizes that follow as int64; grid: number of
    programs; warps and stages of a program; scratch_bytes and counters: see GridLaunch; waits: it
    waits for earlier launches (WAIT) before it touches memory. maps: the first arguments of a
    source in Gluon, `map0`..; without any it is Triton. packings: how constant slots must lie.
    registers: the most of a thread (0: as many as the compiler likes), so that more programs share
    a multiprocessor.
    """

    entry: str
    text: str
    pointers: tuple[tuple[str, str], ...]
    params: tuple[Dim, ...]
    grid: Dim
    warps: int
    stages: int = 1
    scratch_bytes: Dim = 0
    counters: int = 0
    waits: bool = False
    maps: tuple[TensorMap, ...] = ()
    packings: tuple[tuple[int, Packing], ...] = ()
    registers: int = 0


def storage_type(dtype: DType) -> str:
    """Triton element type of a tensor in memory."""
    if dtype.is_narrow:
        return "uint8"
    return "int8" if dtype is BOOL else dtype.name


def nest_sources(
    kernel: LoopKernel, rows: int, columns: int, warps: int, *parts: int
) -> tuple[TritonSource, ...]:
    """The launches of `kernel`, in order, all with the same blocks."""
    return sources_of_nests(kernel, [(rows, columns, warps, *parts)] * len(kernel.nests))


def sources_of_nests(
    kernel: LoopKernel, blocks: Sequence[tuple[int, ...]]
) -> tuple[TritonSource, ...]:
    """The launches of `kernel`, in order; of each nest the rows and columns of a program, powers
    of two, its warps (those of nests that share a launch are the most of one), and where columns
    lie in parts, their number and whether rows come first (see Block)."""
    found: list[TritonSource] = []
    for group in groups(kernel):
        warps = max(blocks[k][2] for k in group)
        shapes = [(k, (*blocks[k][:2], warps, *blocks[k][3:])) for k in group]
        writers = [NestWriter(kernel, kernel.nests[k], k, *shape) for k, shape in shapes]
        known = len(group) > 1 and all(isinstance(w.programs, int) for w in writers)
        together = [w.source("place") for w in writers] if known else []
        if together and not any(s.params for s in together):
            found.append(_side_by_side(together))
        else:
            found += [NestWriter(kernel, kernel.nests[k], k, *blocks[k]).source() for k in group]
    return tuple(found)


def _side_by_side(sources: Sequence[TritonSource]) -> TritonSource:
    """One launch of several nests of known sizes: the first programs are those of the first."""
    names = ", ".join(n for n, _ in sources[0].pointers)
    entry, begin = Source(), 0
    entry.line("place = tl.program_id(0)")
    for i, source in enumerate(sources):
        assert isinstance(source.grid, int)
        begin, end = begin + source.grid, begin
        word = "if" if i == 0 else "elif"
        with entry.block("else" if i == len(sources) - 1 else f"{word} place < {begin}"):
            entry.line(f"{source.entry}({names}, place - {end})")
    name = "_".join(s.entry for s in sources)
    whole = f"@triton.jit\ndef {name}({names}):\n{entry.text()}\n"
    text = "\n\n".join([*(s.text for s in sources), whole])
    return replace(sources[0], entry=name, text=text, grid=begin)


def turned_axis(nest: LoopNest) -> int | None:
    """The outer axis along which a pointwise nest reads, where it writes along the last one."""
    last = len(nest.outer) - 1
    if nest.inner or nest.serial or last < 1:
        return None
    written = {a.number for s in nest.stores for i in s.index[-1:] for a in leaves(i, "axis")}
    if written != {last} or any(s.mode != "set" for s in nest.stores):
        return None
    for root in nest_roots(nest):
        for e in leaves(root, "load"):
            uses = {a.number for i in e.args for a in leaves(i, "axis")}
            if last in uses and e.args[-1].op == "axis" and e.args[-1].number != last:
                return e.args[-1].number
    return None


def _symbolic(kernel: LoopKernel, nest: LoopNest) -> list[Dim]:
    """The sizes that the code of a nest reads at run time."""
    found: dict[Dim, None] = {}
    for d in (*nest.outer, *nest.inner, product(nest.outer), product(nest.inner)):
        found[d] = None
    for spec in (*kernel.inputs, *kernel.outputs):
        found.update(dict.fromkeys(spec.shape))
    for root in nest_roots(nest):
        for e in leaves(root, "dim"):
            found[e.size] = None
    return [d for d in found if isinstance(d, DimExpr)]


class NestWriter:
    """Writes one nest; state is the source, and the results of reductions so far."""

    def __init__(
        self, kernel: LoopKernel, nest: LoopNest, number: int,
        rows: int, columns: int, warps: int, parts: int = 1, rows_first: int = 0,
    ) -> None:  # fmt: skip
        self.kernel, self.nest, self.number = kernel, nest, number
        self.rows = 1 if nest.serial else rows
        self.columns = columns
        self.warps = 1 if nest.serial else warps
        self.block = Block(self.rows, columns, parts, bool(rows_first))
        self.src = Source()
        self.a = TritonArith(self.src)
        self.params = _symbolic(kernel, nest)
        names: Mapping[Dim, str] = {d: f"n{i}" for i, d in enumerate(self.params)}
        extents = dict(enumerate((*nest.outer, *nest.inner)))
        tensors: Sequence[TensorSpec] = (*kernel.inputs, *kernel.outputs)
        self.emit = Emitter(self.a, tensors, extents, nest_roots(nest), names)
        self.total = product(nest.outer)
        self.inner_total = product(nest.inner)
        self.reds: list[Val] = []
        self.turned = turned_axis(nest) if columns > 1 else None
        self._whole: Scope | None = None
        self._released = False
        self._place = "tl.program_id(0)"

    def source(self, place: str = "") -> TritonSource:
        """The launch. place: a name makes it a function that is told the number of its program in
        a last argument of this name."""
        entry, self._place = f"nest{self.number}", place or self._place
        tensors = (*self.kernel.inputs, *self.kernel.outputs)
        pointers = [(f"in{i}", storage_type(s.dtype)) for i, s in enumerate(tensors)]
        pointers.append(("status", "int32"))
        self.src.line(WAIT)
        self._body()
        arguments = [n for n, _ in pointers] + [f"n{i}" for i in range(len(self.params))]
        arguments += [place] if place else []
        text = f"@triton.jit\ndef {entry}({', '.join(arguments)}):\n{self.src.text()}\n"
        pieces = tuple(pointers), tuple(self.params)
        return TritonSource(entry, text, *pieces, self.programs, self.warps, waits=True)

    @property
    def programs(self) -> Dim:
        """How many there are."""
        if self.nest.serial:
            return 1
        if self.turned is None:
            return (self.total + (self.rows - 1)) // self.rows
        outer = self.nest.outer
        others = product(d for i, d in enumerate(outer[:-1]) if i != self.turned)
        down = (outer[self.turned] + (self.rows - 1)) // self.rows
        return others * down * ((outer[-1] + (self.columns - 1)) // self.columns)

    def _body(self) -> None:
        total = self.emit.size(self.total)
        if self.turned is not None:
            self._turned_points(self.turned)
            return
        if self.nest.serial:
            with self.src.block(f"for at in range(0, {total})"):
                self._points("at", total)
                self.src.line("tl.debug_barrier()")
        else:
            self._points(f"{self._place}.to(tl.{total.type})", total)

    def _points(self, block: str, total: Val) -> None:
        """A block of outer points: reductions one after the other, then the stores."""
        lanes = f"tl.arange(0, {self.rows}).to(tl.{total.type})"
        point = self.a.put(f"{block} * {self.rows} + {lanes}", total.type)
        if self.nest.inner:
            point = self.a.put(f"{point}{self.block.down}", total.type)
        mask = self.a.compare("<", point, total)
        outer = Scope(self._unflatten(point, self.nest.outer, 0), mask, self.reds)
        scans = any(s.over.startswith("scan") for s in self.nest.stores)
        for number, r in enumerate(self.nest.reduces):
            if scans and number == len(self.nest.reduces) - 1:
                self._scan(outer, number, self.block)
            elif r.kind.startswith("arg"):
                self.reds.append(winner(self.a, r, self.block, self._walk(outer), self.emit))
            else:
                self.reds.append(reduce_rows(self.a, r, self.block, self._walk(outer), self.emit))
        for store in self.nest.stores:
            if store.over == "outer":
                self._store(store, outer)
        if any(s.over == "all" for s in self.nest.stores):
            if self._whole is None:
                self._release()
            with self._walk(outer) as scope:
                for store in self.nest.stores:
                    if store.over == "all":
                        self._store(store, scope)

    def _turned_points(self, axis: int) -> None:
        """A block of `rows` along `axis` and `columns` along the last axis, at one place of the
        others."""
        outer, last = self.nest.outer, len(self.nest.outer) - 1
        kind = self.emit.size(self.total).type
        rest = self.a.put(f"{self._place}.to(tl.{kind})", kind)
        axes: dict[int, Val] = {}
        masks: dict[int, Val] = {}
        for i, step, place in ((last, self.columns, "[None, :]"), (axis, self.rows, "[:, None]")):
            size = self.emit.size(outer[i])
            tiles = self.a.put(f"({size} + {step - 1}) // {step}", kind)
            lanes = f"({rest} % {tiles} * {step} + tl.arange(0, {step})){place}"
            axes[i] = self.a.put(lanes, kind)
            masks[i] = self.a.put(f"{axes[i]} < {size}", "int1")
            rest = self.a.put(f"{rest} // {tiles}", kind)
        for i in range(last - 1, -1, -1):
            if i != axis:
                size = self.a.convert(self.emit.size(outer[i]), kind)
                axes[i] = self.a.put(f"{rest} % {size}", kind)
                rest = self.a.put(f"{rest} // {size}", kind)
        free = frozenset(range(last)) - {axis}
        parts = ((free, None), (frozenset({axis}), masks[axis]), (frozenset({last}), masks[last]))
        scope = Scope(axes, self.a.both(masks[axis], masks[last]), parts=parts)
        for store in self.nest.stores:
            self._store(store, scope)

    def _release(self) -> None:
        """Let the next launch start; what is left is to store."""
        if not self._released and not self.nest.serial:
            self.src.line(RELEASE)
        self._released = True

    def _unflatten(self, point: Val, sizes: Sequence[Dim], first: int) -> dict[int, Val]:
        axes: dict[int, Val] = {}
        rest = point
        for k in range(len(sizes) - 1, 0, -1):
            size = self.a.convert(self.emit.size(sizes[k]), point.type)
            axes[first + k] = self.a.put(f"{rest} % {size}", point.type)
            rest = self.a.put(f"{rest} // {size}", point.type)
        if sizes:
            axes[first] = rest
        return axes

    @contextmanager
    def _walk(self, outer: Scope) -> Iterator[Scope]:
        """The blocks of inner points. One block that holds them all needs no loop, and what was
        computed for an earlier reduction is still in registers."""
        total = self.emit.size(self.inner_total)
        if isinstance(self.inner_total, int) and self.inner_total <= self.columns:
            if self._whole is None:
                self._whole = self._inner_scope(outer, "0", total)
                for store in self.nest.stores:  # what they read need not wait for reductions
                    if store.over == "all":
                        self.emit.ahead(store.expr, self._whole)
            yield self._whole
            return
        few = isinstance(self.inner_total, int) and self.inner_total <= MOST_UNROLLED
        span = (
            f"tl.static_range(0, {self.inner_total})"
            if few and self.columns == 1
            else (f"range(0, {total}, {self.columns})")
        )
        with self.src.block(f"for j in {span}"):
            yield self._inner_scope(outer, "j", total)

    def _inner_scope(self, outer: Scope, start: str, total: Val) -> Scope:
        lanes = f"{self.block.lanes(start)}.to(tl.{total.type})"
        at = self.a.put(lanes, total.type)
        assert outer.mask is not None
        in_inner = self.a.compare("<", at, total)
        mask = self.a.both(outer.mask, in_inner)
        axes = {**outer.axes, **self._unflatten(at, self.nest.inner, len(self.nest.outer))}
        inner = frozenset(range(len(self.nest.outer), len(axes)))
        if self.block.parts > 1:  # smaller loads lie in other registers, and would have to move
            return Scope(axes, mask, self.reds, lane=at)
        parts = ((frozenset(outer.axes), outer.mask), (inner, in_inner))
        return Scope(axes, mask, self.reds, lane=at, parts=parts)

    def _scan(self, outer: Scope, number: int, block: Block) -> None:
        """The last reduction as a running one; its stores lie inside the walk."""
        r = self.nest.reduces[number]
        done = list(self.reds)

        def at_each(scope: Scope, after: Val, before: Val) -> None:
            for store in self.nest.stores:
                if store.over in ("scan", "scan_exclusive"):
                    running = after if store.over == "scan" else before
                    self._store(store, Scope(scope.axes, scope.mask, [*done, running]))

        exclusive = any(s.over == "scan_exclusive" for s in self.nest.stores)
        self.reds.append(
            scan_rows(self.a, r, block, self._walk(outer), self.emit, at_each, exclusive)
        )

    def _store(self, store: Store, scope: Scope) -> None:
        spec = self.kernel.outputs[store.slot]
        value = self.emit.value(store.expr, scope)
        index = [self.emit.value(i, scope) for i in store.index]
        mask = scope.mask
        assert mask is not None
        if not in_range(store.index, spec.shape, self.emit.extents):
            mask = self.emit.inside(index, spec.shape, mask)
        at = self.emit.widened(self.emit.address(index, spec.shape), mask)
        pointer = f"in{len(self.kernel.inputs) + store.slot} + {at}"
        text = value.text
        if store.mode != "set":
            old = self._read(pointer, mask, spec.dtype)
            text = f"({combined(UPDATES[store.mode], spec.dtype, old.text, text)})"
        kind = storage_type(spec.dtype)
        if self.src.depth == 1:
            self._release()
        self.src.line(f"tl.store({pointer}, {text}.to(tl.{kind}), mask={mask})")

    def _read(self, pointer: str, mask: Val, dtype: DType) -> Val:
        loaded = f"tl.load({pointer}, mask={mask}, other=0)"
        if dtype is BOOL:
            return self.a.put(f"{loaded} != 0", "int1")
        kind = register_type(dtype)
        return self.a.put(f"{loaded}.to(tl.{kind})", kind)
