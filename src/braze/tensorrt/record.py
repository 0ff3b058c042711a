"""What an engine of this API remembers of its network, beside what every engine has.

It lies as JSON in the record of the plan: the builder writes it, the runtime side reads it. Engines
that were built otherwise have none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

KEY: Final = "tensorrt"  # in the record of a plan
Shape = tuple[int, ...]
Triple = tuple[Shape, Shape, Shape]  # min, opt, max


class WeightsEntry(TypedDict):
    """Weights of the network that a refit may change.

    name: as set_weights_name or the parser called them ("" for none); layer, role: as set_weights
    finds them (role: a member of WeightsRole); dtype: a member of DataType; constant: the
    initializer of `EngineRecord.model` that holds them.
    """

    name: str
    layer: str
    role: str
    dtype: str
    count: int
    constant: str


class LeftOut(TypedDict):
    """A constant that a stripped engine does not hold."""

    dtype: str
    shape: list[int]


class EngineRecord(TypedDict, total=False):
    """The network and the configuration that an engine was built from. Enums are their numbers.

    shape_inputs, shape_outputs: whose content decides sizes, or is told as sizes; formats: by
    tensor, where not LINEAR; profiles, values: per profile, (min, opt, max) of shapes and contents
    by input; flags: of IBuilderConfig; metadata: notes by layer; aliases: outputs that may
    lie over an input, and that input; implicit_batch: whether the first axis of all tensors is
    none of the network's, and max_batch_size its most; debug: tensors marked
    for debugging; plugins: what `plugin_building.kept_plugin` keeps; options: keyword arguments of
    `braze.compile` but shapes; weights, model: where a refit is possible, the model as ONNX in
    base64, before it was quantized by `ranges` (of tensors); left_out: its initializers that the
    engine does not hold (STRIP_PLAN), and stripped_bytes: how much they are.
    """

    name: str
    shape_inputs: Sequence[str]
    shape_outputs: Sequence[str]
    formats: dict[str, int]
    profiles: Sequence[dict[str, Triple]]
    values: Sequence[dict[str, Triple]]
    flags: int
    capability: int
    verbosity: int
    hardware_compatibility: int
    tactic_sources: int
    profile_sharing: bool
    metadata: dict[str, str]
    aliases: dict[str, str]
    implicit_batch: bool
    max_batch_size: int
    debug: Sequence[str]
    unfused_debug: bool
    plugins: Sequence[dict[str, Any]]
    options: dict[str, Any]
    weights: Sequence[WeightsEntry]
    model: str
    left_out: dict[str, LeftOut]
    ranges: Mapping[str, tuple[float, float]]
    stripped_bytes: int
