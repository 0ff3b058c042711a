"""Constant operands rearranged at build time into what the templates read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from braze.codegen.cuda.gluon.layout import RUN, spread_order
from braze.core.errors import CompileError
from braze.fusion.kernel import Packing


def pack_constant(array: NDArray[Any], packing: Packing) -> NDArray[Any]:
    """`array` in the layout `packing` asks for, flat; raises CompileError for another backend's."""
    parameters = dict(packing.parameters)
    if packing.kind == "taps":
        return pack_taps(array, **parameters)
    if packing.kind == "stem":
        return pack_taps(fold_window(array), **parameters)
    if packing.kind == "window":  # [C, 1, *kernel] -> [tap][channel]
        return np.ascontiguousarray(array.reshape(len(array), -1).T).reshape(-1)
    if packing.kind in ("rows", "stem rows"):
        weight = array.T[..., None] if parameters.pop("turned") else array
        weight = fold_window(weight) if packing.kind == "stem rows" else weight
        return pack_rows(join_taps(weight, parameters.pop("joined")), **parameters)
    if packing.kind == "pixels":
        return pack_pixels(array, **parameters)
    if packing.kind == "lines":
        weight = array.T if parameters["turned"] else array.reshape(len(array), -1)
        return pack_lines(weight, parameters["pitch"])
    if packing.kind == "cast":
        return array.astype(packing.dtype.numpy).reshape(-1)
    if packing.kind == "channels last":  # [K, C/g, *kernel] -> [K][tap][C/g]
        return np.ascontiguousarray(np.moveaxis(array, 1, -1)).reshape(-1)
    raise CompileError(
        f"packing {packing.kind!r} is not known to the CUDA backend; rebuild the engine"
    )


def pack_taps(weight: NDArray[Any], taps: int, channels: int, length: int) -> NDArray[Any]:
    """[K, C/g, *kernel] -> [output channel][tap][input channel], flat; zeros fill the channels of a
    tap up to `channels` and all of an output channel up to `length`. Taps beyond `taps` are those
    of the last axis, which count as channels."""
    out_channels = len(weight)
    found = weight.reshape(out_channels, weight.shape[1], -1).transpose(0, 2, 1)
    found = found.reshape(out_channels, taps, -1)
    whole = np.zeros((out_channels, taps, channels), weight.dtype)
    whole[:, :, : found.shape[2]] = found
    rows = np.zeros((out_channels, length), weight.dtype)
    rows[:, : taps * channels] = whole.reshape(out_channels, -1)
    return rows.reshape(-1)


def pack_pixels(
    weight: NDArray[Any], block: int, run: int, pixels: int, pixel: int
) -> NDArray[Any]:
    """[K, C, h, w] -> [block of channels][line][channel][pixels of a line][C], flat: channels of a
    block in the order of `spread_order`, zeros up to `pixels` of `pixel` input channels."""
    out_channels, in_channels, height, width = weight.shape
    whole = np.zeros((out_channels, height, pixels, pixel), weight.dtype)
    whole[:, :, :width, :in_channels] = weight.transpose(0, 2, 3, 1)
    blocks = whole.reshape(-1, block, height, pixels * pixel)[:, spread_order(block, run)]
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3)).reshape(-1)


def pack_lines(weight: NDArray[Any], pitch: int) -> NDArray[Any]:
    """[columns, depth] -> lines of `pitch` elements with zeros behind the last, flat."""
    lines = np.zeros((len(weight), pitch), weight.dtype)
    lines[:, : weight.shape[1]] = weight
    return lines.reshape(-1)


def pack_rows(weight: NDArray[Any], block: int, depth: int, run: int = RUN) -> NDArray[Any]:
    """[K, C, *kernel] -> [output channel][tap][input channel], flat.

    Output channels stand in blocks, each in the order of `spread_order`; zeros fill up blocks of
    `block` of them and steps of `depth` input channels.
    """
    out_channels, in_channels = weight.shape[:2]
    taps = np.moveaxis(weight.reshape(out_channels, in_channels, -1), 1, 2)
    whole = -(-out_channels // block) * block, taps.shape[1], -(-in_channels // depth) * depth
    filled = np.zeros(whole, weight.dtype)
    filled[:out_channels, :, :in_channels] = taps
    blocks = filled.reshape(-1, block, *whole[1:])
    return np.ascontiguousarray(blocks[:, spread_order(block, run)]).reshape(-1)


def join_taps(weight: NDArray[Any], count: int) -> NDArray[Any]:
    """[K, C, .., count] -> [K, count * C, .., 1]; as it is for a count of 1."""
    if count == 1:
        return weight
    turned = np.moveaxis(weight, -1, 1)
    return turned.reshape(len(weight), -1, *weight.shape[2:-1], 1)


def fold_window(weight: NDArray[Any]) -> NDArray[Any]:
    """[K, C <= 4, h, w] -> [K, 16, ceil(h / 2), ceil(w / 2)]: the channels of a 2 x 2 block of
    taps, each filled up to four, become those of one tap; zeros where the window ends."""
    out_channels, in_channels, height, width = weight.shape
    down, right = -(-height // 2), -(-width // 2)
    whole = np.zeros((out_channels, 4, 2 * down, 2 * right), weight.dtype)
    whole[:, :in_channels, :height, :width] = weight
    blocks = whole.reshape(out_channels, 4, down, 2, right, 2).transpose(0, 3, 5, 1, 2, 4)
    folded: NDArray[Any] = blocks.reshape(out_channels, 16, down, right)
    return folded
