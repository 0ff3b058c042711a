"""Weights files as text (`.wts`): a line with their number, then `name count hex…` for each.

The hex digits are those of big-endian float32 numbers, eight a number. Writers leave them together
or put spaces between; both are read, and written as in the first way.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from braze.core.errors import FileError
from braze.core.files import path_text, readable_source, replacing

Array = np.ndarray[Any, Any]
DIGITS: Final = 8  # of a float32


def load_wts(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The weights by name, flat, in the order of the file; raises FileError."""
    name = path_text(path)
    try:
        text = readable_source(name, "weights file").read_text("utf-8")
    except UnicodeDecodeError as e:
        raise FileError(f"weights file {name} is no text; write it with save_wts") from e
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines or not lines[0].strip().isdecimal():
        raise FileError(f"weights file {name} does not begin with the number of its weights")
    count = int(lines[0])
    if count != len(lines) - 1:
        raise FileError(
            f"weights file {name} says it has {count} weights, and has {len(lines) - 1}; it may be "
            "cut short"
        )
    found: dict[str, Array] = {}
    for number, line in enumerate(lines[1:], 2):
        key, array = _read_line(line, f"weights file {name}, line {number}")
        if key in found:
            raise FileError(f"weights file {name}, line {number}: {key!r} is there twice")
        found[key] = array
    return found


def _read_line(line: str, where: str) -> tuple[str, Array]:
    key, *rest = line.split(maxsplit=2)
    if not rest or not rest[0].isdecimal():
        raise FileError(f"{where}: it is not of the form `name count hex…`")
    count, digits = int(rest[0]), rest[1] if len(rest) > 1 else ""
    parts = digits.split()
    if len(parts) == count and count > 1:  # a writer may leave out zeros in front
        digits = "".join(p.rjust(DIGITS, "0") for p in parts)
    else:
        digits = "".join(parts).rjust(DIGITS if count == 1 else 0, "0")
    if len(digits) != count * DIGITS:
        raise FileError(
            f"{where}: {key!r} says it has {count} numbers, and has {len(digits) / DIGITS:g}"
        )
    try:
        data = bytes.fromhex(digits)
    except ValueError as e:
        raise FileError(f"{where}: {key!r} holds what is no hex digit") from e
    return key, np.frombuffer(data, ">f4").astype(np.float32)


def save_wts(path: str | os.PathLike[str], weights: Mapping[str, Any]) -> None:
    """Write weights, arrays of any shape, as float32; whole or not at all; raises FileError."""
    name = path_text(path)
    for key in weights:
        if not key or len(key.split()) != 1:
            raise FileError(f"weights file {name}: a name cannot be {key!r}; leave out spaces")
    with replacing(name) as file:
        file.write(f"{len(weights)}\n".encode())
        for key, value in weights.items():
            flat = np.ascontiguousarray(value, np.float32).reshape(-1)
            file.write(f"{key} {flat.size} {flat.astype('>f4').tobytes().hex()}\n".encode())
