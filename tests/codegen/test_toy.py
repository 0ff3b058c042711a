"""A target of 150 lines builds and runs networks through the protocol, from ONNX to results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import braze
from braze.builder import build_plan, make_kernels
from braze.codegen import catalog
from braze.codegen.backend import Backend
from braze.core.config import BuildConfig
from braze.core.errors import CompileError
from braze.core.target import Target
from braze.core.trace import Trace
from braze.engine.write import write_file
from braze.frontend.onnx.importer import import_network
from braze.fusion.kernel import AnchorKernel
from tests.codegen import toy
from tests.e2e.models import make, rand

n = helper.make_node


def small_net() -> Any:
    """Convolution with bias and relu, pooling, a product, softmax: every kind of loop nest."""
    weights = {"w": rand(4, 3, 3, 3), "b": rand(4), "m": rand(4, 5), "k": rand(5)}
    nodes = [
        n("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        n("Relu", ["c"], ["r"]),
        n("GlobalAveragePool", ["r"], ["g"]),
        n("Flatten", ["g"], ["f"]),
        n("MatMul", ["f", "m"], ["p"]),
        n("Add", ["p", "k"], ["a"]),
        n("Softmax", ["a"], ["y"]),
    ]
    return make(nodes, {"x": [1, 3, 6, 6]}, ("y",), weights)


@pytest.mark.parametrize("level", [0, 1, 3])
def test_the_toy_runs_a_network(level: int) -> None:
    model = small_net()
    x = rand(1, 3, 6, 6)
    imported = import_network(model)
    backend, config = toy.ToyBackend(), BuildConfig(optimization_level=level)
    plan = build_plan(imported.graph, imported.profiles, config, backend, Trace())
    got = backend.load(plan)({"x": x})["y"]
    want = braze.build(model, target="reference", optimization_level=0)({"x": x})["y"]
    # the toy adds float32 one by one, the reference in numpy's order
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert plan.target.about == {"backend": "toy"} and {m.kind for m in plan.modules} == {"text"}


def test_its_engine_is_loaded_by_the_name_that_it_has_in_the_catalog(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(catalog.BACKENDS, "toy", catalog.Entry(lambda *_: toy.ToyBackend()))
    x, path = rand(1, 3, 6, 6), tmp_path / "toy.braze"
    plan = braze.compile(small_net(), target="toy")
    write_file(plan, path)
    loaded: Any = braze.load(path)
    np.testing.assert_array_equal(loaded({"x": x})["y"], toy.ToyEngine(plan)({"x": x})["y"])


def test_anchors_reach_it_as_loop_nests_with_the_reason() -> None:
    trace = Trace()
    graph = import_network(small_net()).graph
    network = make_kernels(graph, BuildConfig(), toy.ToyBackend(), trace)
    assert not any(isinstance(k.kernel, AnchorKernel) for k in network.kernels)
    why = [d["reason"] for d in trace.decisions if d["kind"] == "fallback"]
    assert why == ["the toy has no templates"] * 2


def test_what_it_cannot_do_is_one_sentence() -> None:
    graph = import_network(make([n("Erf", ["x"], ["y"])], {"x": [2]}, ("y",), {})).graph
    with pytest.raises(CompileError, match="the toy cannot compute erf; add it to its table"):
        build_plan(graph, [], BuildConfig(), toy.ToyBackend(), Trace())


def test_it_is_as_short_as_promised() -> None:
    assert len(Path(toy.__file__).read_text().splitlines()) <= 150


def test_the_guide_names_everything_that_a_backend_and_a_target_are_asked() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    asked = [n for p in (Backend, Target) for n in dir(p) if not n.startswith("_")]
    assert [n for n in asked if f"`{n}" not in guide] == []
