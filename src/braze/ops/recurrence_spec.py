"""The anchor of recurrent networks (see ops/lowering.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from braze.core.dims import Dim, Shape
from braze.core.dtypes import DType
from braze.ops.operands import SUM_BLOCK, Operand, Operands

RECURRENT_GATES: Final = {"rnn": 1, "gru": 3, "lstm": 4}  # per kind of cell


@dataclass(frozen=True, slots=True)
class RecurrenceSpec:
    """States of a recurrent cell over `steps` steps, each of which needs the one before.

    out[t, d, b, :] = h of step t, direction d, where `sequence`; behind those rows as many as
    `finals`: the last h, the last c. reverse: per direction, whether it begins at the last step.

    Operands: x (t, b, n), what the input gives the gates, n = (d, gate, unit) flat; weight (d, gate
    and unit, hidden); bias (d, unit) of the last gate's recurrent sum (GRU, `reset_after`); lens
    (b,), the steps that row b has; h0, c0 (d, b, unit), states before the first step, zero if None;
    peephole (d, gate and unit). `cell`, `activations`, `clip` (inf: none), `reset_after` and
    `coupled` say what a step computes (ops/recurrent/cells.py). Rows that have ended keep their
    state and give zeros. States are rounded to `dtype`; sums are as `acc` and `block` say.
    """

    kind: ClassVar[str] = "recurrence"
    takes_epilogue: ClassVar[bool] = False

    cell: str
    steps: Dim
    batch: Dim
    hidden: int
    reverse: tuple[bool, ...]
    activations: tuple[str, ...]
    clip: float
    reset_after: bool
    coupled: bool
    sequence: bool
    finals: int
    x: Operand
    weight: Operand
    dtype: DType
    acc: DType
    bias: Operand | None = None
    lens: Operand | None = None
    h0: Operand | None = None
    c0: Operand | None = None
    peephole: Operand | None = None
    block: int = SUM_BLOCK

    @property
    def gates(self) -> int:
        """Gates of a hidden unit."""
        return RECURRENT_GATES[self.cell]

    @property
    def operands(self) -> Operands:
        """Those that are there."""
        wide, state = self.gates * self.hidden, (len(self.reverse), self.batch, self.hidden)
        every: dict[str, tuple[Operand | None, Shape]] = {
            "x": (self.x, (self.steps, self.batch, len(self.reverse) * wide)),
            "weight": (self.weight, (len(self.reverse), wide, self.hidden)),
            "bias": (self.bias, (len(self.reverse), self.hidden)),
            "lens": (self.lens, (self.batch,)),
            "h0": (self.h0, state),
            "c0": (self.c0, state),
            "peephole": (self.peephole, (len(self.reverse), 3 * self.hidden)),
        }
        return {k: (operand, shape) for k, (operand, shape) in every.items() if operand is not None}

    @property
    def out_shape(self) -> Shape:
        """The logical output axes: (t, d, b, unit)."""
        rows = self.steps * self.sequence + self.finals
        return (rows, len(self.reverse), self.batch, self.hidden)
