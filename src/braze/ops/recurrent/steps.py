"""A recurrence as a loop over its steps, for targets without a kernel that walks through time.

An iteration multiplies the state by the weights of the gates and computes what the stages of the
cell say (`cells.py`); directions are loops of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from braze.core.dtypes import I32, I64
from braze.expr.fold import bottom_up
from braze.expr.scalar import COMPARE, UNARY, Expr
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.base import Op
from braze.ops.flow.building import BodyBuilder
from braze.ops.flow.loop import COUNTER, Loop
from braze.ops.index.gather import Gather
from braze.ops.lowering import RecurrenceSpec
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, SizeTensor, reshape, transpose
from braze.ops.move.slice_pad import Slice, slice_axis
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.product.matmul import MatMul
from braze.ops.recurrent.cells import Stage, stages


class Given(NamedTuple):
    """The operands of a Recurrence; see RecurrenceSpec."""

    x: Value
    weight: Value
    bias: Value | None
    lens: Value | None
    h0: Value | None
    c0: Value | None
    peephole: Value | None


def build_steps(spec: RecurrenceSpec, g: GraphBuilder, given: Given) -> Value:
    """The output of the recurrence."""
    directions = range(len(spec.reverse))
    made = [_Direction(spec, d, g, given).run() for d in directions]
    rows: list[Value] = []
    if spec.sequence:
        rows.append(_joined(g, [_with_axis(g, every, 1) for every, _ in made], 1))
    for i in range(spec.finals):
        last = _joined(g, [_with_axis(g, states[i], 0) for _, states in made], 0)
        rows.append(_with_axis(g, last, 0))
    return _joined(g, rows, 0)


def _value(g: GraphBuilder, formula: Expr, reads: Sequence[Value]) -> Value:
    """A formula of a cell as nodes; hole(k) is `reads[k]`."""

    def node(e: Expr, args: tuple[Value, ...]) -> Value:
        if e.op == "hole":
            return reads[e.number]
        if e.op == "const":
            return constant_like(g, float(e.value), e.dtype)
        if e.op == "cast":
            return cast_to(g, args[0], e.dtype)
        return g.add1(_op(e.op), *args)

    return bottom_up(formula, node)


def _op(name: str) -> Op:
    """The op of a scalar operation."""
    if name == "select":
        return Where()
    if name in COMPARE:
        return Compare(name)
    return Unary(name) if name in UNARY else Binary(name)


def _joined(g: GraphBuilder, parts: Sequence[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else g.add1(Concat(axis), *parts)


def _with_axis(g: GraphBuilder, v: Value, axis: int) -> Value:
    return reshape(g, v, (*v.shape[:axis], 1, *v.shape[axis:]))


@dataclass(frozen=True)
class _Direction:
    """One direction of a recurrence."""

    spec: RecurrenceSpec
    number: int
    g: GraphBuilder
    given: Given

    def run(self) -> tuple[Value, list[Value]]:
        """Every h [t, b, unit] (the last h where none is wanted), and the last states [b, unit]."""
        spec, g = self.spec, self.g
        names = "hc" if spec.cell == "lstm" else "h"
        first = [self._first(v) for v in (self.given.h0, self.given.c0)[: len(names)]]
        own = self._own()
        body = BodyBuilder(g, f"{spec.cell} step {self.number}")
        op = Loop(
            (self._body(body, names, own),), True, False, len(names),
            spec.steps if spec.sequence else 0,
        )  # fmt: skip
        trip = g.add1(SizeTensor((spec.steps,), (), I64))
        made = g.add(op, trip, *first, *body.captured)
        states = list(made[: len(names)])
        if not spec.sequence:
            return states[0], states
        every = made[-1]
        if spec.reverse[self.number] and spec.steps != 0:
            every = g.add1(Slice((spec.steps - 1, 0, 0), every.shape, (-1, 1, 1)), every)
        return every, states

    def _first(self, given: Value | None) -> Value:
        if given is not None:
            return self._part(given)
        zero = constant_like(self.g, 0.0, self.spec.dtype)
        return self.g.add1(Expand((self.spec.batch, self.spec.hidden)), zero)

    def _part(self, v: Value) -> Value:
        """What of a tensor is this direction's."""
        return reshape(self.g, slice_axis(self.g, v, 0, self.number, 1), v.shape[1:])

    def _own(self) -> dict[str, Value]:
        """What all steps read besides the input: the weight of each stage, "bias", "p<gate>"."""
        g, spec, units = self.g, self.spec, self.spec.hidden
        found: dict[str, Value] = {}
        weight = self._part(self.given.weight)
        for i, stage in enumerate(stages(spec, self.number)):
            rows = slice_axis(g, weight, 0, stage.gates[0] * units, len(stage.gates) * units)
            found[f"weight{i}"] = transpose(g, rows, (1, 0))
        if self.given.bias is not None:
            found["bias"] = cast_to(g, self._part(self.given.bias), spec.acc)
        if self.given.peephole is not None:
            all_gates = cast_to(g, self._part(self.given.peephole), spec.acc)
            for gate in range(3):
                found[f"p{gate}"] = slice_axis(g, all_gates, 0, gate * units, units)
        return found

    def _body(self, body: BodyBuilder, names: str, own: Mapping[str, Value]) -> Graph:
        """The states behind a step, and h as its slice where the sequence is wanted."""
        g, spec = body.builder, self.spec
        at = g.input("iteration", COUNTER)
        state = TensorType(spec.dtype, (spec.batch, spec.hidden))
        before = {name: g.input(name, state) for name in names}
        if spec.reverse[self.number]:
            at = g.add1(Binary("sub"), g.add1(SizeTensor((spec.steps - 1,), (), I64)), at)
        values = {k: cast_to(g, v, spec.acc) for k, v in before.items()}
        values |= {k: body.capture(v) for k, v in own.items()}
        x = g.add1(Gather(0), body.capture(self.given.x), at)
        for gate in range(spec.gates):
            start = (self.number * spec.gates + gate) * spec.hidden
            values[f"x{gate}"] = self._columns(g, x, start)
        for i, stage in enumerate(stages(spec, self.number)):
            self._stage(g, stage, values, values[f"weight{i}"])
        after = {name: cast_to(g, values[name], spec.dtype) for name in names}
        active = self._active(body, at)
        made = dict(after)
        if active is not None:
            made = {k: g.add1(Where(), active, v, before[k]) for k, v in after.items()}
        outputs = list(made.items())
        if spec.sequence:
            every = after["h"]
            if active is not None:
                every = g.add1(Where(), active, every, constant_like(g, 0.0, spec.dtype))
            outputs.append(("slice", every))
        return g.finish(outputs)

    def _columns(self, g: GraphBuilder, x: Value, start: int) -> Value:
        """What a gate has of all gates, in the type of sums."""
        return cast_to(g, slice_axis(g, x, 1, start, self.spec.hidden), self.spec.acc)

    def _stage(
        self, g: GraphBuilder, stage: Stage, values: dict[str, Value], weight: Value
    ) -> None:
        """Put what the stage makes into `values`."""
        source = cast_to(g, values[stage.source], self.spec.dtype)
        sums = g.add1(MatMul(), source, weight)
        for k, gate in enumerate(stage.gates):
            values[f"sum{gate}"] = self._columns(g, sums, k * self.spec.hidden)
        reads = [values[name] for name in stage.reads]
        made = {name: _value(g, formula, reads) for name, formula in stage.makes}
        values.update(made)

    def _active(self, body: BodyBuilder, at: Value) -> Value | None:
        """Whether rows have a step `at`, [b, 1]."""
        if self.given.lens is None:
            return None
        g = body.builder
        lens = reshape(g, body.capture(self.given.lens), (self.spec.batch, 1))
        return g.add1(Compare("lt"), cast_to(g, at, I32), lens)
