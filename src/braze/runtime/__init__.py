"""Running engines: needs the native library and numpy, no compiler and no onnx."""

from braze.runtime.context import ExecutionContext
from braze.runtime.device import DeviceArray
from braze.runtime.engine import Engine, TensorDescription
from braze.runtime.stream import Event, Stream

__all__ = ["DeviceArray", "Engine", "Event", "ExecutionContext", "Stream", "TensorDescription"]
