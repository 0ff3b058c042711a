"""Addresses that are not those of memory, wherever a program gives one: an error, no crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from braze.shim.device import host_device
from tests.tensorrt.networks import Log, floats, new_network, plan_of
from tests.tensorrt.test_int8 import Calibrator, build, conv_network
from tests.tensorrt.test_parser import conv_model

WILD = 77
NO_MEMORY = "are no memory of this process"


def freed(size: int) -> int:
    """The address of device memory that was given back."""
    memory = host_device().memory
    address = memory.allocate(size)
    memory.free(address)
    return address


def test_weights_are_looked_at_when_they_are_read() -> None:
    weights = trt.Weights(trt.float32, WILD, 12)
    assert (weights.size, weights.nbytes, weights.dtype) == (12, 48, trt.float32)
    with pytest.raises(ValueError, match=NO_MEMORY):
        weights.numpy()
    with pytest.raises(ValueError, match=NO_MEMORY):
        trt.Weights(trt.float32, np.zeros(1, np.float32).ctypes.data, -1).numpy()
    held = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(trt.Weights(trt.float32, held.ctypes.data, 12).numpy(), held)
    assert trt.Weights(trt.float32, 0, 0).numpy().size == 0


def test_constants() -> None:
    network, log = new_network()
    assert network.add_constant((3, 4), trt.Weights(trt.float32, WILD, 12)) is None
    assert NO_MEMORY in log.errors[-1] and "add_constant" in log.errors[-1]


def test_weights_of_layers() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (1, 1, 4, 4))
    kernel = trt.Weights(trt.float32, freed(36), 9)
    conv = network.add_convolution_nd(x, 1, (3, 3), kernel)
    network.mark_output(conv.get_output(0))
    assert plan_of(network) is None
    assert NO_MEMORY in log.errors[-1] and conv.name in log.errors[-1]


@pytest.mark.parametrize("is_freed", [False, True])
def test_batches_of_calibrators(is_freed: bool) -> None:
    class Wild(Calibrator):
        def get_batch(self, names: list[str]) -> list[int] | None:
            return [freed(64 << 20) if is_freed else WILD]

    network, log = conv_network()
    assert build(network, Wild()) is None
    assert NO_MEMORY in log.errors[-1] and "'x'" in log.errors[-1]


def test_initializers() -> None:
    network, log = new_network()
    parser = trt.OnnxParser(network, log)
    assert parser.load_model_proto(conv_model().SerializeToString())
    size = next(t for t in conv_model().graph.initializer if t.name == "w")
    nbytes = int(np.prod(size.dims)) * 4
    assert not parser.load_initializer("w", WILD, nbytes)
    assert parser.num_errors == 1 and NO_MEMORY in parser.get_error(0).desc()
    assert parser.parse_model_proto()  # with the content that it had


def refittable() -> tuple[Any, Log]:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    w = network.add_constant((2, 3), floats(2, 3))
    assert network.set_weights_name(w.weights, "w")
    total = network.add_elementwise(x, w.get_output(0), trt.ElementWiseOperation.SUM)
    network.mark_output(total.get_output(0))
    config = network.builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.REFIT)
    data = network.builder.build_serialized_network(network, config)
    return trt.Runtime(log).deserialize_cuda_engine(data), log


def test_weights_of_a_refit() -> None:
    engine, log = refittable()
    refitter = trt.Refitter(engine, log)
    assert not refitter.set_named_weights("w", trt.Weights(trt.float32, WILD, 6))
    assert NO_MEMORY in log.errors[-1] and "'w'" in log.errors[-1]
    memory = host_device().memory
    address = memory.allocate(64 << 20)
    assert refitter.set_named_weights("w", trt.Weights(trt.float32, address, 6))
    memory.free(address)
    assert not refitter.refit_cuda_engine()
    assert NO_MEMORY in log.errors[-1]
    assert refitter.set_named_weights("w", floats(2, 3)) and refitter.refit_cuda_engine()
