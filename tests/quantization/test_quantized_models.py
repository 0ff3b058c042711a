"""Quantized models as they are written: where Q/DQ stand, and what two engines make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import braze
from braze.frontend.onnx.importer import import_network
from braze.ops.evaluator import evaluate
from braze.quantization.flow import Quantized
from braze.quantization.table import Table, write_table
from braze.quantization.thresholds import Range
from tests.quantized.networks import NETWORKS, Net, data

Array = np.ndarray[Any, Any]
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "u8": {"activations": "u8", "symmetric": False},
    "float bias, per tensor": {"bias": "float", "per_channel": False, "method": "mse"},
    "all at once": {"equalize": True, "correct_bias": True, "smooth": 0.5, "method": "minmax"},
    "data products": {"data_products": True, "method": "percentile"},
    "fp8": {"form": "fp8", "method": "minmax"},
}


def quantized(name: str, **options: Any) -> Quantized:
    feeds = [data(name, 4, seed) for seed in range(4)]
    return braze.quantize(NETWORKS[name][0](), feeds, **options)


def peer(model: onnx.ModelProto, x: Array) -> Array:
    """onnxruntime, every node as it stands."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("way", WAYS)
def test_engines_agree_and_stay_near_the_float_model(name: str, way: str) -> None:
    model = quantized(name, **WAYS[way]).model
    onnx.checker.check_model(model, full_check=True)
    x = data(name, 3, 9)
    want = evaluate(import_network(NETWORKS[name][0]()).graph, {"x": x}, float64=True)["y"]
    shapes = {"x": x.shape}
    got = braze.build(model, shapes=shapes, optimization_level=2, threads=1)({"x": x})["y"]
    other = peer(model, x)
    size = np.abs(want).max()
    # the same codes, but for numbers within a rounding of the middle between two (a step: 1/64);
    # behind the mean of all pixels of "pictures" one such code is in every output
    assert np.abs(got - other).max() < size / 64
    assert name == "pictures" or (np.abs(got - other) < 1e-5 * size).mean() > 0.9
    # 8 bits: a few thousandths a layer; fp8 has 4 significant bits
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    assert error < (0.08 if way == "fp8" else 0.05)


def powers(n: Net, *shape: int) -> str:
    """A weight whose scale is a power of two in every channel: the largest size is 127 of it."""
    w = n.rng.integers(-127, 128, shape).astype(np.float32) / 128
    flat = w.reshape(shape[0], -1) if len(shape) > 2 else w.T
    flat[:, 0] = 127 / 128
    return n.const(w)


@pytest.mark.parametrize("activations", ["s8", "u8"])
def test_integer_arithmetic_is_bit_equal(activations: str, tmp_path: Path) -> None:
    """With scales that are powers of two every float step is exact, so that the codes of a network
    of convolutions, sums, pools and products are decided by integers alone."""
    n = Net(5)
    x = n.add("Relu", n.add("Conv", "x", powers(n, 16, 3, 3, 3), n.weight(16, scale=0.1),
                            strides=[2, 2], pads=[1] * 4, name="c1"), name="r1")  # fmt: skip
    y = n.add("Conv", x, powers(n, 16, 16, 1, 1), n.weight(16, scale=0.1), name="c2")
    x = n.add("Relu", n.add("Add", x, y, name="s"), name="r2")
    x = n.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], name="p")
    x = n.add("Flatten", n.add("Conv", x, powers(n, 8, 16, 3, 3), name="c3"), name="f")
    n.add("MatMul", x, powers(n, 8 * 2 * 3, 10), name="y")
    model = n.model(["n", 3, 18, 20], ["n", 10])
    sizes = {"x": 4, "r1": 8, "r2": 64, "p": 64, "f": 256}
    write_table(Table({k: Range(-v * 127 / 128, v * 127 / 128) for k, v in sizes.items()}),
                tmp_path / "cache")  # fmt: skip
    q = braze.quantize(model, calibration_cache=tmp_path / "cache", activations=activations)
    assert len(q.layers) == 4
    feed = np.random.default_rng(1).normal(size=(5, 3, 18, 20)).astype(np.float32)
    want = peer(q.model, feed)
    assert len(np.unique(want)) > 20  # something is computed
    for level in (0, 2):
        engine = braze.build(q.model, shapes={"x": feed.shape}, optimization_level=level, threads=2)
        assert np.array_equal(engine({"x": feed})["y"], want)


def test_where_nodes_stand() -> None:
    q = quantized("pictures", bias="int32")
    makers = {o: n for n in q.model.graph.node for o in n.output}
    weights = {t.name: numpy_helper.to_array(t) for t in q.model.graph.initializer}

    def source(node: onnx.NodeProto, slot: int) -> onnx.NodeProto:
        """The Quantize behind an input, or its Dequantize where a constant is."""
        made = makers[node.input[slot]]
        assert made.op_type == "DequantizeLinear"
        return makers.get(made.input[0], made)

    for node in q.model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            assert source(node, 0).op_type == "QuantizeLinear"
            assert weights[source(node, 1).input[0]].dtype == np.int8
            assert weights[source(node, 1).input[1]].ndim == 1
            if len(node.input) > 2:
                assert weights[source(node, 2).input[0]].dtype == np.int32
    # the first Relu is quantized once, for the depthwise convolution and the sum, behind itself
    relu = next(n for n in q.model.graph.node if n.op_type == "Relu")
    (reader,) = [n for n in q.model.graph.node if relu.output[0] in n.input]
    assert reader.op_type == "QuantizeLinear"
    add = next(n for n in q.model.graph.node if n.op_type == "Add")
    kinds = sorted(makers[i].op_type for i in add.input)
    assert kinds == ["Conv", "DequantizeLinear"]
    # a maximum and a Concat have one scale on all sides
    concat = next(n for n in q.model.graph.node if n.op_type == "Concat")
    pool = next(n for n in q.model.graph.node if n.op_type == "MaxPool")
    (joined,) = [n for n in q.model.graph.node if concat.output[0] in n.input]
    scales = {source(concat, k).input[1] for k in (0, 1)}
    assert scales == {joined.input[1]} == {source(pool, 0).input[1]}


def test_exclusion_and_reasons() -> None:
    model = NETWORKS["attention"][0]()
    first = next(n.name for n in model.graph.node if n.op_type == "MatMul")
    feeds = [data("attention", 2, 0)]
    q = braze.quantize(model, feeds, exclude=[first])
    assert q.kept[first] == "excluded"
    assert sorted(set(q.kept.values()))[0].startswith("both factors are data")
    assert len(q.layers) == 5
    with pytest.raises(braze.ConfigError, match=r"nothing of this model .*MatMul"):
        braze.quantize(model, feeds, ops=["Conv"])
    with pytest.raises(braze.ConfigError, match="nothing of this model"):
        braze.quantize(model, feeds, exclude=["Mat*"])
    with pytest.raises(braze.ConfigError, match="data to calibrate"):
        braze.quantize(model)
    with pytest.raises(braze.ModelError, match="the model is not an ONNX model"):
        braze.quantize(b"no model", feeds)
    for wrong in ({"form": "int3"}, {"activations": "s4"}, {"smooth": 2.0}, {"exclude": "x"},
                  {"method": "luck"}, {"percentile": 0.0}, {"ops": ["Relu"]}):  # fmt: skip
        with pytest.raises(braze.ConfigError):
            braze.quantize(model, feeds, **wrong)


def test_a_quantized_model_is_not_quantized_again() -> None:
    q = quantized("layers")
    with pytest.raises(braze.ConfigError, match="already"):
        braze.quantize(q.model, [data("layers", 2)])


def test_ranges_of_a_cache_take_the_place_of_data(tmp_path: Path) -> None:
    q = quantized("layers", method="minmax", output=tmp_path / "q.onnx")
    write_table(q.table, tmp_path / "cache")
    again = braze.quantize(NETWORKS["layers"][0](), calibration_cache=tmp_path / "cache")
    # a scale may differ by a rounding: the cache keeps the scale, not the range
    for a, b in zip(q.model.graph.initializer, again.model.graph.initializer, strict=True):
        assert a.name == b.name
        assert numpy_helper.to_array(b) == pytest.approx(numpy_helper.to_array(a), rel=2e-7)
    assert onnx.load(tmp_path / "q.onnx") == q.model
    (tmp_path / "other").write_text("TRT-8601-EntropyCalibration2\nnothing: 3c010a14\n")
    with pytest.raises(braze.ConfigError, match="no range for x"):
        braze.quantize(NETWORKS["layers"][0](), calibration_cache=tmp_path / "other")


def test_older_opsets_and_constants_of_nodes() -> None:
    """Opset 11, weights in Constant nodes, one of them transposed, initializers that are inputs."""
    model = NETWORKS["layers"][0]()
    model.opset_import[0].version = 11
    for t in list(model.graph.initializer)[:2]:
        node = onnx.helper.make_node("Constant", [], [t.name], f"make {t.name}", value=t)
        model.graph.initializer.remove(t)
        model.graph.node.insert(0, node)
    listed = model.graph.initializer[-1]
    model.graph.input.append(
        onnx.helper.make_tensor_value_info(listed.name, listed.data_type, listed.dims)
    )
    x = data("layers", 2, 3)
    q = braze.quantize(model, [x])
    assert len(q.layers) == 3
    got = braze.build(q.model, shapes={"x": x.shape}, optimization_level=1)({"x": x})["y"]
    want = braze.build(model, shapes={"x": x.shape}, optimization_level=1)({"x": x})["y"]
    assert np.abs(got - want).max() < 0.02
