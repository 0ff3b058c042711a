"""Contents that a build is given for inputs, and constants it knows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto

from braze.core.errors import (
    BindingError,
    DTypeError,
    ShapeError,
    UnsupportedOpError,
)
from braze.frontend.onnx.findings import ImportRefusal
from braze.frontend.onnx.importer import import_model
from tests.frontend.onnx_models import INT64, X, Y, info, load, model, node, ops, tensor


def shape_needing_model() -> onnx.ModelProto:
    return model([node("Reshape", ["x", "s"], ["y"], "reshape")], [X, info("s", [2], INT64)], [Y])


def test_content_needed_at_build_time_is_asked_for() -> None:
    with pytest.raises(UnsupportedOpError, match=r"values=\{'s': \.\.\.\}") as caught:
        load(shape_needing_model())
    assert isinstance(caught.value, ImportRefusal)
    assert caught.value.findings[0].inputs == ("s",)


def test_values_make_an_input_known_but_keep_it_bound() -> None:
    graph = load(shape_needing_model(), values={"s": np.array([3, 2])})
    assert [v.name for v in graph.inputs] == ["x", "s"]
    assert graph.specialized == {"s": (3, 2)}
    graph = load(shape_needing_model(), values={"s": [3, 2]})
    assert graph.specialized == {"s": (3, 2)}


def test_values_take_the_type_of_the_input() -> None:
    proto = model([node("Add", ["x", "b"], ["y"])], [info("x", [1]), info("b", [1])], [Y])
    assert import_model(proto, values={"b": [0.1]}).specialized == {"b": (float(np.float32(0.1)),)}
    with pytest.raises(DTypeError, match="float64 but the input is float32"):
        import_model(proto, values={"b": np.array([0.1])})
    brain = TensorProto.BFLOAT16
    inputs = [info("x", [1], brain), info("b", [1], brain)]
    proto = model([node("Add", ["x", "b"], ["y"])], inputs, [info("y", [1], brain)])
    bits = np.array([0x3FC0], np.uint16)
    for given in (bits, bits.view(ml_dtypes.bfloat16), [1.5]):
        assert import_model(proto, values={"b": given}).specialized == {"b": (1.5,)}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"q": np.array([3, 2])}, BindingError),
        ({"s": np.array([3, 2, 1])}, ShapeError),
        ({"s": [1.5, 2.0]}, DTypeError),
        ({"s": np.array([3.5, 2.0])}, DTypeError),
    ],
)
def test_wrong_values(values, error) -> None:
    with pytest.raises(error):
        load(shape_needing_model(), values=values)


def test_nodes_of_small_constants_are_folded() -> None:
    weights = [tensor("a", np.float32([1, 2])), tensor("b", np.float32([10, 20]))]
    nodes = [node("Add", ["a", "b"], ["c"]), node("LeakyRelu", ["c"], ["y"], alpha=0.5)]
    graph = load(model(nodes, [X], [info("y", [2])], initializers=weights))
    assert graph.nodes == ()
    np.testing.assert_array_equal(graph.constant(graph.outputs[0][1]), np.float32([11.5, 22.5]))
    large = [tensor("a", np.zeros(2000, np.float32)), tensor("b", np.zeros(2000, np.float32))]
    graph = load(model(nodes, [X], [info("y", [2000])], initializers=large))
    assert ops(graph) == ["Sum2", "Same"]
