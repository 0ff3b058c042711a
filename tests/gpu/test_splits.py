"""Engines whose sums are split over programs: right, and the same bits in every run and row."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.builder import build_plan
from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig
from braze.core.trace import Trace
from braze.frontend.onnx.importer import import_network
from braze.tuning.select import Candidates
from tests.meta import small_models

# sums of up to 2304 normal values in another order, in three passes of TF32
TOLERANCE = 1e-4
CHANNELS = 256


def network(images: int) -> onnx.ModelProto:
    """Two branches of deep convolutions, which may run side by side, and a product over all."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["x", "a"], ["left"], pads=[1] * 4),
        make("Relu", ["left"], ["l"]),
        make("Conv", ["x", "b"], ["right"], pads=[1] * 4),
        make("Relu", ["right"], ["r"]),
        make("Add", ["l", "r"], ["s"]),
        make("Flatten", ["s"], ["f"]),
        make("MatMul", ["f", "c"], ["y"]),
    ]
    constants = {
        "a": weight(CHANNELS, CHANNELS, 3, 3), "b": weight(CHANNELS, CHANNELS, 3, 3),
        "c": weight(49 * CHANNELS, 24),
    }  # fmt: skip
    inputs = {"x": (onnx.TensorProto.FLOAT, [images, CHANNELS, 7, 7])}
    return small_models.model(nodes, inputs, ["y"], constants)


def most_split(kernels: Sequence[Candidates]) -> list[int]:
    """Of each kernel the tactic whose sum is split most."""

    def split(k: Candidates, i: int) -> int:
        return int(dict(k.tactics[i].parameters).get("split", 1))

    return [max(range(len(k.tactics)), key=lambda i: split(k, i)) for k in kernels]


def engine(model: onnx.ModelProto) -> braze.Engine:
    backend = find_backend("cuda", 1)
    trace = Trace()
    imported = import_network(model, trace=trace)
    config = BuildConfig(optimization_level=5)
    plan = build_plan(imported.graph, imported.profiles, config, backend, trace, most_split)
    splitting = [k for k in plan.kernels if k.counters]
    assert len(splitting) >= 2
    return backend.load(plan)


@pytest.fixture(scope="module")
def split() -> braze.Engine:
    return engine(network(4))


def feed(seed: int, images: int = 4) -> dict[str, Any]:
    x = np.random.default_rng(seed).standard_normal((images, CHANNELS, 7, 7))
    return {"x": x.astype(np.float32)}


def test_right_and_the_same_bits_in_every_run(split: braze.Engine) -> None:
    first = split(feed(1))["y"]
    want = braze.build(network(4), target="reference")(feed(1))["y"]
    np.testing.assert_allclose(first, want, rtol=TOLERANCE, atol=TOLERANCE * np.abs(want).max())
    for _ in range(200):
        np.testing.assert_array_equal(split(feed(1))["y"], first)


def test_equal_rows_have_equal_bits(split: braze.Engine) -> None:
    one = feed(2, 1)["x"]
    rows = split({"x": np.repeat(one, 4, 0)})["y"]
    for row in rows[1:]:
        np.testing.assert_array_equal(row, rows[0])


def test_contexts_side_by_side_do_not_share_counters(split: braze.Engine) -> None:
    feeds = [feed(3 + i) for i in range(4)]
    want = [split(f)["y"] for f in feeds]
    wrong: list[int] = []

    def work(i: int) -> None:
        context = split.create_context()
        for _ in range(50):
            if not np.array_equal(context.run(feeds[i])["y"], want[i]):
                wrong.append(i)

    team = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    assert not wrong
