"""Sizes that contents of inputs decide, as contexts tell them before and after runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from tests.tensorrt.networks import Log, new_network, plan_of

KINDS = {trt.int32: np.int32, trt.int64: np.int64}


def reshaping(kind: Any, twice: bool = False) -> tuple[Any, Log]:
    """A context of y = x [n, 6] in the shape that s holds, the first size doubled where twice."""
    network, log = new_network()
    x = network.add_input("x", trt.float32, (-1, 6))
    s = network.add_input("s", kind, (2,))
    if twice:
        factors = network.add_constant((2,), np.array([2, 1], KINDS[kind])).get_output(0)
        s = network.add_elementwise(s, factors, trt.ElementWiseOperation.PROD).get_output(0)
    layer = network.add_shuffle(x)
    layer.set_input(1, s)
    layer.get_output(0).name = "y"
    network.mark_output(layer.get_output(0))
    builder = network.builder
    config = builder.create_builder_config()
    config.builder_optimization_level = 1
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 6), (2, 6), (4, 6))
    profile.set_shape_input("s", (1, 1), (3, 4), (24, 24))
    config.add_optimization_profile(profile)
    data = builder.build_serialized_network(network, config)
    assert data is not None, log.errors
    return trt.Runtime(log).deserialize_cuda_engine(data).create_execution_context(), log


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_are_told_before_a_run(kind: Any) -> None:
    context, log = reshaping(kind)
    assert context.infer_shapes() == ["x", "s"] and context.get_max_output_size("y") == -1
    assert context.set_input_shape("x", (2, 6)) and context.infer_shapes() == ["s"]
    assert tuple(context.get_tensor_shape("y")) == (-1, -1)
    assert context.get_max_output_size("y") == 24 * 24 * 4  # what the profile's contents allow
    s, x = np.array([4, 3], KINDS[kind]), np.arange(12, dtype=np.float32)
    y = np.zeros(12, np.float32)
    for name, array in (("s", s), ("x", x), ("y", y)):
        assert context.set_tensor_address(name, array.ctypes.data)
    for content, shape in (((4, 3), (4, 3)), ((6, -1), (6, 2))):
        s[:] = content
        assert context.infer_shapes() == [] and context.get_max_output_size("y") == 48
        assert tuple(context.get_tensor_shape("y")) == shape
        assert context.execute_async_v3(0), log.errors
        assert tuple(context.get_tensor_shape("y")) == shape
        np.testing.assert_array_equal(x, y)
    other = np.array([2, 6], KINDS[kind])
    assert context.set_tensor_address("s", other.ctypes.data)
    assert tuple(context.get_tensor_shape("y")) == (2, 6)
    other[:] = 9
    with pytest.raises(RuntimeError, match="12 and 81"):
        context.infer_shapes()
    assert not context.execute_async_v3(0)


def test_what_kernels_make_of_contents_is_known_after_a_run() -> None:
    context, log = reshaping(trt.int32, twice=True)
    assert context.set_input_shape("x", (2, 6))
    s, x, y = np.array([2, 3], np.int32), np.arange(12, dtype=np.float32), np.zeros(12, np.float32)
    for name, array in (("s", s), ("x", x), ("y", y)):
        assert context.set_tensor_address(name, array.ctypes.data)
    assert context.infer_shapes() == []
    assert tuple(context.get_tensor_shape("y")) == (-1, -1)
    assert context.get_max_output_size("y") == -1  # nothing limits it
    assert context.execute_async_v3(0), log.errors
    assert tuple(context.get_tensor_shape("y")) == (4, 3)
    s[:] = 3, 2
    assert tuple(context.get_tensor_shape("y")) == (-1, -1)
    assert context.execute_async_v3(0), log.errors
    assert tuple(context.get_tensor_shape("y")) == (6, 2)


def test_sizes_that_data_decides_have_their_bound() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (-1, 3))
    found = network.add_non_zero(x).get_output(0)
    found.name = "y"
    network.mark_output(found)
    data = plan_of(network, {"x": ((1, 3), (2, 3), (5, 3))})
    context = trt.Runtime(log).deserialize_cuda_engine(data).create_execution_context()
    assert context.set_input_shape("x", (2, 3))
    assert tuple(context.get_tensor_shape("y")) == (2, -1)
    most = context.get_max_output_size("y")
    assert 2 * 6 * 4 <= most <= 2 * 15 * 8  # for these shapes, at most for the profile
