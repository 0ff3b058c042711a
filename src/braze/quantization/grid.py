"""Grids: the real numbers that a quantized type stands for, by a scale and a zero point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from braze.quantization.thresholds import Range

Array = np.ndarray[Any, Any]
LEAST_SCALE: Final = float(np.finfo(np.float32).tiny)
E4M3_MOST: Final = 448.0  # the largest float8_e4m3fn
_TYPES: Final[dict[str, np.dtype[Any]]] = {
    "s8": np.dtype(np.int8), "u8": np.dtype(np.uint8), "e4m3": np.dtype(ml_dtypes.float8_e4m3fn)
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grid:
    """scale * (q - zero) for q of a type; scale is float32: a number, or one for each channel.

    kind: "s8", "u8" or "e4m3" (8-bit floats, zero point 0); axis: that of the channels.
    """

    kind: str
    scale: Array
    zero: int = 0
    axis: int | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the codes."""
        return _TYPES[self.kind]

    def quantize(self, x: Array) -> Array:
        """Codes, as QuantizeLinear gives them: divided in float32, rounded to even, saturated."""
        ratio = np.asarray(x, np.float32) / self._of_channels(x.ndim)
        if self.kind == "e4m3":
            return np.asarray(np.clip(ratio, -E4M3_MOST, E4M3_MOST).astype(self.dtype))
        limits = np.iinfo(self.dtype)
        codes = np.rint(ratio) + np.float32(self.zero)
        return np.asarray(np.clip(codes, limits.min, limits.max).astype(self.dtype))

    def dequantize(self, q: Array) -> Array:
        """Numbers, as DequantizeLinear gives them in float32."""
        shifted = q.astype(np.float32) - np.float32(self.zero)
        return np.asarray(shifted * self._of_channels(q.ndim), np.float32)

    def rounded(self, x: Array) -> Array:
        """The nearest numbers of the grid."""
        return self.dequantize(self.quantize(x))

    def _of_channels(self, rank: int) -> Array:
        if self.axis is None:
            return self.scale
        return self.scale.reshape([-1 if a == self.axis else 1 for a in range(rank)])


def activation_grid(r: Range, kind: str, symmetric: bool) -> Grid:
    """The grid of a tensor.

    symmetric: zero point 0 for s8; for u8 0 where no number is negative, else 128. Asymmetric: the
    least range that holds `r` and zero, which keeps zero exact (padding).
    """
    if kind == "e4m3":
        return Grid(kind, _scale(r.size / E4M3_MOST))
    if symmetric and (kind == "s8" or r.low < 0):
        return Grid(kind, _scale(r.size / 127), 0 if kind == "s8" else 128)
    low, high = min(0.0, r.low), max(0.0, r.high)
    scale = _scale((high - low) / 255)
    least = int(np.iinfo(_TYPES[kind]).min)
    zero = least + int(np.clip(np.rint(-low / float(scale)), 0, 255))
    return Grid(kind, scale, zero)


def weight_grid(w: Array, axis: int | None, kind: str = "s8") -> Grid:
    """The symmetric grid of a constant, one scale for each channel of `axis` (None: one for all).

    A channel of zeros has scale 1.
    """
    others = tuple(a for a in range(w.ndim) if a != axis)
    size = np.abs(w.astype(np.float32)).max(axis=others if axis is not None else None)
    most = E4M3_MOST if kind == "e4m3" else 127
    scale = np.maximum(size.astype(np.float32) / np.float32(most), np.float32(LEAST_SCALE))
    scale = np.where(size > 0, scale, np.float32(1)).astype(np.float32)
    return Grid(kind, scale.reshape(-1) if axis is not None else scale.reshape(()), 0, axis)


def _scale(number: float) -> Array:
    return np.asarray(number if number > LEAST_SCALE else 1.0, np.float32)
