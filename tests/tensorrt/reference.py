"""What layers mean, in plain numpy and float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def conv(
    x: Array, w: Array, b: Any, stride: Any, pre: Any, post: Any, dilation: Any, groups: int
) -> Array:
    """A convolution over as many axes as w has behind two."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    count = w.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(pre, post, strict=True)])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    sizes = [(x.shape[2 + i] - spans[i]) // stride[i] + 1 for i in range(count)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    maps, depth = w.shape[0] // groups, w.shape[1]
    for g, at in itertools.product(range(groups), np.ndindex(*sizes)):
        cut = tuple(
            slice(at[i] * stride[i], at[i] * stride[i] + spans[i], dilation[i])
            for i in range(count)
        )
        patch = x[(slice(None), slice(g * depth, (g + 1) * depth), *cut)]
        rows = w[g * maps : (g + 1) * maps]
        axes = list(range(1, count + 2))
        out[(slice(None), slice(g * maps, (g + 1) * maps), *at)] = np.tensordot(
            patch, rows, (axes, axes)
        )
    return out if b is None else out + b.reshape(1, -1, *(1,) * count)


def deconv(x: Array, w: Array, b: Any, stride: Any, pre: Any, post: Any, groups: int) -> Array:
    """The transpose of a convolution over two axes."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    n, c, h, wide = x.shape
    maps, kh, kw = w.shape[1], *w.shape[2:]
    full = np.zeros((n, maps * groups, (h - 1) * stride[0] + kh, (wide - 1) * stride[1] + kw))
    depth = c // groups
    for g, i, j in itertools.product(range(groups), range(h), range(wide)):
        part = np.tensordot(
            x[:, g * depth : (g + 1) * depth, i, j], w[g * depth : (g + 1) * depth], 1
        )
        at = (slice(i * stride[0], i * stride[0] + kh), slice(j * stride[1], j * stride[1] + kw))
        full[(slice(None), slice(g * maps, (g + 1) * maps), *at)] += part
    out = full[:, :, pre[0] : full.shape[2] - post[0], pre[1] : full.shape[3] - post[1]]
    return out if b is None else out + b.reshape(1, -1, 1, 1)


def pool(
    x: Array, window: Any, stride: Any, pre: Any, post: Any, kind: str, exclude: bool, up: bool
) -> Array:
    """The maximum or the mean of windows over two axes. up: sizes are rounded up."""
    x = x.astype(np.float64)
    sizes = []
    for i in range(2):
        span = x.shape[2 + i] + pre[i] + post[i] - window[i]
        sizes.append((-(-span // stride[i]) if up else span // stride[i]) + 1)
    out = np.zeros((*x.shape[:2], *sizes))
    for at in np.ndindex(*sizes):
        lows = [at[i] * stride[i] - pre[i] for i in range(2)]
        ends = [min(lows[i] + window[i], x.shape[2 + i] + post[i]) for i in range(2)]
        cut = tuple(slice(max(lows[i], 0), max(min(ends[i], x.shape[2 + i]), 0)) for i in range(2))
        patch = x[(slice(None), slice(None), *cut)]
        count = (ends[0] - lows[0]) * (ends[1] - lows[1])
        if kind == "max":
            value = patch.max(axis=(2, 3))
        else:
            value = patch.sum(axis=(2, 3)) / (patch[0, 0].size if exclude else count)
        out[(slice(None), slice(None), *at)] = value
    return out


def softmax(x: Array, axis: int) -> Array:
    """exp(x) over its sum."""
    e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    result: Array = e / e.sum(axis=axis, keepdims=True)
    return result


def same_padding(size: int, window: int, stride: int, upper: bool) -> tuple[int, int]:
    """Padding for ceil(size / stride) windows; the odd zero is behind with `upper`."""
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if upper else (large, small)
