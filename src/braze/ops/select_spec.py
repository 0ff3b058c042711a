"""The anchor of sorting and of the largest (see ops/lowering.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from braze.core.dims import Dim, Shape, product
from braze.core.dtypes import I64, DType
from braze.ops.operands import Operands


@dataclass(frozen=True, slots=True)
class SelectSpec:
    """out[.., j, ..] = the position on `axis` of the j-th element in sorted order (int64).

    The input has `shape`, the output `count` positions on `axis`; both are row-major, and count <=
    shape[axis] < 2**32. The largest come first where `largest`, else the smallest. Equal elements
    keep their order; NaN counts as larger than every number.
    """

    kind: ClassVar[str] = "select"
    takes_epilogue: ClassVar[bool] = False

    shape: tuple[Dim, ...]
    axis: int
    count: Dim
    largest: bool

    @property
    def operands(self) -> Operands:
        """None: rows are found in the row-major input."""
        return {}

    @property
    def acc(self) -> DType:
        """The type of positions."""
        return I64

    @property
    def outer(self) -> Dim:
        """Rows that lie before one another in memory."""
        return product(self.shape[: self.axis])

    @property
    def inner(self) -> Dim:
        """Rows that lie side by side: the step from element to element of a row."""
        return product(self.shape[self.axis + 1 :])

    @property
    def out_shape(self) -> Shape:
        """The logical output axes: those of the input."""
        return (*self.shape[: self.axis], self.count, *self.shape[self.axis + 1 :])
