"""Accumulators of reductions: start values, updates, and combination of partial results.

The state of a reduction is a list of values: [result]; [best value, its position] for the arg
kinds; [extreme of the numbers, was there a NaN] for the extremes of floats, so that the values that
depend on each other from point to point are one instruction apart. Lanes of a vector state are
partial results that `horizontal` combines in a fixed tree.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from braze.codegen.cpu.llvm.emit import Emitter, register_type
from braze.codegen.cpu.llvm.function import I1, I32, I64
from braze.codegen.cpu.llvm.vector import Lanes, constant, is_vector
from braze.core.dtypes import BOOL, DType
from braze.expr.loops import Reduce

State = list[Any]


def start_value(kind: str, dtype: DType) -> bool | int | float:
    """The neutral element of a reduction kind."""
    if kind in ("sum", "prod"):
        return 0 if kind == "sum" else 1
    low = kind.startswith(("max", "argmax"))
    if dtype.is_float:
        return -math.inf if low else math.inf
    if dtype is BOOL:
        return not low
    top: int = 1 << (dtype.bits - 1 if dtype.is_signed else dtype.bits)
    if not low:
        return top - 1
    return -top if dtype.is_signed else 0


class Accumulator:
    """One reduction at a given vector width (1 for scalars)."""

    def __init__(self, reduce: Reduce, running: bool = False) -> None:
        """running: every state is looked at (scans), so it must be the result itself."""
        self.kind = reduce.kind
        self.dtype = reduce.expr.dtype
        self.is_arg = reduce.kind.startswith("arg")
        self._last = reduce.kind.endswith("_last")
        self._op = ">" if "max" in reduce.kind else "<"
        self._flags = self.dtype.is_float and reduce.kind in ("max", "min") and not running
        self.size = 2 if self.is_arg or self._flags else 1

    def start(self, width: int) -> State:
        """The state before any point."""
        kind = register_type(self.dtype)
        value: ir.Type = ir.VectorType(kind, width) if width > 1 else kind
        state: State = [constant(value, start_value(self.kind, self.dtype))]
        if self.is_arg:
            index: ir.Type = ir.VectorType(I64, width) if width > 1 else I64
            state.append(constant(index, 0))
        if self._flags:
            state.append(constant(ir.VectorType(I1, width) if width > 1 else I1, 0))
        return state

    def update(
        self, emitter: Emitter, state: State, value: ir.Value, position: ir.Value | None
    ) -> State:
        """The state after one more point per lane; lanes outside the mask keep theirs."""
        lanes = emitter.lanes
        mask = emitter.env.mask if is_vector(state[0]) else None
        if is_vector(state[0]):
            value = lanes.splat(value)
        if self._flags:
            nan, better = lanes.is_nan(value), lanes.compare(self._op, value, state[0])
            if mask is not None:
                nan, better = lanes.both(mask, nan), lanes.both(mask, better)
            return [lanes.select(better, value, state[0]), lanes.either(state[1], nan)]
        if not self.is_arg:
            new = emitter.memory.update(self.kind, state[0], value, self.dtype)
            return [new if mask is None else lanes.select(mask, new, state[0])]
        better = self._better(lanes, value, state[0])
        if mask is not None:
            better = lanes.both(mask, better)
        assert position is not None
        return [
            lanes.select(better, value, state[0]),
            lanes.select(better, position, state[1]),
        ]

    def _better(self, a: Lanes, value: ir.Value, best: ir.Value) -> ir.Value:
        """Whether a later point replaces the best one so far."""
        op = self._op + "=" if self._last else self._op
        better = a.compare(op, value, best, self.dtype.is_signed)
        if not self.dtype.is_float:
            return better
        nan = a.is_nan(value)
        if not self._last:
            nan = a.both(nan, a.compare("==", best, best))
        return a.either(better, nan)

    def combine(self, emitter: Emitter, x: State, y: State) -> State:
        """Two partial results as one (of states that `settle` gave)."""
        a = emitter.lanes
        if len(x) == 1:
            return [emitter.memory.update(self.kind, x[0], y[0], self.dtype)]
        strictly = a.compare(self._op, y[0], x[0], self.dtype.is_signed)
        same = a.compare("==", x[0], y[0], self.dtype.is_signed)
        if self.dtype.is_float:
            x_nan, y_nan = a.is_nan(x[0]), a.is_nan(y[0])
            strictly = a.either(strictly, a.both(y_nan, a.compare("==", x[0], x[0])))
            same = a.either(same, a.both(x_nan, y_nan))
        nearer = a.compare(">" if self._last else "<", y[1], x[1])
        take = a.either(strictly, a.both(same, nearer))
        return [a.select(take, y[0], x[0]), a.select(take, y[1], x[1])]

    def settle(self, emitter: Emitter, state: State) -> State:
        """The state with NaN in its place."""
        if not self._flags:
            return state
        lanes = emitter.lanes
        return [lanes.select(state[1], lanes.const(state[0], math.nan), state[0])]

    def horizontal(self, emitter: Emitter, state: State) -> State:
        """All lanes of a vector state as one scalar state."""
        while is_vector(state[0]):
            low, high = zip(*(_halves(emitter, v) for v in state), strict=True)
            state = self.combine(emitter, list(low), list(high))
        return state

    def result(self, emitter: Emitter, state: State) -> ir.Value:
        """The value of the reduction."""
        return self.settle(emitter, state)[-1]


def _halves(emitter: Emitter, v: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The lower and the upper half of a vector (scalars once two lanes are left)."""
    b = emitter.fn.builder
    half = v.type.count // 2
    if half == 1:
        first, second = (b.extract_element(v, ir.Constant(I32, k)) for k in range(2))
        return first, second
    none = ir.Constant(v.type, ir.Undefined)
    parts = []
    for start in (0, half):
        order = ir.Constant(ir.VectorType(I32, half), list(range(start, start + half)))
        parts.append(b.shuffle_vector(v, none, order))
    return parts[0], parts[1]
