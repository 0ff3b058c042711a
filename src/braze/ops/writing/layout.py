"""Ops that know where the channels of their operand are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from braze.ir.graph import TensorType
from braze.ops.base import Op, Perm, Permuted
from braze.ops.writing.axes import channels_first


def channel_axis(layout: str, rank: int) -> int:
    """Position of the channels."""
    return 1 if layout == "NCHW" else rank - 1


class LayoutOp(Op):
    """An op over x [N, C, *spatial] (layout "NCHW") or [N, *spatial, C] ("NHWC").

    Its result has the layout of x; its other operands have none. `layout` is a field of each class.
    """

    folds: ClassVar[bool] = False  # ops over windows are slow in numpy
    layout: str

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        """Channels last is read as it is."""
        if self.layout != "NCHW" or perm != channels_first(len(perm)) or outputs > 1:
            return None
        changed: dict[str, Any] = {"layout": "NHWC"}
        return replace(self, **changed), perm
