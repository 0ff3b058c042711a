"""Networks of release 7, whose shapes have no batch axis, and what else its scripts do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from tests.tensorrt import reference
from tests.tensorrt.networks import Log, floats, plan_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
W, B = floats(4, 1, 5, 5, seed=1), floats(4, seed=2)
FULL, BIAS = floats(10, 4 * 12 * 12, seed=3) * 0.1, floats(10, seed=4)


def digits(builder: Any) -> Any:
    """Layer by layer, in the words of release 7."""
    network = builder.create_network()
    x = network.add_input(name="data", dtype=trt.float32, shape=(1, 28, 28))
    conv = network.add_convolution(x, 4, (5, 5), W, B)
    conv.stride = (1, 1)
    pool = network.add_pooling(conv.get_output(0), trt.PoolingType.MAX, (2, 2))
    pool.stride = (2, 2)
    full = network.add_fully_connected(pool.get_output(0), 10, FULL, BIAS)
    relu = network.add_activation(full.get_output(0), trt.ActivationType.RELU)
    prob = network.add_softmax(relu.get_output(0))
    prob.get_output(0).name = "prob"
    network.mark_output(prob.get_output(0))
    return network


def digits_reference(x: Any) -> Any:
    made = reference.conv(x, W, B, (1, 1), (0, 0), (0, 0), (1, 1), 1)
    made = reference.pool(made, (2, 2), (2, 2), (0, 0), (0, 0), "max", True, False)
    full = np.maximum(made.reshape(len(x), -1) @ FULL.T + BIAS, 0)
    return reference.softmax(full, 1).reshape(len(x), 10, 1, 1)


def test_a_script_of_release_7() -> None:
    logger = trt.Logger(trt.Logger.WARNING)
    with trt.Builder(logger) as builder:
        builder.max_batch_size = 8
        builder.max_workspace_size = 1 << 20
        network = digits(builder)
        assert network.has_implicit_batch_dimension
        assert tuple(network.get_input(0).shape) == (1, 28, 28)
        assert tuple(network[0].get_output(0).shape) == (4, 24, 24)
        assert tuple(network.get_output(0).shape) == (10, 1, 1)
        engine = builder.build_cuda_engine(network)
    assert engine.has_implicit_batch_dimension and engine.max_batch_size == 8
    assert tuple(engine.get_binding_shape("data")) == (1, 28, 28)
    assert tuple(engine.get_binding_shape(engine["prob"])) == (10, 1, 1)
    with engine.create_execution_context() as context:
        for batch in (8, 3):
            x, y = floats(batch, 1, 28, 28), np.zeros((batch, 10, 1, 1), np.float32)
            addresses = [x.ctypes.data, y.ctypes.data]
            assert context.execute(batch_size=batch, bindings=addresses)
            np.testing.assert_allclose(y, digits_reference(x), rtol=1e-4, atol=1e-5)
        assert not context.execute(batch_size=9, bindings=addresses)


def test_axes_do_not_count_the_batch() -> None:
    builder = trt.Builder(Log())
    builder.max_batch_size = 4
    network = builder.create_network(0)
    x = network.add_input("x", trt.float32, (3, 4, 5))
    one = network.add_constant((3, 1, 1), floats(3, seed=1)).get_output(0)
    turned = network.add_shuffle(x)
    turned.first_transpose, turned.reshape_dims = (1, 2, 0), (0, 15)
    last = network.add_concatenation([x, x])
    last.axis = 2
    made = {
        "sum": network.add_reduce(x, trt.ReduceOperation.SUM, 0b110, False),
        "softmax": network.add_softmax(x),
        "joined": network.add_concatenation([x, x]),
        "last": last,
        "plus": network.add_elementwise(x, one, trt.ElementWiseOperation.SUM),
        "turned": turned,
        "slice": network.add_slice(x, (0, 1, 0), (3, 2, 5), (1, 1, 1)),
        "top": network.add_topk(x, trt.TopKOperation.MAX, 2, 0b100),
        "scale": network.add_scale(x, trt.ScaleMode.CHANNEL, floats(3, seed=2)),
    }
    for name, layer in made.items():
        layer.get_output(0).name = name
        network.mark_output(layer.get_output(0))
    shapes = {n: tuple(x.get_output(0).shape) for n, x in made.items()}
    assert shapes["sum"] == (3,) and shapes["joined"] == (6, 4, 5) and shapes["last"] == (3, 4, 10)
    data = plan_of(network)
    assert data is not None, builder.logger.errors
    x = floats(2, 3, 4, 5)
    outputs = braze.Engine.from_bytes(data)({"x": x})
    wanted = {
        "sum": x.sum((2, 3)),
        "softmax": reference.softmax(x, 1),
        "joined": np.concatenate([x, x], 1),
        "last": np.concatenate([x, x], 3),
        "plus": x + floats(3, seed=1).reshape(3, 1, 1),
        "turned": x.transpose(0, 2, 3, 1).reshape(2, 4, 15),
        "slice": x[:, :, 1:3],
        "top": -np.sort(-x, 3)[..., :2],
        "scale": x + floats(3, seed=2).reshape(3, 1, 1),
    }
    for name, array in wanted.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
        assert shapes[name] == array.shape[1:]


def test_networks_that_say_so_have_their_batch() -> None:
    builder = trt.Builder(Log())
    flag = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    assert not builder.create_network().has_implicit_batch_dimension
    builder.max_batch_size = 4
    network = builder.create_network(flag)
    assert not network.has_implicit_batch_dimension and not network.has_explicit_precision
    x = network.add_input("x", trt.float32, (2, 3))
    out = network.add_softmax(x).get_output(0)
    assert tuple(out.shape) == (2, 3)


class Selector(trt.IAlgorithmSelector):
    """Hears what is chosen."""

    def __init__(self, takes: bool = True) -> None:
        trt.IAlgorithmSelector.__init__(self)
        self.takes, self.seen = takes, []

    def select_algorithms(self, context: Any, choices: Any) -> list[int]:
        self.seen.append(context.name)
        return [0] if self.takes else []

    def report_algorithms(self, contexts: Any, choices: Any) -> None:
        self.reported = list(zip(contexts, choices, strict=True))


@pytest.mark.parametrize("level", [1, 3])
def test_algorithm_selectors_hear_of_tactics(level: int) -> None:
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(1)
    x = network.add_input("x", trt.float32, (2, 3))
    network.mark_output(network.add_softmax(x).get_output(0))
    config = builder.create_builder_config()
    config.builder_optimization_level = level
    config.algorithm_selector = selector = Selector()
    assert builder.build_serialized_network(network, config) is not None
    assert selector.seen and [c.name for c, _ in selector.reported] == selector.seen
    context, algorithm = selector.reported[0]
    assert isinstance(context, trt.IAlgorithmContext)
    assert isinstance(algorithm, trt.IAlgorithm) and algorithm.timing_msec >= 0
    assert isinstance(algorithm.algorithm_variant, trt.IAlgorithmVariant)
    assert algorithm.algorithm_variant.tactic > 0 and algorithm.algorithm_variant.implementation > 0
    config.algorithm_selector = Selector(takes=False)
    assert builder.build_serialized_network(network, config) is not None
    config.set_flag(trt.BuilderFlag.REJECT_EMPTY_ALGORITHMS)
    assert builder.build_serialized_network(network, config) is None
    assert "takes no tactic" in log.errors[-1]


@pytest.mark.parametrize("answer", [[99], [0, 1], [-1]])
def test_algorithm_selectors_take_what_is_offered(
    answer: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Selector, "select_algorithms", lambda *_: answer)
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(1)
    x = network.add_input("x", trt.float32, (2, 3))
    network.mark_output(network.add_softmax(x).get_output(0))
    config = builder.create_builder_config()
    config.algorithm_selector = Selector()
    assert builder.build_serialized_network(network, config) is None
    assert f"takes {answer}" in log.errors[-1]
