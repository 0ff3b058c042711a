"""Text detection: picture to network input, probability map to rotated boxes.

The post-processing is that of differentiable binarization (Liao et al., 2020,
"Real-time Scene Text Detection with Differentiable Binarization"): threshold the map, take
connected components, box each one, and grow the box because the network predicts shrunken text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from scipy import ndimage

from ocr.geometry import Box, smallest_box

Array = np.ndarray[Any, Any]

SHORT_SIDE, LONG_SIDE, STEP = 736, 1472, 32  # input sizes in pixels; sides are multiples of STEP


@dataclass(frozen=True)
class DetectionSettings:
    """threshold: on the map; least_score: mean probability a box needs; unclip: how much to grow
    (area / perimeter times this); least_side: boxes thinner than this, in map pixels, are noise.
    """

    threshold: float = 0.3
    least_score: float = 0.5
    unclip: float = 1.5
    least_side: float = 3.0


def detection_size(width: int, height: int) -> tuple[int, int]:
    """Network input size for a picture: short side enlarged to SHORT_SIDE, long side limited."""
    scale = max(1.0, SHORT_SIDE / min(width, height))
    scale = min(scale, LONG_SIDE / max(width, height))
    fit = [min(LONG_SIDE, max(STEP, round(s * scale / STEP) * STEP)) for s in (width, height)]
    return fit[0], fit[1]


def detection_input(picture: Image.Image) -> Array:
    """[1, 3, H, W] float32 in -1..1, channels blue, green, red, as PP-OCR was trained."""
    size = detection_size(*picture.size)
    return normalize(np.asarray(picture.resize(size, Image.Resampling.BILINEAR)))


def normalize(pixels: Array) -> Array:
    """uint8 [H, W, 3] red-green-blue to float32 [1, 3, H, W] blue-green-red in -1..1."""
    x = (pixels[:, :, ::-1].astype(np.float32) / 255 - 0.5) / 0.5
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None])


def find_boxes(
    probability: Array, picture_size: tuple[int, int], settings: DetectionSettings
) -> list[tuple[Box, float]]:
    """Boxes in picture pixels with their scores, in reading order.

    probability: [H, W] float32; picture_size: (width, height).
    """
    labels, _ = ndimage.label(probability > settings.threshold, structure=np.ones((3, 3)))
    height, width = probability.shape
    sx, sy = picture_size[0] / width, picture_size[1] / height
    found = []
    for k, area in enumerate(ndimage.find_objects(labels), start=1):
        inside = labels[area] == k
        score = float(probability[area][inside].mean())
        corner = np.array([area[1].start, area[0].start])
        box = smallest_box(_outline(inside) + corner)
        if score < settings.least_score or 2 * min(box.half) < settings.least_side:
            continue
        w, h = 2 * box.half[0], 2 * box.half[1]
        grown = box.grown(settings.unclip * w * h / (2 * (w + h)))
        found.append((grown.scaled(sx, sy), score))
    return reading_order(found)


def _outline(inside: Array) -> Array:
    """Pixel corners (x, y) of the first and last pixel of every row: the hull needs no others."""
    rows = np.flatnonzero(inside.any(1))
    first = inside[rows].argmax(1)
    last = inside.shape[1] - inside[rows][:, ::-1].argmax(1)
    corners = [np.stack([x, y], 1) for x in (first, last) for y in (rows, rows + 1)]
    return np.concatenate(corners).astype(np.float64)


def reading_order(found: list[tuple[Box, float]]) -> list[tuple[Box, float]]:
    """Top to bottom, and left to right among boxes whose centres lie on one line."""
    rest = sorted(found, key=lambda f: f[0].center[1])
    out: list[tuple[Box, float]] = []
    while rest:
        first = rest[0][0]
        limit = first.center[1] + 0.5 * first.half[1]
        line = [f for f in rest if f[0].center[1] <= limit]
        rest = rest[len(line):]  # fmt: skip
        out += sorted(line, key=lambda f: f[0].center[0])
    return out
