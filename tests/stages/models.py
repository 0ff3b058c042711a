"""About a dozen small models that touch every stage; golden texts and whole-plan tests use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.e2e.models import attention_net
from tests.meta.small_models import model

Array = np.ndarray[Any, Any]
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
INT64, INT32, UINT8 = TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8


@dataclass(frozen=True)
class StageModel:
    """A model, the `shapes` to build it with, and inputs of allowed shapes to run it on."""

    model: ModelProto
    feeds: Sequence[dict[str, Array]]
    shapes: Any = None


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node from names separated by spaces; "_" is an absent input."""
    names = ["" if n == "_" else n for n in inputs.split()]
    made = outputs.split()
    return helper.make_node(op, names, made, f"{op}_{made[0]}", **attributes)


def weights(**shapes: tuple[int, ...]) -> dict[str, Array]:
    """Float32 constants whose products stay near one."""
    rng = np.random.default_rng(7)
    return {
        name: (rng.standard_normal(s) / np.sqrt(max(1, int(np.prod(s[1:]))))).astype(np.float32)
        for name, s in shapes.items()
    }


def floats(*shape: int, dtype: Any = np.float32) -> Array:
    """Standard normal data."""
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


def ints(*values: Any) -> Array:
    """An int64 array."""
    return np.array(values, np.int64)


def conv_residual_2d() -> StageModel:
    """Two convolutions, the second with a residual and an activation behind it."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1] * 4),
        node("Relu", "c1", "r1"),
        node("Conv", "r1 w2 b2", "c2", pads=[1] * 4),
        node("Add", "c2 r1", "s"),
        node("LeakyRelu", "s", "r2", alpha=0.25),
        node("Conv", "r2 w3", "y", strides=[2, 2], group=2),
    ]
    constants = weights(w1=(8, 3, 3, 3), b1=(8,), w2=(8, 8, 3, 3), b2=(8,), w3=(4, 4, 3, 3))
    made = model(nodes, {"x": (FLOAT, [2, 3, 9, 7])}, ["y"], constants)
    return StageModel(made, [{"x": floats(2, 3, 9, 7)}])


def conv_residual_1d() -> StageModel:
    """1-D convolutions whose epilogues read another tensor and a mask along the length."""
    nodes = [
        node("Conv", "x w1", "a", pads=[1, 1]),
        node("Conv", "x w2", "b", pads=[2, 2], dilations=[2]),
        node("Add", "a b", "s"),
        node("Conv", "s w3", "c"),
        node("Mul", "c mask", "y"),
    ]
    constants = weights(w1=(8, 4, 3), w2=(8, 4, 3), w3=(6, 8, 1))
    inputs = {"x": (FLOAT, [2, 4, 11]), "mask": (FLOAT, [1, 1, 11])}
    return StageModel(
        model(nodes, inputs, ["y"], constants), [{"x": floats(2, 4, 11), "mask": floats(1, 1, 11)}]
    )


def depthwise_block() -> StageModel:
    """Expansion, depthwise convolution with ReLU6, projection and residual, batch norms folded."""
    nodes = [
        node("Conv", "x w1", "c1"),
        node("BatchNormalization", "c1 scale shift mean var", "n1"),
        node("Clip", "n1 low high", "e1"),
        node("Conv", "e1 w2", "c2", pads=[1] * 4, group=16),
        node("BatchNormalization", "c2 scale shift mean var", "n2"),
        node("Clip", "n2 low high", "e2"),
        node("Conv", "e2 w3", "c3"),
        node("Add", "c3 x", "y"),
    ]
    constants = weights(
        w1=(16, 8, 1, 1), w2=(16, 1, 3, 3), w3=(8, 16, 1, 1), scale=(16,), shift=(16,), mean=(16,)
    )
    constants["var"] = np.linspace(0.5, 2, 16, dtype=np.float32)
    constants |= {"low": np.float32(0).reshape(()), "high": np.float32(6).reshape(())}
    made = model(nodes, {"x": (FLOAT, [1, 8, 10, 10])}, ["y"], constants)
    return StageModel(made, [{"x": floats(1, 8, 10, 10)}])


def attention_static() -> StageModel:
    """A transformer block of primitive ops."""
    return StageModel(attention_net(9), [{"x": floats(2, 9, 32)}])


def attention_dynamic() -> StageModel:
    """The same with symbolic batch and length."""
    return StageModel(
        attention_net("s"),
        [{"x": floats(b, s, 32)} for b, s in ((1, 1), (2, 16), (2, 7))],
        {"x": ((1, 1, 32), (2, 8, 32), (2, 16, 32))},
    )


def mlp_layernorm() -> StageModel:
    """LayerNorm, two linear layers with GELU by the tanh formula, a residual; rows are dynamic."""
    nodes = [
        node("LayerNormalization", "x g b", "ln", axis=-1),
        node("Gemm", "ln w1 b1", "h", transB=1),
        node("Sigmoid", "h", "gate"),
        node("Mul", "h gate", "a"),
        node("Gemm", "a w2 b2", "o"),
        node("Add", "o x", "y"),
    ]
    constants = weights(g=(16,), b=(16,), w1=(40, 16), b1=(40,), w2=(40, 16), b2=(16,))
    made = model(nodes, {"x": (FLOAT, ["n", 16])}, ["y"], constants)
    feeds = [{"x": floats(n, 16)} for n in (1, 5, 32)]
    return StageModel(made, feeds, {"x": ((1, 16), (8, 16), (32, 16))})


def pooling_net() -> StageModel:
    """Max, average and global pooling, and a concatenation of branches."""
    nodes = [
        node("MaxPool", "x", "m", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        node("AveragePool", "x", "a", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        node("Concat", "m a", "c", axis=1),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "g"),
        node("Mul", "r g", "y"),
    ]
    made = model(nodes, {"x": (FLOAT, [1, 3, 9, 9])}, ["y"])
    return StageModel(made, [{"x": floats(1, 3, 9, 9)}])


def gather_scatter() -> StageModel:
    """Indexes from inputs: gathers into fused consumers, scatters in place."""
    nodes = [
        node("Gather", "table ids", "e", axis=0),
        node("Exp", "e", "x"),
        node("GatherElements", "x picks", "g", axis=1),
        node("Neg", "x", "base"),
        node("ScatterND", "base rows g", "s"),
        node("ScatterElements", "s picks g", "y", axis=1, reduction="add"),
    ]
    inputs = {"ids": (INT64, [4]), "picks": (INT64, [2, 5]), "rows": (INT64, [2, 1])}
    feeds = {
        "ids": ints(3, 0, -1, 2),
        "picks": ints([0, 1, 4, 2, 3], [4, 3, 0, 1, 2]),
        "rows": ints([2], [0]),
    }
    made = model(nodes, inputs, ["y"], weights(table=(6, 5)))
    return StageModel(made, [feeds])


def reductions() -> StageModel:
    """Mean, maximum, argument of the maximum, softmax and a running sum."""
    nodes = [
        node("ReduceMean", "x", "m", axes=[2], keepdims=1),
        node("Sub", "x m", "d"),
        node("ReduceMax", "d", "top", axes=[0, 2], keepdims=0),
        node("Softmax", "d", "p", axis=1),
        node("ArgMax", "p", "best", axis=1, keepdims=0),
        node("CumSum", "p axis", "run"),
        node("Add", "run top3", "y"),
        node("Reshape", "top shape", "top3"),
    ]
    order = [0, 1, 2, 3, 4, 5, 7, 6]
    made = model(
        [nodes[i] for i in order],
        {"x": (FLOAT, [3, 4, "n"])},
        ["y", "best"],
        {"axis": ints(2)[0].reshape(()), "shape": ints(1, 4, 1)},
    )
    feeds = [{"x": floats(3, 4, n)} for n in (1, 6, 20)]
    return StageModel(made, feeds, {"x": ((3, 4, 1), (3, 4, 6), (3, 4, 20))})


def top_k() -> StageModel:
    """The largest of each row, then the smallest of a computed tensor."""
    nodes = [
        node("TopK", "x k", "values indices", axis=-1),
        node("Abs", "x", "a"),
        node("TopK", "a k", "small at", axis=0, largest=0),
    ]
    made = model(nodes, {"x": (FLOAT, [6, 9])}, ["values", "indices", "small"], {"k": ints(3)})
    return StageModel(made, [{"x": floats(6, 9)}])


def transposed_conv() -> StageModel:
    """Upsampling twice: by a transposed convolution with a second tensor, and by Resize."""
    nodes = [
        node("ConvTranspose", "x w1 b1", "u", strides=[2, 2], pads=[1] * 4),
        node("Add", "u skip", "s"),
        node("Relu", "s", "r"),
        node("Resize", "r _ scales", "y", mode="linear"),
    ]
    constants = weights(w1=(6, 4, 4, 4), b1=(4,))
    constants["scales"] = np.array([1, 1, 2, 2], np.float32)
    inputs = {"x": (FLOAT, [1, 6, 5, 4]), "skip": (FLOAT, [1, 4, 10, 8])}
    feeds = {"x": floats(1, 6, 5, 4), "skip": floats(1, 4, 10, 8)}
    return StageModel(model(nodes, inputs, ["y"], constants), [feeds])


def float16_net() -> StageModel:
    """Convolution, linear layer and softmax in float16."""
    nodes = [
        node("Conv", "x w1 b1", "c", pads=[1] * 4),
        node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "g"),
        node("Flatten", "g", "f"),
        node("MatMul", "f w2", "m"),
        node("Softmax", "m", "y", axis=-1),
    ]
    constants = weights(w1=(8, 3, 3, 3), b1=(8,), w2=(8, 5))
    constants = {k: v.astype(np.float16) for k, v in constants.items()}
    made = model(nodes, {"x": (HALF, [2, 3, 6, 6])}, ["y"], constants)
    return StageModel(made, [{"x": floats(2, 3, 6, 6, dtype=np.float16)}])


def int_arithmetic() -> StageModel:
    """Integers of three types: wrapping, division, bit operations, conversions."""
    nodes = [
        node("Add", "a b", "s"),
        node("Div", "s b", "q"),
        node("Mod", "q m", "r"),
        node("Cast", "r", "small", to=UINT8),
        node("BitShift", "small bits", "shifted", direction="LEFT"),
        node("Cast", "shifted", "wide", to=FLOAT),
        node("Less", "a b", "less"),
        node("Where", "less wide half", "y"),
        node("Cast", "small", "narrow", to=INT32),
        node("MatMul", "narrow w", "z"),
    ]
    constants = {
        "m": np.array(7, np.int32),
        "bits": np.array(3, np.uint8),
        "half": np.array(0.5, np.float32),
        "w": np.arange(12, dtype=np.int32).reshape(4, 3),
    }
    made = model(nodes, {"a": (INT32, [5, 4]), "b": (INT32, [4])}, ["y", "z"], constants)
    rng = np.random.default_rng(5)
    a = rng.integers(-(2**31), 2**31, (5, 4)).astype(np.int32)
    return StageModel(made, [{"a": a, "b": np.array([3, -5, 2**30, -1], np.int32)}])


def shape_arithmetic() -> StageModel:
    """Sizes computed from shapes: flattening, slicing to half, tiling, a size as a value."""
    nodes = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "n", axis=0),
        node("Gather", "shape one", "m", axis=0),
        node("Div", "m two", "half"),
        node("Unsqueeze", "half axes", "stop"),
        node("Slice", "x start stop axis1", "left"),
        node("Unsqueeze", "n axes", "n1"),
        node("Concat", "n1 minus", "flat", axis=0),
        node("Reshape", "left flat", "rows"),
        node("Cast", "n", "count", to=FLOAT),
        node("Div", "rows count", "y"),
    ]
    constants = {
        "zero": ints(0)[0].reshape(()),
        "one": ints(1)[0].reshape(()),
        "two": ints(2)[0].reshape(()),
        "axes": ints(0),
        "start": ints(0),
        "axis1": ints(1),
        "minus": ints(-1),
    }
    made = model(nodes, {"x": (FLOAT, ["n", "m", 3])}, ["y"], constants)
    feeds = [{"x": floats(n, m, 3)} for n, m in ((1, 2), (4, 7), (3, 16))]
    return StageModel(made, feeds, {"x": ((1, 2, 3), (2, 8, 3), (4, 16, 3))})


def dynamic_batch() -> StageModel:
    """A convolution network with two profiles of the batch."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=[1] * 4),
        node("Relu", "c1", "r1"),
        node("MaxPool", "r1", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p w2", "c2"),
        node("Flatten", "c2", "f"),
        node("Gemm", "f w3 b3", "y", transB=1),
    ]
    constants = weights(w1=(8, 3, 3, 3), b1=(8,), w2=(4, 8, 1, 1), w3=(5, 64), b3=(5,))
    made = model(nodes, {"x": (FLOAT, ["n", 3, 8, 8])}, ["y"], constants)
    sizes: list[Mapping[str, Any]] = [
        {"x": ((1, 3, 8, 8), (1, 3, 8, 8), (2, 3, 8, 8))},
        {"x": ((4, 3, 8, 8), (6, 3, 8, 8), (6, 3, 8, 8))},
    ]
    return StageModel(made, [{"x": floats(n, 3, 8, 8)} for n in (1, 2, 5)], sizes)


MODELS: Mapping[str, Callable[[], StageModel]] = {
    f.__name__: f
    for f in (
        conv_residual_2d, conv_residual_1d, depthwise_block, attention_static, attention_dynamic,
        mlp_layernorm, pooling_net, gather_scatter, reductions, top_k, transposed_conv,
        float16_net, int_arithmetic, shape_arithmetic, dynamic_batch,
    )
}  # fmt: skip
