"""Checks of device memory in a process whose CUDA driver is the stub of the native tests.

`python -m tests.runtime.device_checks STUB NAME` runs one. The stub's device is memory of the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from braze.cli.main import main
from braze.core.dtypes import BF16, F16, F32
from braze.core.errors import BindingError, ConfigError, DTypeError, ExecutionError, ShapeError
from braze.engine.plan import Kernel, Module
from braze.runtime import DeviceArray, Engine
from braze.runtime.stream import Stream
from tests.runtime.plans import chain_plan, chain_reference

ROWS, WIDTH = 3, 8
X = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
WANT = chain_reference(chain_plan(), X)


def engine() -> Engine:
    """The chain of additions as an engine of the stub's GPU."""
    plan = chain_plan()
    one = plan.sizes.index(next(s for s in plan.sizes if s.op == "const"))
    steps = tuple(replace(s, grid=(one,)) for s in plan.steps)
    buffers = tuple(replace(b, space="device") for b in plan.buffers)
    code = {"modules": (Module("cubin", "sm_90", b"STUB"),), "kernels": (Kernel("add", 0, 32),)}
    return Engine.from_plan(replace(plan, steps=steps, buffers=buffers, **code))


def tensor(e: Engine, array: np.ndarray[Any, Any] = X) -> DeviceArray:
    out = e.device_empty(array.shape, array.dtype.name)
    out.copy_from(array)
    return out


class OnlyDlpack:
    """A tensor of a library that knows DLPack alone."""

    def __init__(self, inner: DeviceArray, number: int = 0) -> None:
        self.inner, self.number = inner, number
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.number

    def __dlpack__(self, stream: Any = None) -> Any:
        self.streams.append(stream)
        return self.inner.__dlpack__()


class OnlyInterface:
    """A tensor of a library that knows `__cuda_array_interface__` alone."""

    def __init__(self, inner: DeviceArray, **changes: Any) -> None:
        self.inner = inner
        self.__cuda_array_interface__ = {**inner.__cuda_array_interface__, **changes}


def log() -> str:
    stub.stub_log.restype = ctypes.c_char_p
    return str(stub.stub_log().decode())


def live() -> str:
    gc.collect()
    stub.stub_live.restype = ctypes.c_char_p
    return str(stub.stub_live().decode())


def check_host_arrays_still_run() -> None:
    e = engine()
    np.testing.assert_array_equal(e({"x": X})["y"], WANT)
    assert isinstance(e({"x": X})["y"], np.ndarray)


def check_device_in_device_out() -> None:
    e = engine()
    own = tensor(e)
    interface = OnlyInterface(own)
    for value in (own, OnlyDlpack(own), interface):
        e({"x": value})
        stub.stub_clear_log()
        y = e({"x": value})["y"]
        assert "to device" not in log() and "to host" not in log()
        assert isinstance(y, DeviceArray)
        assert y.shape == X.shape and y.dtype is F32
        np.testing.assert_array_equal(y.numpy(), WANT)
        np.testing.assert_array_equal(np.asarray(y, "f8"), WANT)


def check_producers_are_waited_for() -> None:
    e = engine()
    given = OnlyDlpack(tensor(e))
    stub.stub_clear_log()
    e({"x": given})
    assert given.streams == [1] and "wait s0" in log()  # the default stream, where it is ready
    stub.stub_clear_log()
    e({"x": OnlyInterface(tensor(e), stream=None)})
    assert log().count("wait s0") < 6  # what clears memory alone


def check_exported_memory_outlives_the_engine() -> None:
    e = engine()
    y = e({"x": tensor(e)})["y"]
    capsule = y.__dlpack__(stream=1, max_version=(1, 0))
    assert y.__dlpack_device__() == (2, 0)
    assert y.__cuda_array_interface__["shape"] == X.shape
    del y, e
    assert "2 device memory" in live()  # and the weights, as the engine is open
    del capsule
    assert live() == ""


def check_refusals() -> None:
    e = engine()
    good = tensor(e)
    half = e.device_empty(X.shape, F16)
    cases: tuple[tuple[Any, type[Exception], str], ...] = (
        (half, DTypeError, "element type float16 but the engine takes float32"),
        (OnlyDlpack(half), DTypeError, "element type float16"),
        (OnlyInterface(good, typestr="<i4"), DTypeError, "element type int32"),
        (OnlyDlpack(good, 1), BindingError, "lies on GPU"),
        (OnlyInterface(good, strides=(4, 4 * ROWS)), BindingError, "row-major"),
        (OnlyInterface(good, shape=(ROWS * WIDTH,)), ShapeError, "takes 2 axes"),
        (e.device_empty((WIDTH,), F32), ShapeError, "takes 2 axes"),
    )
    for value, kind, words in cases:
        with pytest.raises(kind, match=words):
            e({"x": value})
    context = e.create_context()
    context.set_input_shape("x", X.shape)
    with pytest.raises(BindingError, match="read-only"):
        context.bind("y", OnlyInterface(good, data=(good.address, True)))
    with pytest.raises(BindingError, match="does not fit"):
        good.copy_from(X.astype(np.float64))
    assert not hasattr(e.device_empty((2,), BF16), "__cuda_array_interface__")
    assert e.device_empty((2,), BF16).__dlpack__() is not None
    # strides of axes of one element do not matter
    row = OnlyInterface(tensor(e, X[:1]), strides=(123, 4))
    np.testing.assert_array_equal(e({"x": row})["y"].numpy(), chain_reference(chain_plan(), X[:1]))


def check_host_engines_refuse_tensors_of_a_gpu() -> None:
    host, gpu = Engine.from_plan(chain_plan()), engine()
    for value in (OnlyDlpack(tensor(gpu)), OnlyInterface(tensor(gpu))):
        with pytest.raises(BindingError, match="the engine runs on the host"):
            host({"x": value})
    own = tensor(host)  # memory of the host under the same face
    np.testing.assert_array_equal(host({"x": own})["y"].numpy(), WANT)
    assert own.__dlpack_device__() == (1, 0) and not hasattr(own, "__cuda_array_interface__")
    np.testing.assert_array_equal(np.from_dlpack(own), X)


def check_streams() -> None:
    e = engine()
    context = e.create_context(priority=2, extra_streams=1)
    assert "stream -2" in log()
    x, y = e.pinned_empty(X.shape), e.pinned_empty(X.shape, F32)
    x[:] = X
    context.set_input_shape("x", X.shape)
    context.bind("x", x)
    context.bind("y", y)
    context.enqueue(0)
    assert not y.any()  # nothing waits
    context.synchronize()
    np.testing.assert_array_equal(y, WANT)

    class Other:
        cuda_stream = 0

    y[:] = 0
    context.enqueue(Other())
    context.synchronize()
    np.testing.assert_array_equal(y, WANT)
    with pytest.raises(BindingError, match="is no stream"):
        context.enqueue("stream")
    context.bind("x", X)
    with pytest.raises(BindingError, match="pageable"):
        context.enqueue(0)
    stream = Stream()
    y[:] = 0
    context.enqueue(stream)
    stream.synchronize()
    np.testing.assert_array_equal(y, WANT)
    times = context.timed(graph=False, sleep=True)
    assert times.h2d == times.compute == times.d2h == 0.5
    with pytest.raises(ExecutionError, match="priority"):
        e.create_context(priority=-1)


def check_names_of_tensorrt() -> None:
    import braze.tensorrt as trt

    class Allocator(trt.IOutputAllocator):
        def reallocate_output(
            self, tensor_name: str, memory: int, size: int, alignment: int
        ) -> int:
            self.size = size
            return y.address

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(shape)

    class Times(trt.IProfiler):
        layers = 0

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.layers += 1

    e = engine()
    x, y = tensor(e), e.device_empty(X.shape)
    loaded = trt.Runtime(trt.Logger()).deserialize_cuda_engine(e.to_bytes())
    context = loaded.create_execution_context()
    assert context.set_input_shape("x", X.shape)
    assert context.set_tensor_address("x", x.address)
    assert context.set_tensor_address("y", y.address)
    assert context.execute_async_v3(0)
    context._core.synchronize()
    np.testing.assert_array_equal(np.array(y), WANT)
    y.copy_from(np.zeros_like(X))
    assert context.execute_v2([x.address, y.address])
    np.testing.assert_array_equal(np.array(y), WANT)
    y.copy_from(np.zeros_like(X))
    context.profiler = times = Times()
    allocator = Allocator()
    assert context.set_output_allocator("y", allocator)
    assert context.execute_async_v3(0)
    np.testing.assert_array_equal(np.array(y), WANT)
    assert (allocator.size, allocator.shape) == (X.nbytes, X.shape)
    assert times.layers == loaded.num_layers
    assert loaded.weight_streaming_budget_v2 == 0


def check_weights_are_streamed_within_a_budget() -> None:
    image = engine().to_bytes()
    want = engine()({"x": X})["y"]
    few = Engine.from_bytes(image, weight_budget=1 << 20)
    np.testing.assert_array_equal(few({"x": X})["y"], want)
    size = chain_plan().weights[0].bytes
    with pytest.raises(ExecutionError, match="weight budget of 10 bytes is too small"):
        Engine.from_bytes(image, weight_budget=10)
    with pytest.raises(ConfigError, match="0 or more"):
        Engine.from_bytes(image, weight_budget=-1)
    # the chain reads one weight, so a budget that streams it is none smaller than twice that
    with pytest.raises(ExecutionError, match="too small"):
        Engine.from_bytes(image, weight_budget=size - 1)


def check_memory_ends_with_its_owners() -> None:
    e = engine()
    y = e({"x": tensor(e)})["y"]
    before = live()
    for _ in range(20):
        y = e({"x": tensor(e)})["y"]
    assert isinstance(y, DeviceArray)
    count = int(live().split(" instances")[0].split()[-1])
    assert count <= 8  # a context keeps so many graphs
    assert live().replace(f"{count} instances", "1 instances") == before
    del y, e
    assert live() == ""


def check_exec_reports_what_trtexec_does() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, times = f"{folder}/a.engine", f"{folder}/times.json"
        engine().save(path)
        base = [f"--loadEngine={path}", "--shapes=x:3x8", "--duration=0", "--iterations=30"]
        text = execute(
            [*base, "--warmUp=0", f"--exportTimes={times}", "--dumpOutput", "--noSpinWait"]
        )
        for line in (
            "Latency: min = 1.5 ms, max = 1.5 ms",  # the stub says 0.5 ms for everything
            "Enqueue Time: min = ",
            "H2D Latency: min = 0.5 ms",
            "GPU Compute Time: min = 0.5 ms",
            "D2H Latency: min = 0.5 ms",
            "Total GPU Compute Time: 0.015 s",
            "GPU latency: 0.5 ms - Host latency: 1.5 ms (enqueue ",
            "Copies take 0.5 ms in and 0.5 ms out",
        ):
            assert line in text, (line, text)
        record = json.loads(Path(times).read_text())[0]
        assert record["h2dMs"] == record["computeMs"] == 0.5 and record["latencyMs"] == 1.5
        assert "pinned" in log() and "to device" in log()
        stub.stub_clear_log()
        execute([*base, "--noDataTransfers", "--noCudaGraph", "--infStreams=2"])
        assert "launch graph" not in log() and "to device 96" not in log()
        assert "Profile (" in execute([*base, "--dumpProfile"])
        host = f"{folder}/host.engine"
        Engine.from_plan(chain_plan()).save(host)
        text = execute([f"--loadEngine={host}", *base[1:], "--noDataTransfers"])
        assert "--noDataTransfers changes nothing: the engine runs on the host" in text
        assert "H2D Latency: min = 0 ms, max = 0 ms" in text


def execute(arguments: list[str]) -> str:
    """What `braze exec` prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["exec", *arguments]) == 0
    return out.getvalue()


CHECKS = {name.removeprefix("check_"): f for name, f in globals().items() if name[:6] == "check_"}

if __name__ == "__main__":
    stub = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)  # what dlopen finds by name from now on
    CHECKS[sys.argv[2]]()
