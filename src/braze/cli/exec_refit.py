"""Engines that can be refitted, as `braze exec` builds them, and other weights for them."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

import braze
from braze.cli.exec_log import Log
from braze.core.dtypes import ALL_DTYPES
from braze.core.errors import ConfigError
from braze.core.files import readable_source
from braze.core.trace import Trace
from braze.tensorrt.enums_build import BuilderFlag
from braze.tensorrt.record import KEY, EngineRecord, WeightsEntry

# options of a build that decide what is computed; all that a record of an engine can hold
KEPT: Final = ("target", "precision", "layer_precisions", "optimization_level", "debug", "threads")


def build_refittable(model: str, trace: Trace, options: Mapping[str, Any]) -> braze.Engine:
    """An engine that keeps its model. Raises ConfigError for options that a refit cannot repeat."""
    if options.get("calibration") is not None or options.get("values"):
        raise ConfigError("--refit keeps neither --calib nor --values; leave one of them out")
    from braze.codegen.catalog import find_backend

    plan = braze.compile(model, trace=trace, **options)
    record = _record(model, options)
    plan = replace(plan, record={**plan.record, KEY: record})
    backend = find_backend(options["target"], plan.threads)
    backend.require()
    return backend.load(plan)


def _record(model: str, options: Mapping[str, Any]) -> EngineRecord:
    from braze.tensorrt.refit import read_initializers

    data = readable_source(model, "model").read_bytes()
    names = {d.numpy: d.tensorrt for d in ALL_DTYPES if d.tensorrt}
    entries = [
        WeightsEntry(
            name=name, layer="", role="ANY", dtype=names[a.dtype], count=a.size, constant=name
        )
        for name, a in read_initializers(model, None).items()
        if a.dtype.kind not in "iub" and a.dtype in names
    ]
    return EngineRecord(
        name=Path(model).stem,
        flags=1 << int(BuilderFlag.REFIT),
        weights=entries,
        model=base64.b64encode(data).decode("ascii"),
        options={k: options[k] for k in KEPT if options.get(k)},
        profiles=_profiles(options.get("shapes")),
    )


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
    plan = rebuild(record, weights)
    from braze.codegen.catalog import find_backend

    found = find_backend(record["options"].get("target", "cpu"), plan.threads).load(plan)
    log.say(f"Engine refitted in {time.perf_counter() - start:.6g} sec.")
    return found
