"""Names of TensorRT 7 to 9 at runtime: bindings by number, `with` blocks, executions of old."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from braze.shim.pycuda import driver as cuda
from tests.tensorrt.engines import (
    Log,
    Recorder,
    dynamic_engine,
    load,
    scale_reference,
    static_engine,
)

# float32 sums of 4 products and a constant, of numbers below 10
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def test_bindings_of_an_engine() -> None:
    engine = load(static_engine())
    with pytest.warns(DeprecationWarning, match="num_io_tensors"):
        assert engine.num_bindings == 2
    assert len(engine) == 2
    assert list(engine) == ["x", "y"]
    assert engine["y"] == 1 and engine[0] == "x"
    with pytest.raises(IndexError):
        engine[2]
    with pytest.raises(KeyError):
        engine["z"]
    with pytest.warns(DeprecationWarning):
        assert engine.get_binding_index("y") == 1
        assert engine.get_binding_index("z") == -1
        assert engine.binding_is_input(0) and not engine.binding_is_input("y")
        assert tuple(engine.get_binding_shape(1)) == (2, 3)
        assert tuple(engine.get_binding_shape("x")) == (2, 4)
        assert engine.get_binding_dtype(0) is trt.float32
        assert engine.get_location(0) is trt.TensorLocation.DEVICE
        assert engine.get_binding_format(0) is trt.TensorFormat.LINEAR
        assert engine.get_binding_format_desc(0) == "Row major linear FP32 format"
        assert engine.get_binding_vectorized_dim(0) == -1
        assert not engine.is_shape_binding(0)
        assert engine.max_batch_size == 1
        assert engine.max_workspace_size == 0
    assert engine.get_binding_name(1) == "y"
    assert engine.get_binding_bytes_per_component(0) == 4
    assert engine.get_binding_components_per_element(0) == 1
    assert engine.is_execution_binding(1)
    assert not engine.has_implicit_batch_dimension


def test_bindings_times_profiles() -> None:
    log = Log()
    engine = load(dynamic_engine(), log)
    assert list(engine) == ["x", "y"] and len(engine) == 4
    assert [engine[i] for i in range(4)] == ["x", "y", "x [profile 1]", "y [profile 1]"]
    assert engine["x [profile 1]"] == 2
    assert engine.get_tensor_mode("x [profile 1]") is trt.TensorIOMode.INPUT
    assert [tuple(d) for d in engine.get_tensor_profile_shape("x [profile 1]", 0)][2] == (4, 4)
    assert engine.get_tensor_mode("x [profile 2]") is trt.TensorIOMode.NONE
    with pytest.warns(DeprecationWarning):
        assert [tuple(d) for d in engine.get_profile_shape(1, 2)] == [(4, 4), (8, 4), (16, 4)]
        with pytest.raises(RuntimeError, match="input shape tensor"):
            engine.get_profile_shape_input(0, 0)
    context = engine.create_execution_context()
    context.active_optimization_profile = 1
    with pytest.warns(DeprecationWarning):
        assert context.set_binding_shape(2, (5, 4))
        assert context.set_binding_shape(0, (2, 4)) is False and "profile 0" in log.errors[-1]
        assert tuple(context.get_binding_shape(3)) == (5, 3)
        assert tuple(context.get_strides(3)) == (3, 1)
    x, y = np.ones((5, 4), np.float32), np.zeros((5, 3), np.float32)
    stream = cuda.Stream()
    with pytest.warns(DeprecationWarning, match="execute_async_v3"):
        assert context.execute_async_v2([0, 0, x.ctypes.data, y.ctypes.data], stream.handle)
    stream.synchronize()
    np.testing.assert_allclose(y, scale_reference(x), **CLOSE)
    assert context.set_input_shape("x [profile 1]", (4, 4))
    assert tuple(context.get_tensor_shape("y [profile 1]")) == (4, 3)
    assert context.set_tensor_address("y [profile 1]", y.ctypes.data)
    assert context.get_tensor_address("y") == y.ctypes.data
    assert not context.execute_v2([1, 2, 3]) and "2 inputs and outputs (4" in log.errors[-1]
    with pytest.raises(RuntimeError):
        context.active_optimization_profile = 2


def test_with_blocks_warn_and_do_nothing() -> None:
    with pytest.warns(DeprecationWarning, match="with"):
        with trt.Runtime(Log()) as runtime:
            engine = runtime.deserialize_cuda_engine(static_engine())
        with engine, engine.create_execution_context() as context:
            pass
    engine.__del__()  # as scripts of release 7 did, whose contexts go on
    x, y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_allclose(y, scale_reference(x), **CLOSE)


def test_executions_with_a_batch_size_need_an_implicit_batch() -> None:
    log, recorder = Log(), Recorder()
    context = load(static_engine(), log).create_execution_context()
    context.error_recorder = recorder
    x, y = np.ones((2, 4), np.float32), np.zeros((2, 3), np.float32)
    addresses = [x.ctypes.data, y.ctypes.data]
    with pytest.warns(DeprecationWarning):
        assert context.execute(1, addresses)
        assert context.execute(batch_size=2, bindings=addresses) is False
        assert context.execute_async(1, addresses, cuda.Stream().handle)
    assert "explicit batch" in log.errors[0]
    assert recorder.num_errors() == 1


def test_an_implicit_batch() -> None:
    """The record that a builder writes for such a network makes shapes lose their first axis."""
    engine = load(dynamic_engine())
    engine.table.record.update(implicit_batch=True, max_batch_size=4)
    assert engine.has_implicit_batch_dimension
    assert tuple(engine.get_tensor_shape("x")) == (4,)
    with pytest.warns(DeprecationWarning):
        assert engine.max_batch_size == 4
        assert tuple(engine.get_binding_shape(1)) == (3,)
    context = engine.create_execution_context()
    x, y = np.ones((3, 4), np.float32), np.zeros((3, 3), np.float32)
    addresses = [x.ctypes.data, y.ctypes.data]
    with pytest.warns(DeprecationWarning):
        assert context.execute(3, addresses)
    np.testing.assert_allclose(y, scale_reference(x), **CLOSE)
    with pytest.warns(DeprecationWarning):
        assert context.execute(5, addresses) is False
    stream = cuda.Stream()
    y[:] = 0
    with pytest.warns(DeprecationWarning):
        assert context.execute_async(2, addresses, stream.handle)
    stream.synchronize()
    np.testing.assert_allclose(y[:2], scale_reference(x[:2]), **CLOSE)
    assert not y[2].any()
