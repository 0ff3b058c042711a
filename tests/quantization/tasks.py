"""The real networks' tasks, with answers that are known, and data to calibrate each with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ocr.detection import DetectionSettings, detection_input, find_boxes
from ocr.engines import characters
from ocr.pictures import sample_page
from ocr.recognition import decode, padded_input
from tests.models import features
from tests.models.mtcnn import find_faces
from tests.models.networks import (
    LINES,
    data_folder,
    model_path,
    pitch_feed,
    real_feed,
    recognition_feed,
    text_line,
)

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
Run = Callable[[str, Mapping[str, Array]], Mapping[str, Array]]
PHOTOS = ("china.jpg", "coffee.png", "chelsea.png", "astronaut.png")
WORDS = (
    "invoice", "total", "kernel", "lower", "graph", "quick", "brown", "fox", "lazy", "dog", "paper",
    "2047", "1,938.50", "EUR", "street", "number", "report", "engine", "compiler", "between",
    "window", "river", "12:45", "table", "of", "contents", "Chapter", "7", "summary",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """network; samples: an endless row of feeds to calibrate with; answer: (what it said, whether
    that is right) with the network run by a function of its name and a feed.
    """

    network: str
    samples: Callable[[np.random.Generator], Iterator[Feed]]
    answer: Callable[[Run], tuple[str, bool]]


def first(out: Mapping[str, Array]) -> Array:
    """The first output."""
    return next(iter(out.values()))


def _crop(rng: np.random.Generator, photo: Image.Image, least: int) -> Image.Image:
    side = int(rng.integers(least, min(photo.size) + 1))
    left, top = (int(rng.integers(0, s - side + 1)) for s in photo.size)
    return photo.crop((left, top, left + side, top + side))


def _line(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, int(rng.integers(2, 5))))


# ---------------------------------------------------------------- sound


def _pitches(rng: np.random.Generator) -> Iterator[Feed]:
    speech = features.speech(data_folder())
    while True:
        start = int(rng.integers(0, len(speech) - 16000))
        yield pitch_feed(speech[start : start + 16000] * np.float32(rng.uniform(0.3, 1.5)))
        yield pitch_feed(features.harmonic_tone(float(rng.uniform(80, 600)), 1))


def _pitch(run: Run) -> tuple[str, bool]:
    tone = float(np.median(run("swift_f0", pitch_feed(features.harmonic_tone(220, 2)))["pitch"]))
    out = run("swift_f0", pitch_feed(features.speech(data_folder())))
    voiced = out["confidence"] > 0.9
    voice = float(np.median(out["pitch"][voiced])) if voiced.any() else 0.0
    right = abs(tone - 220) < 2 and voiced.sum() > 30 and 70 < voice < 400
    return f"a tone of 220 Hz: {tone:.1f} Hz; a voice: {voice:.0f} Hz", right


def _qualities(rng: np.random.Generator) -> Iterator[Feed]:
    speech = features.speech(data_folder())
    while True:
        noise = 10 ** rng.uniform(-4, -1) * rng.standard_normal(speech.shape)
        x = np.clip(np.roll(speech, int(rng.integers(len(speech)))) + noise, -1, 1)
        yield {"input_1": features.dnsmos_input(x.astype(np.float32))}


def _quality(run: Run) -> tuple[str, bool]:
    clean = features.speech(data_folder())
    noise = 0.05 * np.random.default_rng(0).standard_normal(clean.shape)
    noisy = np.clip(clean + noise, -1, 1).astype(np.float32)
    a, b = (
        first(run("dnsmos_p808", {"input_1": features.dnsmos_input(x)})).item()
        for x in (clean, noisy)
    )
    return f"speech {a:.2f}, with noise {b:.2f}", 1 <= b < a - 0.2 <= 5


# ---------------------------------------------------------------- files


def _files(rng: np.random.Generator) -> Iterator[Feed]:
    contents = [p.read_bytes() for p in sorted(data_folder().iterdir()) if p.is_file()]
    while True:
        content = contents[int(rng.integers(len(contents)))]
        start = int(rng.integers(0, max(1, len(content) - 4096))) if rng.random() < 0.7 else 0
        yield {"bytes": features.magika_input(content[start:])}


def _kinds(run: Run) -> tuple[str, bool]:
    expected = {
        "ddddocr_charsets.py": "python", "astronaut.png": "png", "speech_librivox_0870.wav": "wav",
        "china.jpg": "jpeg", "digits.csv.gz": "gzip",
    }  # fmt: skip
    labels = json.loads((data_folder() / "magika_config.json").read_text())["target_labels_space"]
    batch = [features.magika_input((data_folder() / n).read_bytes()) for n in expected]
    scores = first(run("magika_v3_3", {"bytes": np.concatenate(batch)}))
    got = [labels[i] for i in scores.argmax(1)]
    return ", ".join(got), got == list(expected.values())


# ---------------------------------------------------------------- text


def _pages(rng: np.random.Generator) -> Iterator[Feed]:
    page = features.picture(data_folder(), "page.png")
    while True:
        shown = page if rng.random() < 0.5 else sample_page([_line(rng) for _ in range(4)])
        x = detection_input(shown)
        free = [max(1, n - m + 1) for n, m in zip(x.shape[2:], (160, 320), strict=True)]
        top, left = (int(rng.integers(n)) for n in free)
        cut = x[:, :, top : top + 160, left : left + 320]
        if cut.shape[2:] == (160, 320):
            yield {"x": np.ascontiguousarray(cut)}


def _boxes(run: Run) -> tuple[str, bool]:
    page = sample_page(LINES)
    probability = first(run("ppocrv4_det", {"x": detection_input(page)}))[0, 0]
    found = find_boxes(probability, page.size, DetectionSettings())
    return f"{len(found)} lines", len(found) == len(LINES)


def _lines(rng: np.random.Generator) -> Iterator[Feed]:
    while True:
        yield {"x": recognition_feed(_line(rng))[..., :320]}


def _texts(run: Run) -> tuple[str, bool]:
    alphabet = characters(model_path("ppocrv4_rec"))
    outputs = [first(run("ppocrv4_rec", {"x": recognition_feed(line)})) for line in LINES]
    got = [decode(out, alphabet)[0][0] for out in outputs]
    right = [a.replace(" ", "") == b.replace(" ", "") for a, b in zip(got, LINES, strict=True)]
    return f"{sum(right)} of {len(LINES)} lines read exactly", all(right)


def _directions(rng: np.random.Generator) -> Iterator[Feed]:
    while True:
        line = text_line(_line(rng)).crop((30, 30, 230, 90))
        turned = line.transpose(Image.Transpose.ROTATE_180)
        yield {"x": np.concatenate([padded_input(line, 192), padded_input(turned, 192)])}


def _direction(run: Run) -> tuple[str, bool]:
    scores = first(run("ppocr_cls", real_feed("ppocr_cls")))
    upright, turned = float(scores[0, 0]), float(scores[1, 1])
    return f"upright {upright:.2f}, turned {turned:.2f}", min(upright, turned) > 0.5


# ---------------------------------------------------------------- photographs


def _faces_of(name: str, size: int, count: int) -> Callable[[np.random.Generator], Iterator[Feed]]:
    def samples(rng: np.random.Generator) -> Iterator[Feed]:
        photos = [features.picture(data_folder(), n) for n in PHOTOS]
        while True:
            crops = [
                photos[3].crop((160, 40, 290, 170)) if rng.random() < 0.3
                else _crop(rng, photos[int(rng.integers(4))], 40)
                for _ in range(count)
            ]  # fmt: skip
            pixels = [np.asarray(c.resize((size, size), Image.Resampling.BILINEAR)) for c in crops]
            yield {name: np.stack([features.centred(p).transpose(1, 0, 2) for p in pixels])}

    return samples


def _face(run: Run) -> tuple[str, bool]:
    photo = features.picture(data_folder(), "astronaut.png")
    faces = find_faces(photo, lambda name, feed: dict(run(name, feed)))
    if not len(faces):
        return "no face", False
    best = faces[faces[:, 4].argmax()]
    right = best[4] > 0.9 and best[0] < 225 < best[2] and best[1] < 110 < best[3]
    return f"a face at {best[:4].round().astype(int).tolist()}, {best[4]:.3f}", bool(right)


def _photos(rng: np.random.Generator) -> Iterator[Feed]:
    photos = [features.picture(data_folder(), n) for n in PHOTOS]
    while True:
        crop = _crop(rng, photos[int(rng.integers(4))], 150)
        yield {"input:0": features.nsfw_input(crop)}


def _safe(run: Run) -> tuple[str, bool]:
    batch = [features.nsfw_input(features.picture(data_folder(), n)) for n in PHOTOS]
    scores = first(run("opennsfw_resnet50", {"input:0": np.concatenate(batch)}))[:, 0]
    return "safe: " + ", ".join(f"{s:.3f}" for s in scores), bool((scores > 0.8).all())


TASKS = (
    Task("swift_f0", _pitches, _pitch),
    Task("magika_v3_3", _files, _kinds),
    Task("ppocrv4_det", _pages, _boxes),
    Task("ppocrv4_rec", _lines, _texts),
    Task("ppocr_cls", _directions, _direction),
    Task("mtcnn_pnet", _faces_of("input_1", 100, 1), _face),
    Task("mtcnn_rnet", _faces_of("input_2", 24, 4), _face),
    Task("mtcnn_onet", _faces_of("input_3", 48, 4), _face),
    Task("opennsfw_resnet50", _photos, _safe),
    Task("dnsmos_p808", _qualities, _quality),
)


def folder() -> Path:
    """Where the networks are."""
    return data_folder().parent
