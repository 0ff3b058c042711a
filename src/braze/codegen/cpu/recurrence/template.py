"""Recurrences (RNN, GRU, LSTM): tactics and code.

The weights are panels of tiles of hidden units, all gates of a unit in one panel, so that a tile
has what its units' formulas need. Workers share the tiles of a step and meet after each (see
workers.py). No sum is split, and a row is computed alike in every place of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import register_type
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.product.tactics import SMALL_PRODUCTS, choose_lanes, fits_registers
from braze.codegen.cpu.recurrence.form import Form, Places
from braze.codegen.cpu.recurrence.steps import States, Steps, final_row
from braze.codegen.cpu.recurrence.units import Units
from braze.codegen.cpu.recurrence.workers import Team
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.dtypes import F32, F64
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Tactic
from braze.ops.lowering import Operand, RecurrenceSpec

TEMPLATE = "recurrence"
_ASSUMED_ROWS = 4
# Products of a phase below which workers are not worth meeting, which takes about 0.2 us
_SMALL_PHASE = 24576
_BYTE = ir.IntType(8)


def recurrence_support(
    spec: RecurrenceSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None for floats whose rows are contiguous, else why there is no template."""
    if spec.acc not in (F32, F64):
        return f"no recurrence of {inputs[spec.x.slot].dtype}: templates are for floats"
    for name, (operand, _) in spec.operands.items():
        if name not in ("weight", "lens") and operand.strides[-1] != 1:
            return f"the rows of {name} are not contiguous"
    return None


def recurrence_tactics(
    kernel: AnchorKernel, target: CpuTarget, effort: Effort
) -> tuple[Tactic, ...]:
    """Tiles that fit the registers, best estimate first."""
    spec = kernel.spec
    assert isinstance(spec, RecurrenceSpec)
    lanes = choose_lanes(target, spec.acc, spec.hidden)
    found = sorted(_tiles(spec, target, lanes))
    tactics = (
        Tactic(TEMPLATE, (("rows", rows), ("vectors", vectors), ("lanes", lanes)))
        for _, rows, vectors in found
    )
    return tuple(tactics)[: effort.tactics]


def _tiles(spec: RecurrenceSpec, target: CpuTarget, lanes: int) -> Iterator[tuple[float, int, int]]:
    """(estimated cycles for one step of k, rows, vectors)."""
    batch = spec.batch if isinstance(spec.batch, int) else _ASSUMED_ROWS
    gates = spec.gates
    for vectors in (1, 2, 4, 8):
        if vectors > 1 and (vectors - 1) * lanes >= spec.hidden:
            continue
        for rows in range(1, max(1, min(batch, 8)) + 1):
            if not fits_registers(target, rows, gates * vectors):
                continue
            tiles = -(-spec.hidden // (vectors * lanes)) * -(-batch // rows)
            sums = rows * gates * vectors
            cycles = max(sums / 2, (gates * vectors * 3 + rows) / 2, 4.0)
            yield tiles * cycles, rows, vectors


def compile_recurrence(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one recurrence; `tactic` is one of `recurrence_tactics`."""
    spec = kernel.spec
    assert isinstance(spec, RecurrenceSpec)
    form = Form(spec, *(int(tactic[key]) for key in ("rows", "vectors", "lanes")))
    template = _Recurrence(kernel, form, target)
    template.build()
    code, params = template.fn.finish(speed=0)
    launch = HostLaunch(template.parallel, template.places.used)
    packings = ((spec.weight.slot, form.packing),) if template.packed else ()
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch, packings)


def _is_small(form: Form) -> bool:
    """Whether the steps, or all of them, are not worth the meeting of workers."""
    spec = form.spec
    products = spec.hidden * spec.hidden * spec.gates * form.directions * spec.batch
    few = isinstance(products, int) and products < _SMALL_PHASE * len(form.stages)
    whole = products * spec.steps
    short = isinstance(whole, int) and whole <= SMALL_PRODUCTS
    alone = isinstance(form.tasks, int) and form.tasks < 2
    return alone or few or short


class _Recurrence:
    """Builds one kernel."""

    def __init__(self, kernel: AnchorKernel, form: Form, target: CpuTarget) -> None:
        self.form, self.spec = form, form.spec
        assert kernel.epilogue.op in ("hole", "cast"), "a recurrence takes no epilogue"
        self.packed = self.spec.weight.slot in kernel.constant
        self.parallel = not _is_small(form)
        self.places = Places.of(form, self.packed)
        self.slots = {name: o.slot for name, (o, _) in self.spec.operands.items()}
        self.slots["out"] = len(kernel.inputs)
        # workers read what others write
        self.fn = KernelFunction(TEMPLATE, target, len(kernel.inputs) + 2, noalias=False)
        self.element = register_type(self.spec.acc)
        self.base = self.fn.buffer(self.slots["out"] + 1, _BYTE)
        found = {"h": self.places.h, "c": self.places.c, "z": self.places.z, "rh": self.places.rh}
        fn = self.fn
        at = {k: fn.at(self.base, fn.dim(v), _BYTE) for k, v in found.items() if v is not None}
        self.states = States(fn, form, at, self.element)
        if self.places.panels is None:
            self.panels = fn.buffer(self.spec.weight.slot, self.element)
        else:
            self.panels = fn.at(self.base, fn.dim(self.places.panels), _BYTE)

    def build(self) -> None:
        """The whole kernel for one worker."""
        fn, form = self.fn, self.form
        steps = Steps(fn, form, self.states, self.slots, self.panels)
        tasks = fn.dim(form.tasks)
        phases = fn.dim(self.spec.steps * len(form.stages))
        if not self.parallel:
            self._prepare()
            with fn.loop(0, phases) as phase:
                steps.phase(phase, i64(0), tasks)
            return
        team = Team(fn, self.base, self.places.used)
        team.enter(self._prepare)
        team.walk(phases, lambda phase, share: steps.phase(phase, *self._part(tasks, share)))
        team.leave()

    def _part(self, total: ir.Value, share: ir.Value) -> tuple[ir.Value, ir.Value]:
        b, count = self.fn.builder, self.fn.num_workers
        low = b.sdiv(b.mul(total, share), count)
        return low, b.sdiv(b.mul(total, b.add(share, i64(1))), count)

    def _prepare(self) -> None:
        """States before the first step; weights that are not packed yet."""
        spec = self.spec
        self._begin("h", spec.h0)
        if spec.cell == "lstm":
            self._begin("c", spec.c0)
        if not self.packed:
            for stage in range(len(self.form.stages)):
                self._pack(stage)
        if not isinstance(spec.steps, int) or not spec.steps:
            self._finals()

    def _begin(self, name: str, operand: Operand | None) -> None:
        fn, b, form, spec = self.fn, self.fn.builder, self.form, self.spec
        with fn.loop(0, form.directions) as d, fn.loop(0, fn.dim(spec.batch)) as row:
            with fn.loop(0, form.padded, form.lanes) as unit:
                where = fn.at(self.states.row(name, d, row, i64(0)), unit, self.element)
                kind = ir.VectorType(self.element, form.lanes)
                fn.store(ir.Constant(kind, [0.0] * form.lanes), where)
            if operand is None:
                return
            at = b.add(fn.dim(operand.offset), b.mul(d, fn.dim(operand.strides[0])))
            at = b.add(at, b.mul(row, fn.dim(operand.strides[1])))
            with fn.loop(0, spec.hidden, form.lanes) as unit:
                units = Units(fn, form.lanes, spec.hidden, unit)
                value = units.load(self.slots[f"{name}0"], spec.dtype, at)
                where = fn.at(self.states.row(name, d, row, i64(0)), unit, self.element)
                fn.store(value, where)

    def _pack(self, stage: int) -> None:
        """One stage of the layout of `Form`, from weights that are known at run time."""
        fn, b, form, spec = self.fn, self.fn.builder, self.form, self.spec
        stored = Stored(fn, spec.dtype)
        gates, first = len(form.stages[stage]), form.stages[stage][0]
        strides = [fn.dim(s) for s in spec.weight.strides]
        source = stored.buffer(spec.weight.slot, fn.dim(spec.weight.offset))
        target = fn.at(self.panels, form.stage_start(stage), self.element)
        shape = (form.directions, form.tiles, spec.hidden, gates, form.units)
        with (
            fn.loop(0, shape[0]) as d, fn.loop(0, shape[1]) as tile, fn.loop(0, shape[2]) as k,
            fn.loop(0, shape[3]) as gate, fn.loop(0, shape[4]) as unit,
        ):  # fmt: skip
            place: ir.Value = i64(0)
            for index, size in zip((d, tile, k, gate, unit), shape, strict=True):
                place = b.add(b.mul(place, i64(size)), index)
            own = b.add(b.mul(tile, i64(form.units)), unit)
            there = b.icmp_signed("<", own, i64(spec.hidden))
            own = b.select(there, own, i64(0))
            row = b.add(b.mul(b.add(gate, i64(first)), i64(spec.hidden)), own)
            at = b.mul(d, strides[0])
            at = b.add(at, b.add(b.mul(row, strides[1]), b.mul(k, strides[2])))
            value = stored.load(stored.at(source, at))
            zero = ir.Constant(self.element, 0.0)
            fn.store(b.select(there, value, zero), fn.at(target, place, self.element))

    def _finals(self) -> None:
        """The last states where there is no step; else steps write them."""
        fn, b, form, spec = self.fn, self.fn.builder, self.form, self.spec
        rows = fn.dim(spec.batch * form.directions)
        none = b.icmp_signed("==", fn.dim(spec.steps), i64(0))
        kind = ir.VectorType(self.element, form.lanes)
        with fn.if_(none), fn.loop(0, rows) as row:
            d, batch = b.sdiv(row, fn.dim(spec.batch)), b.srem(row, fn.dim(spec.batch))
            for name in ("h", "c")[: spec.finals]:
                offset = final_row(fn, form, name, row)
                state = self.states.row(name, d, batch, i64(0))
                with fn.loop(0, spec.hidden, form.lanes) as unit:
                    units = Units(fn, form.lanes, spec.hidden, unit)
                    value = fn.load(fn.at(state, unit, self.element), kind)
                    units.store(value, self.slots["out"], spec.dtype, offset)
