"""Refits: which weights of a network they may change, and the engine with other weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braze.api import compile as compile_model
from braze.engine.plan import Plan
from braze.frontend.onnx.order import read_names
from braze.tensorrt.calibration import with_ranges
from braze.tensorrt.kept import finished, kept_part, restored
from braze.tensorrt.layer import ILayer
from braze.tensorrt.onnx_layer import OnnxLayer
from braze.tensorrt.record import EngineRecord, WeightsEntry
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.lowering import Lowering
    from braze.tensorrt.model import NamedModel
    from braze.tensorrt.network import INetworkDefinition

Array = np.ndarray[Any, Any]
_OF_SHAPES: Final = ("Shape", "Size")  # whose results depend on no content


def rebuild(record: EngineRecord, weights: Mapping[str, Array]) -> Plan:
    """The plan of an engine with other weights, by their constants; it keeps them for the next.

    Weights that have a name change wherever the network uses them.
    """
    names = {e["constant"]: e["name"] for e in record["weights"]}
    given = dict(weights)
    for constant, array in weights.items():
        name = names.get(constant)
        given |= {c: array for c, n in names.items() if name and n == name and c not in weights}
    model = restored(record, given)
    profiles = [{k: tuple(map(tuple, v)) for k, v in p.items()} for p in record["profiles"]]
    ranges = record.get("ranges")
    built = with_ranges(model, ranges) if ranges else model
    plan = compile_model(built, shapes=profiles or None, **record["options"])
    part = kept_part(model, record["weights"], strip=False)
    kept: EngineRecord = {**record, **part}
    return finished(plan, kept)


def refit_entries(
    network: INetworkDefinition, lowering: Lowering, model: NamedModel, only_marked: bool
) -> list[WeightsEntry]:
    """The weights of a network that a refit may change. only_marked: REFIT_INDIVIDUAL.

    Those whose content is in the nodes themselves, or in what a plugin reads, are none.
    """
    fixed = _decided_on(lowering)
    inner = {s: name for name, s in model.constants.items() if s not in fixed}
    found: list[WeightsEntry] = []
    for layer in network._layers:
        for role, weights in layer.roles().items():
            if not weights.size:
                continue
            parsed = isinstance(layer, OnnxLayer)
            source = f"parsed.{role}" if parsed else _constant(lowering, layer, weights)
            name = role if parsed else network._weight_names.get(weights.key(), "")
            if source not in inner or (only_marked and name not in network._refittable):
                continue
            found.append(
                WeightsEntry(
                    name=name,
                    layer=layer.name,
                    role="ANY" if parsed else role,
                    dtype=weights.dtype.name,
                    count=weights.size,
                    constant=inner[source],
                )
            )
    return found


def _decided_on(lowering: Lowering) -> set[str]:
    """Names whose content decided what was said: what was read, and what that was made of."""
    said = lowering.said.values()
    makers = {o: node for s in said for node in s.nodes for o in node.outputs}
    found: set[str] = set()
    waiting = [name for s in said for name in s.read]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        node = makers.get(name)
        if node is not None and node.op_type not in _OF_SHAPES:
            waiting += read_names(node)
    return found


def _constant(lowering: Lowering, layer: ILayer, weights: Weights) -> str:
    own = lowering.said[layer._number].constants
    return next((n for n in own if n in lowering.origins and lowering.origins[n] is weights), "")


def refit_part(
    network: INetworkDefinition,
    lowering: Lowering,
    model: NamedModel,
    only_marked: bool,
    strip: bool,
) -> EngineRecord:
    """What the record of a refittable engine has beside that of others. strip: STRIP_PLAN."""
    entries = refit_entries(network, lowering, model, only_marked)
    return kept_part(model.record, entries, strip)
