"""Real inputs through real networks: is the answer right, not only close to another engine's?"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

pytest.importorskip("PIL")
pytest.importorskip("scipy")

from PIL import Image

from ocr.detection import DetectionSettings, detection_input, find_boxes
from ocr.engines import characters
from ocr.pictures import sample_page
from ocr.recognition import crop, decode, padded_input, text_width
from tests.models import features
from tests.models.mtcnn import find_faces
from tests.models.networks import (
    LINES,
    data_folder,
    dynamic_engine,
    model_path,
    need,
    pitch_feed,
    real_feed,
    recognition_feed,
)

Array = np.ndarray[Any, Any]


def run(name: str, x: Array) -> Array:
    """The first output of a network with one input."""
    engine = dynamic_engine(name)
    return next(iter(engine({engine.inputs[0].name: x}).values()))


@pytest.mark.xdist_group("swift_f0")
def test_swift_f0_hears_220_hertz() -> None:
    out = dynamic_engine("swift_f0")(pitch_feed(features.harmonic_tone(220, 2)))
    assert abs(np.median(out["pitch"]) - 220) < 2


@pytest.mark.xdist_group("swift_f0")
def test_swift_f0_finds_a_voice() -> None:
    need("data/speech_librivox_0870.wav")
    out = dynamic_engine("swift_f0")(pitch_feed(features.speech(data_folder())))
    voiced = out["confidence"] > 0.9
    assert voiced.sum() > 30
    assert 70 < np.median(out["pitch"][voiced]) < 400  # what human speech covers


@pytest.mark.xdist_group("magika_v3_3")
def test_magika_tells_file_types() -> None:
    expected = {
        "ddddocr_charsets.py": "python",
        "astronaut.png": "png",
        "speech_librivox_0870.wav": "wav",
        "china.jpg": "jpeg",
        "digits.csv.gz": "gzip",
    }
    need("data/magika_config.json", *(f"data/{n}" for n in expected))
    labels = json.loads((data_folder() / "magika_config.json").read_text())["target_labels_space"]
    batch = [features.magika_input((data_folder() / n).read_bytes()) for n in expected]
    scores = run("magika_v3_3", np.concatenate(batch))
    got = [labels[i] for i in scores.argmax(1)]
    assert dict(zip(expected, got, strict=True)) == expected


@pytest.mark.xdist_group("ppocrv4_det")
def test_detection_finds_the_lines() -> None:
    page = sample_page(LINES)
    probability = run("ppocrv4_det", detection_input(page))[0, 0]
    boxes = find_boxes(probability, page.size, DetectionSettings())
    assert len(boxes) == len(LINES)
    # line k of the page lies at margin + k * step, see sample_page
    middles = [b.center[1] for b, _ in boxes]
    assert middles == pytest.approx([32 + 51 * k + 20 for k in range(len(LINES))], abs=10)


@pytest.mark.xdist_group("ppocrv4_det")
def test_a_photographed_page_is_read() -> None:
    need("data/page.png")
    page = features.picture(data_folder(), "page.png")
    probability = run("ppocrv4_det", detection_input(page))[0, 0]
    boxes = [b for b, _ in find_boxes(probability, page.size, DetectionSettings())]
    assert len(boxes) == 7
    alphabet = characters(model_path("ppocrv4_rec"))
    crops = [crop(page, b) for b in boxes]
    inputs = [padded_input(c, max(320, text_width(c.size))) for c in crops]
    texts = [decode(run("ppocrv4_rec", x), alphabet)[0][0] for x in inputs]
    squeezed = [t.replace(" ", "") for t in texts]
    assert squeezed[:4] == [
        "Region-basedsegmentation",
        "Letusfirstdeterminemarkersofthecoinsandthe",
        "background.Thesemarkersarepixelsthatwecanlabel",
        "unambiguouslyaseitherobjectorbackground.Here,",
    ]


@pytest.mark.xdist_group("ppocrv4_rec")
def test_recognition_reads_rendered_lines() -> None:
    alphabet = characters(model_path("ppocrv4_rec"))
    for line in LINES:
        ((text, confidence),) = decode(run("ppocrv4_rec", recognition_feed(line)), alphabet)
        assert text.replace(" ", "") == line.replace(" ", "")
        assert confidence > 0.8


@pytest.mark.xdist_group("ppocr_cls")
def test_direction_tells_up_from_down() -> None:
    scores = run("ppocr_cls", real_feed("ppocr_cls")["x"])
    assert scores.sum(1) == pytest.approx([1, 1], abs=1e-5)
    assert scores[0, 0] > 0.5
    assert scores[1, 1] > 0.5


@pytest.mark.xdist_group("mtcnn")
def test_mtcnn_finds_the_astronauts_face() -> None:
    need("data/astronaut.png")
    photo = features.picture(data_folder(), "astronaut.png")
    faces = find_faces(photo, lambda name, feed: dynamic_engine(name)(feed))
    best = faces[faces[:, 4].argmax()]
    assert best[4] > 0.9
    assert best[0] < 225 < best[2]  # where the face is in that photograph
    assert best[1] < 110 < best[3]


@pytest.mark.xdist_group("opennsfw_resnet50")
def test_photographs_are_safe() -> None:
    names = ("china.jpg", "coffee.png", "chelsea.png", "astronaut.png")
    need(*(f"data/{n}" for n in names))
    batch = [features.nsfw_input(features.picture(data_folder(), n)) for n in names]
    scores = run("opennsfw_resnet50", np.concatenate(batch))
    assert (scores[:, 0] > 0.8).all()


@pytest.mark.xdist_group("dnsmos_p808")
def test_noise_lowers_speech_quality() -> None:
    need("data/speech_librivox_0870.wav")
    clean = features.speech(data_folder())
    rng = np.random.default_rng(0)
    noise = 0.05 * rng.standard_normal(clean.shape)
    noisy = np.clip(clean + noise, -1, 1).astype(np.float32)
    scores = [run("dnsmos_p808", features.dnsmos_input(x)).item() for x in (clean, noisy)]
    assert 1 <= scores[1] < scores[0] <= 5
    assert scores[0] - scores[1] > 0.2


def test_a_picture_too_large_for_the_profile_is_refused() -> None:
    from braze.core.errors import ProfileError

    x = detection_input(Image.new("RGB", (736, 736)))
    with pytest.raises(ProfileError):
        run("ppocrv4_det", np.tile(x, (3, 1, 1, 1)))
