"""Networks with QuantizeLinear and DequantizeLinear as ONNX models, for benchmarks/gpu.py's card.

`quantized` puts them around the products of any float model: per-channel int8 weights, int8
activations with one scale a tensor, which `ranges` measures. A sum of two branches is computed
from the float result of one and the codes of the other, so that it can be the epilogue of the
convolution that gives the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Array = NDArray[Any]
PRODUCTS: Final = ("Conv", "MatMul")
POOLS: Final = ("MaxPool", "AveragePool", "GlobalAveragePool")
STAGES: Final = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, channels, stride
OPSET: Final = 17
LARGEST: Final = 127


class _Network:
    """An ONNX graph under construction, weights from a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, array: Array) -> str:
        name = f"constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def conv(self, x: str, size: tuple[int, int, int], stride: int = 1, gain: float = 2.0) -> str:
        """size: output channels, input channels, side of the window."""
        out, channels, side = size
        spread = np.sqrt(gain / (channels * side * side))
        w = self.constant(self.draw.standard_normal((out, channels, side, side)) * spread)
        b = self.constant(self.draw.standard_normal(out) * 0.1)
        pads = [side // 2] * 4
        return self.add("Conv", [x, w, b], strides=[stride] * 2, pads=pads)


def resnet50(batch: int, side: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """ResNet-50 in float32 with BatchNorm folded; the input is float16, as that of its peers."""
    net = _Network(0)
    x = net.add("Cast", ["input"], to=onnx.TensorProto.FLOAT)
    x = net.add("Relu", [net.conv(x, (64, 3, 7), 2)])
    x = net.add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for blocks, width, stage_stride in STAGES:
        for block in range(blocks):
            stride = stage_stride if block == 0 else 1
            short = x
            if block == 0:
                short = net.conv(x, (4 * width, channels, 1), stride, 1.0)
            y = net.add("Relu", [net.conv(x, (width, channels, 1))])
            y = net.add("Relu", [net.conv(y, (width, width, 3), stride)])
            y = net.conv(y, (4 * width, width, 1), 1, 0.3)
            x = net.add("Relu", [net.add("Add", [y, short])])
            channels = 4 * width
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])])
    w = net.constant(net.draw.standard_normal((channels, classes)) / np.sqrt(channels))
    b = net.constant(net.draw.standard_normal(classes) * 0.1)
    x = net.add("Add", [net.add("MatMul", [x, w]), b])
    net.nodes.append(helper.make_node("Cast", [x], ["output"], "output", to=10))
    shape = [batch, 3, side, side]
    inputs = [helper.make_tensor_value_info("input", onnx.TensorProto.FLOAT16, shape)]
    out = [helper.make_tensor_value_info("output", onnx.TensorProto.FLOAT16, [batch, classes])]
    graph = helper.make_graph(net.nodes, "resnet50", inputs, out, net.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def in_halves(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float32 model with its weights, sums and casts in float16."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for t in made.graph.initializer:
        if t.data_type == onnx.TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float16), t.name))
    for n in made.graph.node:
        for a in n.attribute:
            if n.op_type == "Cast" and a.name == "to" and a.i == onnx.TensorProto.FLOAT:
                a.i = onnx.TensorProto.FLOAT16
    for v in (*made.graph.input, *made.graph.output):
        if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            v.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    return made


def on_grids(model: onnx.ModelProto) -> list[str]:
    """The tensors that become codes: what products and pools read, and one side of each sum."""
    known = {t.name for t in model.graph.initializer}
    position = {name: i for i, n in enumerate(model.graph.node) for name in n.output}
    found: dict[str, None] = {}
    for n in model.graph.node:
        read = [x for x in n.input if x not in known]
        if n.op_type in POOLS or (n.op_type in PRODUCTS and len(read) == 1):
            found[read[0]] = None
        elif n.op_type == "Add" and len(read) == 2:
            found[min(read, key=lambda x: position.get(x, -1))] = None
    return list(found)


def with_outputs(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """`model` that also gives these tensors."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    have = {v.name for v in (*made.graph.output, *made.graph.input)}
    for name in names:
        if name not in have:
            made.graph.output.append(onnx.ValueInfoProto(name=name))
    return made


def ranges(values: Mapping[str, Array]) -> dict[str, float]:
    """The largest magnitude of each tensor."""
    return {name: float(np.abs(v).max()) for name, v in values.items()}


def quantized(model: onnx.ModelProto, largest: Mapping[str, float]) -> onnx.ModelProto:
    """`model` with Q and DQ on the tensors that `largest` has a range for, and on weights."""
    arrays = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    weights = {t.name: t for t in model.graph.initializer}
    real: dict[str, str] = {}

    def constant(name: str, array: Array) -> str:
        weights[name] = numpy_helper.from_array(array, name)
        return name

    def grid(x: str) -> None:
        """Codes of `x` and the numbers that they stand for."""
        scale = constant(f"{x}.scale", np.float32(largest[x] / LARGEST))
        zero = constant(f"{x}.zero", np.int8(0))
        nodes.append(helper.make_node("QuantizeLinear", [x, scale, zero], [f"{x}.codes"]))
        numbers = [f"{x}.codes", scale, zero]
        nodes.append(helper.make_node("DequantizeLinear", numbers, [f"{x}.real"]))
        real[x] = f"{x}.real"

    def weight(name: str, axis: int) -> str:
        w = arrays[name]
        others = tuple(i for i in range(w.ndim) if i != axis)
        scale = (np.abs(w).max(others, keepdims=True) / LARGEST).astype(np.float32)
        codes = constant(f"{name}.codes", np.rint(w / scale).astype(np.int8))
        scales = constant(f"{name}.scale", scale.reshape(-1))
        dequantized = f"{name}.real"
        nodes.append(
            helper.make_node("DequantizeLinear", [codes, scales], [dequantized], axis=axis)
        )
        weights.pop(name, None)
        return dequantized

    for v in model.graph.input:
        if v.name in largest:
            grid(v.name)
    for n in model.graph.node:
        made = onnx.NodeProto()
        made.CopyFrom(n)
        if n.op_type in PRODUCTS or n.op_type in POOLS:
            made.input[0] = real.get(n.input[0], n.input[0])
        if n.op_type in PRODUCTS and n.input[0] in real and n.input[1] in arrays:
            made.input[1] = weight(n.input[1], 0 if n.op_type == "Conv" else 1)
        if n.op_type == "Add" and len(set(n.input) - set(arrays)) == 2:
            first = min(n.input, key=lambda x: list(real).index(x) if x in real else len(real))
            made.input[:] = [real.get(x, x) if x == first else x for x in n.input]
        nodes.append(made)
        for out in n.output:
            if out in largest:
                grid(out)
    graph = helper.make_graph(
        nodes, model.graph.name, model.graph.input, model.graph.output, list(weights.values())
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
