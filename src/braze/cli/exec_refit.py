"""Engines that can be refitted, as `braze exec` builds them, and other weights for them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

import braze
from braze.cli.exec_log import Log
from braze.core.errors import ConfigError, ModelError
from braze.core.trace import Trace
from braze.engine.write import to_array
from braze.tensorrt.enums_build import BuilderFlag
from braze.tensorrt.record import KEY, EngineRecord, WeightsEntry

# options of a build that decide what is computed; all that a record of an engine can hold
KEPT: Final = ("target", "precision", "layer_precisions", "optimization_level", "debug", "threads")


def build_refittable(
    model: Any, name: str, trace: Trace, options: Mapping[str, Any], identical: bool
) -> braze.Engine:
    """An engine that keeps its model. Raises ConfigError for options that a refit cannot repeat.

    model: as `braze.build` takes it; name: what the engine is called; identical: what trtexec sets
    where weights are stripped and --refit is not given.
    """
    if options.get("calibration") is not None or options.get("values"):
        raise ConfigError("--refit keeps neither --calib nor values of inputs; leave one out")
    from braze.codegen.catalog import find_backend
    from braze.tensorrt.kept import finished

    plan = braze.compile(model, trace=trace, **options)
    plan = finished(plan, _record(model, name, options, identical))
    backend = find_backend(options["target"], plan.threads)
    backend.require()
    return backend.load(plan)


def stripped_image(engine: braze.Engine) -> np.ndarray[Any, Any]:
    """The file of a refittable engine without its weights."""
    from braze.tensorrt.kept import without_weights

    plan = engine.plan
    flags = plan.record[KEY]["flags"] | 1 << int(BuilderFlag.STRIP_PLAN)
    record = {**plan.record, KEY: {**plan.record[KEY], "flags": flags}}
    return to_array(without_weights(replace(plan, record=record)))


def _record(model: Any, name: str, options: Mapping[str, Any], identical: bool) -> EngineRecord:
    from braze.frontend.onnx.proto import load_model
    from braze.frontend.onnx.records import TensorRecord
    from braze.tensorrt.kept import is_stripped, kept_part

    decoded = load_model(model)
    entries = [
        WeightsEntry(
            name=name,
            layer="",
            role="ANY",
            dtype=t.dtype.tensorrt,
            count=t.array.size,
            constant=name,
        )
        for name, t in decoded.graph.initializers.items()
        if isinstance(t, TensorRecord) and is_stripped(t.dtype) and t.dtype.tensorrt
    ]
    flag = BuilderFlag.REFIT_IDENTICAL if identical else BuilderFlag.REFIT
    return {
        "name": name,
        "flags": 1 << int(flag),
        "options": {k: options[k] for k in KEPT if options.get(k)},
        "profiles": _profiles(options.get("shapes")),
        **kept_part(decoded, entries, strip=False),
    }


def _profiles(shapes: Any) -> list[dict[str, Any]]:
    """Shapes by input as shapes by profile."""
    if not shapes:
        return []
    lists = {n: s if isinstance(s, list) else [(tuple(s),) * 3] for n, s in shapes.items()}
    count = max(len(s) for s in lists.values())
    return [{n: s[k] for n, s in lists.items()} for k in range(count)]


def weight_lines(engine: braze.Engine) -> list[str]:
    """The weights of an engine that can be replaced."""
    record: EngineRecord = engine.plan.record.get(KEY, {})
    return [f"{e['name']}: {e['count']} {e['dtype']}" for e in record.get("weights", ())]


def refitted(engine: braze.Engine, model: str, log: Log) -> braze.Engine:
    """The engine with the weights of a model; raises ConfigError where it keeps no model."""
    from braze.tensorrt.rebuild import rebuild
    from braze.tensorrt.refit import read_initializers

    record: EngineRecord = engine.plan.record.get(KEY, {})
    if not record.get("model"):
        raise ConfigError("--refitFromOnnx: the engine cannot be refitted; build it with --refit")
    start = time.perf_counter()
    given: dict[str, np.ndarray[Any, Any]] = dict(read_initializers(model, None))
    weights = {e["constant"]: given[e["name"]] for e in record["weights"] if e["name"] in given}
    if record["weights"] and not weights:
        raise ModelError(f"{model} has none of the engine's weights by their names")
    plan = rebuild(record, weights)
    from braze.codegen.catalog import find_backend

    found = find_backend(record["options"].get("target", "cpu"), plan.threads).load(plan)
    log.say(f"Engine refitted in {time.perf_counter() - start:.6g} sec.")
    return found
