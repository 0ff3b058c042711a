"""What a transformed convolution (Winograd) rounds that the direct sum does not.

Such a kernel adds and cancels within whole patches: an output depends, by rounding alone, on pixels
that its own window does not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from braze.codegen.cpu.conv.winograd.matrices import INPUT, OUTPUT, WEIGHT
from braze.codegen.cpu.conv.winograd.spread import DIRECT, RATIO, weight_marks
from braze.codegen.cpu.conv.winograd.tactics import suits_winograd
from braze.core.dtypes import F64
from braze.ir.graph import Node, TensorType, Value
from braze.ops.lowering import Anchor, ConvSpec
from braze.ops.product.conv import Conv

Array = np.ndarray[Any, Any]


def transform_loss(node: Node, given: Mapping[Value, Array], unit: float) -> Array | None:
    """How far the roundings inside the transforms move each output; None where no kernel has them.

    node: of an imported graph, so channels come first. unit: unit roundoff of what is computed in.

    An output is the sum over points p of A_p M_p with M_p = sum over C channels of U_p V_p
    (matrices.py). A sum's own additions move it by no more than operands disturbed by sqrt(C)
    roundoffs do (bounds.py, `_accumulation`), and V = B^T d B loses no more than a few roundoffs of
    T = |B^T| |d| |B|. Points round independently. So the deviation is about
    u sqrt(C sum_p A_p^2 sum_c (U_pc T_pc)^2): in float32 on random data the largest error of
    12,800 outputs was 0.6 to 1.2 times that, for 16 to 256 channels and both sizes of tile.
    Tiles and channels whose numbers are too far apart are summed directly and lose nothing.
    """
    assert isinstance(node.op, Conv)
    if not _transformed(node, node.op):
        return None
    x, w = (given[v] for v in node.inputs[:2] if v is not None)
    top, left, bottom, right = node.op.pads
    x = np.pad(np.abs(x), ((0, 0), (0, 0), (top, bottom), (left, right)))
    if min(x.shape[2:]) < 3:  # sizes from data have left no window
        return None
    with np.errstate(all="ignore"):
        loss: Array = unit * np.max([_loss(x, w, size) for size in INPUT], axis=0)
    return np.where(np.isfinite(loss), loss, 0.0)


def _transformed(node: Node, op: Conv) -> bool:
    """Whether some level may transform the node."""
    x, w = (v.type for v in node.inputs[:2] if v is not None)
    y = node.outputs[0].type
    if x.rank != 4:
        return False
    last = [TensorType(t.dtype, (*t.shape[:1], *t.shape[2:], t.shape[1])) for t in (x, y)]
    low = replace(op, layout="NHWC").lower([last[0], w], [last[1]])
    return isinstance(low, Anchor) and isinstance(low.spec, ConvSpec) and suits_winograd(low.spec)


def _loss(x: Array, w: Array, size: int) -> Array:
    """The deviation for F(size, 3) in roundoffs: [N, K, high, wide]."""
    high, wide = (n - 2 for n in x.shape[2:])
    tiles = [-(-n // size) for n in (high, wide)]
    room = [(0, 0), (0, 0), *((0, n * size - m) for n, m in zip(tiles, (high, wide), strict=True))]
    b, a = np.abs(np.array(INPUT[size])), np.square(np.array(OUTPUT[size]))
    g = np.array(WEIGHT[size])
    patches = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, room), (size + 2, size + 2), (2, 3)
    )
    patches = patches[:, :, ::size, ::size]
    t = np.einsum("pi,nchwij,qj->pqnchw", b, patches, b, optimize=True)
    u = np.einsum("pi,kcij,qj->pqkc", g, w, g, optimize=True)
    products = np.einsum("pqkc,pqnchw->pqnkhw", u * u, t * t, optimize=True)
    found = np.einsum("ip,pqnkhw,jq->nkhiwj", a, products, a, optimize=True)
    found = np.where(_spread(x, patches, size)[:, None, :, None, :, None], 0.0, found)
    found[:, weight_marks(w, F64) == DIRECT] = 0.0
    found = found.reshape(*found.shape[:2], tiles[0] * size, tiles[1] * size)
    return np.sqrt(w.shape[1] * found[:, :, :high, :wide])


def _spread(x: Array, patches: Array, size: int) -> Array:
    """Which tiles [N, high, wide] are surely summed directly, by windows that are not all zero."""
    energies = np.square(x).sum(1)
    windows = np.lib.stride_tricks.sliding_window_view(energies, (3, 3), (1, 2)).sum((-2, -1))
    high, wide = patches.shape[2:4]
    least = np.full((len(x), high * size, wide * size), np.inf)
    least[:, : windows.shape[1], : windows.shape[2]] = np.where(windows > 0, windows, np.inf)
    least = least.reshape(len(x), high, size, wide, size).min((2, 4))
    spread: Array = np.square(patches).sum((1, 4, 5)) > 1.01 * RATIO**2 * least
    return spread
