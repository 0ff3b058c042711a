"""One loop nest as LLVM code, following a schedule.

Rows are the points of the outer axes that are not in the lanes; workers take contiguous runs of
rows, or of the vector axis when rows are few. No split changes the order of any sum: every output
element is computed by the same operations in the same order, whoever computes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import Emitter, Env
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.loops.inner_axes import Passes
from braze.codegen.cpu.loops.normal_form import Form
from braze.codegen.cpu.loops.reduce import Accumulator, State
from braze.codegen.cpu.loops.rows import Part, Rows
from braze.codegen.cpu.loops.schedule import Schedule
from braze.codegen.cpu.loops.window import find_window
from braze.core.dims import Dim, product
from braze.core.dtypes import F32, F64
from braze.expr.affine import content
from braze.expr.fold import leaves
from braze.expr.guards import topological
from braze.expr.loops import Store
from braze.expr.scalar import Expr, axis, dim
from braze.expr.simplify import Linear


class NestWriter(Passes):
    """Writes `form` at the end of `fn`'s current block."""

    def __init__(self, fn: KernelFunction, form: Form, schedule: Schedule, parallel: bool) -> None:
        super().__init__(fn, form, schedule)
        self._form = form
        self.nest = form.nest
        self.specs = form.specs
        self.buffers = [buffer for buffer, _ in form.slots]
        self.parallel = parallel
        env = Env(form.specs, {}, extents=form.extents, buffers=self.buffers)
        self._window = find_window(form, schedule)
        self._points = self._window.points if self._window is not None else ()
        self._base = self._emitter(form, env, self._points)
        written = {self.buffers[s.slot] for s in self.nest.stores}
        roots = [] if self._points else form.roots
        loads = [e for e in topological(roots) if e.op == "load"]
        self._loads = [e for e in loads if self.buffers[e.slot] not in written]
        self._outer = len(self.nest.outer)
        place: Dim = 1
        self._position = Linear(0, {})
        for k in reversed(range(self._outer, len(self.extents))):
            self._position = self._position.plus(Linear(0, {axis(k): place}))
            place = place * self.extents[k]

    def write(self) -> None:
        """The whole nest."""
        rows = [k for k in range(self._outer) if k != self.schedule.vector]
        count: Dim = product(self.extents[k] for k in rows)
        loops = Rows(self.fn, self.extents)
        lanes: Part = (None, None)
        if self._in_rows:
            grain = self.schedule.lanes * self.schedule.unroll
            part, lanes = loops.share(count, self._vector_extent(), grain, self.parallel)
        else:
            part = self.fn.split(self.fn.dim(count)) if self.parallel else (None, None)
        with loops.over(rows, part) as values:
            self._write_row(values, lanes)

    def _write_row(self, values: Mapping[int, ir.Value], lanes: Part) -> None:
        window = self._window
        if window is None or window.inside is None:
            self._finish_row(self._row(self._base, values), lanes)
            return
        axes = {k: (v, False) for k, v in values.items()}
        test = self._base.inside(replace(self._base.env, axes=axes), 1)
        with self.fn.if_else(test.value(window.inside)) as (yes, no):
            with yes:
                # other expressions, other conditions on loads: an emitter of its own
                self._points = window.interior
                base = self._emitter(self._form, self._base.env, window.interior)
                self._finish_row(self._row(base, values), lanes)
            with no:
                self._points = window.points
                self._finish_row(self._row(self._base, values), lanes)

    def _finish_row(self, row: Emitter, lanes: Part) -> None:
        if self._in_rows:
            self._along_vector(row, lanes)
        else:
            self._point([row])

    def _emitter(self, form: Form, env: Env, points: Sequence[Sequence[Expr]]) -> Emitter:
        """The emitter of everything outside the rows."""
        exprs = [e for point in points for e in point]
        stores = [e for s in self.nest.stores for e in (*s.index, s.expr)]
        return Emitter(self.fn, env, 1, [*exprs, *stores] if exprs else form.roots)

    def _row(self, base: Emitter, values: Mapping[int, ir.Value]) -> Emitter:
        axes = {k: (v, False) for k, v in values.items()}
        row = base.inside(replace(base.env, axes=axes), 1)
        self._hoist(row)
        return row

    # -- the vector axis as an outer axis -----------------------------------------------------
    def _along_vector(self, row: Emitter, lanes: Part) -> None:
        begin, end = lanes
        width, unroll = self.schedule.lanes, self.schedule.unroll
        b = self.fn.builder
        extent = self._vector_extent()

        def until(step: int) -> ir.Value:
            if content(extent) % step == 0 and extent != 0:
                return end
            return b.add(begin, b.mul(b.sdiv(b.sub(end, begin), i64(step)), i64(step)))

        whole = until(width * unroll)
        with self.fn.loop(begin, whole, width * unroll) as base:
            self._point([self._group(row, base, k) for k in range(unroll)])
        if content(extent) % (width * unroll) == 0:
            return
        if self.masks and content(extent) % width:
            with self.fn.loop(whole, end, width) as base:
                self._point([self._masked(row, base, end)])
            return
        full = until(width)
        if unroll > 1:
            with self.fn.loop(whole, full, width) as base:
                self._point([self._group(row, base, 0)])
        if content(extent) % width:
            with self.fn.loop(full, end) as base:
                self._point([self._single(row, base)])

    # -- one point of the outer axes ----------------------------------------------------------
    def _point(self, groups: list[Emitter]) -> None:
        """Reductions and stores for the outer points in the lanes of `groups`."""
        if self.nest.inner:
            for g in groups:
                self._hoist(g)
        for numbers in self._reduce_groups():
            results = self._reduce(groups, numbers)
            groups = [
                g.inside(replace(g.env, reds=[*g.env.reds, *r]), g.width)
                for g, r in zip(groups, results, strict=True)
            ]
        for store in self.nest.stores:
            if store.over == "outer":
                for g in groups:
                    self._store(g, store)
        everywhere = [s for s in self.nest.stores if s.over == "all"]
        if everywhere:

            def step(emitter: Emitter, _: int, state: State) -> State:
                for store in everywhere:
                    self._store(emitter, store)
                return state

            self._inside(groups, [[] for _ in range(self._partials(groups))], step)

    def _store(self, emitter: Emitter, store: Store) -> None:
        value = emitter.value(store.expr)
        emitter.memory.store(
            self.buffers[store.slot], self.specs[store.slot], store.index, value, store.mode
        )

    def _reduce_groups(self) -> list[list[int]]:
        """Reductions that can share one pass: none needs another's result."""
        groups: list[list[int]] = []
        scans = any(s.over.startswith("scan") for s in self.nest.stores)
        for number, reduce in enumerate(self.nest.reduces):
            needs = [e.number for e in leaves(reduce.expr, "red")]
            alone = scans and number == len(self.nest.reduces) - 1
            if groups and self._is_float_sum(number) != self._is_float_sum(groups[-1][0]):
                alone = True
            if not groups or alone or any(n >= groups[-1][0] for n in needs):
                groups.append([])
            groups[-1].append(number)
        return groups

    def _is_float_sum(self, number: int) -> bool:
        """True for sums whose rounding errors are worth keeping small."""
        reduce = self.nest.reduces[number]
        return reduce.kind == "sum" and reduce.expr.dtype in (F32, F64)

    def _partials(self, groups: Sequence[Emitter]) -> int:
        """How many partial states a pass over the inner axes carries."""
        return self.schedule.unroll + 1 if self._in_lanes else len(groups)

    def _reduce(self, groups: list[Emitter], numbers: Sequence[int]) -> list[list[ir.Value]]:
        """Results of some reductions, per group of lanes."""
        running = any(s.over.startswith("scan") for s in self.nest.stores)
        accumulators = [Accumulator(self.nest.reduces[n], running) for n in numbers]
        count = self._partials(groups)
        starts: list[State] = []
        for k in range(count):
            width = groups[0].width
            if self._in_lanes:
                width = self.schedule.lanes if k < count - 1 else 1
            starts.append([v for a in accumulators for v in a.start(width)])
        position = self._position.expr() if self.nest.inner else dim(0)

        def advance(emitter: Emitter, state: State, exprs: Sequence[Expr], place: Expr) -> State:
            following: State = []
            for a, n, part in zip(accumulators, numbers, _parts(accumulators, state), strict=True):
                where = emitter.value(place) if a.is_arg else None
                following.extend(a.update(emitter, part, emitter.value(exprs[n]), where))
            return following

        def step(emitter: Emitter, _: int, state: State) -> State:
            self._scan_stores(emitter, numbers, state, "scan_exclusive")
            following = advance(emitter, state, [r.expr for r in self.nest.reduces], position)
            self._scan_stores(emitter, numbers, following, "scan")
            if numbers[-1] == len(self.nest.reduces) - 1:
                for store in self.nest.stores:
                    if store.over == "pass":
                        self._store(emitter, store)
            return following

        if self._points:
            ends = starts
            for number, exprs in enumerate(self._points):
                ends = [
                    advance(g, e, exprs, dim(number)) for g, e in zip(groups, ends, strict=True)
                ]
        else:
            blocks = not running and self._is_float_sum(numbers[0])
            ends = self._inside(groups, starts, step, blocks)
        if not self._in_lanes:
            return [
                [a.result(g, p) for a, p in zip(accumulators, _parts(accumulators, e), strict=True)]
                for g, e in zip(groups, ends, strict=True)
            ]
        return [
            [self._gather_partials(groups[0], accumulators, ends, k) for k in range(len(numbers))]
        ]

    def _gather_partials(
        self, row: Emitter, accumulators: Sequence[Accumulator], ends: list[State], number: int
    ) -> ir.Value:
        """One result from the partial states of lanes and unrolled vectors, in a fixed tree."""
        a = accumulators[number]
        wide = row.inside(row.env, self.schedule.lanes)
        states = [a.settle(wide, _parts(accumulators, e)[number]) for e in ends[:-1]]
        while len(states) > 1:
            states = [a.combine(wide, states[k], states[k + 1]) for k in range(0, len(states), 2)]
        total = a.horizontal(row, states[0])
        if self._has_scalar_tail():
            rest = a.settle(row, _parts(accumulators, ends[-1])[number])
            total = a.combine(row, total, rest)
        return total[-1]

    def _scan_stores(
        self, emitter: Emitter, numbers: Sequence[int], state: State, over: str
    ) -> None:
        stores = [s for s in self.nest.stores if s.over == over]
        if not stores or numbers[-1] != len(self.nest.reduces) - 1:
            return
        running = emitter.inside(
            replace(emitter.env, reds=[*emitter.env.reds, state[-1]]), emitter.width
        )
        for store in stores:
            self._store(running, store)


def _parts(accumulators: Sequence[Accumulator], state: State) -> list[State]:
    """A combined state cut into one state per accumulator."""
    parts, at = [], 0
    for a in accumulators:
        parts.append(state[at : at + a.size])
        at += a.size
    return parts
