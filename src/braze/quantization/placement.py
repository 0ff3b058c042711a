"""Where Quantize and Dequantize go: what TensorRT recommends, read off the graph.

    the data and the weight of each convolution and matrix product (the product runs on bytes),
    behind the activation where one follows a product, as only what a product reads is quantized;
    the other addend where a convolution is added to it (the sum stays in the convolution's kernel);
    what is pooled or joined, where the result is quantized (it moves bytes), by one scale for all
    of what a maximum or a Concat passes on.

Outputs of the network stay float, and so does whatever `Options.exclude` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from braze.quantization.network import Network, Node, attribute
from braze.quantization.options import Options

# ops whose results are some of the numbers of their data: one grid holds both
_PASS_ON: Final = ("MaxPool", "GlobalMaxPool", "Concat")
_AVERAGE: Final = ("AveragePool", "GlobalAveragePool")
_CONVOLUTIONS: Final = ("Conv", "ConvTranspose")


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant that is quantized. axis: of its output channels."""

    name: str
    node: str
    slot: int
    axis: int


@dataclass(frozen=True, slots=True)
class Bias:
    """A constant bias of a product, added to sums of `data` times `weight`."""

    name: str
    node: str
    slot: int
    data: str
    weight: Weight


@dataclass
class Placement:
    """reads: tensor -> the (node, input slot) pairs that read it quantized; layers: products that
    are quantized, by node, with their weight (None: both factors are data); kept: node -> why it
    stays float; shared: tensor -> the tensor whose grid it has.
    """

    reads: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    layers: dict[str, Weight | None] = field(default_factory=dict)
    biases: list[Bias] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)

    def read(self, tensor: str, node: Node, slot: int) -> None:
        """Have a node read a tensor quantized."""
        where = self.reads.setdefault(tensor, [])
        if (node.name, slot) not in where:
            where.append((node.name, slot))

    def root(self, tensor: str) -> str:
        """The tensor that stands for all that share its grid."""
        while tensor in self.shared:
            tensor = self.shared[tensor]
        return tensor

    def share(self, a: str, b: str) -> None:
        """Give two tensors one grid."""
        first, second = self.root(a), self.root(b)
        if first != second:
            self.shared[second] = first


def place(net: Network, options: Options) -> Placement:
    """Decide for the whole network."""
    p = Placement()
    for node in net.graph.node:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") and not node.domain:
            _place_product(net, node, options, p)
    if options.form == "int8":
        for node in net.graph.node:
            if node.op_type == "Add" and not options.excludes(node):
                _place_sum(net, node, p)
        for tensor in list(p.reads):
            _place_before(net, tensor, options, p)
    return p


def _place_product(net: Network, node: Node, options: Options, p: Placement) -> None:
    reason = _refusal(net, node, options)
    if reason:
        p.kept[node.name] = reason
        return
    data, other = node.input[0], node.input[1]
    p.read(data, node, 0)
    constant = net.constant(other)
    if constant is None:
        p.read(other, node, 1)
        p.layers[node.name] = None
        return
    weight = Weight(other, node.name, 1, channel_axis(node, constant.ndim))
    p.layers[node.name] = weight
    bias = node.input[2] if len(node.input) > 2 else ""
    if bias and options.bias == "int32" and options.form == "int8" and _is_plain(node):
        held = net.constant(bias)
        if held is not None and held.ndim == 1:
            p.biases.append(Bias(bias, node.name, 2, data, weight))


def _refusal(net: Network, node: Node, options: Options) -> str:
    """Why a product stays float; empty where it does not."""
    if options.excludes(node):
        return "excluded"
    if not options.quantizes(node.op_type):
        return f"{node.op_type} is not among the ops to quantize"
    data, other = node.input[0], node.input[1]
    if net.constant(data) is not None:
        return "its left factor is a constant, for which there is no product of bytes"
    weight = net.constant(other)
    if _made_quantized(net, data) or _made_quantized(net, other):
        return "quantized in the model already"
    if weight is None:
        if node.op_type in ("MatMul", "Gemm") and options.data_products:
            return ""
        return "both factors are data, for which there is no product of bytes"
    if weight.dtype != np.float32:
        return f"its weight is {weight.dtype}, not float32"
    if weight.ndim < 2:
        return "its weight is a vector, a product bound by memory"
    if not np.isfinite(weight).all():
        return "its weight holds NaN or infinity"
    if node.op_type == "Gemm" and attribute(node, "transA", 0):
        return "its data is transposed"
    return ""


def _made_quantized(net: Network, tensor: str) -> bool:
    node = net.producer.get(tensor)
    return node is not None and node.op_type == "DequantizeLinear"


def channel_axis(node: Node, rank: int) -> int:
    """The axis of a weight that runs over output channels."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return rank - 1


def _is_plain(node: Node) -> bool:
    """Whether the bias is added to the sums as they are."""
    return float(attribute(node, "alpha", 1.0)) == float(attribute(node, "beta", 1.0)) == 1.0


def _place_sum(net: Network, node: Node, p: Placement) -> None:
    """The other addend of a convolution that nothing else reads."""
    slots = [k for k in (0, 1) if _is_convolution(net, node.input[k], p)]
    if not slots or node.input[0] == node.input[1]:
        return
    other = 1 - slots[0]
    if net.constant(node.input[other]) is None and not _made_quantized(net, node.input[other]):
        p.read(node.input[other], node, other)


def _is_convolution(net: Network, tensor: str, p: Placement) -> bool:
    node = net.producer.get(tensor)
    if node is None or net.only_reader(tensor) is None:
        return False
    if node.op_type == "BatchNormalization":
        return _is_convolution(net, node.input[0], p)
    return node.op_type in _CONVOLUTIONS and node.name in p.layers


def _place_before(net: Network, tensor: str, options: Options, p: Placement) -> None:
    """What is pooled or joined to a tensor that is read quantized."""
    node = net.producer.get(tensor)
    if node is None or node.domain or options.excludes(node):
        return
    for slot, source in _moved(net, node):
        if node.op_type in _PASS_ON:
            p.share(tensor, source)
        if (node.name, slot) not in p.reads.get(source, ()):
            p.read(source, node, slot)
            _place_before(net, source, options, p)


def _moved(net: Network, node: Node) -> Iterator[tuple[int, str]]:
    slots = range(len(node.input)) if node.op_type == "Concat" else range(1)
    if node.op_type in (*_PASS_ON, *_AVERAGE) and len([o for o in node.output if o]) == 1:
        for slot in slots:
            source = node.input[slot]
            if net.constant(source) is None and not _made_quantized(net, source):
                yield slot, source
