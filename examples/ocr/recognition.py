"""Text recognition: boxes to upright crops, crops to batches, class scores to text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ocr.detection import normalize
from ocr.geometry import Box

Array = np.ndarray[Any, Any]

TEXT_HEIGHT, LEAST_WIDTH, MOST_WIDTH = 48, 320, 3200  # recognition input in pixels
DIRECTION_WIDTH = 192
MOST_BATCH = 8
TURN_CONFIDENCE = 0.9
TALL = 1.5  # height over width from which a box is a column of text


def crop(picture: Image.Image, box: Box) -> Image.Image:
    """The content of a rotated box as an upright picture; columns are turned to lie."""
    width, height = max(1, round(2 * box.half[0])), max(1, round(2 * box.half[1]))
    ux, uy = box.axis
    x0, y0 = box.corners()[0]
    # PIL asks where each pixel of the result comes from: (x, y) = origin + i * axis + j * down
    out = picture.transform(
        (width, height),
        Image.Transform.AFFINE,
        (ux, -uy, float(x0), uy, ux, float(y0)),
        resample=Image.Resampling.BICUBIC,
    )
    return out.transpose(Image.Transpose.ROTATE_90) if height >= TALL * width else out


def text_width(size: tuple[int, int]) -> int:
    """Width of a crop of `size` (width, height) when its height becomes TEXT_HEIGHT."""
    return min(MOST_WIDTH, max(1, -(-TEXT_HEIGHT * size[0] // size[1])))


def padded_input(picture: Image.Image, width: int) -> Array:
    """[1, 3, TEXT_HEIGHT, width]: the crop scaled to the height, zeros to its right."""
    own = min(width, text_width(picture.size))
    pixels = np.asarray(picture.resize((own, TEXT_HEIGHT), Image.Resampling.BILINEAR))
    out = np.zeros((1, 3, TEXT_HEIGHT, width), np.float32)
    out[..., :own] = normalize(pixels)
    return out


def direction_batches(crops: Sequence[Image.Image]) -> Iterator[Array]:
    """Inputs [n, 3, 48, 192] of the direction network, MOST_BATCH crops at a time."""
    for i in range(0, len(crops), MOST_BATCH):
        part = crops[i : i + MOST_BATCH]
        yield np.concatenate([padded_input(c, DIRECTION_WIDTH) for c in part])


def upside_down(scores: Array) -> list[int]:
    """Indexes of the crops that the direction network takes to be upside down.

    scores: [n, 2], probabilities of 0 and 180 degrees.
    """
    return [int(i) for i in np.flatnonzero(scores[:, 1] > TURN_CONFIDENCE)]


def text_batches(crops: Sequence[Image.Image]) -> Iterator[tuple[list[int], Array]]:
    """(indexes of crops, [n, 3, 48, W]) with crops of like width together, so that little is
    padding.
    """
    order = sorted(range(len(crops)), key=lambda i: text_width(crops[i].size))
    for k in range(0, len(order), MOST_BATCH):
        part = order[k : k + MOST_BATCH]
        width = max(LEAST_WIDTH, text_width(crops[part[-1]].size))
        yield part, np.concatenate([padded_input(crops[i], width) for i in part])


def decode(scores: Array, characters: Sequence[str]) -> list[tuple[str, float]]:
    """Text and confidence per row of class probabilities [n, steps, classes].

    Connectionist temporal classification, best path: repeats collapse and class 0 is blank. The
    confidence is the mean probability of the characters kept, 0 for an empty text.
    """
    best = scores.argmax(-1)
    out = []
    for row, probability in zip(best, scores.max(-1), strict=True):
        kept = (row != 0) & (row != np.concatenate([[-1], row[:-1]]))
        text = "".join(characters[c] for c in row[kept])
        out.append((text, float(probability[kept].mean()) if kept.any() else 0.0))
    return out
