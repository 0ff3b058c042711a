"""Small engines as bytes for tests of the runtime side, built by braze's own face."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import braze
import braze.tensorrt as trt

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any] = ()) -> Any:
    """An ONNX model of opset 17."""
    graph = helper.make_graph(nodes, "network", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def scale_model(batch: int | str = "n") -> Any:
    """y = relu(x @ w + 1) of x [batch, 4]; w is fixed by its seed."""
    w = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    return model(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], "mul"),
            helper.make_node("Add", ["m", "one"], ["a"], "add"),
            helper.make_node("Relu", ["a"], ["y"], "relu"),
        ],
        [helper.make_tensor_value_info("x", FLOAT, [batch, 4])],
        [helper.make_tensor_value_info("y", FLOAT, [batch, 3])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.float32([1, 1, 1]), "one")],
    )


def scale_reference(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What scale_model computes, in float64."""
    w = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    return np.maximum(x.astype(np.float64) @ w + 1, 0)


@functools.cache
def static_engine() -> bytes:
    """scale_model for a batch of 2."""
    return braze.build(scale_model(2), threads=1, optimization_level=1).to_bytes()


@functools.cache
def dynamic_engine() -> bytes:
    """scale_model with two profiles: 1 to 4, best 2; 4 to 16, best 8."""
    shapes = {"x": [((1, 4), (2, 4), (4, 4)), ((4, 4), (8, 4), (16, 4))]}
    return braze.build(scale_model(), threads=1, optimization_level=1, shapes=shapes).to_bytes()


@functools.cache
def static_engine_of_two() -> bytes:
    """scale_model without fusion, so that it has activations."""
    return braze.build(scale_model(2), threads=1, optimization_level=0).to_bytes()


@functools.cache
def debug_engine() -> bytes:
    """scale_model for a batch of 2, with the product `m` as a debug tensor."""
    return braze.build(scale_model(2), threads=1, optimization_level=0, debug=("m",)).to_bytes()


@functools.cache
def non_zero_engine() -> bytes:
    """y = the indices of what is not zero in x [2, 5]: its size depends on the data."""
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    x = helper.make_tensor_value_info("x", FLOAT, [2, 5])
    y = helper.make_tensor_value_info("y", INT64, [2, "k"])
    return braze.build(model(nodes, [x], [y]), threads=1, optimization_level=1).to_bytes()


@functools.cache
def gather_engine() -> bytes:
    """y = x[i] of x [3]: an index that is out of range fails in the run."""
    nodes = [helper.make_node("Gather", ["x", "i"], ["y"])]
    x = helper.make_tensor_value_info("x", FLOAT, [3])
    i = helper.make_tensor_value_info("i", INT64, [2])
    y = helper.make_tensor_value_info("y", FLOAT, [2])
    return braze.build(model(nodes, [x, i], [y]), threads=1, optimization_level=1).to_bytes()


class Log(trt.ILogger):
    """Keeps what it is told."""

    def __init__(self) -> None:
        trt.ILogger.__init__(self)
        self.messages: list[tuple[Any, str]] = []

    def log(self, severity: Any, msg: str) -> None:
        self.messages.append((severity, msg))

    @property
    def errors(self) -> list[str]:
        """The texts of errors."""
        return [m for s, m in self.messages if s in (self.ERROR, self.INTERNAL_ERROR)]


class Recorder(trt.IErrorRecorder):
    """Keeps errors as the samples do."""

    def __init__(self) -> None:
        trt.IErrorRecorder.__init__(self)
        self.errors: list[tuple[Any, str]] = []

    def num_errors(self) -> int:
        return len(self.errors)

    def get_error_code(self, arg0: int) -> Any:
        return self.errors[arg0][0]

    def get_error_desc(self, arg0: int) -> str:
        return self.errors[arg0][1]

    def has_overflowed(self) -> bool:
        return False

    def clear(self) -> None:
        self.errors.clear()

    def report_error(self, arg0: Any, arg1: str) -> bool:
        self.errors.append((arg0, arg1))
        return True


class Watched:
    """An engine and a context with a log and a recorder."""

    def __init__(self, data: bytes) -> None:
        self.log, self.recorder = Log(), Recorder()
        runtime = trt.Runtime(self.log)
        runtime.error_recorder = self.recorder
        self.engine: Any = runtime.deserialize_cuda_engine(data)
        assert self.engine.error_recorder is self.recorder
        self.context: Any = self.engine.create_execution_context()
        assert self.context.error_recorder is self.recorder

    def told(self, code: trt.ErrorCodeTRT, *parts: str) -> None:
        """Both heard of one error with these words."""
        assert len(self.log.errors) == self.recorder.num_errors() == 1
        assert self.recorder.get_error_code(0) is code
        assert self.recorder.get_error_desc(0) == self.log.errors[0]
        for part in (f"Error Code {int(code)}: ", *parts):
            assert part in self.log.errors[0]
        self.log.messages.clear()
        self.recorder.clear()


def load(data: bytes, log: Log | None = None) -> Any:
    """The engine in bytes."""
    engine = trt.Runtime(log or Log()).deserialize_cuda_engine(data)
    assert engine is not None
    return engine


def proto(made: Any) -> bytes:
    """A model as bytes."""
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())
