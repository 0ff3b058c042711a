"""The OCR example's own arithmetic: boxes, crops, decoding. No network is needed."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("PIL")
pytest.importorskip("scipy")

from PIL import Image

from ocr.detection import (
    LONG_SIDE,
    SHORT_SIDE,
    STEP,
    DetectionSettings,
    detection_input,
    detection_size,
    find_boxes,
    reading_order,
)
from ocr.geometry import Box, convex_hull, smallest_box
from ocr.pictures import PictureError, list_pictures, read_picture, sample_page
from ocr.reader import Reader
from ocr.recognition import (
    MOST_BATCH,
    MOST_WIDTH,
    TEXT_HEIGHT,
    crop,
    decode,
    padded_input,
    text_batches,
    text_width,
    upside_down,
)


def rotated(half: tuple[float, float], degrees: float) -> Box:
    angle = np.deg2rad(degrees)
    return Box((50.0, 40.0), half, (float(np.cos(angle)), float(np.sin(angle))))


@pytest.mark.parametrize("degrees", [0.0, 7.0, 30.0, -44.0, -12.5])
def test_smallest_box_finds_a_rotated_rectangle(degrees: float) -> None:
    box = rotated((20.0, 4.0), degrees)
    corners = box.corners()
    # points on all four sides, so that the hull has more than the corners
    points = np.concatenate(
        [corners[i] + (corners[(i + 1) % 4] - corners[i]) * t for i in range(4) for t in [0.0, 0.5]]
    ).reshape(-1, 2)
    found = smallest_box(points)
    assert found.center == pytest.approx(box.center, abs=1e-9)
    assert found.half == pytest.approx(box.half, abs=1e-9)
    assert found.axis == pytest.approx(box.axis, abs=1e-9)


def test_hull_drops_inner_points() -> None:
    points = np.array([[0, 0], [4, 0], [4, 4], [0, 4], [2, 2], [1, 3], [2, 0]])
    assert sorted(map(tuple, convex_hull(points).tolist())) == [(0, 0), (0, 4), (4, 0), (4, 4)]


def test_degenerate_points_make_a_flat_box() -> None:
    assert smallest_box(np.array([[1.0, 2.0], [5.0, 2.0]])).half == (2.0, 0.0)
    assert smallest_box(np.array([[1.0, 2.0]])).half == (0.0, 0.0)


@pytest.mark.parametrize(
    "size", [(384, 191), (10, 10), (4000, 3000), (20, 5000), (1, 1), (736, 736)]
)
def test_detection_size_is_legal(size: tuple[int, int]) -> None:
    width, height = detection_size(*size)
    assert width % STEP == height % STEP == 0
    assert STEP <= min(width, height) <= max(width, height) <= LONG_SIDE
    if max(size) / min(size) < 1.9:
        assert min(width, height) >= min(SHORT_SIDE, LONG_SIDE / 2)


def test_detection_input_is_blue_green_red() -> None:
    x = detection_input(Image.new("RGB", (736, 736), (255, 0, 51)))
    assert x.shape == (1, 3, 736, 736)
    assert x.dtype == np.float32
    assert x[0, :, 5, 5] == pytest.approx([-0.6, -1.0, 1.0], abs=1e-6)


def test_boxes_come_back_grown_and_scaled() -> None:
    probability = np.zeros((100, 200), np.float32)
    probability[20:30, 40:120] = 0.9
    probability[60:62, 10:12] = 0.9  # noise: too thin
    probability[80:90, 10:60] = 0.35  # over the threshold, under the score
    ((box, score),) = find_boxes(probability, (400, 200), DetectionSettings())
    grow = DetectionSettings().unclip * 80 * 10 / (2 * (80 + 10))
    assert score == pytest.approx(0.9, abs=1e-6)
    assert box.center == pytest.approx((160.0, 50.0))
    assert box.half == pytest.approx((2 * (40 + grow), 2 * (5 + grow)))


def test_reading_order_goes_line_by_line() -> None:
    def at(x: float, y: float) -> tuple[Box, float]:
        return Box((x, y), (10.0, 8.0), (1.0, 0.0)), 1.0

    boxes = [at(200, 12), at(20, 40), at(20, 10), at(90, 38)]
    got = [b.center for b, _ in reading_order(boxes)]
    assert got == [(20, 10), (200, 12), (20, 40), (90, 38)]


@pytest.mark.parametrize("degrees", [0.0, 25.0, -25.0])
def test_crop_turns_the_text_upright(degrees: float) -> None:
    # a box whose left half is dark and whose right half is white
    big = Image.new("RGB", (200, 160), (128, 128, 128))
    box = Box((100.0, 80.0), (40.0, 12.0), rotated((1.0, 1.0), degrees).axis)
    x, y = np.meshgrid(np.arange(200) + 0.5, np.arange(160) + 0.5)
    along = (x - 100) * box.axis[0] + (y - 80) * box.axis[1]
    pixels = np.where(along[..., None] < 0, np.uint8(10), np.uint8(250)).repeat(3, -1)
    big.paste(Image.fromarray(pixels.astype(np.uint8)))
    got = np.asarray(crop(big, box), np.float64)
    assert got.shape == (24, 80, 3)
    assert got[:, :36].max() < 60
    assert got[:, 44:].min() > 200


def test_columns_are_laid_down() -> None:
    page = Image.new("RGB", (100, 100))
    assert crop(page, Box((50, 50), (8, 40), (1.0, 0.0))).size == (80, 16)


def test_recognition_input_pads_with_zeros() -> None:
    x = padded_input(Image.new("RGB", (96, 24), (255, 255, 255)), 320)
    assert x.shape == (1, 3, TEXT_HEIGHT, 320)
    assert (x[..., :192] == 1).all()
    assert (x[..., 192:] == 0).all()


def test_width_is_limited() -> None:
    assert text_width((100000, 10)) == MOST_WIDTH
    assert text_width((1, 1000)) == 1


def test_batches_hold_every_crop_once_and_fit_the_profile() -> None:
    crops = [Image.new("RGB", (w, 20)) for w in (30, 2000, 50, 700, 20, 10, 90, 40, 60, 300)]
    seen: list[int] = []
    for indexes, x in text_batches(crops):
        assert x.shape[0] == len(indexes) <= MOST_BATCH
        assert x.shape[1:3] == (3, TEXT_HEIGHT)
        seen += indexes
    assert sorted(seen) == list(range(len(crops)))


def test_decoding_collapses_repeats_but_not_across_blanks() -> None:
    alphabet = ["", "a", "b", " "]
    path = [1, 1, 0, 1, 2, 2, 0, 3]
    scores = np.full((2, len(path), 4), 0.1, np.float32)
    scores[0, np.arange(len(path)), path] = 0.7
    scores[1, :, 0] = 0.9
    (text, confidence), (nothing, zero) = decode(scores, alphabet)
    assert (text, nothing, zero) == ("aab ", "", 0.0)
    assert confidence == pytest.approx(0.7)


def test_only_sure_turns_count() -> None:
    assert upside_down(np.array([[0.0, 1.0], [0.2, 0.8], [1.0, 0.0]])) == [0]


def test_doubtful_crops_are_read_both_ways() -> None:
    alphabet = ["", *"xy"]

    def detection(x: np.ndarray) -> np.ndarray:
        out = np.zeros((1, 1, *x.shape[2:]), np.float32)
        out[0, 0, 100:130, 100:400] = 1
        return out

    def direction(x: np.ndarray) -> np.ndarray:
        return np.tile(np.array([[0.0, 1.0]], np.float32), (len(x), 1))

    def recognition(x: np.ndarray) -> np.ndarray:
        out = np.zeros((len(x), 4, 3), np.float32)
        out[0, :, 1] = 0.95  # as it lies: sure
        out[1:, :, 2] = 0.6  # turned: less so
        return out

    networks = {"detection": detection, "direction": direction, "recognition": recognition}
    reader = Reader(networks, alphabet)
    assert [line.text for line in reader.read(Image.new("RGB", (800, 800)))] == ["x"]
    assert reader.seen["recognition"].shape[0] == 2


def test_empty_picture_has_no_lines() -> None:
    reader = Reader({"detection": lambda x: np.zeros((1, 1, *x.shape[2:]), np.float32)}, [""])
    assert reader.read(Image.new("RGB", (64, 64))) == []


def test_bad_pictures_are_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    for path in (broken, tmp_path / "missing.png"):
        with pytest.raises(PictureError, match=path.name):
            read_picture(path)


def test_folders_give_their_pictures(tmp_path) -> None:  # type: ignore[no-untyped-def]
    sample_page(["hello"]).save(tmp_path / "b.png")
    (tmp_path / "notes.txt").write_text("no picture")
    assert list_pictures([tmp_path]) == [tmp_path / "b.png"]
