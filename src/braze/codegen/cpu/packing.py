"""Constant operands rearranged at build time into what the register tile reads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from braze.codegen.cpu.conv.winograd.matrices import tap_places, transform_weights
from braze.codegen.cpu.conv.winograd.spread import DIRECT, weight_marks
from braze.codegen.cpu.product.coded_template import PANELS as CODED_PANELS
from braze.codegen.cpu.product.coded_template import coded_panels
from braze.codegen.cpu.recurrence.form import PANELS, pack_panels
from braze.core.dtypes import from_numpy
from braze.core.elements import numbers
from braze.core.errors import CompileError
from braze.core.parallel import in_parallel
from braze.fusion.kernel import Packing

Array = NDArray[Any]
_PACKED_ROWS = 64


def pack_anchor(array: Array, packing: Packing) -> Array:
    """`array` in the layout and type `packing` asks for (contiguous, flat).

    Raises CompileError for a packing no template of this backend asks for.
    """
    parameters = dict(packing.parameters)
    array = numbers(array, from_numpy(array.dtype)).astype(packing.dtype.numpy, copy=False)
    if packing.kind == "matmul_panels":
        return _matmul_panels(array, parameters)
    if packing.kind == "conv_panels":
        return _conv_panels(array, parameters)
    if packing.kind == "depthwise_taps":
        return _depthwise_taps(array)
    if packing.kind == "winograd_panels":
        return _winograd_panels(array, parameters)
    if packing.kind == PANELS:
        return pack_panels(array, parameters)
    if packing.kind == CODED_PANELS:
        return coded_panels(array, parameters)
    raise CompileError(
        f"packing {packing.kind!r} is not known to the CPU backend; rebuild the engine"
    )


def panels(matrices: Array, columns: int) -> Array:
    """[batch, k, n] -> [batch, ceil(n / columns), k, columns], padded with zeros."""
    batch, k, n = matrices.shape
    whole, rest = divmod(n, columns)
    out = np.empty((batch, whole + (rest > 0), k, columns), matrices.dtype)
    # rows at a time: a panel takes few columns of each, and the next panel finds the rest cached
    starts = range(0, k, _PACKED_ROWS)

    def copy(start: int) -> None:
        rows = matrices[:, start : start + _PACKED_ROWS]
        split = rows[:, :, : whole * columns].reshape(batch, rows.shape[1], whole, columns)
        out[:, :whole, start : start + _PACKED_ROWS] = split.transpose(0, 2, 1, 3)

    in_parallel(copy, starts, out.nbytes)
    if rest:
        out[:, whole, :, :rest] = matrices[:, :, whole * columns :]
        out[:, whole, :, rest:] = 0
    return out


def _matmul_panels(array: Array, p: dict[str, int]) -> Array:
    """The operand's matrices (strides in elements into the flat array), as panels."""
    flat = np.ascontiguousarray(array).reshape(-1)
    sizes, strides = [], []
    for i in range(p["batch_axes"]):
        sizes.append(p[f"size{i}"])
        strides.append(p[f"stride{i}"])
    shape = (*sizes, p["k"], p["n"])
    steps = tuple(s * flat.itemsize for s in (*strides, p["k_stride"], p["n_stride"]))
    if 0 in shape:
        return np.zeros(0, flat.dtype)
    last = p["offset"] + sum(
        (size - 1) * step // flat.itemsize for size, step in zip(shape, steps, strict=True)
    )
    if min(steps) < 0 or p["offset"] < 0 or last >= flat.size:
        raise CompileError("packing matmul_panels: strides reach outside of the constant")
    view = np.lib.stride_tricks.as_strided(flat[p["offset"] :], shape, steps, writeable=False)
    matrices = view.reshape(-1, p["k"], p["n"])
    return _stepped(matrices, p)


def _conv_panels(array: Array, p: dict[str, int]) -> Array:
    """[K, C/g, *kernel] -> per group, panels over K of [taps * C/g][columns]."""
    groups = p["groups"]
    out_channels, in_channels = array.shape[:2]
    taps = array.reshape(groups, out_channels // groups, in_channels, -1)
    matrices = taps.transpose(0, 3, 2, 1)  # group, tap, input channel, output channel
    matrices = matrices.reshape(groups, -1, out_channels // groups)
    return _stepped(matrices, p)


def _winograd_panels(array: Array, p: dict[str, int]) -> Array:
    """[K, C, 3, 3] -> panels of each point, panels of the taps that are no points, and for each of
    the panels' columns the largest mark of the vector that it is in (winograd/spread.py)."""
    taps = array.transpose(2, 3, 1, 0).reshape(9, *array.shape[1::-1])
    marks = weight_marks(array, from_numpy(array.dtype))
    if marks.max() == DIRECT:  # may be infinite, and nothing reads their points
        array = np.where(marks[:, None, None, None] == DIRECT, 0, array).astype(array.dtype)
    points = transform_weights(array, p["size"])
    others = []
    for tap, (number, factor) in zip(taps, tap_places(p["size"]), strict=True):
        if number < len(points):
            points[number] = tap / factor
        else:
            others.append(tap)
    parts = [panels(m, p["columns"]) for m in (points, np.stack(others))]
    padded = np.zeros(parts[0].shape[1] * p["columns"], array.dtype)
    padded[: marks.size] = marks
    vectors = padded.reshape(-1, p["lanes"])
    vectors[:] = vectors.max(1, keepdims=True)
    return np.concatenate([*(part.reshape(-1) for part in parts), padded])


def _stepped(matrices: Array, p: dict[str, int]) -> Array:
    """Panels of [batch, k, n]; `word` neighbours in k are one word, of which there are `steps`
    (zeros behind the last)."""
    word, columns = p.get("word", 1), p["columns"]
    if word == 1:
        return panels(matrices, columns).reshape(-1)
    batch, k, n = matrices.shape
    padded = np.zeros((batch, p.get("steps", -(-k // word)), word, n), matrices.dtype)
    padded.reshape(batch, -1, n)[:, :k] = matrices
    words = np.ascontiguousarray(padded.transpose(0, 1, 3, 2)).view(np.int32)[..., 0]
    return panels(words, columns).reshape(-1).view(matrices.dtype)


def _depthwise_taps(array: Array) -> Array:
    """[C, 1, *kernel] -> [taps][C]."""
    return np.ascontiguousarray(array.reshape(array.shape[0], -1).T).reshape(-1)
