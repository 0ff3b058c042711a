"""What the documents leave open: places that a float does not tell, and values without weight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from braze.ir.graph import Node, Value
from braze.ops.base import Op
from braze.ops.evaluator import _in_float64
from braze.ops.product.attention import FusedAttention
from braze.ops.product.deform_conv import DeformConv
from braze.ops.product.matmul import MatMul
from braze.ops.sample.grid_sample import GridSample
from braze.ops.sample.resize import Resampling

Array = np.ndarray[Any, Any]
Values = Mapping[Value, Array]
FAR = 1e4  # of an image's sizes; float32 has no halves of a pixel beyond
UNITS = {64: 2.0**-53}  # half types are sampled in float32
EXACTLY = 1024.0  # what is whole in such parts of a pixel is not rounded


def moved_places(
    node: Node, values: Values, rng: np.random.Generator | None
) -> dict[Value, Array]:
    """The places that an op samples at, moved as rounding moves them, by their operand.

    A position in pixels is the sum of two numbers as large as the image's sides, so it is rounded
    to what a float tells there however small the operand is. A place so far outside that its float
    does not say which pixel mirrors it is any.
    """
    op = node.op
    if rng is None or not isinstance(op, (GridSample, DeformConv)):
        return {}
    image, places = node.inputs[0], node.inputs[1 if isinstance(op, GridSample) else 2]
    assert image is not None and places is not None
    at, sides = values[places], values[image].shape[2:]
    unit = UNITS.get(places.dtype.bits, 2.0**-24)
    # from -1 to 1 there are as many pixels as the side has, and the largest number is the side
    step = unit * (max(sides, default=1) if isinstance(op, DeformConv) else 2.0)
    noise = step * rng.uniform(0.5, 1.0, at.shape) * rng.choice([-1.0, 1.0], at.shape)
    with np.errstate(all="ignore"):
        rounded = at * EXACTLY != np.rint(at * EXACTLY)
        moved = np.where(rounded & np.isfinite(at), at + noise, at)
    if isinstance(op, GridSample) and op.padding == "reflection":
        anywhere = rng.uniform(-50.0, 50.0, at.shape)
        moved = np.where((np.abs(at) > FAR) & np.isfinite(at), anywhere, moved)
    return {places: moved}


def met_without_weight(node: Node, op: Op, values: Values) -> dict[Value, Array]:
    """The result of a Resize that has taps of weight 0, NaN where these are infinite: an axis that
    keeps its size is not resampled where the build knows that, and is where only the run does
    (docs/semantics.md). op: that of the node, with the sizes of the run."""
    if not isinstance(op, Resampling) or op.mode == "nearest":
        return {}
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    odd = (~np.isfinite(values[x])).astype(np.float64)
    pairs = enumerate(zip(odd.shape, op.sizes, strict=True))
    kept = [k for k, (a, b) in pairs if a == b and node.op.sizes[k] != x.shape[k]]
    if not odd.any() or not kept:
        return {}
    met, taps = odd, (-1, 0, 1, 2) if op.mode == "cubic" else (0, 1)
    for axis in kept:
        last = odd.shape[axis] - 1
        places = np.arange(last + 1)
        met = sum(met.take(np.clip(places + tap, 0, last), axis) for tap in taps)
    beside = (met > odd).astype(np.float64)
    others = [None if v is None else values[v] for v in node.inputs[1:]]
    with np.errstate(all="ignore"):
        reached = _in_float64(op).reference(beside, *others)[0] != 0
        return {out: np.where(reached, np.nan, values[out])}


def unseen(node: Node, values: Values, weighs: bool) -> dict[Value, Array]:
    """The result of attention in which a value whose weight is 0 is left out, also where it is
    infinite or NaN: kernels pass over keys that causality hides (docs/semantics.md).

    weighs: the graph has a softmax, whose result may be the first operand of a product.
    """
    op, given = node.op, [None if v is None else values[v] for v in node.inputs]
    if isinstance(op, FusedAttention) and op.causal:
        slot = 2
    elif isinstance(op, MatMul) and weighs:
        slot = 1
    else:
        return {}
    seen = given[slot]
    assert seen is not None
    odd = ~np.isfinite(seen)
    if not odd.any():
        return {}
    op = _in_float64(op)
    without, reached = list(given), list(given)
    without[slot], reached[slot] = np.where(odd, 0.0, seen), odd.astype(np.float64)
    if slot == 1:
        assert given[0] is not None
        reached[0] = (given[0] != 0).astype(np.float64)
    out = node.outputs[0]
    with np.errstate(all="ignore"):
        free = op.reference(*reached)[0] == 0
        return {out: np.where(free, op.reference(*without)[0], values[out])}
