"""TensorRT's calibration cache: text in, text out, and what is no such text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import braze
from braze.quantization.table import Table, read_table, write_table
from braze.quantization.thresholds import Range

TEXT = "TRT-8601-EntropyCalibration2\ninput: 3c010a14\nlayer 1: out:0: 3d4fb549\nzero: 0\n"


def test_scales_are_big_endian_floats(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.write_text(TEXT)
    table = read_table(path)
    assert table.kind == "EntropyCalibration2"
    scale = np.frombuffer(bytes.fromhex("3c010a14"), ">f4")[0]
    assert table.ranges["input"].high == float(scale) * 127
    assert list(table.ranges) == ["input", "layer 1: out:0", "zero"]
    write_table(table, tmp_path / "again")
    assert (tmp_path / "again").read_text() == TEXT.replace("zero: 0\n", "zero: 00000000\n")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    ranges = {f"t{k}": Range(-(1.7**k), 1.3**k) for k in range(-20, 20)}
    path = tmp_path / "cache"
    write_table(Table(ranges, "MinMaxCalibration"), path)
    back = read_table(path)
    assert back.kind == "MinMaxCalibration"
    for name, r in ranges.items():
        # the scale keeps float32's 24 bits
        assert back.ranges[name].size == pytest.approx(r.size, rel=2**-23)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "begins with"), ("TRT-8601\n", "begins with"), ("{}", "begins with"),
     ("TRT-8601-MinMaxCalibration\nx: 3c01zz14\n", "line 2"),
     ("TRT-8601-MinMaxCalibration\n\nx 3c010a14\n", "line 3"),
     ("TRT-8601-MinMaxCalibration\nx: bc010a14\n", "line 2"),
     ("TRT-8601-MinMaxCalibration\nx: 7fc00000\n", "line 2")],
)  # fmt: skip
def test_other_files_are_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.write_text(text)
    with pytest.raises(braze.FileError, match=said):
        read_table(path)


def test_bytes_and_absent_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name in ("bytes", "absent"):
        with pytest.raises(braze.FileError):
            read_table(tmp_path / name)
