"""Recurrence: the part of RNN, GRU and LSTM that walks through time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import I32
from braze.core.errors import DTypeError, ShapeError
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, Op
from braze.ops.lowering import (
    RECURRENT_GATES,
    Anchor,
    Decompose,
    Lowering,
    Operand,
    RecurrenceSpec,
)
from braze.ops.operands import row_major_strides
from braze.ops.recurrent.cells import NumpyCell
from braze.ops.recurrent.steps import Given, build_steps
from braze.ops.writing.arguments import Arrays, Types, array_of, type_of
from braze.ops.writing.precision import compute_type, narrow, require_float, same_dtype, widen

# positions of the operands: what stands behind the weight may be absent
INPUTS = ("x", "weight", "bias", "lens", "h0", "c0", "peephole")


@dataclass(frozen=True)
class Recurrence(Op):
    """States of a cell step by step: [t, d, b, unit], and behind them the last of all (`finals`).

    Inputs: x [t, b, d * gates * unit], the products of the input with bias; weight [d, gates *
    unit, unit]; and those of INPUTS that are there. Fields and meaning are RecurrenceSpec's.
    """

    cell: str
    reverse: tuple[bool, ...]
    activations: tuple[str, ...]
    clip: float
    reset_after: bool
    coupled: bool
    sequence: bool
    finals: int

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        x, weight = type_of(inputs, 0), type_of(inputs, 1)
        if x.rank != 3 or weight.rank != 3:
            raise ShapeError("Recurrence: x and the weight need rank 3")
        steps, batch, wide = x.shape
        hidden, count = weight.shape[2], len(self.reverse)
        gates = RECURRENT_GATES[self.cell]
        ctx.unify(wide, hidden * gates * count, f"{self.cell} gates of the input")
        shapes: tuple[tuple[Dim, ...], ...] = (
            x.shape,
            (count, hidden * gates, hidden),
            (count, hidden),
            (batch,),
            (count, batch, hidden),
            (count, batch, hidden),
            (count, hidden * 3),
        )
        floats = []
        for name, t, shape in zip(INPUTS, inputs, shapes, strict=False):
            if t is None:
                continue
            if t.rank != len(shape):
                raise ShapeError(f"Recurrence: {name} has rank {t.rank}; rank {len(shape)} fits")
            for d, size in zip(t.shape, shape, strict=True):
                ctx.unify(d, size, f"{self.cell} {name}")
            if name != "lens":
                floats.append(t)
            elif t.dtype is not I32:
                raise DTypeError(f"Recurrence: sequence lengths are {t.dtype}; insert a Cast")
        dtype = same_dtype(floats, self.cell.upper())
        require_float(dtype, self.cell.upper())
        rows = steps * self.sequence + self.finals
        return (TensorType(dtype, (rows, count, batch, hidden)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = array_of(inputs, 0)
        given = [*inputs, *(None,) * (len(INPUTS) - len(inputs))]
        steps, batch = x.shape[:2]
        hidden = array_of(inputs, 1).shape[2]
        shape = (steps * self.sequence + self.finals, len(self.reverse), batch, hidden)
        out = np.zeros(shape, x.dtype)
        for d in range(len(self.reverse)):
            self._direction(d, x, given, out)
        return (out,)

    def _direction(self, d: int, data: Array, given: Arrays, out: Array) -> None:
        """Fill in out[:, d]; states are rounded to the element type from step to step."""
        steps, batch = data.shape[:2]
        x = np.split(widen(data), len(self.reverse), axis=-1)[d]
        lens = np.full(batch, steps) if given[3] is None else array_of(given, 3)
        weight, bias, peephole = (
            None if given[i] is None else widen(array_of(given, i))[d] for i in (1, 2, 6)
        )
        assert weight is not None
        own = len(self.activations) // len(self.reverse)
        names = self.activations[d * own : (d + 1) * own]
        flags = (self.reset_after, self.coupled)
        cell = NumpyCell(self.cell, names, self.clip, flags, (weight, bias, peephole))
        hidden = weight.shape[1]
        h, c = (
            np.zeros((batch, hidden), x.dtype) if g is None else widen(g)[d] for g in given[4:6]
        )
        for t in reversed(range(steps)) if self.reverse[d] else range(steps):
            new = (widen(narrow(s, data)) for s in cell.step(x[t], h, c))
            active = (t < lens)[:, None]
            h, c = (np.where(active, s, old) for s, old in zip(new, (h, c), strict=True))
            if self.sequence:
                out[t, d] = np.where(active, h, 0)
        for state, row in zip((h, c)[: self.finals], range(-self.finals, 0), strict=True):
            out[row, d] = state

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        x, weight = type_of(inputs, 0), type_of(inputs, 1)
        hidden = weight.shape[2]
        assert isinstance(hidden, int), "the importer refuses other sizes"
        operands: dict[str, Any] = {}
        for name, t in zip(INPUTS, inputs, strict=False):
            if t is not None:
                operands[name] = Operand(len(operands), row_major_strides(t.shape))
        spec = RecurrenceSpec(
            cell=self.cell,
            steps=x.shape[0],
            batch=x.shape[1],
            hidden=hidden,
            reverse=self.reverse,
            activations=self.activations,
            clip=self.clip,
            reset_after=self.reset_after,
            coupled=self.coupled,
            sequence=self.sequence,
            finals=self.finals,
            dtype=x.dtype,
            acc=compute_type(x.dtype),
            **operands,
        )
        return Anchor(spec, Decompose(lambda g, *values: (build_steps(spec, g, _given(values)),)))


def _given(values: Sequence[Value | None]) -> Given:
    x, weight, *others = values
    assert x is not None and weight is not None
    return Given(x, weight, *others, *(None,) * (len(INPUTS) - len(values)))
