"""The real networks: input ranges, and a real feed for each."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import braze
from fetch_models import FILES, is_present
from ocr.detection import detection_input
from ocr.pictures import sample_page
from ocr.recognition import padded_input, text_width
from tests.models import features

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

LINES = (
    "Inference compilers lower graphs to kernels.",
    "Invoice 2047: total 1,938.50 EUR",
    "The quick brown fox jumps over the lazy dog",
)


@dataclass(frozen=True)
class Network:
    """name: its file without .onnx; ranges: (min, opt, max) per input; make_feed: real inputs from
    the data folder, within the ranges and small enough for the float64 reference.
    """

    name: str
    ranges: Mapping[str, Range]
    make_feed: Callable[[Path], Feed]


def text_line(text: str) -> Image.Image:
    """A picture of one line."""
    return sample_page([text], size=36)


def recognition_feed(text: str) -> Array:
    """The recognition input of a rendered line, cut close to the text as a detector would."""
    line = text_line(text)
    box = Image.eval(line.convert("L"), lambda v: 255 - v).getbbox()
    assert box is not None
    close = line.crop((box[0] - 6, box[1] - 6, box[2] + 6, box[3] + 6))
    return padded_input(close, max(320, text_width(close.size)))


def _swift(data: Path) -> Feed:
    return pitch_feed(features.speech(data))


def pitch_feed(samples: Array) -> Feed:
    """swift_f0's inputs."""
    low, high = np.array(46.875, np.float32), np.array(2093.75, np.float32)
    return {"audio": samples[None], "fmin": low, "fmax": high}


def _direction(_data: Path) -> Feed:
    line = text_line(LINES[2]).crop((36, 30, 236, 90))
    turned = line.transpose(Image.Transpose.ROTATE_180)
    return {"x": np.concatenate([padded_input(line, 192), padded_input(turned, 192)])}


def _page(data: Path) -> Feed:
    # half the size the OCR example uses keeps the float64 reference quick
    x = detection_input(features.picture(data, "page.png"))
    return {"x": np.ascontiguousarray(x[:, :, ::2, ::2][:, :, :352, :736])}


def _pixels(data: Path, name: str, size: tuple[int, int]) -> Array:
    photo = features.picture(data, name).resize(size, Image.Resampling.BILINEAR)
    return np.ascontiguousarray(features.centred(np.asarray(photo)).transpose(1, 0, 2)[None])


def _faces(data: Path, size: int) -> Array:
    photo = features.picture(data, "astronaut.png")
    boxes = [(160, 40, 290, 170), (0, 0, 100, 100), (180, 60, 270, 150)]
    faces = [photo.crop(b).resize((size, size), Image.Resampling.BILINEAR) for b in boxes]
    return np.stack([features.centred(np.asarray(f)).transpose(1, 0, 2) for f in faces])


NETWORKS = (
    Network(
        "swift_f0",
        {"audio": ((1, 2048), (1, 32000), (1, 160000)), "fmin": ((),) * 3, "fmax": ((),) * 3},
        _swift,
    ),
    Network(
        "magika_v3_3",
        {"bytes": ((1, 2048), (2, 2048), (8, 2048))},
        lambda data: {"bytes": features.magika_input((data / "china.jpg").read_bytes())},
    ),
    Network("ppocrv4_det", {"x": ((1, 3, 32, 32), (1, 3, 352, 736), (2, 3, 736, 1472))}, _page),
    Network(
        "ppocrv4_rec",
        {"x": ((1, 3, 48, 320), (1, 3, 48, 640), (4, 3, 48, 1600))},
        lambda _data: {"x": recognition_feed(LINES[1])},
    ),
    Network("ppocr_cls", {"x": ((1, 3, 48, 192), (2, 3, 48, 192), (8, 3, 48, 192))}, _direction),
    Network(
        "mtcnn_pnet",
        {"input_1": ((1, 12, 12, 3), (1, 150, 150, 3), (2, 200, 200, 3))},
        lambda data: {"input_1": _pixels(data, "astronaut.png", (154, 130))},
    ),
    Network(
        "mtcnn_rnet",
        {"input_2": ((1, 24, 24, 3), (8, 24, 24, 3), (512, 24, 24, 3))},
        lambda data: {"input_2": _faces(data, 24)},
    ),
    Network(
        "mtcnn_onet",
        {"input_3": ((1, 48, 48, 3), (2, 48, 48, 3), (64, 48, 48, 3))},
        lambda data: {"input_3": _faces(data, 48)},
    ),
    Network(
        "opennsfw_resnet50",
        {"input:0": ((1, 224, 224, 3), (1, 224, 224, 3), (4, 224, 224, 3))},
        lambda data: {"input:0": features.nsfw_input(features.picture(data, "china.jpg"))},
    ),
    Network(
        "dnsmos_p808",
        {"input_1": ((1, 900, 120), (1, 900, 120), (2, 900, 120))},
        lambda data: {"input_1": features.dnsmos_input(features.speech(data))},
    ),
)
BY_NAME = {n.name: n for n in NETWORKS}


def network_params(*leave_out: str) -> list[Any]:
    """All networks as test parameters; tests of one network share a worker and so its engines."""
    return [
        pytest.param(n.name, marks=pytest.mark.xdist_group(n.name.replace("_pnet", "")))
        for n in NETWORKS
        if n.name not in leave_out
    ]


def models_folder() -> Path:
    """Where `make models` puts networks and data (environment variable BRAZE_MODELS)."""
    return Path(os.environ.get("BRAZE_MODELS", "models"))


def data_folder() -> Path:
    """Pictures, sound and other input data."""
    return models_folder() / "data"


@functools.cache
def _is_there(path: str) -> bool:
    return is_present(next(f for f in FILES if f.path == path), models_folder())


def need(*paths: str) -> None:
    """Skip the test when a fetched file is missing (fail where BRAZE_REQUIRE_MODELS is set)."""
    missing = [p for p in paths if not _is_there(p)]
    if missing:
        reason = f"{', '.join(missing)} not in {models_folder()}; run `make models`"
        if os.environ.get("BRAZE_REQUIRE_MODELS"):
            pytest.fail(reason)
        pytest.skip(reason)


DATA_OF = {
    "swift_f0": ("data/speech_librivox_0870.wav",),
    "dnsmos_p808": ("data/speech_librivox_0870.wav",),
    "magika_v3_3": ("data/china.jpg",),
    "ppocrv4_det": ("data/page.png",),
    "mtcnn_pnet": ("data/astronaut.png",),
    "mtcnn_rnet": ("data/astronaut.png",),
    "mtcnn_onet": ("data/astronaut.png",),
    "opennsfw_resnet50": ("data/china.jpg",),
}


def model_path(name: str) -> Path:
    """The network's file; skips the test when it is not there."""
    need(f"{name}.onnx")
    return models_folder() / f"{name}.onnx"


@functools.cache
def real_feed(name: str) -> Feed:
    """The network's real feed (do not write to it)."""
    need(*DATA_OF.get(name, ()))
    return BY_NAME[name].make_feed(data_folder())


# Engines are shared by all tests of one process: building them is most of the suite's time.
# Level 2 runs every pass and fuses like level 3 but takes the first tactic instead of measuring.
LEVEL = int(os.environ.get("BRAZE_TEST_LEVEL", "2"))


@functools.cache
def dynamic_engine(name: str, level: int = LEVEL, threads: int = 3) -> braze.Engine:
    """An engine for the whole range of shapes."""
    return braze.build(
        model_path(name),
        shapes=BY_NAME[name].ranges,
        optimization_level=level,
        threads=threads,
    )


@functools.cache
def static_engine(name: str, level: int = LEVEL, threads: int = 3) -> braze.Engine:
    """An engine for exactly the shapes of the real feed."""
    path = model_path(name)
    shapes = {k: v.shape for k, v in real_feed(name).items()}
    return braze.build(path, shapes=shapes, optimization_level=level, threads=threads)


# The worst element of an output, as tests/distances.py measures it. Rounding in fp32 leaves at most
# 3.2e-5 (ppocrv4_det, whose sigmoids are near 0 almost everywhere), an element computed wrongly is
# off by 1e-2 and more. ppocrv4_rec has an output that amplifies rounding: there 1.2e-3 is seen.
WORST_ERROR = 2e-4
WORST_ERROR_OF = {"ppocrv4_rec": 2e-3}


def worst_error(name: str) -> float:
    """The largest error of one element that rounding explains."""
    return WORST_ERROR_OF.get(name, WORST_ERROR)
