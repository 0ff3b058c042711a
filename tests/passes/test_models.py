"""The pipeline on real models: Transposes that remain, and results equal to the unoptimised graph.

Needs fetched models: BRAZE_MODELS and BRAZE_BENCH name their folders. Transposes that cannot go:
one where an image enters as [N, 3, H, W], and one for each transposed convolution that interleaves
its pixels. Tolerance 2e-5 of the largest result: whole networks in float32, with batch norms and
affine blocks folded into weights.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from braze.core.config import BuildConfig
from braze.frontend.onnx.importer import import_model
from braze.ir.graph import Graph
from braze.ir.text import parse_graph, print_graph
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.lowering import Decompose
from braze.passes.base import PassContext
from braze.passes.pipeline import run_pipeline

# folder variable, file, one shape per input, profile for dynamic shapes, Transposes left
Shapes = dict[str, tuple[int, ...]]
CASES: dict[str, tuple[str, Shapes, dict[str, tuple[tuple[int, ...], ...]], int]] = {
    "mtcnn_pnet": (
        "BRAZE_MODELS",
        {"input_1": (1, 40, 52, 3)},
        {"input_1": ((1, 12, 12, 3), (1, 40, 52, 3), (2, 200, 300, 3))},
        0,
    ),
    "mtcnn_rnet": ("BRAZE_MODELS", {"input_2": (2, 24, 24, 3)}, {}, 0),
    "mtcnn_onet": ("BRAZE_MODELS", {"input_3": (2, 48, 48, 3)}, {}, 0),
    "ppocr_cls": ("BRAZE_MODELS", {"x": (1, 3, 48, 96)}, {}, 1),
    "ppocrv4_det": (
        "BRAZE_MODELS",
        {"x": (1, 3, 64, 96)},
        {"x": ((1, 3, 32, 32), (1, 3, 64, 96), (4, 3, 640, 640))},
        3,
    ),
    "ppocrv4_rec": (
        "BRAZE_MODELS",
        {"x": (1, 3, 48, 96)},
        {"x": ((1, 3, 48, 32), (1, 3, 48, 96), (4, 3, 48, 640))},
        1,
    ),
    "minilm_l6_w8": (
        "BRAZE_MODELS",
        dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (2, 12)),
        {},
        0,
    ),
    "mobilenetv2": ("BRAZE_BENCH", {}, {}, 1),
    "resnet18": ("BRAZE_BENCH", {}, {}, 1),
    "convnext_t": ("BRAZE_BENCH", {}, {}, 1),
}
SLOW_REFERENCE = {"convnext_t"}
OPTIMIZED_OPS = {"minilm_l6_w8": "FusedAttention", "ppocrv4_rec": "FusedAttention"}


def model(name: str) -> str:
    variable = CASES[name][0]
    folder = os.environ.get(variable)
    path = Path(folder or ".", f"{name}.onnx")
    if folder is None or not path.exists():
        pytest.skip(f"{variable} does not name a folder with {name}.onnx")
    return str(path)


def optimized(graph: Graph, level: int) -> Graph:
    return run_pipeline(graph, PassContext(BuildConfig(optimization_level=level)))


def counts(graph: Graph) -> Counter[str]:
    return Counter(n.op.name for n in graph.nodes)


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    out = {}
    for v in graph.inputs:
        shape = [int(d) for d in v.shape]  # type: ignore[arg-type]
        content = rng.integers(1, 2, shape) if v.dtype.is_int else rng.standard_normal(shape)
        out[v.name] = content.astype(v.dtype.numpy)
    return out


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("name", CASES)
def test_same_results_and_few_transposes(name: str, level: int) -> None:
    path = model(name)
    _, shapes, _, left = CASES[name]
    graph = import_model(path, shapes=shapes)
    after = optimized(graph, level)
    for node in after.nodes:
        types = [None if v is None else v.type for v in node.inputs]
        lowering = node.op.lower(types, [v.type for v in node.outputs])
        assert not isinstance(lowering, Decompose), node
    if level == 3:
        assert counts(after)["Transpose"] == left
        assert OPTIMIZED_OPS.get(name, "Add") in counts(after)
        assert {"BatchNormalization", "Pad"}.isdisjoint(counts(after))
    text = print_graph(after)
    classes = {type(n.op).__name__: type(n.op) for n in after.nodes}
    again = parse_graph(text, classes, after.weights)
    verify(again)
    assert print_graph(again) == text
    if name in SLOW_REFERENCE:
        return
    feed = feeds(graph)
    want, got = evaluate(graph, feed), evaluate(after, feed)
    for key, w in want.items():
        np.testing.assert_allclose(got[key], w, rtol=0, atol=2e-5 * float(np.abs(w).max()))


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[2]])
def test_dynamic_shapes_optimise_as_static_ones(name: str) -> None:
    path = model(name)
    _, shapes, profile, left = CASES[name]
    static = optimized(import_model(path, shapes=shapes), 3)
    dynamic = optimized(import_model(path, shapes=profile), 3)
    assert counts(dynamic)["Transpose"] == left
    assert counts(dynamic)["Conv"] == counts(static)["Conv"]
    assert counts(dynamic)["FusedAttention"] == counts(static)["FusedAttention"]
