"""What a refit needs: the model an engine keeps, and the engine of it with other weights."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from braze.api import compile as compile_model
from braze.core.errors import ModelError
from braze.engine.plan import Plan
from braze.frontend.onnx.proto import load_model
from braze.frontend.onnx.records import ModelRecord, TensorRecord
from braze.tensorrt.emitter import unpacked
from braze.tensorrt.layer import ILayer
from braze.tensorrt.onnx_layer import OnnxLayer
from braze.tensorrt.onnx_proto import to_proto
from braze.tensorrt.record import KEY, EngineRecord, WeightsEntry
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.lowering import Lowering
    from braze.tensorrt.model import NamedModel
    from braze.tensorrt.network import INetworkDefinition

Array = np.ndarray[Any, Any]


def kept_model(record: ModelRecord) -> str:
    """A model as text; raises ModelError where it is too large for a message."""
    try:
        data = to_proto(record).SerializeToString()
    except ValueError as e:
        raise ModelError(
            f"the network is too large to be kept for a refit ({e}); build it without REFIT"
        ) from e
    return base64.b64encode(data).decode("ascii")


def rebuild(record: Mapping[str, Any], weights: Mapping[str, Array]) -> Plan:
    """The plan of an engine with other weights, by their constants; it keeps them for the next.

    Weights that have a name change wherever the network uses them.
    """
    names = {e["constant"]: e["name"] for e in record["weights"]}
    given = dict(weights)
    for constant, array in weights.items():
        name = names.get(constant)
        given |= {c: array for c, n in names.items() if name and n == name and c not in weights}
    model = load_model(base64.b64decode(record["model"]))
    constants = dict(model.graph.initializers)
    for name, array in given.items():
        old = constants.get(name)
        if not isinstance(old, TensorRecord):
            raise ModelError(f"the engine keeps no weights {name!r}; build it again with REFIT")
        shaped = unpacked(array, old.dtype, old.array.size).reshape(old.array.shape)
        constants[name] = replace(old, array=shaped)
    model = replace(model, graph=replace(model.graph, initializers=constants))
    profiles = [{k: tuple(map(tuple, v)) for k, v in p.items()} for p in record["profiles"]]
    plan = compile_model(model, shapes=profiles or None, **record["options"])
    kept = {**record, "model": kept_model(model)}
    return replace(plan, record={**plan.record, KEY: kept})


def refit_entries(
    network: INetworkDefinition, lowering: Lowering, model: NamedModel, only_marked: bool
) -> list[WeightsEntry]:
    """The weights of a network that a refit may change. only_marked: REFIT_INDIVIDUAL."""
    inner = {source: name for name, source in model.constants.items()}
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


def _constant(lowering: Lowering, layer: ILayer, weights: Weights) -> str:
    own = lowering.said[layer._number].constants
    return next((n for n in own if n in lowering.origins and lowering.origins[n] is weights), "")


def refit_part(
    network: INetworkDefinition, lowering: Lowering, model: NamedModel, only_marked: bool
) -> EngineRecord:
    """What the record of a refittable engine has beside that of others."""
    entries = refit_entries(network, lowering, model, only_marked)
    return EngineRecord(weights=entries, model=kept_model(model.record))
