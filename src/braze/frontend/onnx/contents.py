"""What `values` says of inputs: one content, or (min, opt, max) contents in each profile.

An integer input whose content is bounded is one symbol an element: the run reads it, its bounds are
those of the profiles, and what follows from it is a size like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.core.dims import dmax, dmin, static, sym
from braze.core.dtypes import I64, DType
from braze.core.errors import DTypeError, ProfileError
from braze.frontend.onnx.records import ValueRecord
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ir.run_sizes import Range
from braze.ops.writing.run_contents import LOWEST, MAX_READ, AsSizes


@dataclass(frozen=True, slots=True)
class Bounded:
    """Content that is bounded. profiles: (min, opt, max) of each element, row-major, a profile."""

    shape: tuple[int, ...]
    profiles: tuple[tuple[Range, ...], ...]


def split_values(
    inputs: Sequence[ValueRecord], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Bounded]]:
    """Contents that are the same in every run, and those that are bounded.

    Bounded is what has an axis more than the input: (min, opt, max), or two: a list of these, one
    a profile. Raises ProfileError for bounds that contradict each other or their input.
    """
    fixed: dict[str, Any] = {}
    bounded: dict[str, Bounded] = {}
    records = {i.name: i for i in inputs}
    for name, given in values.items():
        record = records.get(name)
        corners = None if record is None else _corners(record, given)
        if record is None or corners is None:
            fixed[name] = given
            continue
        found = _bounded(record, corners)
        elements = zip(*found.profiles, strict=True)
        if all(len(set(e)) == 1 and e[0][0] == e[0][2] for e in elements):
            only = [low for low, _, _ in found.profiles[0]]
            fixed[name] = np.array(only, dtype=object).reshape(found.shape).tolist()
        else:
            bounded[name] = found
    return fixed, bounded


def _corners(record: ValueRecord, given: Any) -> list[Any] | None:
    """(min, opt, max) contents, one a profile; None where `given` is one content."""
    if record.shape is None or not isinstance(given, (list, tuple)) or not given:
        return None
    try:
        axes = len(np.shape(given)) - len(record.shape)
    except (ValueError, TypeError):
        return None  # no array: an error of contents
    each = [given] if axes == 1 else list(given) if axes == 2 else []
    return each if each and all(len(corners) == 3 for corners in each) else None


def _bounded(record: ValueRecord, given: Sequence[Any]) -> Bounded:
    where = f"values of input {record.name!r}"
    dtype = record.dtype
    if not isinstance(dtype, DType) or not dtype.is_int or dtype.bits < 8:
        raise ProfileError(
            f"{where} are given as (min, opt, max), which integers may have, but it is {dtype}; "
            "give one content"
        )
    corners = [np.asarray(triple) for triple in given]
    shape, count = corners[0].shape[1:], corners[0][0].size
    if any(c.dtype.kind not in "iu" for c in corners):
        raise DTypeError(f"{where} hold other numbers than integers; give integers for {dtype}")
    if not 0 < count <= MAX_READ:
        raise ProfileError(
            f"{where} have {count} elements, but bounds are for 1 to {MAX_READ}; leave them out"
        )
    info = np.iinfo(dtype.name)
    least, most = max(int(info.min), LOWEST), min(int(info.max), (1 << 63) - 1)
    profiles = []
    for triple in corners:
        low, opt, high = (tuple(int(x) for x in corner.reshape(-1)) for corner in triple)
        ranges = tuple(zip(low, opt, high, strict=True))
        if any(not least <= a <= b <= c <= most for a, b, c in ranges):
            raise ProfileError(
                f"{where}: need {least} <= min <= opt <= max <= {most} of every element, got "
                f"{low}, {opt}, {high}"
            )
        profiles.append(ranges)
    return Bounded(shape, tuple(profiles))


def bind_content(g: GraphBuilder, value: Value, symbols: Sequence[str]) -> None:
    """Let a graph input have one of `symbols`, whose bounds the builder has, as each element.

    Guards keep all of them in the network, so that the run holds each element to its bounds.
    """
    wide = value if value.dtype is I64 else g.add1(AsSizes(), value, name=f"{value.name}_sizes")
    content = np.empty(math.prod(static(value.shape)), dtype=object)
    for i, symbol in enumerate(symbols):
        (low, high), d = g.bounds[symbol], sym(symbol)
        g.define_size(d, wide, i, low, high)
        what = f"input {value.name!r}: element {i} of its content must be in {low}..{high}"
        g.guard(dmin(dmax(d, low), high), d, what)
        content[i] = d
    g.specialized[value.name] = tuple(content)
    g.promise(value, content.reshape(static(value.shape)))
