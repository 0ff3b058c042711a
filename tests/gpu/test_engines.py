"""Whole engines on the GPU: against the reference, at all levels, shapes and ways to run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.codegen.cuda.driver import Driver, find_card
from tests.e2e import models
from tests.meta import small_models

# float32 products as three passes of TF32 lose about two bits
TOLERANCE = 2e-5
DYNAMIC = {"x": ((1, 3, 24, 24), (2, 3, 24, 24), (5, 3, 24, 24))}


def conv_feed(batch: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((batch, 3, 24, 24)).astype(np.float32)}


def compare(
    engine: braze.Engine, model: onnx.ModelProto, feed: dict[str, Any], **shapes: Any
) -> None:
    want = braze.build(model, target="reference", **shapes)(feed)
    got = engine(feed)
    for name, w in want.items():
        np.testing.assert_allclose(got[name], w, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("level", range(6))
def test_dynamic_batches_at_every_level(level: int) -> None:
    model = small_models.conv_net()
    engine = braze.build(model, target="cuda", shapes=DYNAMIC, optimization_level=level)
    for batch in (1, 2, 5, 3):
        compare(engine, model, conv_feed(batch), shapes=DYNAMIC)


@pytest.mark.parametrize("level", [0, 2, 3])
def test_attention(level: int) -> None:
    model = models.attention_net()
    engine = braze.build(model, target="cuda", optimization_level=level)
    rng = np.random.default_rng(0)
    feed = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in engine.inputs}
    compare(engine, model, feed)


def test_runs_agree_to_the_bit() -> None:
    engine = braze.build(small_models.conv_net(), target="cuda", shapes=DYNAMIC)
    feed = conv_feed(4)
    first = engine(feed)["y"]
    for _ in range(50):
        np.testing.assert_array_equal(engine(feed)["y"], first)


def test_equal_rows_have_equal_bits() -> None:
    engine = braze.build(small_models.conv_net(), target="cuda", shapes=DYNAMIC)
    one = conv_feed(1)["x"]
    rows = engine({"x": np.repeat(one, 5, 0)})["y"]
    for row in rows[1:]:
        np.testing.assert_array_equal(row, rows[0])


def test_threads_share_an_engine() -> None:
    engine = braze.build(small_models.conv_net(), target="cuda", shapes=DYNAMIC)
    feeds = [conv_feed(1 + i % 5, i) for i in range(8)]
    want = [engine(f)["y"] for f in feeds]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(20):
            if not np.array_equal(engine(feeds[i])["y"], want[i]):
                wrong.append(i)

    team = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    assert not wrong


def test_debug_tensors_and_profiles() -> None:
    model = small_models.conv_net()
    engine = braze.build(model, target="cuda", shapes=DYNAMIC, debug="*")
    plain = braze.build(model, target="reference", shapes=DYNAMIC, debug="*")
    names = [d.name for d in engine.plan.debug]
    assert names
    feed = conv_feed(2)
    shared = [n for n in names if n in {d.name for d in plain.plan.debug}]
    got = engine.create_context().run(feed, debug=shared)
    want = plain.create_context().run(feed, debug=shared)
    for name in shared:
        np.testing.assert_allclose(got[name], want[name], rtol=TOLERANCE, atol=TOLERANCE)
    times = engine.profile(feed)
    assert len(times) == len(engine.plan.steps) and min(times) >= 0


def test_an_index_out_of_range_raises_and_the_next_run_is_right() -> None:
    nodes = [onnx.helper.make_node("Gather", ["x", "i"], ["y"])]
    model = small_models.model(
        nodes,
        {"x": (onnx.TensorProto.FLOAT, [5, 3]), "i": (onnx.TensorProto.INT64, [2])},
        ["y"],
    )
    engine = braze.build(model, target="cuda")
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    with pytest.raises(braze.ExecutionError, match="out of range"):
        engine({"x": x, "i": np.array([1, 7])})
    np.testing.assert_array_equal(engine({"x": x, "i": np.array([1, -1])})["y"], x[[1, -1]])


def test_files_come_back(tmp_path: Path) -> None:
    engine = braze.build(small_models.conv_net(), target="cuda", shapes=DYNAMIC)
    engine.save(tmp_path / "net.engine")
    again = braze.load(tmp_path / "net.engine")
    feed = conv_feed(3)
    np.testing.assert_array_equal(again(feed)["y"], engine(feed)["y"])


def test_code_of_another_card_is_refused() -> None:
    card = find_card()
    assert card is not None
    other = "sm_80" if card.capability != "sm_80" else "sm_90"
    with pytest.raises(braze.TargetError, match=other):
        braze.build(small_models.conv_net(), target=f"cuda:{other}", shapes=DYNAMIC)


def test_memory_of_the_device_is_used_in_place() -> None:
    """Bound device addresses are read and written without a copy through the host."""
    engine = braze.build(small_models.conv_net(), target="cuda", shapes=DYNAMIC)
    feed = conv_feed(2)
    want = engine(feed)["y"]
    gpu = Driver()
    x, y = gpu.upload(feed["x"]), gpu.allocate(want.nbytes)
    context = engine.create_context()
    context.set_input_shape("x", (2, 3, 24, 24))
    context.bind("x", x, feed["x"].nbytes)
    context.bind("y", y, want.nbytes)
    context.execute()
    got = np.zeros_like(want)
    gpu.read(y, got)
    np.testing.assert_array_equal(got, want)
