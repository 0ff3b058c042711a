"""The promises of the README on the GPU, for the real networks and those of benchmarks/gpu.py.

The same bits in every run and in every slot of a batch; optimised equals unoptimised, and static
shapes dynamic ones, up to rounding. Networks of the benchmark are in float16, with random weights;
they need torch, transformers and an exporter.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("PIL")
pytest.importorskip("scipy")

import braze
from tests.gpu.test_real_networks import errors, sure_parts
from tests.models.networks import BY_NAME, NETWORKS, model_path, real_feed

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BENCH = ("resnet50", "mobilenetv2", "convnext_t", "vit_b16", "bert_base", "gpt2")
FIXED = ("swift_f0", "gpt2")  # their batch is 1, or their exporter fixes it
ROWS, RUNS = 3, 20
# relative L2 error. Both sides are within 1e-5 (float32) or 1e-2 (float16) of what is right, see
# test_real_networks.py; ppocrv4_rec multiplies rounding errors (tests/meta/test_networks.py)
WIDE, HALF, WIDE_OF = 2e-5, 2e-2, {"ppocrv4_rec": 1e-4}


def params() -> list[Any]:
    """Every network; tests of one stay on one worker, which builds its engines once."""
    names = [n.name for n in NETWORKS] + [f"bench {n}" for n in BENCH]
    return [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in names]


@functools.cache
def exported(name: str) -> tuple[onnx.ModelProto, Feed]:
    """A network of the benchmark with any number of rows, and one row for it."""
    for needed in ("torch", "transformers", "onnxscript"):
        pytest.importorskip(needed)
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    import gpu_networks
    import torch

    network = gpu_networks.NETWORKS[name]
    feed = network.feed(1, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        if name in FIXED:
            network.export(1, path, "cuda")
        else:
            module = network.module("eager").half().cuda()
            inputs = tuple(x.cuda() for x in feed)
            axes = {"input": {0: "n"}, "output": {0: "n"}}
            torch.onnx.export(
                module, inputs, str(path), input_names=["input"], output_names=["output"],
                dynamo=False, opset_version=17, dynamic_axes=axes,
            )  # fmt: skip
        return onnx.load(path), {"input": feed[0].numpy()}


def network(name: str) -> tuple[Any, Feed]:
    """The model, and a feed for it."""
    if name.startswith("bench "):
        return exported(name.removeprefix("bench "))
    return str(model_path(name)), real_feed(name)


@functools.cache
def engine(name: str, kind: str) -> braze.Engine:
    """An engine for the shapes of the feed, "plain" without optimization, or a "dynamic" one."""
    model, feed = network(name)
    shapes: dict[str, Any] = {n: x.shape for n, x in feed.items()}
    if kind == "dynamic" and name in BY_NAME:
        shapes = dict(BY_NAME[name].ranges)
    elif kind == "dynamic":
        ((key, x),) = feed.items()
        shapes = {key: (x.shape, x.shape, (2 * ROWS, *x.shape[1:]))}
    level = 0 if kind == "plain" else 2
    return braze.build(model, target="cuda", shapes=shapes, optimization_level=level)


def same_bits(got: Feed, want: Feed) -> None:
    """Equal in every bit, so that -0.0 and NaN payloads count too."""
    for output, array in want.items():
        assert got[output].shape == array.shape, output
        assert got[output].tobytes() == array.tobytes(), output


def close(name: str, got: Feed, want: Feed) -> None:
    found = errors(sure_parts(name, got, want), sure_parts(name, want, want))
    half = name.startswith("bench ")
    assert max(found.values()) <= (HALF if half else WIDE_OF.get(name, WIDE)), found


@pytest.mark.parametrize("name", params())
def test_same_bits_in_every_run(name: str) -> None:
    _, feed = network(name)
    first = engine(name, "static")(feed)
    other = engine(name, "static").create_context(extra_streams=2)
    for turn in range(RUNS):
        same_bits(other.run(feed) if turn % 2 else engine(name, "static")(feed), first)


@pytest.mark.parametrize("name", params())
def test_optimised_equals_unoptimised(name: str) -> None:
    _, feed = network(name)
    close(name, engine(name, "static")(feed), engine(name, "plain")(feed))


@pytest.mark.parametrize("name", [p for p in params() if p.values[0].split()[-1] not in FIXED])
def test_static_equals_dynamic(name: str) -> None:
    _, feed = network(name)
    close(name, engine(name, "dynamic")(feed), engine(name, "static")(feed))


@pytest.mark.parametrize("name", [p for p in params() if p.values[0].split()[-1] not in FIXED])
def test_equal_rows_have_equal_bits(name: str) -> None:
    _, feed = network(name)
    ((key, x),) = feed.items()
    most = BY_NAME[name].ranges[key][2][0] if name in BY_NAME else ROWS
    one, rows = np.ascontiguousarray(x[:1]), min(ROWS, most)
    alone = engine(name, "dynamic")({key: one})
    together = engine(name, "dynamic")({key: np.repeat(one, rows, 0)})
    for row in range(rows):
        same_bits({n: a[row : row + 1] for n, a in together.items()}, alone)
