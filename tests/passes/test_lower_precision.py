"""precision="fp16" and "bf16": what becomes half, what stays float32, and what the record says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.core.config import BuildConfig, names_layer, precision_text
from braze.core.dtypes import F16, F32
from braze.core.errors import ConfigError
from braze.core.target import PREFERENCES
from braze.core.trace import Trace
from braze.frontend.onnx.importer import import_model, import_network
from braze.ir.graph import Graph, bodies_of
from braze.ops.abilities import Unlimited
from braze.ops.evaluator import evaluate
from braze.passes.base import PassContext
from braze.passes.lower_precision import default_half, lower_precision
from braze.passes.pipeline import OPTIMIZE, passes_of, run_pipeline
from tests.passes.test_random_graphs import Chaos
from tests.quantized.networks import NETWORKS, Net, data

Array = np.ndarray[Any, Any]
NATIVE = Unlimited(replace(PREFERENCES, halves=frozenset({"fp16", "bf16"})))


def lowered(model: onnx.ModelProto, precision: str = "fp16", **config: Any) -> tuple[Graph, Trace]:
    trace = Trace()
    made = BuildConfig(precision=precision, **config)
    return lower_precision(import_model(model), PassContext(made, NATIVE, trace)), trace


def types(graph: Graph) -> dict[str, str]:
    """Op -> the type of its first output; Casts left out."""
    return {n.op.name: n.outputs[0].dtype.name for n in graph.nodes if n.op.name != "Cast"}


def reasons(trace: Trace) -> dict[str, tuple[str, str]]:
    return {d["at"].split()[0]: (d["runs"], d["why"]) for d in trace.decisions
            if d["kind"] == "precision"}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("precision", "bits"), [("fp16", 11), ("bf16", 8)])
@pytest.mark.parametrize("level", [0, 2])
def test_networks_compute_in_half(name: str, precision: str, bits: int, level: int) -> None:
    """Results are rounded to `bits`; errors of a dozen layers in a row stay below 32 of them."""
    model, x = NETWORKS[name][0](), data(name, 3, 9)
    want = evaluate(import_network(model).graph, {"x": x}, float64=True)["y"]
    trace = Trace()
    engine = braze.build(model, shapes={"x": x.shape}, optimization_level=level, threads=1,
                         precision=precision, trace=trace)  # fmt: skip
    got = engine({"x": x})["y"]
    assert got.dtype == np.float32
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    assert 2.0**-bits / 8 < error < 32 * 2.0**-bits
    found = [d for d in trace.decisions if d["kind"] == "precision"]
    half = {"fp16": "float16", "bf16": "bfloat16"}[precision]
    assert sum(d["runs"] == half for d in found) > len(found) / 2
    assert all(d["why"] for d in found)
    assert engine.plan.record["precision"] == precision


def test_without_it_the_passes_are_those_of_before() -> None:
    for precision in ("fp32", "tf32"):
        config = BuildConfig(precision=precision)
        assert not config.lowers and passes_of(config) is OPTIMIZE
    graph = import_model(NETWORKS["layers"][0]())
    assert lower_precision(graph, PassContext(BuildConfig(), NATIVE)) is graph


def test_products_start_it_and_others_follow() -> None:
    n = Net(0)
    before = n.add("Relu", "x")
    y = n.add("MatMul", before, n.weight(8, 8))
    y = n.add("Add", y, n.weight(8))
    y = n.add("Reshape", y, n.const(np.array([2, 2, 4])))
    y = n.add("Softmax", y, axis=-1)
    n.add("Exp", y, name="y")
    graph, trace = lowered(n.model([2, 8], [2, 2, 4]))
    half = dict.fromkeys(("MatMul", "Add", "Reshape", "Softmax"), "float16")
    assert types(graph) == half | {"Relu": "float32", "Exp": "float32"}
    why = reasons(trace)
    assert why["MatMul"] == ("float16", "asked")
    assert why["Relu"] == ("float32", "kept for accuracy: what it reads is float32")
    assert why["Exp"] == ("float32", "kept for accuracy: Exp is not safe in float16")
    assert "Reshape" not in why
    # three Casts: into the product, out of the softmax; none between
    assert [x.op.to for x in graph.nodes if x.op.name == "Cast" and graph.users.get(x.output)] == [
        F16, F32,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "constant"),
    [("Add", 1e5), ("Mul", 1e-6), ("Mul", "square")],
)
def test_numbers_that_half_types_do_not_hold_stay_float32(op: str, constant: Any) -> None:
    n = Net(0)
    y = n.add("MatMul", "x", n.weight(8, 8))
    other = y if constant == "square" else n.const(np.float32(constant))
    n.add(op, y, other, name="y")
    graph, trace = lowered(n.model([2, 8], [2, 8]))
    assert types(graph) == {"MatMul": "float16", op: "float32"}
    assert reasons(trace)[op][1].startswith("kept for accuracy: a ")
    # bfloat16 has the range of float32
    wide, _ = lowered(n.model([2, 8], [2, 8]), "bf16")
    assert types(wide)[op] == ("float32" if constant == "square" else "bfloat16")


def test_weights_beyond_the_range_stay_float32() -> None:
    n = Net(0)
    n.add("MatMul", "x", n.const(np.full((8, 8), 7e4, np.float32)), name="y")
    graph, _ = lowered(n.model([2, 8], [2, 8]))
    assert types(graph) == {"MatMul": "float32"}


def test_hidden_rows_of_attention_stay_numbers() -> None:
    """A mask of -1e9 in every place of a row gives the mean of v, not NaN, in float16 too."""
    n = Net(1)
    k = n.add("Transpose", "x", perm=[0, 1, 3, 2])
    score = n.add("Mul", n.add("MatMul", "x", k), n.const(np.float32(0.25)))
    mask = np.zeros((1, 1, 6, 6), np.float32)
    mask[..., 2, :] = mask[..., 4, 1:] = -1e9
    score = n.add("Add", score, n.const(mask))
    n.add("MatMul", n.add("Softmax", score, axis=-1), "x", name="y")
    model = n.model([1, 2, 6, 16], [1, 2, 6, 16])
    x = np.random.default_rng(0).normal(size=(1, 2, 6, 16)).astype(np.float32)
    got = braze.build(model, precision="fp16", optimization_level=2, threads=1)({"x": x})["y"]
    # row 2: scores of size 1 are lost beside -1e9 in float32, and kept in part beside -65504
    assert np.isfinite(got).all()
    want = evaluate(import_model(model), {"x": x})["y"]
    rows = [0, 1, 3, 4, 5]
    assert got[..., rows, :] == pytest.approx(want[..., rows, :], abs=4e-3)


def test_layers_are_overridden_by_name_and_pattern() -> None:
    model = NETWORKS["layers"][0]()
    products = [n.name for n in model.graph.node if n.op_type == "MatMul"]
    trace = Trace()
    x = data("layers", 2)
    layers = {"MatMul*": "bf16", products[1]: "fp32"}
    engine = braze.build(model, shapes={"x": x.shape}, optimization_level=1, threads=1,
                         precision="fp32", layer_precisions=layers, trace=trace)  # fmt: skip
    runs = [d["runs"] for d in trace.decisions
            if d["kind"] == "precision" and d["at"].startswith("MatMul")]  # fmt: skip
    assert runs == ["bfloat16", "float32", "bfloat16"]
    assert engine.plan.record["layer_precisions"] == layers


def test_overrides_that_match_no_layer_are_refused() -> None:
    model = NETWORKS["layers"][0]()
    for given, hint in (
        ({"nosuch*": "fp16"}, "'nosuch*', but no node of the model is called so; give"),
        ({"MatMul*": "fp16", "matmul_2": "fp32"}, "'matmul_2'.*; did you mean 'MatMul_"),
    ):
        with pytest.raises(ConfigError, match=hint.replace("h*", r"h\*")) as caught:
            braze.compile(model, layer_precisions=given)
        assert caught.value.command.startswith("--layerPrecisions names")


def test_names_with_brackets_stand_for_themselves() -> None:
    assert names_layer("a[0]", "a[0]") and names_layer("a[01]", "a1")
    assert not names_layer("a[0]", "a[1]")


def test_bodies_of_control_flow_too() -> None:
    w = numpy_helper.from_array(np.eye(4, dtype=np.float32) * 3, "w")
    body = helper.make_graph(
        [helper.make_node("MatMul", ["state", "w"], ["next"], "inner"),
         helper.make_node("Identity", ["more"], ["go"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("more", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", TensorProto.FLOAT, [2, 4])],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], "loop", body=body)], "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
         helper.make_tensor_value_info("n", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])], [w],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    ctx = PassContext(BuildConfig(precision="fp16", optimization_level=2), NATIVE)
    after = run_pipeline(import_model(model), ctx)
    (inner,) = [b for node in after.nodes for b in bodies_of(node)]
    assert {n.op.name: n.outputs[0].dtype for n in inner.nodes}["MatMul"] is F16
    engine = braze.build(model, precision="fp16", optimization_level=2, threads=1)
    x = np.ones((2, 4), np.float32)
    assert np.array_equal(engine({"x": x, "n": np.array(3)})["y"], 27 * x)


def test_types_of_a_model_are_kept() -> None:
    n = Net(0)
    half = n.add("Cast", "x", to=TensorProto.BFLOAT16)
    w = numpy_helper.from_array(np.ones((8, 8), ml_dtypes.bfloat16), "w")
    n.held.append(w)
    n.add("Cast", n.add("MatMul", half, "w"), to=TensorProto.FLOAT, name="y")
    graph, _ = lowered(n.model([2, 8], [2, 8]))
    assert types(graph) == {"MatMul": "bfloat16"}


@pytest.mark.parametrize(
    ("asked", "halves", "half"),
    [("fp16", (), "fp16"), ("fp16,bf16", ("bf16",), "bf16"), ("fp16,bf16", (), "fp16"),
     ("best", ("fp16", "bf16"), "fp16"), ("best", ("bf16",), "bf16"), ("best", (), None),
     ("int8", ("fp16",), None), ("fp32", ("fp16",), None), ("bf16", ("fp16",), "bf16")],
)  # fmt: skip
def test_which_half_type(asked: str, halves: tuple[str, ...], half: str | None) -> None:
    able = Unlimited(replace(PREFERENCES, halves=frozenset(halves)))
    assert default_half(PassContext(BuildConfig(precision=asked), able)) == half


def test_several_precisions_are_one_text() -> None:
    assert precision_text({"int8", "fp16"}) == precision_text("int8, fp16") == "fp16,int8"
    assert precision_text(["bf16", "bf16"]) == "bf16"
    assert BuildConfig(precision="best").effort.tf32
    assert not BuildConfig(precision="fp16").effort.tf32
    wrong: tuple[Any, ...] = (None, 8, [], [1], {})
    for given in wrong:
        with pytest.raises(ConfigError, match="is no name"):
            precision_text(given)
    layers: Mapping[str, str] = {"a": "int8"}
    with pytest.raises(ConfigError, match="decided by Q/DQ"):
        braze.compile(NETWORKS["layers"][0](), layer_precisions=layers)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_keep_their_meaning(seed: int) -> None:
    """In float64 arithmetic half types round nothing (constants have few bits), so that whatever
    differs was rewritten wrongly; in their own arithmetic types and shapes hold."""
    chaos = Chaos(seed)
    graph = chaos.build(chaos.r.randint(4, 16))
    config = BuildConfig(
        precision=("fp16", "bf16")[seed % 2], optimization_level=3 * (seed % 4 > 0)
    )
    after = run_pipeline(graph, PassContext(config, NATIVE))
    (x,) = graph.inputs
    shape = [d if isinstance(d, int) else 3 for d in x.shape]
    feed = {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}
    with np.errstate(all="ignore"):
        want, got = (evaluate(g, feed, float64=True) for g in (graph, after))
        plain = evaluate(after, feed)
    for name, w in want.items():
        finite = np.isfinite(w)
        top = max(1.0, float(np.abs(w[finite]).max(initial=0.0)))
        assert got[name][finite] == pytest.approx(w[finite], rel=0, abs=1e-9 * top)
        assert (plain[name].dtype, plain[name].shape) == (np.float32, w.shape)
