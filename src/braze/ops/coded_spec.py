"""The anchor of products by weights of few bits (see ops/lowering.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from braze.core.dims import Dim, Shape
from braze.core.dtypes import DType
from braze.ops.operands import SUM_BLOCK, Operand, Operands

SCALE_BYTES = 4  # of a record's scale, a float32


@dataclass(frozen=True, slots=True)
class CodedSpec:
    """out[b.., m, n] = sum_k lhs[b.., m, k] * weight[k, n], summed as `acc` and `block` say.

    weight[k, n] = (code - zero) * scale in float32, the difference exact. Slot 1 has a record of
    bytes [n, k // group, :] for each `group` neighbours in k: the scale, its zero point (one byte)
    where `own`, and codes of `bits` bits, lowest bits first. `zero` is that of all others. `group`
    divides `block`; the codes that fill up the last group count nothing.
    """

    kind: ClassVar[str] = "coded"
    takes_epilogue: ClassVar[bool] = True

    batch: tuple[Dim, ...]
    m: Dim
    n: int
    k: int
    bits: int
    group: int
    own: bool
    zero: int
    lhs: Operand
    out: Operand
    acc: DType
    block: int = SUM_BLOCK

    @property
    def operands(self) -> Operands:
        """The left factor."""
        return {"lhs": (self.lhs, (*self.batch, self.m, self.k))}

    @property
    def out_shape(self) -> Shape:
        """The logical output axes: (*batch, m, n)."""
        return (*self.batch, self.m, self.n)

    @property
    def groups(self) -> int:
        """Records of a column."""
        return -(-self.k // self.group)

    @property
    def record(self) -> int:
        """Bytes of a record."""
        return SCALE_BYTES + self.own + self.group * self.bits // 8
