"""Detection, direction and recognition in a row: a picture in, lines of text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ocr.detection import DetectionSettings, detection_input, find_boxes
from ocr.geometry import Box
from ocr.recognition import crop, decode, direction_batches, text_batches, upside_down

Array = np.ndarray[Any, Any]
LEAST_CONFIDENCE = 0.5


@dataclass(frozen=True)
class Line:
    """One piece of text: where it is, what it says, how sure the network is."""

    box: Box
    text: str
    confidence: float


class Reader:
    """Runs three networks (name -> call) and keeps the largest input each one saw, for timing."""

    def __init__(
        self, networks: Mapping[str, Callable[[Array], Array]], alphabet: Sequence[str]
    ) -> None:
        self._networks = networks
        self._alphabet = alphabet
        self.seen: dict[str, Array] = {}

    def read(self, picture: Image.Image) -> list[Line]:
        """All text in a picture, in reading order."""
        probability = self._run("detection", detection_input(picture))[0, 0]
        boxes = [b for b, _ in find_boxes(probability, picture.size, DetectionSettings())]
        crops = [crop(picture, b) for b in boxes]
        if not crops:
            return []
        scores = np.concatenate([self._run("direction", x) for x in direction_batches(crops)])
        # the direction network errs on wide crops, so a crop it would turn is read both ways
        doubtful = upside_down(scores)
        candidates = crops + [crops[i].transpose(Image.Transpose.ROTATE_180) for i in doubtful]
        texts = self._recognise(candidates)
        for i, turned in zip(doubtful, texts[len(crops) :], strict=True):
            texts[i] = max(texts[i], turned, key=lambda t: t[1])
        lines = [Line(b, *t) for b, t in zip(boxes, texts[: len(boxes)], strict=True)]
        return [x for x in lines if x.text.strip() and x.confidence >= LEAST_CONFIDENCE]

    def _recognise(self, crops: Sequence[Image.Image]) -> list[tuple[str, float]]:
        texts = [("", 0.0)] * len(crops)
        for indexes, x in text_batches(crops):
            decoded = decode(self._run("recognition", x), self._alphabet)
            for i, text in zip(indexes, decoded, strict=True):
                texts[i] = text
        return texts

    def _run(self, name: str, x: Array) -> Array:
        if name not in self.seen or x.size > self.seen[name].size:
            self.seen[name] = x
        return self._networks[name](x)
