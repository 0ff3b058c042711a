"""The model that a refittable engine keeps: whole, or without the weights that a refit gives."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from braze.core.dtypes import DType, from_name
from braze.core.errors import ModelError
from braze.engine.plan import Plan
from braze.frontend.onnx.proto import load_model
from braze.frontend.onnx.records import ModelRecord, TensorRecord
from braze.tensorrt.emitter import unpacked
from braze.tensorrt.onnx_proto import to_proto
from braze.tensorrt.record import KEY, EngineRecord, LeftOut, WeightsEntry

Array = np.ndarray[Any, Any]


def is_stripped(dtype: DType) -> bool:
    """Whether weights of a type are left out: wider integers and booleans are sizes and places,
    which decide what is built.
    """
    return dtype.is_float or (dtype.is_int and dtype.bits <= 8)


def kept_part(model: ModelRecord, entries: Sequence[WeightsEntry], strip: bool) -> EngineRecord:
    """What the record of a refittable engine has beside that of others.

    Entries whose constant the model does not have are no weights. strip: the model is kept without
    them. Raises ModelError where it is too large for a message.
    """
    constants = dict(model.graph.initializers)
    found = [e for e in entries if isinstance(constants.get(e["constant"]), TensorRecord)]
    left_out: dict[str, LeftOut] = {}
    count = 0
    for name in {e["constant"]: None for e in found} if strip else ():
        tensor = constants[name]
        if not isinstance(tensor, TensorRecord) or not is_stripped(tensor.dtype):
            continue
        del constants[name]
        left_out[name] = LeftOut(dtype=tensor.dtype.name, shape=list(tensor.array.shape))
        count += (tensor.array.size * tensor.dtype.bits + 7) // 8
    bare = replace(model, graph=replace(model.graph, initializers=constants))
    return EngineRecord(weights=found, model=_text(bare), left_out=left_out, stripped_bytes=count)


def _text(model: ModelRecord) -> str:
    try:
        data = to_proto(model).SerializeToString()
    except ValueError as e:
        raise ModelError(
            f"the network is too large to be kept for a refit ({e}); build it without REFIT"
        ) from e
    return base64.b64encode(data).decode("ascii")


def restored(record: EngineRecord, given: Mapping[str, Array]) -> ModelRecord:
    """The model of an engine with weights by constant; raises ModelError where some are missing."""
    model = load_model(base64.b64decode(record["model"]))
    constants = dict(model.graph.initializers)
    left_out = record.get("left_out", {})
    missing = [name for name in left_out if name not in given]
    if missing:
        raise ModelError(
            f"the engine holds no weights {missing[0]!r} ({len(missing)} are missing); give all "
            "that were left out when it was built"
        )
    for name, array in given.items():
        old = constants.get(name)
        if name in left_out:
            dtype, shape = from_name(left_out[name]["dtype"]), tuple(left_out[name]["shape"])
        elif isinstance(old, TensorRecord):
            dtype, shape = old.dtype, old.array.shape
        else:
            raise ModelError(f"the engine keeps no weights {name!r}; build it again with REFIT")
        size = int(np.prod(shape, dtype=np.int64))
        flat = unpacked(array, dtype, size)
        if flat.size != size:
            raise ModelError(f"weights {name!r} are {size} numbers, and {flat.size} are given")
        constants[name] = TensorRecord(name, dtype, flat.reshape(shape))
    return replace(model, graph=replace(model.graph, initializers=constants))


def without_weights(plan: Plan) -> Plan:
    """A plan that can be refitted, without its weights; raises ModelError for others.

    Where no weights can be given it stays as it is.
    """
    record: EngineRecord = plan.record.get(KEY, {})
    if not record.get("model"):
        raise ModelError("the engine keeps no model to be refitted; build it with REFIT")
    if plan.stripped:
        return plan
    part = kept_part(restored(record, {}), record["weights"], strip=True)
    about: EngineRecord = {**record, **part}
    return finished(plan, about)


def finished(plan: Plan, record: EngineRecord) -> Plan:
    """A plan with the record of its engine, and without weights where that leaves some out."""
    plan = replace(plan, record={**plan.record, KEY: record})
    return replace(plan, stripped=True, weight_data=()) if record.get("left_out") else plan
