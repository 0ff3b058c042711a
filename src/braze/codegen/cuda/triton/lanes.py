"""Loop nests that look at few points for each result, all along the last axis: pools of pictures
with their channels last.

A program computes a block of points and, across, a run of the last axis, so that where a window
lies is computed once for a point and not for each of its channels. Inner points are written out.
The largest of bytes are found four at a time: as halves of a word each that begin with the byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import NestWriter, TritonSource
from braze.codegen.cuda.triton.reductions import combined, neutral
from braze.codegen.cuda.triton.scalars import register_type
from braze.codegen.cuda.triton.source import Val
from braze.codegen.cuda.triton.together import nest_roots
from braze.core.dims import Dim, product
from braze.core.dtypes import BOOL, I8, U8, DType
from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel, TensorSpec
from braze.expr.scalar import Expr, axis, const, red
from braze.fusion.kernel import Tactic

TEMPLATE: Final = "lanes"
KINDS: Final = frozenset({"sum", "prod", "max", "min"})
MOST_POINTS: Final = 32  # that are written out
FEWEST_LANES: Final = 8
WORD: Final = 4  # bytes that are taken together
LOWEST: Final[Mapping[DType, int]] = {I8: -128, U8: 0}
# points, lanes, warps
BLOCKS: Final = (
    (64, 64, 4), (128, 64, 4), (32, 64, 4), (16, 64, 4), (256, 32, 4), (64, 32, 4), (32, 128, 4),
    (128, 16, 4),
)  # fmt: skip


def lane_tactics(kernel: LoopKernel, most: int) -> tuple[Tactic, ...]:
    """Blocks; none for what the template does not take."""
    if not runs_along(kernel):
        return ()
    (nest,) = kernel.nests
    size = nest.outer[-1]
    assert isinstance(size, int)
    if _bytes_of(kernel) is not None:
        size //= WORD
    whole = 1 << (size - 1).bit_length()
    fitting = [(r, min(c, whole), w) for r, c, w in BLOCKS]
    kept = list(dict.fromkeys(fitting))[:most]
    return tuple(Tactic(TEMPLATE, (("rows", r), ("columns", c), ("warps", w))) for r, c, w in kept)


def runs_along(kernel: LoopKernel) -> bool:
    """Whether the template takes a kernel."""
    if len(kernel.nests) != 1:
        return False
    (nest,) = kernel.nests
    points = product(nest.inner)
    few = nest.inner and isinstance(points, int) and 1 < points <= MOST_POINTS
    last = len(nest.outer) - 1
    if not few or nest.serial or last < 1 or not isinstance(nest.outer[-1], int):
        return False
    plain = all(r.kind in KINDS and r.expr.dtype is not BOOL for r in nest.reduces)
    if not plain or any(s.over != "outer" or s.mode != "set" for s in nest.stores):
        return False
    places = [e.args for root in nest_roots(nest) for e in leaves(root, "load")]
    places += [s.index for s in nest.stores]
    return nest.outer[-1] >= FEWEST_LANES and all(_is_along(p, last) for p in places)


def _is_along(index: Sequence[Expr], last: int) -> bool:
    """Whether only the last part of an index is the last axis, as it is."""
    uses = [any(a.number == last for a in leaves(x, "axis")) for x in index]
    return not any(uses[:-1]) and (not any(uses) or index[-1] == axis(last))


def lanes_source(kernel: LoopKernel, tactic: Tactic) -> TritonSource:
    """The launch of a kernel that `lane_tactics` has a block for."""
    rows, columns, warps = (int(tactic[k]) for k in ("rows", "columns", "warps"))
    kind = _LaneWriter if _bytes_of(kernel) is None else _ByteWriter
    return kind(kernel, kernel.nests[0], 0, rows, columns, warps).source()


def _bytes_of(kernel: LoopKernel) -> tuple[Expr, Expr | None] | None:
    """The load of a kernel that takes the largest of bytes and stores it, and the condition beside
    which it is the lowest byte; None for others."""
    (nest,) = kernel.nests
    if len(nest.reduces) != 1 or nest.reduces[0].kind != "max" or len(nest.stores) != 1:
        return None
    (r,), (store,), size = nest.reduces, nest.stores, nest.outer[-1]
    if r.expr.dtype not in LOWEST or store.expr != red(0, r.expr.dtype):
        return None
    if not isinstance(size, int) or size % WORD:
        return None
    e, condition = r.expr, None
    if e.op == "select" and e.args[2] == const(LOWEST[e.dtype], e.dtype):
        condition, e = e.args[0], e.args[1]
    along = e.op == "load" and e.args[-1] == axis(len(nest.outer) - 1)
    return (e, condition) if along and e.dtype in LOWEST else None


class _LaneWriter(NestWriter):
    """Writes such a nest."""

    @property
    def programs(self) -> Dim:
        """How many there are."""
        down = (product(self.nest.outer[:-1]) + (self.rows - 1)) // self.rows
        return down * self._across

    @property
    def _across(self) -> int:
        """Programs along the last axis."""
        return -(-self._lanes // self.columns)

    @property
    def _lanes(self) -> int:
        size = self.nest.outer[-1]
        assert isinstance(size, int)
        return size

    def _body(self) -> None:
        nest, last = self.nest, len(self.nest.outer) - 1
        total = self.emit.size(self.total)
        kind = total.type
        place = self.a.put(f"{self._place}.to(tl.{kind})", kind)
        down = f"{place} // {self._across} * {self.rows} + tl.arange(0, {self.rows})[:, None]"
        right = f"{place} % {self._across} * {self.columns} + tl.arange(0, {self.columns})[None, :]"
        point, lane = self.a.put(down, kind), self.a.put(right, kind)
        in_points = self.a.put(f"{point} < {total} // {nest.outer[-1]}", "int1")
        in_lanes = self.a.put(f"{lane} < {self._lanes}", "int1")
        axes = {**self._unflatten(point, nest.outer[:-1], 0), last: lane}
        mask = self.a.both(in_points, in_lanes)
        inner = frozenset(range(last + 1, last + 1 + len(nest.inner)))
        parts = ((frozenset(range(last)) | inner, in_points), (frozenset({last}), in_lanes))
        outer = Scope(axes, mask, self.reds, parts=parts)
        self._finish(outer)

    def _finish(self, outer: Scope) -> None:
        """Reductions, then stores."""
        for r in self.nest.reduces:
            self.reds.append(self._reduced(r.kind, r.expr, outer))
        for store in self.nest.stores:
            self._store(store, outer)

    def _windows(self, outer: Scope) -> Iterator[Scope]:
        """The points of the windows, one after the other."""
        first = len(self.nest.outer)
        sizes = [d for d in self.nest.inner if isinstance(d, int)]
        for point in itertools.product(*map(range, sizes)):
            places = {first + i: self.a.of(p, "int32") for i, p in enumerate(point)}
            yield Scope({**outer.axes, **places}, outer.mask, self.reds, parts=outer.parts)

    def _reduced(self, kind: str, e: Expr, outer: Scope) -> Val:
        """The points of each window taken together."""
        type_, total = register_type(e.dtype), neutral(kind, e.dtype)
        for scope in self._windows(outer):
            value = self.emit.value(e, scope)
            total = self.a.put(combined(kind, e.dtype, total, value.text), type_).text
        return self.a.put(f"tl.broadcast_to({total}, [{self.rows}, {self.columns}])", type_)


class _ByteWriter(_LaneWriter):
    """The largest bytes of windows; a lane is a word of four."""

    @property
    def _lanes(self) -> int:
        return super()._lanes // WORD

    def _words(self, spec: TensorSpec) -> tuple[Dim, ...]:
        """The shape of a tensor in words."""
        return (*spec.shape[:-1], self._lanes)

    def _finish(self, outer: Scope) -> None:
        found = _bytes_of(self.kernel)
        assert found is not None
        e, condition = found
        spec = self.kernel.inputs[e.slot]
        signed = "s" if e.dtype is I8 else "u"
        low = LOWEST[e.dtype] & 0xFF
        words = f"in{e.slot}.to(tl.pointer_type(tl.int32), bitcast=True)"
        lowest = int.from_bytes(bytes([low] * WORD), "little", signed=True)
        odd = even = ""
        for scope in self._windows(outer):
            mask = outer.mask
            if condition is not None:
                inside = self.emit.value(condition, scope)
                mask = inside if mask is None else self.a.both(mask, inside)
            index = [self.emit.value(x, scope) for x in e.args]
            at = self.emit.address(index, self._words(spec))
            read = f"tl.load({words} + {at}, mask={mask}, other={lowest})"
            word = self.a.put(read, "int32")
            moved = self.a.put(f"{word} << 8", "int32")
            if odd:
                word = self.a.put(f"max_{signed}16({odd}, {word})", "int32")
                moved = self.a.put(f"max_{signed}16({even}, {moved})", "int32")
            odd, even = word.text, moved.text
        done = self.a.put(f"({odd} & -16711936) | (({even} >> 8) & 16711935)", "int32")
        (store,) = self.nest.stores
        index = [self.emit.value(i, outer) for i in store.index]
        out = self.kernel.outputs[store.slot]
        at = self.emit.address(index, self._words(out))
        self._release()
        target = f"in{len(self.kernel.inputs) + store.slot}"
        self.src.line(
            f"tl.store({target}.to(tl.pointer_type(tl.int32), bitcast=True) + {at}, "
            f"{done}, mask={outer.mask})"
        )
