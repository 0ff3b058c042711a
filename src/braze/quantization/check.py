"""What in a model's own Q/DQ nodes keeps layers from running on integers, and what mends it.

The rules are TensorRT's recommendations for networks that were trained with Q/DQ: quantize all
inputs of weighted ops and none of their outputs, leave an activation or a normalization joined to
its layer, quantize the other addend of a residual sum, one scale on both sides of what only moves
numbers, and per-channel scales for weights alone, on their output channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from braze.quantization.network import Network, Node, attribute
from braze.quantization.placement import channel_axis

Array = np.ndarray[Any, Any]
_WEIGHTED: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_JOINED: Final = (
    "Relu",
    "Clip",
    "LeakyRelu",
    "PRelu",
    "Sigmoid",
    "HardSwish",
    "HardSigmoid",
    "Gelu",
    "BatchNormalization",
)
_MOVES: Final = ("MaxPool", "Concat", "GlobalMaxPool")
_AVERAGES: Final = ("AveragePool", "GlobalAveragePool")


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One place where Q/DQ nodes are in the way: the node, what is wrong, and how to mend it."""

    node: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.node}: {self.what}; {self.remedy}"


def check_quantization(model: onnx.ModelProto) -> list[Obstacle]:
    """All warnings about the Q/DQ nodes of a model, in its order; none for a model without them."""
    net = Network(model)
    found: list[Obstacle] = []
    for node in net.graph.node:
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            found += _parameters(net, node)
        if node.op_type in _WEIGHTED:
            found += _weighted(net, node)
        if node.op_type == "QuantizeLinear":
            found += _between(net, node)
        if node.op_type == "Add":
            found += _sum(net, node)
        if node.op_type in _MOVES:
            found += _moved(net, node)
        if node.op_type in _AVERAGES:
            found += _averaged(net, node)
    return found


def _made(net: Network, tensor: str, op: str) -> Node | None:
    node = net.producer.get(tensor)
    return node if node is not None and node.op_type == op else None


def _dequantized(net: Network, tensor: str) -> Node | None:
    """The Dequantize behind a tensor, through what only moves its numbers."""
    node = net.producer.get(tensor)
    while node is not None and node.op_type in ("Transpose", "Reshape", "Flatten", "Identity"):
        node = net.producer.get(node.input[0])
    return node if node is not None and node.op_type == "DequantizeLinear" else None


def _is_weight(net: Network, dequantize: Node) -> bool:
    """Whether what is dequantized is a constant, in integers or rounded by a Quantize."""
    source = dequantize.input[0]
    quantize = _made(net, source, "QuantizeLinear")
    return net.constant(source if quantize is None else quantize.input[0]) is not None


def _parameters(net: Network, node: Node) -> Iterator[Obstacle]:
    scale = net.constant(node.input[1])
    if scale is None:
        if node.op_type == "DequantizeLinear":
            yield Obstacle(
                node.name,
                "its scale is computed in the run",
                "make the scale a constant of the model",
            )
        return
    if not (scale > 0).all():
        yield Obstacle(node.name, "a scale is not positive", "calibrate again, or fix the training")
    zero = net.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if zero is not None and zero.astype(np.float32).any() and node.op_type == "DequantizeLinear":
        yield Obstacle(
            node.name,
            "its zero point is not 0, which TensorRT does not take",
            "quantize symmetrically where the model is for TensorRT too",
        )


def _weighted(net: Network, node: Node) -> Iterator[Obstacle]:
    data, weight = (_dequantized(net, name) for name in node.input[:2])
    if data is None and weight is None:
        return
    held = net.constant(node.input[1])
    if data is not None and weight is None and held is not None:
        yield Obstacle(
            node.name,
            "its data is quantized and its weight is not: it runs in floats",
            "add Q/DQ to the weight, with a scale for each output channel",
        )
    if data is None and weight is not None and _is_weight(net, weight):
        yield Obstacle(
            node.name,
            "its weight is quantized and its data is not: it runs in floats",
            f"add Q/DQ to the input {node.input[0]!r}",
        )
    if data is not None:
        scale = net.constant(data.input[1])
        if scale is not None and scale.size > 1 and not _is_weight(net, data):
            yield Obstacle(
                node.name,
                "its data has a scale for each channel: it runs in floats",
                f"use one scale in {data.name}",
            )
    if data is None or weight is None:
        return
    if not _is_weight(net, weight):
        yield Obstacle(
            node.name,
            "both factors are data, for which there is no product of bytes",
            "leave out these Q/DQ unless the model is for an engine that has one",
        )
        return
    scale = net.constant(weight.input[1])
    directly = weight is net.producer.get(node.input[1])
    if scale is not None and scale.size > 1 and directly:
        yield from _axis(net, node, weight, scale)


def _axis(net: Network, node: Node, weight: Node, scale: Array) -> Iterator[Obstacle]:
    source = weight.input[0]
    quantize = _made(net, source, "QuantizeLinear")
    held = net.constant(source if quantize is None else quantize.input[0])
    if held is None:
        return
    axis = int(attribute(weight, "axis", 1)) % held.ndim
    wanted = channel_axis(node, held.ndim)
    if scale.ndim > 1 or axis != wanted:
        yield Obstacle(
            node.name,
            f"scales of its weight run along axis {axis}, not over its output "
            f"channels (axis {wanted}): it runs in floats",
            f"give {weight.name} axis={wanted} and scales for it",
        )


def _between(net: Network, node: Node) -> Iterator[Obstacle]:
    """Q/DQ between a layer and what would be joined to it."""
    layer = net.producer.get(node.input[0])
    if layer is None or layer.op_type not in _WEIGHTED or net.only_reader(node.input[0]) is None:
        return
    for dequantize in net.readers.get(node.output[0], ()):
        for reader in net.readers.get(dequantize.output[0], ()):
            if reader.op_type in _JOINED:
                yield Obstacle(
                    node.name,
                    f"it stands between {layer.name} and its {reader.op_type} {reader.name}: that "
                    "rounds twice and keeps the two apart",
                    f"move the Q/DQ behind {reader.name}",
                )
            elif reader.op_type == "Add" and _is_residual(net, reader, dequantize.output[0]):
                yield Obstacle(
                    node.name,
                    f"it stands between {layer.name} and the sum {reader.name}: that rounds twice "
                    "and keeps the two apart",
                    "remove it, and quantize the other addend",
                )


def _is_residual(net: Network, add: Node, tensor: str) -> bool:
    other = next((i for i in add.input if i != tensor), None)
    return other is not None and net.constant(other) is None


def _sum(net: Network, node: Node) -> Iterator[Obstacle]:
    """A sum behind a quantized convolution whose other addend is float."""
    for slot in (0, 1):
        layer, other = net.producer.get(node.input[slot]), node.input[1 - slot]
        if layer is None or layer.op_type not in ("Conv", "ConvTranspose"):
            continue
        quantized = all(_dequantized(net, name) is not None for name in layer.input[:2])
        peer = net.producer.get(other)
        if (
            quantized
            and net.only_reader(node.input[slot]) is not None
            and net.constant(other) is None
            and _dequantized(net, other) is None
            and (peer is None or peer.op_type not in ("Conv", "ConvTranspose") or slot == 0)
        ):
            yield Obstacle(
                node.name,
                f"it adds floats to the quantized {layer.name}",
                f"add Q/DQ to {other!r} in front of the sum",
            )
            return


def _moved(net: Network, node: Node) -> Iterator[Obstacle]:
    """Different scales around what only chooses among numbers or joins them."""
    sources = [_dequantized(net, name) for name in node.input if net.constant(name) is None]
    inputs = [net.constant(d.input[1]) for d in sources if d is not None]
    scales = [s for s in inputs if s is not None and s.size == 1]
    after = [
        net.constant(r.input[1])
        for r in net.readers.get(node.output[0], ())
        if r.op_type == "QuantizeLinear"
    ]
    if after and any(d is None for d in sources):
        yield Obstacle(
            node.name,
            "its result is quantized and not all that it reads: it moves floats",
            "add Q/DQ in front of it too, with the same scale",
        )
    every = scales + [s for s in after if s is not None and s.size == 1]
    if len({float(s.reshape(())) for s in every}) > 1:
        yield Obstacle(
            node.name,
            "the scales around it differ: its numbers are rounded again",
            "use one scale for all that it reads and for its result",
        )


def _averaged(net: Network, node: Node) -> Iterator[Obstacle]:
    before = _dequantized(net, node.input[0]) is not None
    behind = any(r.op_type == "QuantizeLinear" for r in net.readers.get(node.output[0], ()))
    if before != behind and node.output[0] not in net.outputs:
        where, missing = ("in front of", "behind") if before else ("behind", "in front of")
        yield Obstacle(
            node.name,
            f"there are Q/DQ {where} it alone: one of its sides moves floats",
            f"add Q/DQ {missing} it",
        )
