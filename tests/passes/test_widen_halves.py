"""Networks in half types where nothing computes in them: what becomes float32, what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.core.config import BuildConfig
from braze.core.target import PREFERENCES
from braze.frontend.onnx.importer import import_model
from braze.ir.graph import Graph
from braze.ops.abilities import Unlimited
from braze.passes.base import PassContext
from braze.passes.widen_halves import widen_halves

Array = np.ndarray[Any, Any]
WIDENS = Unlimited(replace(PREFERENCES, widens=frozenset({"fp16", "bf16"}), held_rows=14))
KINDS: dict[str, tuple[int, Any]] = {
    "float32": (TensorProto.FLOAT, np.float32),
    "float16": (TensorProto.FLOAT16, np.float16),
    "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
}


def model(
    nodes: list[tuple[str, str, str, dict[str, Any]]],
    inputs: dict[str, list[int]],
    weights: dict[str, list[int]],
    kind: str = "float16",
    outputs: tuple[str, ...] = ("y",),
    rounded: str = "",
) -> onnx.ModelProto:
    """Nodes (op, inputs, output, attributes) of one type; weights are numbers of `rounded`."""
    number, stored = KINDS[kind]
    r = np.random.default_rng(7)
    held = [
        numpy_helper.from_array(
            (r.standard_normal(s) / 4).astype(KINDS[rounded or kind][1]).astype(stored), n)
        for n, s in weights.items()
    ]  # fmt: skip
    made = [helper.make_node(op, i.split(), [o], **attributes) for op, i, o, attributes in nodes]
    graph = helper.make_graph(
        made, "net", [helper.make_tensor_value_info(n, number, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, number, None) for n in outputs], held)  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def widened(proto: onnx.ModelProto, **config: Any) -> Graph:
    return widen_halves(import_model(proto), PassContext(BuildConfig(**config), WIDENS))


def types(graph: Graph) -> dict[str, str]:
    """Op -> the type of its first output; Casts left out."""
    return {n.op.name: n.outputs[0].dtype.name for n in graph.nodes if n.op.name != "Cast"}


PADS = {"pads": [1, 1, 1, 1]}
NET: list[tuple[str, str, str, dict[str, Any]]] = [
    ("Conv", "x w b", "c", PADS),
    ("Relu", "c", "r", {}),
    ("Conv", "r v", "d", {**PADS, "group": 8}),
    ("Add", "d r", "s", {}),
    ("MaxPool", "s", "m", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("Sigmoid", "m", "g", {}),
    ("Mul", "m g", "y", {}),
]
SIZES = {"w": [8, 3, 3, 3], "b": [8], "v": [8, 1, 3, 3]}
PICTURE = {"x": [1, 3, 12, 12]}


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_convolutions_start_it_and_others_follow(kind: str) -> None:
    graph = widened(model(NET, PICTURE, SIZES, kind))
    assert set(types(graph).values()) == {"float32"}
    casts = [n for n in graph.nodes if n.op.name == "Cast"]
    assert [c.output.dtype.name for c in casts].count(kind) == 1  # the output
    assert graph.outputs[0][1].dtype.name == kind


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:x86-64"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_results_are_those_of_the_float32_twin_rounded_once(kind: str, target: str) -> None:
    stored = KINDS[kind][1]
    x = np.random.default_rng(3).standard_normal(PICTURE["x"]).astype(stored)
    options: dict[str, Any] = {"target": target, "threads": 1, "optimization_level": 2}
    half = braze.build(model(NET, PICTURE, SIZES, kind), **options)
    twin = braze.build(model(NET, PICTURE, SIZES, "float32", rounded=kind), **options)
    want = twin({"x": x.astype(np.float32)})["y"].astype(stored)
    np.testing.assert_array_equal(half({"x": x})["y"], want)
    asked = [d["why"] for d in half.plan.record["decisions"] if d["kind"] == "precision"]
    assert asked and set(asked) == {f"no kernel computes in {kind}"}


def test_networks_without_products_keep_their_roundings() -> None:
    nodes = [("Relu", "x", "r", {}), ("Mul", "r x", "m", {}), ("Softmax", "m", "y", {})]
    graph = import_model(model(nodes, PICTURE, {}))
    assert widen_halves(graph, PassContext(BuildConfig(), WIDENS)) is graph


def test_a_build_that_chooses_types_and_targets_that_compute_in_them_are_left_alone() -> None:
    graph = import_model(model(NET, PICTURE, SIZES))
    for config, abilities in (
        (BuildConfig(precision="fp16"), WIDENS),
        (BuildConfig(), Unlimited()),
        (BuildConfig(), Unlimited(replace(PREFERENCES, widens=frozenset({"bf16"})))),
    ):
        assert widen_halves(graph, PassContext(config, abilities)) is graph


@pytest.mark.parametrize(("rows", "kind"), [(14, "float16"), (15, "float32")])
def test_few_rows_read_constants_as_they_are(rows: int, kind: str) -> None:
    graph = widened(model([("MatMul", "x w", "y", {})], {"x": [rows, 32]}, {"w": [32, 16]}))
    assert types(graph) == {"MatMul": kind}


@pytest.mark.parametrize(("rows", "kind"), [(14, "float16"), (15, "float32")])
def test_few_rows_read_what_is_not_constant_as_it_is(rows: int, kind: str) -> None:
    graph = widened(model([("MatMul", "x k", "y", {})], {"x": [2, rows, 8], "k": [2, 8, 64]}, {}))
    assert types(graph) == {"MatMul": kind}


def test_what_rounds_or_joins_a_cache_reads_rounded_numbers() -> None:
    nodes = [
        ("MatMul", "x w", "p", {}),
        ("Floor", "p", "f", {}),
        ("Concat", "cache p", "k", {"axis": 0}),
        ("Add", "p bias", "y", {}),
    ]
    inputs = {"x": [20, 8], "cache": [30, 8], "bias": [20, 8]}
    graph = widened(model(nodes, inputs, {"w": [8, 8]}, outputs=("y", "f", "k")))
    want = {"MatMul": "float32", "Floor": "float16", "Concat": "float16", "Add": "float32"}
    assert types(graph) == want


def test_casts_of_the_model_round_and_casts_from_half_types_do_not() -> None:
    nodes = [
        ("MatMul", "x w", "p", {}),
        ("Cast", "p", "q", {"to": TensorProto.FLOAT}),
        ("Exp", "q", "e", {}),
        ("Cast", "e", "h", {"to": TensorProto.FLOAT16}),
        ("MatMul", "h w", "y", {}),
    ]
    graph = widened(model(nodes, {"x": [20, 8]}, {"w": [8, 8]}))
    names = [f"{n.op.name}:{n.output.dtype.name}" for n in graph.nodes if n.op.name != "MatMul"]
    # x, the weight; what the model casts to float16 and back for the product; the output
    rounds = [i for i, n in enumerate(names) if n == "Cast:float16"]
    assert len(rounds) == 2 and names.index("Exp:float32") < rounds[0]
    assert names[: names.index("Exp:float32")].count("Cast:float16") == 0


def test_networks_with_recurrences_keep_their_roundings() -> None:
    """A step has fewer rows than a sequence, and a stream of steps the bits of one long run."""
    nodes = [("GRU", "x w r", "h", {"hidden_size": 4}), ("MatMul", "h v", "y", {})]
    sizes = {"w": [1, 12, 8], "r": [1, 12, 4], "v": [4, 6]}
    graph = import_model(model(nodes, {"x": [20, 2, 8]}, sizes))
    assert widen_halves(graph, PassContext(BuildConfig(), WIDENS)) is graph
