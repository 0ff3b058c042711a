"""Several contexts of one engine: side by side on streams of their own, and computing while others
copy. `python -m pytest -s` shows the figures; nothing else may use the GPU."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.codegen.cuda.driver import Driver
from tests.meta import small_models

RUNS, ROUNDS = 300, 5
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no waiting for the default stream
LEAST_GAIN, LEAST_SHARE = 1.5, 0.9
CHANNELS, LAYERS = 256, 24  # each layer a few microseconds on a part of the card
PICTURE = (1, 16, 512, 512)  # 16 MiB, which a host sends in a third of a millisecond

pytestmark = pytest.mark.skipif(
    "PYTEST_XDIST_WORKER" in os.environ, reason="measures the device, which other workers use too"
)


def layers(first: Sequence[Any], start: str, channels: int, count: int) -> list[Any]:
    """`count` convolutions of `channels` with ReLU behind the nodes `first`, from `start` to y."""
    nodes, x = list(first), start
    for i in range(count):
        y = "y" if i == count - 1 else f"r{i}"
        nodes.append(onnx.helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], pads=[1] * 4))
        nodes.append(onnx.helper.make_node("Relu", [f"c{i}"], [y]))
        x = y
    return nodes


def weights(channels: int, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shape, scale = (channels, channels, 3, 3), np.sqrt(2 / (9 * channels))
    return {f"w{i}": (rng.standard_normal(shape) * scale).astype("f4") for i in range(count)}


def built(model: onnx.ModelProto) -> braze.Engine:
    return braze.build(model, target="cuda", precision="tf32", optimization_level=2)


class Lane:
    """A context on a stream of its own, with pinned memory of the host or memory of the GPU."""

    def __init__(self, engine: braze.Engine, feed: dict[str, Any], on_gpu: bool) -> None:
        self.stream = ctypes.c_void_p()
        Driver().call("cuStreamCreate", ctypes.byref(self.stream), NON_BLOCKING)
        self.context = engine.create_context()
        allocate = engine.device_empty if on_gpu else engine.pinned_empty
        for b in (*engine.inputs, *engine.outputs):
            memory: Any = allocate(tuple(b.shape))
            if b.name not in feed:
                self.result = memory
            elif on_gpu:
                memory.copy_from(feed[b.name])
            else:
                memory[...] = feed[b.name]
            self.context.bind(b.name, memory)

    def enqueue(self) -> None:
        self.context.enqueue(self.stream.value)


def seconds_a_run(lanes: Sequence[Lane]) -> float:
    """Of wall time, while runs are enqueued on the lanes in turns; the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for i in range(RUNS):
            lanes[i % len(lanes)].enqueue()
        for lane in lanes:
            lane.context.synchronize()
        best = min(best, (time.perf_counter() - start) / RUNS)
    return best


def test_two_contexts_run_side_by_side() -> None:
    """A network of batch 1 leaves most of the card idle: two contexts share it."""
    inputs = {"x": (onnx.TensorProto.FLOAT, [1, CHANNELS, 14, 14])}
    nodes = layers((), "x", CHANNELS, LAYERS)
    engine = built(small_models.model(nodes, inputs, ["y"], weights(CHANNELS, LAYERS)))
    feed = {"x": np.random.default_rng(1).standard_normal((1, CHANNELS, 14, 14)).astype("f4")}
    want = engine(feed)["y"]
    for on_gpu in (True, False):
        lanes = [Lane(engine, feed, on_gpu) for _ in range(2)]
        seconds_a_run(lanes)  # captures, and lets the clock rise
        one, two = seconds_a_run(lanes[:1]), seconds_a_run(lanes)
        place = "on the GPU" if on_gpu else "pinned"
        print(f"\ntensors {place}: one {one * 1e6:.1f} us, two {two * 1e6:.1f} us, {one / two:.2f}")
        assert one / two >= LEAST_GAIN
        for lane in lanes:
            np.testing.assert_array_equal(np.array(lane.result), want)


@pytest.mark.parametrize("count", [4, 16, 40])
def test_copies_hide_behind_computation(count: int) -> None:
    """Three contexts: while one computes, others copy. Whichever takes longer sets the pace."""
    inputs = {"x": (onnx.TensorProto.FLOAT, list(PICTURE))}
    first = onnx.helper.make_node("Conv", ["x", "stem"], ["s"], strides=[4, 4], pads=[1] * 4)
    constants = weights(64, count)
    stem = np.random.default_rng(2).standard_normal((64, PICTURE[1], 3, 3)).astype("f4") / 12
    nodes = layers([first], "s", 64, count)
    engine = built(small_models.model(nodes, inputs, ["y"], {**constants, "stem": stem}))
    feed = {"x": np.random.default_rng(3).standard_normal(PICTURE).astype("f4")}
    lanes = [Lane(engine, feed, on_gpu=False) for _ in range(3)]
    seconds_a_run(lanes)
    alone = [lanes[0].context.timed() for _ in range(50)]
    parts = {
        part: float(np.median([getattr(t, part) for t in alone]))
        for part in ("h2d", "compute", "d2h")
    }
    one, three = seconds_a_run(lanes[:1]) * 1e3, seconds_a_run(lanes) * 1e3
    slowest = max(parts.values())
    print(
        f"\n{parts} ms; one {one:.3f} ms, three {three:.3f} ms, {slowest / three:.2f} of the pace"
    )
    assert slowest / three >= LEAST_SHARE
    want = engine(feed)["y"]
    for lane in lanes:
        np.testing.assert_array_equal(np.array(lane.result), want)
