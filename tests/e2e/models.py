"""Small ONNX models made on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[Any]],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    types: dict[str, int] | None = None,
) -> onnx.ModelProto:
    """A model; sizes given as strings are dynamic."""
    types = types or {}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(k, types.get(k, TensorProto.FLOAT), list(s))
            for k, s in inputs.items()
        ],
        [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()],
    )
    for o in graph.output:
        o.type.tensor_type.elem_type = types.get(o.name, TensorProto.FLOAT)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    """Standard normal float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv_net(batch: Any = 1, height: Any = 16, width: Any = 16) -> onnx.ModelProto:
    """Conv+Relu, depthwise conv, residual, pooling, linear: a miniature image network."""
    n = helper.make_node
    nodes = [
        n("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], name="conv1"),
        n("Relu", ["c1"], ["r1"], name="relu1"),
        n("Conv", ["r1", "w2"], ["c2"], group=12, pads=[1, 1, 1, 1], name="depthwise"),
        n("Add", ["c2", "r1"], ["s"], name="residual"),
        n("MaxPool", ["s"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        n("GlobalAveragePool", ["p"], ["g"], name="gap"),
        n("Flatten", ["g"], ["f"], name="flatten"),
        n("Gemm", ["f", "w3", "b3"], ["y"], transB=1, name="linear"),
    ]
    weights = {
        "w1": rand(12, 3, 3, 3, seed=1) * 0.2,
        "b1": rand(12, seed=2),
        "w2": rand(12, 1, 3, 3, seed=3) * 0.3,
        "w3": rand(5, 12, seed=4),
        "b3": rand(5, seed=5),
    }
    return make(nodes, {"x": [batch, 3, height, width]}, ["y"], weights)


def attention_net(seq: Any = 9) -> onnx.ModelProto:
    """One transformer block written with primitive ops: LayerNorm, attention, GELU MLP."""
    n, h, d = helper.make_node, 4, 8
    e = h * d
    nodes = [n("LayerNormalization", ["x", "g", "b"], ["ln"], axis=-1, name="ln")]
    for k in "qkv":
        perm = [0, 2, 3, 1] if k == "k" else [0, 2, 1, 3]
        nodes += [
            n("MatMul", ["ln", f"w{k}"], [f"{k}0"], name=f"{k}_proj"),
            n("Add", [f"{k}0", f"b{k}"], [f"{k}1"], name=f"{k}_bias"),
            n("Reshape", [f"{k}1", "heads"], [f"{k}2"], name=f"{k}_split"),
            n("Transpose", [f"{k}2"], [f"{k}3"], perm=perm, name=f"{k}_heads"),
        ]
    nodes += [
        n("MatMul", ["q3", "k3"], ["s0"], name="scores"),
        n("Div", ["s0", "scale"], ["s1"], name="scale"),
        n("Softmax", ["s1"], ["p"], axis=-1, name="softmax"),
        n("MatMul", ["p", "v3"], ["o0"], name="context"),
        n("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3], name="merge_heads"),
        n("Reshape", ["o1", "merged"], ["o2"], name="merge"),
        n("MatMul", ["o2", "wo"], ["o3"], name="out_proj"),
        n("Add", ["o3", "x"], ["r"], name="residual"),
        n("MatMul", ["r", "w1"], ["m0"], name="fc1"),
        n("Div", ["m0", "sqrt2"], ["m1"], name="gelu_div"),
        n("Erf", ["m1"], ["m2"], name="gelu_erf"),
        n("Add", ["m2", "one"], ["m3"], name="gelu_add"),
        n("Mul", ["m0", "m3"], ["m4"], name="gelu_mul"),
        n("Mul", ["m4", "half"], ["m5"], name="gelu_half"),
        n("MatMul", ["m5", "w2"], ["m6"], name="fc2"),
        n("Add", ["m6", "r"], ["y"], name="residual2"),
    ]
    f = np.float32
    weights = {
        "g": rand(e, seed=1),
        "b": rand(e, seed=2),
        **{f"w{k}": rand(e, e, seed=i + 3) * f(0.2) for i, k in enumerate("qkvo")},
        **{f"b{k}": rand(e, seed=i + 9) for i, k in enumerate("qkv")},
        "w1": rand(e, 2 * e, seed=20) * f(0.2),
        "w2": rand(2 * e, e, seed=21) * f(0.2),
        "scale": np.sqrt(f(d)),
        "sqrt2": np.sqrt(f(2)),
        "one": f(1),
        "half": f(0.5),
        "heads": np.array([0, 0, h, d]),
        "merged": np.array([0, 0, e]),
    }
    weights = {k: np.asarray(v) for k, v in weights.items()}
    return make(nodes, {"x": ["batch" if isinstance(seq, str) else 2, seq, e]}, ["y"], weights)
