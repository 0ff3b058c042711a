"""The stateful way, streams and events."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

import braze
from braze.core.errors import BindingError, ExecutionError, ShapeError
from braze.runtime import Engine, Event, Stream
from tests.meta.small_models import model
from tests.runtime.plans import chain_plan, chain_reference, gather_plan


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 8)).astype(np.float32)


def test_bind_and_execute_in_place() -> None:
    plan = chain_plan()
    context = Engine.from_plan(plan).create_context()
    with pytest.raises(ShapeError, match="not set"):
        context.shape("y")
    context.set_input_shape("x", (3, 8))
    assert context.shape("y") == (3, 8)
    x, y = rows(3), np.empty((3, 8), np.float32)
    with pytest.raises(BindingError, match="'x' has 0 bytes"):
        context.execute()
    context.bind("x", x)
    context.bind("y", y.ctypes.data, y.nbytes)
    context.execute()
    assert y.tobytes() == chain_reference(plan, x).tobytes()
    with pytest.raises(BindingError, match="size in bytes"):
        context.bind("y", y.ctypes.data)
    with pytest.raises(BindingError, match="contiguous"):
        context.bind("y", np.empty((3, 16), np.float32)[:, ::2])
    with pytest.raises(BindingError, match="no tensor 'z'"):
        context.bind("z", x)
    context.bind("y", np.empty((2, 8), np.float32))
    with pytest.raises(BindingError, match="needs 96"):
        context.execute()


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_arrays_of_another_shape_than_the_run_are_refused(target: str) -> None:
    add = helper.make_node("Add", ["x", "x"], ["y"])
    engine = braze.build(model([add], {"x": (TensorProto.FLOAT, ["n", "m"])}, ["y"]), target=target)
    context, y = engine.create_context(), np.zeros((2, 4), np.float32)
    x = np.arange(12, dtype=np.float32)
    context.bind("x", x.reshape(4, 3))
    context.bind("y", y)
    context.set_input_shape("x", (2, 4))
    words = r"input 'x' has shape \(2, 4\) in this run but is bound to an array of \(4, 3\)"
    for run in (context.execute, lambda: context.enqueue(Stream())):
        with pytest.raises(ShapeError, match=words):
            run()
    context.bind("x", x)  # flat memory with room
    context.execute()
    np.testing.assert_array_equal(y.reshape(-1), 2 * x[:8])
    context.set_input_shape("x", (4, 2))
    with pytest.raises(ShapeError, match="output 'y' has shape"):
        context.execute()
    context.bind("y", y.ctypes.data, y.nbytes)  # an address has no shape
    context.execute()
    assert y.reshape(4, 2)[3, 1] == 14


def test_lists_are_longer_than_the_run_only_at_an_address() -> None:
    add = helper.make_node("Add", ["x", "x"], ["y"])
    engine = braze.build(model([add], {"x": (TensorProto.FLOAT, ["n"])}, ["y"]))
    context, x = engine.create_context(), np.ones(6, np.float32)
    context.set_input_shape("x", (4,))
    context.bind("x", x)
    context.bind("y", np.empty(4, np.float32))
    with pytest.raises(ShapeError, match="input 'x'"):
        context.execute()
    context.bind("x", x.ctypes.data, x.nbytes)
    context.execute()


def test_runs_in_order_with_the_shapes_of_their_enqueue() -> None:
    plan = chain_plan(num_steps=6)
    context = Engine.from_plan(plan).create_context()
    stream, outputs = Stream(), []
    for n in range(1, 17):
        context.set_input_shape("x", (n, 8))
        outputs.append(np.empty((n, 8), np.float32))
        context.bind("x", rows(n))  # only the stream keeps this array alive
        context.bind("y", outputs[-1])
        context.enqueue(stream)
    stream.synchronize()
    assert stream.query()
    for y in outputs:
        assert y.tobytes() == chain_reference(plan, rows(len(y))).tobytes()


def test_events() -> None:
    first, second = Stream(), Stream()
    start, middle, end = Event(), Event(), Event()
    seen: list[str] = []
    gate = threading.Event()
    start.record(first)
    first.call(gate.wait)  # type: ignore[arg-type]
    first.call(lambda: seen.append("first"))
    middle.record(first)
    second.wait_event(middle)
    second.call(lambda: seen.append("second"))
    end.record(second)
    assert not end.query()
    with pytest.raises(ExecutionError, match="complete"):
        start.elapsed_ms(end)
    gate.set()
    end.synchronize()
    assert seen == ["first", "second"]
    assert end.query()
    assert start.elapsed_ms(end) >= 0


def test_errors_of_enqueued_runs_show_in_synchronize() -> None:
    context = Engine.from_plan(gather_plan()).create_context()
    context.set_input_shape("x", (4,))
    context.set_input_shape("i", (2,))
    context.bind("x", np.arange(4, dtype=np.float32))
    y = np.empty(2, np.float32)
    context.bind("y", y)
    stream = Stream()
    context.bind("i", np.array([0, 9]))
    context.enqueue(stream)
    context.bind("i", np.array([3, 1]))
    context.enqueue(stream)
    with pytest.raises(ExecutionError, match="gather"):
        stream.synchronize()
    np.testing.assert_array_equal(y, [3, 1])
    stream.synchronize()


def test_errors_of_calls_show_in_synchronize() -> None:
    stream, seen = Stream(), list[str]()
    stream.call(lambda: seen.remove("missing"))
    stream.call(lambda: seen.append("later"))
    with pytest.raises(ValueError, match="remove"):
        stream.synchronize()
    assert seen == ["later"]
    stream.synchronize()


def test_an_idle_stream_uses_no_cpu() -> None:
    stream = Stream()
    stream.call(lambda: None)
    stream.synchronize()
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.02
