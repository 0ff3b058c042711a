"""Tensors of another network, and layers that read in a circle: an error that names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from tests.tensorrt.networks import floats, new_network, plan_of, run_plan
from tests.tensorrt.plugins import Halving

RELU = trt.ActivationType.RELU
SUM = trt.ElementWiseOperation.SUM
ADDING: dict[str, Callable[[Any, Any, Any], Any]] = {  # (network, its tensor, a foreign one)
    "activation": lambda n, x, q: n.add_activation(q, RELU),
    "second of two": lambda n, x, q: n.add_elementwise(x, q, SUM),
    "one of several": lambda n, x, q: n.add_concatenation([x, q]),
    "convolution": lambda n, x, q: n.add_convolution_nd(q, 1, (1, 1), np.ones(1, np.float32)),
    "scale": lambda n, x, q: n.add_scale(q, trt.ScaleMode.UNIFORM),
    "top k": lambda n, x, q: n.add_topk(q, trt.TopKOperation.MAX, 1, 1),
    "einsum": lambda n, x, q: n.add_einsum([x, q], "ij,ij->ij"),
    "slice": lambda n, x, q: n.add_slice(q, (0, 0), (1, 1), (1, 1)),
    "quantize": lambda n, x, q: n.add_quantize(x, q),
    "attention": lambda n, x, q: n.add_attention(
        x, x, q, trt.AttentionNormalizationOp.SOFTMAX, False
    ),
    "plugin": lambda n, x, q: n.add_plugin_v3([q], [], Halving()),
    "recurrence": lambda n, x, q: n.add_loop().add_recurrence(q),
    "iterator": lambda n, x, q: n.add_loop().add_iterator(q),
    "trip limit": lambda n, x, q: n.add_loop().add_trip_limit(q, trt.TripLimit.COUNT),
    "loop output": lambda n, x, q: n.add_loop().add_loop_output(q, trt.LoopOutput.LAST_VALUE),
    "condition": lambda n, x, q: n.add_if_conditional().set_condition(q),
    "conditional input": lambda n, x, q: n.add_if_conditional().add_input(q),
    "conditional output": lambda n, x, q: n.add_if_conditional().add_output(x, q),
}


def two_networks() -> tuple[Any, Any, Any, Any]:
    """A network with its log, an input of it, and one of another network."""
    network, log = new_network()
    other, _ = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    return network, log, x, other.add_input("q", trt.float32, (2, 3))


@pytest.mark.parametrize("which", ADDING)
def test_layers_of_foreign_tensors_are_not_added(which: str) -> None:
    network, log, x, foreign = two_networks()
    assert ADDING[which](network, x, foreign) is None
    assert network.num_layers == 0
    assert len(log.errors) == 1 and "tensor 'q' is of another network" in log.errors[0]


def test_inputs_that_are_foreign_are_not_taken() -> None:
    network, log, x, foreign = two_networks()
    layer = network.add_activation(x, RELU)
    layer.set_input(0, foreign)
    assert layer.get_input(0) is x and "is of another network" in log.errors[-1]
    kind = trt.AttentionNormalizationOp.SOFTMAX
    attention = network.add_attention(x, x, x, kind, False)
    assert attention.set_input(1, foreign) is False and attention.get_input(1) is x
    attention.mask = foreign
    assert attention.mask is None and len(log.errors) == 3


def test_marks_of_foreign_tensors() -> None:
    network, log, _, foreign = two_networks()
    network.mark_output(foreign)
    assert network.num_outputs == 0 and "mark_output: tensor 'q' is of" in log.errors[-1]
    for mark in ("mark_output_for_shapes", "mark_debug", "is_debug_tensor"):
        assert getattr(network, mark)(foreign) is False
        assert f"{mark}: tensor 'q' is of another network" in log.errors[-1]


def test_inputs_that_were_removed() -> None:
    network, log, x, _ = two_networks()
    gone = network.add_input("gone", trt.float32, (2, 3))
    network.remove_tensor(gone)
    assert network.add_elementwise(x, gone, SUM) is None
    assert "tensor 'gone' was removed" in log.errors[-1]
    network.mark_output(gone)
    assert network.num_outputs == 0 and len(log.errors) == 2


def test_what_is_no_tensor_is_a_type_error() -> None:
    network, *_ = two_networks()
    with pytest.raises(TypeError, match="an ITensor is expected, not 3"):
        network.add_activation(3, RELU)
    with pytest.raises(TypeError, match="an ITensor is expected, not None"):
        network.add_loop().add_recurrence(None)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_layers_in_a_circle(length: int) -> None:
    network, log, x, _ = two_networks()
    layers, t = [], x
    for i in range(length):
        layers.append(network.add_activation(t, RELU))
        layers[-1].name = f"a{i}"
        t = layers[-1].get_output(0)
    layers[0].set_input(0, t)
    network.mark_output(t)
    assert plan_of(network) is None
    assert "layers read in a circle" in log.errors[-1] and "bug" not in log.errors[-1]
    assert all(f"'a{i}'" in log.errors[-1] for i in range(length))
    layers[0].set_input(0, x)
    value = floats(2, 3)
    (found,) = run_plan(plan_of(network), x=value).values()
    np.testing.assert_array_equal(found, np.maximum(value, 0))


def test_layers_that_read_from_later_ones() -> None:
    """No circle: the first layer reads from the third and second, and the third from the second."""
    network, _log, x, _ = two_networks()
    first = network.add_elementwise(x, x, SUM)
    second = network.add_activation(x, RELU)
    third = network.add_elementwise(x, second.get_output(0), trt.ElementWiseOperation.PROD)
    for at, source in enumerate((second, third)):
        first.set_input(at, source.get_output(0))
    network.mark_output(first.get_output(0))
    value = floats(2, 3)
    (found,) = run_plan(plan_of(network), x=value).values()
    relu = np.maximum(value, 0)
    np.testing.assert_allclose(found, relu + value * relu, rtol=1e-6)
