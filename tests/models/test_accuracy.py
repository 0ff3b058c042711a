"""Every real network against ONNX Runtime and the float64 reference, static and dynamic."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("PIL")
pytest.importorskip("scipy")

import braze
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate
from tests import distances
from tests.models.networks import (
    dynamic_engine,
    model_path,
    network_params,
    real_feed,
    static_engine,
    worst_error,
)

Array = np.ndarray[Any, Any]
# relative L2 error: fp32 rounding, accumulated over some hundred layers; a wrong op is off by 1e-2
# and more
TOLERANCE = 1e-4
NAMES = network_params()
ENGINES = {"static": static_engine, "dynamic": dynamic_engine}


@functools.cache
def onnxruntime_outputs(name: str) -> dict[str, Array]:
    """What ONNX Runtime gives for the real feed."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        str(model_path(name)), providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, real_feed(name)), strict=True))


@functools.cache
def exact_outputs(name: str) -> dict[str, Array]:
    """What the numpy meaning of the ops gives in float64."""
    feed = real_feed(name)
    graph = import_model(model_path(name), shapes={k: v.shape for k, v in feed.items()})
    return evaluate(graph, feed, float64=True)


def assert_close(name: str, got: dict[str, Array], want: dict[str, Array]) -> None:
    """Same names, and every output within the tolerances."""
    assert set(got) == set(want)
    distances.assert_close(got, want, TOLERANCE, worst_error(name))


@pytest.mark.parametrize("kind", sorted(ENGINES))
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_onnxruntime(name: str, kind: str) -> None:
    want = onnxruntime_outputs(name)
    assert_close(name, ENGINES[kind](name)(real_feed(name)), want)


@pytest.mark.parametrize("kind", sorted(ENGINES))
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_the_float64_reference(name: str, kind: str) -> None:
    got = ENGINES[kind](name)(real_feed(name))
    assert_close(name, got, exact_outputs(name))


@pytest.mark.parametrize("name", ["magika_v3_3", "mtcnn_onet", "ppocr_cls"])
def test_measured_tactics_are_right_too(name: str, tmp_path: Path) -> None:
    model, feed = model_path(name), real_feed(name)
    cache = tmp_path / "timing.cache"
    shapes = {n: x.shape for n, x in feed.items()}
    outputs = [
        braze.build(model, shapes=shapes, threads=2, timing_cache=str(cache))(feed)
        for _ in range(2)
    ]
    assert_close(name, outputs[0], onnxruntime_outputs(name))
    for n, array in outputs[0].items():
        assert outputs[1][n].tobytes() == array.tobytes()
