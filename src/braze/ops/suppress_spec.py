"""The anchor of non-maximum suppression (see ops/lowering.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from braze.core.dims import Dim, Shape
from braze.core.dtypes import I64, DType
from braze.ops.operands import Operand, Operands


@dataclass(frozen=True, slots=True)
class SuppressSpec:
    """out[b, c, j] = 1 + the number of the j-th box that class c of batch b keeps, then zeros.

    Inputs in float32: boxes (b, box, 4), scores (b, c, box), the largest overlap [1] of two boxes
    that are both kept (slot 2) and, where `threshold`, the score [1] that a box must exceed (slot
    3). A box is kept if its overlap with none that the class kept before is larger. Boxes come
    by falling score, of equal scores the first; at most `most` <= `count` < 2**32 are kept; a score
    that is NaN is none. A box is (y, x, y, x) of two opposite corners, or (x, y, width, height)
    around its center where `centered`. An overlap is the common area by the joint area, zero where
    a box has no area.
    """

    kind: ClassVar[str] = "suppress"
    takes_epilogue: ClassVar[bool] = False

    batch: Dim
    classes: Dim
    count: Dim
    most: Dim
    centered: bool
    threshold: bool
    boxes: Operand
    scores: Operand

    @property
    def operands(self) -> Operands:
        """Boxes and scores."""
        return {
            "boxes": (self.boxes, (self.batch, self.count, 4)),
            "scores": (self.scores, (self.batch, self.classes, self.count)),
        }

    @property
    def acc(self) -> DType:
        """The type of numbers of boxes."""
        return I64

    @property
    def out_shape(self) -> Shape:
        """The logical output axes."""
        return (self.batch, self.classes, self.most)
