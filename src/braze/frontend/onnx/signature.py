"""The part of an operator's schema that nodes are checked against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# names of element types in schemas, where they are not braze's
TYPE_NAMES: Final = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}


@dataclass(frozen=True, slots=True)
class Signature:
    """Attributes, arity and types of an op at one opset.

    inputs: (type variable or type string, is it required) of each formal input; a variadic last
    one repeats when `variadic`; `homogeneous` tells whether the repeats share their type.
    types: the type strings ("tensor(float)") that each type variable allows.
    """

    attributes: Mapping[str, str]
    required: frozenset[str]
    inputs: tuple[tuple[str, bool], ...]
    variadic: bool
    homogeneous: bool
    min_inputs: int
    max_inputs: int
    max_outputs: int
    types: Mapping[str, frozenset[str]]
