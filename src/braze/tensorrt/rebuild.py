"""The plan of an engine that was built for refitting, built anew with other weights."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from braze.api import compile as compile_model
from braze.core.errors import ModelError
from braze.engine.plan import Plan
from braze.tensorrt.record import KEY, EngineRecord

NOT_OF_A_BUILD: Final = ("model", "stripped_bytes")  # they follow the weights


def rebuild(record: EngineRecord, weights: Mapping[str, np.ndarray[Any, Any]]) -> Plan:
    """The plan for the model in an engine's record with the content of some initializers replaced.

    Raises ModelError for initializers that are not there, and what a build raises.
    """
    model = onnx.load_model_from_string(base64.b64decode(record["model"]))
    left = dict(weights)
    for tensor in model.graph.initializer:
        if tensor.name in left:
            old = numpy_helper.to_array(tensor)
            new = np.asarray(left.pop(tensor.name)).reshape(old.shape).astype(old.dtype, copy=False)
            tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
    if left:
        raise ModelError(f"the engine's model has no constants {', '.join(sorted(left))}")
    data = model.SerializeToString()
    shapes: Any = [dict(p) for p in record.get("profiles", ())] or None
    plan = compile_model(data, shapes=shapes, **record.get("options", {}))
    again: dict[str, Any] = {k: v for k, v in record.items() if k not in NOT_OF_A_BUILD}
    again["model"] = base64.b64encode(data).decode("ascii")
    return replace(plan, record={**plan.record, KEY: again})
