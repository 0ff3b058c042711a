"""Ranges of tensors by name, and TensorRT's text form of them: the calibration cache.

    TRT-8601-EntropyCalibration2
    input: 3c010a14
    conv1: 3d4fb549

The first line names who calibrated and how; each other one a tensor and its scale, largest
magnitude / 127, as the eight hex digits of a big-endian float32.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from braze.core.errors import FileError
from braze.core.files import path_text, readable_source, replacing
from braze.quantization.thresholds import Range

VERSION: Final = "TRT-8601"  # the release whose files braze's look like
# method -> what TensorRT calls it
KINDS: Final = {
    "entropy": "EntropyCalibration2",
    "entropy1": "EntropyCalibration",
    "minmax": "MinMaxCalibration",
    "percentile": "LegacyCalibration",
}
_LINE: Final = re.compile(r"(.+): ([0-9a-fA-F]{1,8})")


@dataclass(frozen=True, slots=True)
class Table:
    """ranges: tensor name -> its range; kind: the calibration as TensorRT calls it."""

    ranges: Mapping[str, Range]
    kind: str = KINDS["entropy"]


def read_table(path: str | os.PathLike[str]) -> Table:
    """A calibration cache; raises FileError for what is none, with the line."""
    where = f"calibration cache {path_text(path)}"
    try:
        text = readable_source(path, "calibration cache").read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FileError(f"{where} is no text; give one that TensorRT or braze wrote") from None
    head, *lines = text.splitlines() or [""]
    named = re.fullmatch(r"TRT-\d+-(\w+)", head.strip())
    if named is None:
        raise FileError(
            f"{where} begins with {head[:40]!r} in place of TRT-<version>-<calibration>; give one "
            "that TensorRT or braze wrote"
        )
    ranges: dict[str, Range] = {}
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        found = _LINE.fullmatch(line.strip())
        scale = struct.unpack("!f", bytes.fromhex(found[2].zfill(8)))[0] if found else -1.0
        if found is None or not (0 <= scale < np.inf):
            raise FileError(
                f"{where}, line {number}: {line[:60]!r} is not a tensor and the hex digits of its "
                "scale; calibrate again"
            )
        ranges[found[1]] = Range(-scale * 127, scale * 127)
    return Table(ranges, named[1])


def write_table(table: Table, path: str | os.PathLike[str]) -> None:
    """Write a calibration cache. Only magnitudes are kept: what asymmetric grids need is lost."""
    lines = [f"{VERSION}-{table.kind}"]
    for name, r in table.ranges.items():
        scale = float(np.float32(r.size / 127))
        lines.append(f"{name}: {struct.pack('!f', scale).hex()}")
    with replacing(path) as file:
        file.write(("\n".join(lines) + "\n").encode())
