"""Half types that only storage has: nothing is rounded to them between the nodes of a kernel."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.builder import make_kernels
from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig
from braze.core.trace import Trace
from braze.expr.fold import reachable
from braze.frontend.onnx.importer import import_network
from braze.fusion.kernel import AnchorKernel
from braze.passes.lower_precision import storage_types

KINDS = {TensorProto.FLOAT: np.float32, TensorProto.BFLOAT16: ml_dtypes.bfloat16}


def layer(kind: int) -> onnx.ModelProto:
    """relu(x @ w + b + r), all of an ONNX type."""
    r = np.random.default_rng(5)
    held = {"w": (64, 32), "b": (32,)}
    tensors = [numpy_helper.from_array(r.standard_normal(s).astype(KINDS[kind]), n)
               for n, s in held.items()]  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Add", ["q", "r"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    shapes = {"x": [8, 64], "r": [8, 32]}
    inputs = [helper.make_tensor_value_info(n, kind, s) for n, s in shapes.items()]
    graph = helper.make_graph(
        nodes, "net", inputs, [helper.make_tensor_value_info("y", kind, [8, 32])], tensors
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def roundings(kind: int, precision: str) -> int:
    """How often the product's kernel rounds to bfloat16."""
    graph = import_network(layer(kind)).graph
    config = BuildConfig(precision=precision)
    network = make_kernels(graph, config, find_backend("cpu:avx2", 1), Trace())
    (kernel,) = (k.kernel for k in network.kernels if isinstance(k.kernel, AnchorKernel))
    return sum(e.op == "cast" and e.dtype.name == "bfloat16" for e in reachable(kernel.epilogue))


def test_a_float32_network_is_rounded_once_a_kernel() -> None:
    assert roundings(TensorProto.FLOAT, "bf16") <= 1
    assert roundings(TensorProto.BFLOAT16, "bf16") == 4  # the product, two sums and the maximum
    assert roundings(TensorProto.BFLOAT16, "fp32") == 4


def test_types_that_a_model_has_are_not_only_storage() -> None:
    plain, own = (import_network(layer(kind)).graph for kind in KINDS)
    assert {t.name for t in storage_types(plain)} == {"float16", "bfloat16"}
    assert {t.name for t in storage_types(own)} == {"float16"}


@pytest.mark.parametrize("level", [0, 3])
def test_results_are_within_a_rounding(level: int) -> None:
    model = layer(TensorProto.FLOAT)
    r = np.random.default_rng(1)
    feed = {"x": r.standard_normal((8, 64)), "r": r.standard_normal((8, 32))}
    feed = {n: a.astype(ml_dtypes.bfloat16).astype(np.float32) for n, a in feed.items()}
    w, b = (numpy_helper.to_array(t).astype(ml_dtypes.bfloat16).astype(np.float64)
            for t in model.graph.initializer)  # fmt: skip
    want = np.maximum(feed["x"].astype(np.float64) @ w + b + feed["r"], 0)
    engine = braze.build(model, precision="bf16", threads=1, optimization_level=level)
    got = engine(feed)["y"]
    top = np.abs(want).max()  # a rounding of each sum at most where nothing is fused, of one else
    np.testing.assert_allclose(got, want, rtol=0, atol=top * 2.0**-9 * (4 if level == 0 else 1.01))
