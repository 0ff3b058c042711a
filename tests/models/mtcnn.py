"""The three MTCNN stages in a row (Zhang et al., 2016, "Joint Face Detection and Alignment using
Multi-task Cascaded Convolutional Networks"): candidates from a picture pyramid, refined twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from tests.models.features import centred

Array = np.ndarray[Any, Any]
Run = Callable[[str, dict[str, Array]], dict[str, Array]]

CELL, STRIDE, SHRINK = 12, 2, 0.709
LEAST_FACE = 40  # pixels


def find_faces(photo: Image.Image, run: Run) -> Array:
    """Faces [n, 5]: left, top, right, bottom, score. Networks take pictures as [n, W, H, 3]."""
    boxes = suppress(_candidates(photo, run), 0.7)
    out = run("mtcnn_rnet", {"input_2": _crops(photo, boxes, 24)})
    boxes = _moved(boxes, out["dense_2"], out["softmax_1"][:, 1])
    boxes = suppress(boxes[boxes[:, 4] > 0.7], 0.7)
    out = run("mtcnn_onet", {"input_3": _crops(photo, boxes, 48)})
    return _moved(boxes, out["dense_5"], out["softmax_2"][:, 1])


def _candidates(photo: Image.Image, run: Run) -> Array:
    scale, found = CELL / LEAST_FACE, [np.zeros((0, 5))]
    while min(photo.size) * scale >= CELL:
        width, height = (int(np.ceil(s * scale)) for s in photo.size)
        small = photo.resize((width, height), Image.Resampling.BILINEAR)
        x = centred(np.asarray(small)).transpose(1, 0, 2)[None]
        out = run("mtcnn_pnet", {"input_1": np.ascontiguousarray(x)})
        scores, moves = out["softmax"][0, :, :, 1], out["conv2d_4"][0]
        at = np.argwhere(scores > 0.6)
        corner = at * STRIDE
        boxes = np.concatenate([corner, corner + CELL], 1) + moves[at[:, 0], at[:, 1]] * CELL
        found.append(np.column_stack([boxes / scale, scores[at[:, 0], at[:, 1]]]))
        scale *= SHRINK
    return np.concatenate(found)


def _moved(boxes: Array, moves: Array, scores: Array) -> Array:
    sides = boxes[:, 2:4] - boxes[:, :2]
    return np.column_stack([boxes[:, :4] + moves * np.tile(sides, 2), scores])


def _crops(photo: Image.Image, boxes: Array, size: int) -> Array:
    out = np.zeros((len(boxes), size, size, 3), np.float32)
    for k, (left, top, right, bottom, _) in enumerate(boxes):
        half = max(right - left, bottom - top) / 2
        x, y = (left + right) / 2, (top + bottom) / 2
        square = photo.crop((int(x - half), int(y - half), int(x + half), int(y + half)))
        pixels = np.asarray(square.resize((size, size), Image.Resampling.BILINEAR))
        out[k] = centred(pixels).transpose(1, 0, 2)
    return out


def suppress(boxes: Array, overlap: float) -> Array:
    """Drop boxes that share more than `overlap` (intersection over union) with a better one."""
    rest = boxes[boxes[:, 4].argsort()[::-1]]
    kept = []
    while len(rest):
        best, rest = rest[0], rest[1:]
        kept.append(best)
        low, high = np.maximum(best[:2], rest[:, :2]), np.minimum(best[2:4], rest[:, 2:4])
        shared = np.clip(high - low, 0, None).prod(1)
        area = (best[2:4] - best[:2]).prod() + (rest[:, 2:4] - rest[:, :2]).prod(1)
        rest = rest[shared / (area - shared) <= overlap]
    return np.array(kept).reshape(-1, 5)
