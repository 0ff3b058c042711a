"""Passes over the inner axes of a nest, and the emitters of groups of lanes.

Long sums are cut into blocks whose partial sums are added up, and those of a great many blocks in
blocks again: the error of a sum grows with its longest chain of additions. The cut depends on sizes
only, never on workers or lanes; a size that is not known is cut as if it were large, which gives
the bits of the cut that it needs, as what is added then is one part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import Emitter
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.loops.normal_form import Form
from braze.codegen.cpu.loops.reduce import State
from braze.codegen.cpu.loops.schedule import Schedule
from braze.core.dims import Dim, floordiv
from braze.expr.affine import content
from braze.expr.scalar import Expr

# step(emitter of one group of lanes, its number, state) -> state
Step = Callable[[Emitter, int, State], State]
# additions in one chain before its partial sum is put aside
_CHAIN = 32
_LEVELS = 2  # of blocks


class Passes:
    """Runs steps at every inner point of one nest under a schedule."""

    def __init__(self, fn: KernelFunction, form: Form, schedule: Schedule) -> None:
        self.fn = fn
        self.extents = form.extents
        self.schedule = schedule
        self.masks = fn.target.features.has_masks and not self._one_is_left()
        outer = len(form.nest.outer)
        self._in_rows = schedule.vector is not None and schedule.vector < outer
        self._inner = [k for k in form.extents if k >= outer and k != schedule.vector]
        self._loads: list[Expr] = []

    @property
    def _in_lanes(self) -> bool:
        """True when the vector axis is an inner one."""
        return self.schedule.vector is not None and not self._in_rows

    def _hoist(self, emitter: Emitter) -> None:
        """Make the loads that deeper loops will not change, now."""
        known = {("axis", k) for k in emitter.env.axes}
        known |= {("red", k) for k in range(len(emitter.env.reds))}
        for e in self._loads:
            if emitter.leaves(e) <= known:
                emitter.value(e)

    def _one_is_left(self) -> bool:
        """Whether whole vectors leave exactly one element, which then is computed by itself.

        It is cheaper than a vector under a mask, and LLVM 22 gets the store of that vector wrong
        where its lanes were truncated (bfloat16, 8- and 16-bit integers): for a constant mask of
        one lane it writes 32 bits, over what stands behind the row.
        """
        if self.schedule.vector is None:
            return False
        extent = self._vector_extent()
        return isinstance(extent, int) and extent % self.schedule.lanes == 1

    def _vector_extent(self) -> Dim:
        assert self.schedule.vector is not None
        return self.extents[self.schedule.vector]

    def _group(self, outer: Emitter, base: ir.Value, number: int) -> Emitter:
        """The emitter of lanes number * width ... from `base`."""
        width = self.schedule.lanes
        start = self.fn.builder.add(base, i64(number * width)) if number else base
        return self._lanes(outer, start, width, None)

    def _masked(self, outer: Emitter, base: ir.Value, end: ir.Value) -> Emitter:
        lanes = outer.inside(outer.env, self.schedule.lanes).lanes
        left = lanes.splat(self.fn.builder.sub(end, base))
        mask = self.fn.builder.icmp_signed("<", lanes.lane_numbers(), left)
        return self._lanes(outer, base, self.schedule.lanes, mask)

    def _single(self, outer: Emitter, base: ir.Value) -> Emitter:
        return self._lanes(outer, base, 1, None)

    def _lanes(self, outer: Emitter, start: ir.Value, width: int, mask: ir.Value | None) -> Emitter:
        assert self.schedule.vector is not None
        axes = {**outer.env.axes, self.schedule.vector: (start, width > 1)}
        env = replace(outer.env, axes=axes, mask=mask, aligned=width > 1)
        return outer.inside(env, width)

    def _inside(
        self, groups: list[Emitter], states: list[State], step: Step, blocks: bool = False
    ) -> list[State]:
        """Run `step` at every inner point; returns the last states.

        blocks: the states are float sums that start at zero, to be added up in blocks.
        """
        return self._inner_axes(groups, list(self._inner), states, step, blocks)

    def _inner_axes(
        self,
        groups: list[Emitter],
        axes: list[int],
        states: list[State],
        step: Step,
        blocks: bool,
    ) -> list[State]:
        if not axes:
            if self._in_lanes:
                return self._inner_vector(groups[0], states, step, blocks)
            return [step(g, k, s) for k, (g, s) in enumerate(zip(groups, states, strict=True))]
        nested = len(axes) > 1 or self._in_lanes

        def body(index: ir.Value, now: list[State]) -> list[State]:
            deeper = []
            for g in groups:
                env = replace(g.env, axes={**g.env.axes, axes[0]: (index, False)})
                deeper.append(g.inside(env, g.width))
                self._hoist(deeper[-1])
            if blocks and nested:
                part = self._inner_axes(deeper, axes[1:], states, step, True)
                return self._added(now, part)
            return self._inner_axes(deeper, axes[1:], now, step, blocks)

        extent = self.extents[axes[0]]
        levels = _levels(extent) if blocks else 0
        return self._count((i64(0), self.fn.dim(extent), 1), states, body, levels)

    def _count(
        self,
        over: tuple[ir.Value, ir.Value, int],
        states: list[State],
        body: Callable[[ir.Value, list[State]], list[State]],
        levels: int,
    ) -> list[State]:
        """for index in range(*over): states = body(index, states); in so many levels of blocks."""
        begin, end, step = over
        if levels == 0:
            with self.fn.carry_loop(begin, end, step, _flat(states)) as it:
                it.next = _flat(body(it.index, _like(states, it.values)))
            return _like(states, it.results)
        length = _CHAIN**levels * step
        with self.fn.carry_loop(begin, end, length, _flat(states)) as it:
            stop = self.fn.minimum(self.fn.builder.add(it.index, i64(length)), end)
            part = self._count((it.index, stop, step), states, body, levels - 1)
            it.next = _flat(self._added(_like(states, it.values), part))
        return _like(states, it.results)

    def _added(self, totals: list[State], parts: list[State]) -> list[State]:
        add = self.fn.builder.fadd
        return [
            [add(t, p) for t, p in zip(total, part, strict=True)]
            for total, part in zip(totals, parts, strict=True)
        ]

    def _inner_vector(
        self, row: Emitter, states: list[State], step: Step, blocks: bool
    ) -> list[State]:
        """The vector axis as the innermost loop; states: one per unrolled vector, one scalar."""
        width, unroll = self.schedule.lanes, self.schedule.unroll
        extent = self._vector_extent()
        end = self.fn.dim(extent)
        whole, full = self._floor(extent, width * unroll), self._floor(extent, width)

        def vectors(index: ir.Value, now: list[State]) -> list[State]:
            groups = [self._group(row, index, k) for k in range(unroll)]
            return [step(g, k, now[k]) for k, g in enumerate(groups)]

        step_of_all = width * unroll
        levels = _levels(floordiv(extent, step_of_all)) if blocks else 0
        wide = self._count((i64(0), whole, step_of_all), states[:-1], vectors, levels)
        states = [*wide, states[-1]]
        if content(extent) % (width * unroll) == 0:
            return states
        if unroll > 1 or self.masks:
            masked = self.masks and content(extent) % width != 0
            stop = end if masked else full
            with self.fn.carry_loop(whole, stop, width, states[0]) as it:
                make = self._masked(row, it.index, end) if masked else self._group(row, it.index, 0)
                it.next = step(make, 0, list(it.values))
            states = [list(it.results), *states[1:]]
        if self._has_scalar_tail():
            with self.fn.carry_loop(full, end, 1, states[-1]) as it:
                it.next = step(self._single(row, it.index), unroll, list(it.values))
            states = [*states[:-1], list(it.results)]
        return states

    def _has_scalar_tail(self) -> bool:
        return not self.masks and content(self._vector_extent()) % self.schedule.lanes != 0

    def _floor(self, extent: Dim, step: int) -> ir.Value:
        """The largest multiple of `step` in `extent`."""
        if isinstance(extent, int):
            return i64(extent // step * step)
        size = self.fn.dim(extent)
        if content(extent) % step == 0:
            return size
        b = self.fn.builder
        return b.mul(b.sdiv(size, i64(step)), i64(step))


def _levels(count: Dim) -> int:
    """Levels of blocks for `count` additions."""
    if not isinstance(count, int):
        return _LEVELS
    return next(n for n in range(_LEVELS + 1) if n == _LEVELS or count <= _CHAIN ** (n + 1))


def _flat(states: Sequence[State]) -> State:
    return [v for s in states for v in s]


def _like(states: Sequence[State], values: Sequence[ir.Value]) -> list[State]:
    """`values` cut into states as long as those of `states`."""
    cut, at = [], 0
    for s in states:
        cut.append(list(values[at : at + len(s)]))
        at += len(s)
    return cut
