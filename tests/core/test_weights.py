"""Weights files as text."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from braze.core.errors import FileError
from braze.weights import load_wts, save_wts


def test_what_is_written_is_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "conv1.weight": rng.standard_normal((6, 1, 5, 5)).astype(np.float32),
        "conv1.bias": np.float32([0.0, -0.0, 1e-45, np.inf, -np.inf, 3.4e38]),
        "scalar": np.float32(2.5),
        "empty": np.zeros(0, np.float32),
    }
    save_wts(tmp_path / "a.wts", weights)
    got = load_wts(tmp_path / "a.wts")
    assert list(got) == list(weights)
    for name, array in weights.items():
        assert got[name].dtype == np.float32
        assert got[name].tobytes() == array.tobytes()


def test_nan_keeps_its_bits(tmp_path: Path) -> None:
    array = np.uint32([0x7FC00001, 0xFFC12345]).view(np.float32)
    save_wts(tmp_path / "a.wts", {"x": array})
    assert load_wts(tmp_path / "a.wts")["x"].tobytes() == array.tobytes()


@pytest.mark.parametrize("separator", ["", " "])
def test_other_writers(tmp_path: Path, separator: str) -> None:
    values = [1.0, -2.5, 0.0, 1e-3]
    text = separator.join(struct.pack(">f", v).hex() for v in values)
    (tmp_path / "b.wts").write_text(f"2\nw 4 {text}\nb 1 {struct.pack('>f', 7).hex()}\n")
    got = load_wts(tmp_path / "b.wts")
    np.testing.assert_array_equal(got["w"], np.float32(values))
    np.testing.assert_array_equal(got["b"], np.float32([7]))


def test_digits_without_zeros_in_front(tmp_path: Path) -> None:
    (tmp_path / "c.wts").write_text("1\nw 3 0 3f800000 1\n")
    expected = np.uint32([0, 0x3F800000, 1]).view(np.float32)
    assert load_wts(tmp_path / "c.wts")["w"].tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not begin"),
        ("x\n", "does not begin"),
        ("2\nw 1 3f800000\n", "says it has 2 weights, and has 1"),
        ("1\nw\n", "line 2: it is not of the form"),
        ("1\nw two 3f800000\n", "line 2: it is not of the form"),
        ("1\nw 2 3f800000\n", "'w' says it has 2 numbers, and has 1"),
        ("1\nw 1 3f80000g\n", "no hex digit"),
        ("2\nw 1 3f800000\nw 1 3f800000\n", "'w' is there twice"),
    ],
)
def test_damaged_files(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "d.wts").write_text(text)
    with pytest.raises(FileError, match=words):
        load_wts(tmp_path / "d.wts")


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        load_wts(tmp_path / "none.wts")
    (tmp_path / "e.wts").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="no text"):
        load_wts(tmp_path / "e.wts")
    with pytest.raises(FileError, match="leave out spaces"):
        save_wts(tmp_path / "f.wts", {"a b": np.zeros(1)})
    assert not (tmp_path / "f.wts").exists()
