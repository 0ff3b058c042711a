"""One stage of one step: recurrent sums on the register tile, then the formulas of the cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import Emitter, Env, register_type
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.product.ahead import fetch_line
from braze.codegen.cpu.product.register_tile import Tile, TileShape, accumulate, zero_tile
from braze.codegen.cpu.recurrence.form import Form
from braze.codegen.cpu.recurrence.units import Units
from braze.ops.lowering import Operand
from braze.ops.recurrent.cells import Stage, stages

_BYTE = ir.IntType(8)
_LINE = 64
_AHEAD = 4096  # bytes: some ten lines are on their way from the third-level cache
Fetch = Callable[[ir.Value], None]


class States:
    """Rows of `padded` units in scratch, by name; "h" has a copy for each parity of the step."""

    def __init__(
        self, fn: KernelFunction, form: Form, places: Mapping[str, ir.Value], element: ir.Type
    ) -> None:
        self.fn, self.form, self.places, self.element = fn, form, places, element

    def row(self, name: str, d: ir.Value, batch: ir.Value, parity: ir.Value) -> ir.Value:
        """The row of one direction and batch index; parity counts for "h" alone."""
        fn, b, form = self.fn, self.fn.builder, self.form
        number = b.add(b.mul(d, fn.dim(form.spec.batch)), batch)
        if name == "h":
            copy = fn.dim(form.spec.batch * form.directions)
            number = b.add(number, b.mul(b.and_(parity, i64(1)), copy))
        return fn.at(self.places[name], b.mul(number, i64(form.padded)), self.element)


def final_row(fn: KernelFunction, form: Form, name: str, row: ir.Value) -> ir.Value:
    """Where a last state begins in the output; row: direction and batch index."""
    b, spec = fn.builder, form.spec
    front = (spec.steps * spec.sequence + ("h", "c").index(name)) * form.directions * spec.batch
    return b.mul(b.add(fn.dim(front), row), i64(spec.hidden))


class Steps:
    """Emits stages. slots: of each operand by name, and of "out"; panels: the packed weights."""

    def __init__(
        self,
        fn: KernelFunction,
        form: Form,
        states: States,
        slots: Mapping[str, int],
        panels: ir.Value,
    ) -> None:
        self.fn, self.form, self.spec = fn, form, form.spec
        self.states, self.slots, self.panels = states, slots, panels
        self.element = register_type(self.spec.acc)
        count = max(len(gates) for gates in form.stages)
        self.sums = fn.alloca(self.element, form.rows * count * form.units)

    def phase(self, phase: ir.Value, low: ir.Value, high: ir.Value) -> None:
        """Tasks low .. high-1 of a phase: stage `phase` % stages of a step."""
        fn, b, count = self.fn, self.fn.builder, len(self.form.stages)
        if count == 1:
            self._tasks(0, phase, low, high)
            return
        step = b.sdiv(phase, i64(2))
        with fn.if_else(b.icmp_signed("==", b.srem(phase, i64(2)), i64(0))) as (first, second):
            with first:
                self._tasks(0, step, low, high)
            with second:
                self._tasks(1, step, low, high)

    def _tasks(self, stage: int, step: ir.Value, low: ir.Value, high: ir.Value) -> None:
        """Groups of rows of a tile come one after the other: its weights are in the cache."""
        fn, b, form = self.fn, self.fn.builder, self.form
        groups, tiles = fn.dim(form.groups), i64(form.tiles)
        own = [stages(self.spec, d)[stage] for d in range(form.directions)]
        with fn.loop(low, high) as task:
            row = b.mul(b.srem(task, groups), i64(form.rows))
            rest = b.sdiv(task, groups)
            tile, d = b.srem(rest, tiles), b.sdiv(rest, tiles)
            self._each_way(stage, own, step, (d, tile, row))

    def _each_way(
        self, number: int, own: Sequence[Stage], step: ir.Value, place: tuple[ir.Value, ...]
    ) -> None:
        """One code for all directions, or one for each where their formulas differ."""
        if own[0] == own[-1]:
            self._task(number, own[0], step, place)
            return
        fn, b = self.fn, self.fn.builder
        with fn.if_else(b.icmp_signed("==", place[0], i64(0))) as (first, second):
            with first:
                self._task(number, own[0], step, place)
            with second:
                self._task(number, own[1], step, place)

    def _task(self, number: int, stage: Stage, step: ir.Value, place: tuple[ir.Value, ...]) -> None:
        """place: direction, tile, first row."""
        fn, b, form = self.fn, self.fn.builder, self.form
        d, tile, row = place
        index = b.add(b.mul(d, i64(form.tiles)), tile)
        start = b.add(b.mul(index, i64(form.panel_elements(number))), i64(form.stage_start(number)))
        panel = fn.at(self.panels, start, self.element)
        count = fn.minimum(b.sub(fn.dim(self.spec.batch), row), i64(form.rows))
        self._sums(stage, panel, step, (d, row, count))
        t = self._time(step, d)
        first = b.mul(tile, i64(form.units))
        left = b.sub(i64(self.spec.hidden), first)
        vectors = b.sdiv(b.add(left, i64(form.lanes - 1)), i64(form.lanes))
        vectors = fn.minimum(vectors, i64(form.vectors))
        with fn.loop(0, count) as r, fn.loop(0, vectors) as v:
            inner = b.mul(v, i64(form.lanes))
            units = Units(fn, form.lanes, self.spec.hidden, b.add(first, inner))
            _Update(self, stage, units, (t, step, d, b.add(row, r)), (r, inner)).emit()

    def _time(self, step: ir.Value, d: ir.Value) -> ir.Value:
        """Which step of the sequence a direction is at."""
        b, reverse = self.fn.builder, self.spec.reverse
        back = b.sub(b.sub(self.fn.dim(self.spec.steps), i64(1)), step)
        if len(reverse) == 1:
            return back if reverse[0] else step
        at = [back if r else step for r in reverse]
        return b.select(b.icmp_signed("==", d, i64(0)), at[0], at[1])

    def _sums(
        self, stage: Stage, panel: ir.Value, step: ir.Value, rows: tuple[ir.Value, ...]
    ) -> None:
        """The recurrent sums of a tile, into `self.sums`; rows: direction, first row, count."""
        fn, b, form = self.fn, self.fn.builder, self.form
        d, first, count = rows
        whole, batch = form.rows, self.spec.batch
        left = batch % whole if isinstance(batch, int) else None
        if left == 0 or (whole == 1):
            self._tile(stage, panel, step, (d, first, i64(0)), whole)
            return
        with fn.if_else(b.icmp_signed("==", count, i64(whole))) as (full, rest):
            with full:
                self._tile(stage, panel, step, (d, first, i64(0)), whole)
            with rest:
                if left is not None:
                    self._tile(stage, panel, step, (d, first, i64(0)), left)
                else:
                    with fn.loop(0, count) as r:
                        self._tile(stage, panel, step, (d, b.add(first, r), r), 1)

    def _tile(
        self,
        stage: Stage,
        panel: ir.Value,
        step: ir.Value,
        at: tuple[ir.Value, ir.Value, ir.Value],
        count: int,
    ) -> None:
        """`count` rows; at: direction, first row, its place in `self.sums`."""
        fn, b, form = self.fn, self.fn.builder, self.form
        d, first, place = at
        wide = len(stage.gates) * form.vectors
        shape = TileShape(count, wide, form.lanes, self.spec.acc, self.spec.acc)
        rows = [self.states.row(stage.source, d, b.add(first, i64(r)), step) for r in range(count)]
        tile = _blocked(fn, shape, rows, panel, self.spec.hidden, self.spec.block, self._ahead)
        start = fn.at(self.sums, b.mul(place, i64(wide * form.lanes)), self.element)
        for r, line in enumerate(tile):
            for v, value in enumerate(line):
                fn.store(value, fn.at(start, (r * wide + v) * form.lanes, self.element))

    def _ahead(self, shape: TileShape, panel: ir.Value) -> Fetch | None:
        """What a step of one row fetches besides, where no second-level cache holds the weights:
        what lies `_AHEAD` bytes behind its own part of the panel."""
        fn, form = self.fn, self.form
        held = form.stage_start(len(form.stages)) * self.spec.acc.itemsize
        if shape.rows > 1 or held <= fn.target.l2_bytes * fn.target.threads:
            return None
        line = shape.columns * self.spec.acc.itemsize

        def fetch(k: ir.Value) -> None:
            start = fn.builder.mul(k, i64(line))
            for at in range(_AHEAD, _AHEAD + line, _LINE):
                place = fn.builder.add(start, i64(at))
                fetch_line(fn, fn.builder.gep(panel, [place], source_etype=_BYTE))

        return fetch


def _blocked(
    fn: KernelFunction,
    shape: TileShape,
    rows: Sequence[ir.Value],
    panel: ir.Value,
    depth: int,
    block: int,
    ahead: Callable[[TileShape, ir.Value], Fetch | None],
) -> Tile:
    """Sums over `depth` terms, block by block (see ops/operands.py); ahead: see Steps."""
    b, width, empty = fn.builder, shape.columns, zero_tile(shape, shape.rows, shape.vectors)
    if depth <= block:
        return accumulate(fn, shape, rows, panel, width, depth, empty, ahead(shape, panel))
    flat = [value for line in empty for value in line]
    with fn.carry_loop(0, depth, block, flat) as it:
        terms = fn.minimum(b.sub(i64(depth), it.index), i64(block))
        moved = [fn.at(row, it.index, shape.element) for row in rows]
        source = fn.at(panel, b.mul(it.index, i64(width)), shape.element)
        part = accumulate(fn, shape, moved, source, width, terms, empty, ahead(shape, source))
        sums = [value for line in part for value in line]
        it.next = [b.fadd(x, y) for x, y in zip(it.values, sums, strict=True)]
    vectors = shape.vectors
    return [it.results[r * vectors : (r + 1) * vectors] for r in range(shape.rows)]


class _Update:
    """The formulas of a stage for one vector of units of one row.

    place: (t, step, direction, batch index); inside: (row, first unit) in the tile's sums.
    """

    def __init__(
        self,
        steps: Steps,
        stage: Stage,
        units: Units,
        place: tuple[ir.Value, ...],
        inside: tuple[ir.Value, ir.Value],
    ) -> None:
        self.s, self.stage, self.units = steps, stage, units
        self.t, self.step, self.d, self.batch = place
        self.inside = inside
        self.fn, self.form, self.spec = steps.fn, steps.form, steps.spec

    def emit(self) -> None:
        """Read, compute, and write what the stage makes."""
        b, lanes = self.fn.builder, self.form.lanes
        holes = [self._read(name) for name in self.stage.reads]
        roots = [e for _, e in self.stage.makes]
        emitter = Emitter(self.fn, Env((), {}, holes), lanes, roots)
        active = self._active()
        for name, e in self.stage.makes:
            value = emitter.lanes.splat(emitter.value(e))
            shown = value
            if name in ("h", "c") and active is not None:
                old = self._read(name)
                zero = ir.Constant(value.type, [0.0] * lanes)
                shown, value = b.select(active, value, zero), b.select(active, value, old)
            parity = b.add(self.step, i64(1))
            self.fn.store(value, self._state(name, parity))
            if name == "h" and self.spec.sequence:
                self._show(shown)
            if name in ("h", "c")[: self.spec.finals]:
                self._finish(name, value)

    def _show(self, value: ir.Value) -> None:
        """Write a row of the sequence."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        row = b.add(b.mul(self.t, i64(self.form.directions)), self.d)
        row = b.add(b.mul(row, fn.dim(spec.batch)), self.batch)
        self.units.store(value, self.s.slots["out"], spec.dtype, b.mul(row, i64(spec.hidden)))

    def _finish(self, name: str, value: ir.Value) -> None:
        """Write a state behind the sequence, after the last step."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        last = b.sub(fn.dim(spec.steps), i64(1))
        with fn.if_(b.icmp_signed("==", self.step, last)):
            row = b.add(b.mul(self.d, fn.dim(spec.batch)), self.batch)
            offset = final_row(fn, self.form, name, row)
            self.units.store(value, self.s.slots["out"], spec.dtype, offset)

    def _active(self) -> ir.Value | None:
        """Whether the row has not ended."""
        operand = self.spec.lens
        if operand is None:
            return None
        fn, b, kind = self.fn, self.fn.builder, ir.IntType(32)
        where = b.add(b.mul(self.batch, fn.dim(operand.strides[0])), fn.dim(operand.offset))
        count = fn.load(fn.at(fn.buffer(self.s.slots["lens"], kind), where, kind), kind)
        return b.icmp_signed("<", self.t, b.sext(count, ir.IntType(64)))

    def _state(self, name: str, parity: ir.Value) -> ir.Value:
        row = self.s.states.row(name, self.d, self.batch, parity)
        return self.fn.at(row, self.units.first, self.s.element)

    def _read(self, name: str) -> ir.Value:
        fn, b, spec, form = self.fn, self.fn.builder, self.spec, self.form
        kind = ir.VectorType(self.s.element, form.lanes)
        if name in ("h", "c", "z"):
            return fn.load(self._state(name, self.step), kind)
        if name == "bias":
            assert spec.bias is not None
            return self._operand("bias", spec.bias, (self.d,), 0)
        gate = int(name[-1])
        if name.startswith("p"):
            assert spec.peephole is not None
            return self._operand("peephole", spec.peephole, (self.d,), i64(gate * spec.hidden))
        if name.startswith("x"):
            number = b.add(b.mul(self.d, i64(spec.gates)), i64(gate))
            at = b.mul(number, i64(spec.hidden))
            return self._operand("x", spec.x, (self.t, self.batch), at)
        wide, (row, first) = len(self.stage.gates), self.inside
        line = b.add(b.mul(row, i64(wide)), i64(self.stage.gates.index(gate)))
        where = b.add(b.mul(line, i64(form.units)), first)
        return fn.load(fn.at(self.s.sums, where, self.s.element), kind)

    def _operand(
        self, name: str, operand: Operand, index: Sequence[ir.Value], shift: ir.Value | int
    ) -> ir.Value:
        """A vector of an operand whose last axis has unit steps, `shift` behind its row's begin."""
        fn, b = self.fn, self.fn.builder
        at = fn.dim(operand.offset)
        for i, stride in zip(index, operand.strides[:-1], strict=True):
            at = b.add(at, b.mul(i, fn.dim(stride)))
        if not isinstance(shift, int):
            at = b.add(at, shift)
        return self.units.load(self.s.slots[name], self.spec.dtype, at)
