"""Values among the shapes of the command line, as trtexec takes them: `--minShapes=n:1`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from braze.cli.options import build_keywords
from braze.cli.shapes import Shape
from braze.core.dtypes import DType

if TYPE_CHECKING:
    from braze.frontend.onnx.proto import ModelSource
    from braze.frontend.onnx.records import ValueRecord


def model_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `braze.build` for `args.model`."""
    return with_values(args.model, build_keywords(args))


def with_values(model: ModelSource, keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords of a build whose `shapes` of integer inputs are values where they are no shapes.

    These are scalars and vectors of a size that the model says, given as many numbers as they have
    elements, at least one of which cannot be their size.
    """
    shapes = keywords["shapes"]
    if not shapes:
        return keywords
    from braze.frontend.onnx.proto import load_model  # of the compiler: a run does without

    records = {i.name: i for i in load_model(model).graph.inputs}
    values = dict(keywords["values"] or {})
    kept = {}
    for name, given in shapes.items():
        profiles = given if isinstance(given, list) else [(given,) * 3]
        corners = [c for profile in profiles for c in profile]
        record = records.get(name)
        if record is None or name in values or not _are_values(record, corners):
            kept[name] = given
        else:
            values[name] = [tuple(_content(record, c) for c in p) for p in profiles]
    return {**keywords, "shapes": kept or None, "values": values or None}


def _are_values(record: ValueRecord, corners: Sequence[Shape]) -> bool:
    shape, dtype = record.shape, record.dtype
    if shape is None or len(shape) > 1 or not isinstance(dtype, DType) or not dtype.is_int:
        return False
    count = shape[0] if shape else 1
    return all(len(c) == count for c in corners) and any(c != shape for c in corners)


def _content(record: ValueRecord, numbers: Shape) -> Any:
    return list(numbers) if record.shape else numbers[0]
