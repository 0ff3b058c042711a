"""A Pad in front of a window op becomes part of its own padding."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from braze.core.dims import Dim
from braze.ir.editor import GraphEditor, Rewriter
from braze.ir.graph import Value
from braze.ir.pattern import Match, Var, call, one_of
from braze.ops.move.slice_pad import Pad
from braze.ops.pool.pool import AveragePool, LpPool, MaxPool
from braze.ops.product.conv import Conv
from braze.ops.writing.layout import channel_axis
from braze.passes.rewrite import Refusal, Rule

# what a padded element must be so that the op's own padding means the same
FILL: Final[dict[type[Any], float]] = {
    Conv: 0.0, LpPool: 0.0, AveragePool: 0.0, MaxPool: -math.inf,
}  # fmt: skip


def _is_constant_pad(op: Pad) -> bool:
    return op.mode == "constant" and op.value is not None


_PADDED: Final = call(Pad, Var("x"), where=_is_constant_pad, name="pad")


def spatial_pads(pad: Pad, layout: str) -> tuple[Dim, ...] | None:
    """(begin.., end..) of the spatial axes; None when batch or channels are padded too."""
    rank = len(pad.begins)
    channel = channel_axis(layout, rank)
    spatial = [i for i in range(rank) if i not in (0, channel)]
    if any(p[i] != 0 for p in (pad.begins, pad.ends) for i in (0, channel)):
        return None
    return tuple(p[i] for p in (pad.begins, pad.ends) for i in spatial)


@dataclass(frozen=True)
class FusePad:
    """Conv or pool of a constant Pad."""

    name: str = "FusePad"
    pattern = one_of(
        call(Conv, _PADDED, Var("weight"), name="window"),
        call(LpPool, _PADDED, name="window"),
        call(AveragePool, _PADDED, name="window"),
        call(MaxPool, _PADDED, name="window"),
    )

    def check(self, m: Match, graph: GraphEditor) -> Refusal | None:
        pad, window = m.calls["pad"].op, m.root.op
        if len(m.root.outputs) != 1:
            return Refusal("positions of maxima count in the padded tensor")
        if pad.value != FILL[type(window)]:
            return Refusal(f"the padding is {pad.value}, not {FILL[type(window)]}")
        pads = spatial_pads(pad, window.layout)
        if pads is None:
            return Refusal("batch or channels are padded too")
        if not all(isinstance(p, int) and p >= 0 for p in pads):
            return Refusal("the padding is symbolic or negative")
        if getattr(window, "ceil_mode", False):
            return Refusal("with ceil_mode the last window depends on where padding ends")
        own = any(p != 0 for p in window.pads)
        if isinstance(window, AveragePool) and own and not window.count_include_pad:
            return Refusal("the pool counts the Pad's elements but not its own padding")
        return None

    def rewrite(self, m: Match, g: Rewriter) -> Value:
        window = m.root.op
        extra = spatial_pads(m.calls["pad"].op, window.layout) or ()
        pads = tuple(a + b for a, b in zip(window.pads, extra, strict=True))
        op = replace(window, pads=pads)
        if isinstance(op, AveragePool):
            op = replace(op, count_include_pad=True)
        return g.add1(op, m["x"], *m.root.inputs[1:])


RULES: Final[tuple[Rule, ...]] = (FusePad(),)
