"""Tensors of the model that are named for debugging stay readable at every level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import braze
from tests.e2e.models import attention_net, conv_net, make, rand

# float32 sums of at most a few hundred terms of size about one
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
NETS = {
    "conv": (conv_net("n"), conv_net(2), {"x": rand(2, 3, 16, 16)}),
    "attention": (attention_net("n"), attention_net(), {"x": rand(2, 9, 32)}),
}


def expected(model: Any, names: Sequence[str], inputs: Any) -> dict[str, Any]:
    """What tensors of a model hold, by name."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    return dict(zip(names, ReferenceEvaluator(copy).run(None, inputs), strict=True))


def compare(engine: Any, model: Any, names: Sequence[str], inputs: Any) -> None:
    assert sorted(d.name for d in engine.plan.debug) == sorted(names)
    found = engine(inputs, debug=names)
    for name, value in expected(model, [*names, "y"], inputs).items():
        np.testing.assert_allclose(found[name], value, **CLOSE, err_msg=name)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("net", NETS)
def test_all_tensors_of_a_network(net: str, level: int) -> None:
    _, fixed, inputs = NETS[net]
    names = [o for n in fixed.graph.node for o in n.output if o != "y"]
    engine = braze.build(fixed, debug=names, optimization_level=level)
    compare(engine, fixed, names, inputs)


@pytest.mark.parametrize("name", ["c1", "r1", "c2", "s", "f"])
def test_one_tensor_that_would_be_fused(name: str) -> None:
    model, _, inputs = NETS["conv"]
    shapes = {"x": ((1, 3, 16, 16), (2, 3, 16, 16), (4, 3, 16, 16))}
    engine = braze.build(model, debug=[name], shapes=shapes)
    compare(engine, model, [name], inputs)


def test_views_and_outputs() -> None:
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),  # of an input
        helper.make_node("Add", ["flat", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
        helper.make_node("Transpose", ["y"], ["turned"]),
        helper.make_node("Exp", ["turned"], ["z"]),
    ]
    model = make(nodes, {"x": [2, 3, 4]}, ["y", "z"], {"b": rand(12, seed=1)})
    names, inputs = ["flat", "sum", "turned"], {"x": rand(2, 3, 4)}
    compare(braze.build(model, debug=names), model, names, inputs)
    both = braze.build(model, debug=["y", "y"])
    assert [d.name for d in both.plan.debug] == ["y"]
    y = np.maximum(inputs["x"].reshape(2, 12) + rand(12, seed=1), 0)
    np.testing.assert_allclose(both(inputs, debug=["y"])["y"], y, **CLOSE)


def test_a_norm_said_in_steps() -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("Mul", ["centred", "centred"], ["square"]),
        helper.make_node("ReduceMean", ["square"], ["variance"], axes=[-1]),
        helper.make_node("Add", ["variance", "epsilon"], ["positive"]),
        helper.make_node("Sqrt", ["positive"], ["deviation"]),
        helper.make_node("Div", ["centred", "deviation"], ["y"]),
    ]
    model = make(nodes, {"x": [3, 8]}, ["y"], {"epsilon": np.array(1e-5, np.float32)})
    inputs = {"x": rand(3, 8)}
    for names in (["centred"], ["variance"], ["mean", "deviation"]):
        compare(braze.build(model, debug=names), model, names, inputs)


def test_names_that_no_step_makes() -> None:
    node = helper.make_node("Add", ["w", "w"], ["twice"])
    add = helper.make_node("Add", ["x", "twice"], ["y"])
    unused = helper.make_node("Exp", ["y"], ["unused"])
    model = make([node, add, unused], {"x": [2]}, ["y"], {"w": rand(2)})
    for name in ("w", "nothing", "x", "unused"):
        with pytest.raises(braze.BindingError, match=name):
            braze.build(model, debug=[name])
