"""Where calibration data comes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import braze
from braze.quantization.data import Calibration, Input
from braze.quantization.pictures import Pictures

Array = np.ndarray[Any, Any]
F32 = np.dtype(np.float32)
ONE = [Input("x", F32, (2, 3, 4, 5))]
OPEN = [Input("x", F32, (None, 3, 4, 5))]
TWO = [Input("a", F32, (None, 4)), Input("n", np.dtype(np.int64), ())]


def shapes(data: Any, inputs: list[Input], most: int = 0) -> list[tuple[int, ...]]:
    return [feed["x"].shape for feed in Calibration(data, most).feeds(inputs)]


def test_an_array_is_cut_into_what_a_run_takes() -> None:
    x = np.zeros((7, 3, 4, 5), np.float32)
    assert shapes(x, ONE) == [(2, 3, 4, 5)] * 3
    assert shapes(x, OPEN) == [(1, 3, 4, 5)] * 7
    assert shapes(x, OPEN, most=4) == [(1, 3, 4, 5)] * 4
    assert shapes(x[0], OPEN) == [(1, 3, 4, 5)]


def test_iterables_are_read_once_and_no_further_than_needed() -> None:
    seen = []

    def samples() -> Iterator[Array]:
        for k in range(100):
            seen.append(k)
            yield np.full((1, 3, 4, 5), k, np.float32)

    feeds = list(Calibration(samples(), 3).feeds(OPEN))
    assert [f["x"].flat[0] for f in feeds] == [0, 1, 2]
    assert seen == [0, 1, 2]


def test_feeds_of_several_inputs() -> None:
    feed = {"n": 3, "a": np.zeros((2, 4))}
    (got,) = Calibration(feed).feeds(TWO)
    assert (got["a"].dtype, got["a"].shape, got["n"].dtype, got["n"].shape) == (
        F32, (2, 4), np.dtype(np.int64), (),
    )  # fmt: skip
    assert len(list(Calibration([feed, feed]).feeds(TWO))) == 2


def test_folders_of_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.ones((2, 3, 4, 5), np.float32))
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 3, 4, 5), np.float32))
    feeds = list(Calibration(tmp_path).feeds(OPEN))
    assert [f["x"].flat[0] for f in feeds] == [0, 1, 1]
    assert len(list(Calibration(str(tmp_path / "b.npy")).feeds(OPEN))) == 2


def test_folders_of_pictures(tmp_path: Path) -> None:
    images = pytest.importorskip("PIL.Image")
    red = np.zeros((8, 10, 3), np.uint8)
    red[..., 0] = 255
    images.fromarray(red).save(tmp_path / "b.png")
    images.fromarray(red[..., 0]).save(tmp_path / "a.png")
    grey, coloured = (f["x"] for f in Calibration(tmp_path).feeds(OPEN))
    assert (grey == 1).all() and grey.shape == (1, 3, 4, 5)
    assert (coloured[0, 0] == 1).all() and (coloured[0, 1:] == 0).all()
    last = [Input("x", F32, (1, None, None, 3))]
    pictures = Pictures(tmp_path, size=(6, 7), mean=(0.5,), std=(0.5, 1.0, 2.0), bgr=True)
    _, coloured = (f["x"] for f in Calibration(pictures).feeds(last))
    assert coloured.shape == (1, 6, 7, 3)
    assert coloured[0, 0, 0] == pytest.approx([-1.0, -0.5, 0.25])
    with pytest.raises(braze.ConfigError, match="size"):
        list(Calibration(tmp_path).feeds(last))
    with pytest.raises(braze.ConfigError, match="no pictures"):
        list(Calibration(tmp_path).feeds([Input("x", F32, (1, 7))]))


@pytest.mark.parametrize(
    ("data", "inputs", "said"),
    [([], ONE, "no calibration data"), (3, ONE, "type int"), (np.zeros((2, 4)), TWO, "inputs a, n"),
     ({"a": np.zeros((1, 4))}, TWO, "feed 1"), ([{"y": 1}], ONE, "feed 1"),
     ([{"a": np.zeros((1, 4)), "n": 0.5}], TWO, "int64")],
)  # fmt: skip
def test_what_does_not_fit_is_refused(data: Any, inputs: list[Input], said: str) -> None:
    with pytest.raises(braze.BrazeError, match=said):
        list(Calibration(data).feeds(inputs))


def test_files_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(braze.FileError, match="holds no"):
        list(Calibration(tmp_path).feeds(ONE))
    (tmp_path / "x.npy").write_bytes(b"nothing")
    for path in (tmp_path, tmp_path / "absent", tmp_path / "x.npy"):
        with pytest.raises(braze.FileError):
            list(Calibration(path).feeds(ONE))
