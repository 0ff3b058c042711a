"""Products with constant weights, seen alike: which axes are channels, and how to change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from braze.quantization.network import Network, Node, attribute
from braze.quantization.placement import Weight

Array = np.ndarray[Any, Any]


@dataclass
class Layer:
    """A Conv, Gemm or MatMul node whose weight is constant."""

    net: Network
    node: Node
    weight: Weight

    @property
    def data(self) -> str:
        """The tensor it multiplies."""
        return str(self.node.input[0])

    @property
    def is_convolution(self) -> bool:
        return bool(self.node.op_type == "Conv")

    @property
    def groups(self) -> int:
        return int(attribute(self.node, "group", 1)) if self.is_convolution else 1

    @property
    def data_axis(self) -> int:
        """The axis of its data that runs over input channels."""
        return 1 if self.is_convolution else -1

    @property
    def input_axis(self) -> int:
        """The axis of its weight that runs over input channels (of one group)."""
        rank = self.array().ndim
        return 1 if self.is_convolution else 2 * rank - 3 - self.weight.axis

    def array(self) -> Array:
        """The weight."""
        found = self.net.constant(self.node.input[self.weight.slot])
        assert found is not None
        return found

    def set_array(self, array: Array) -> None:
        """Give this node alone another weight."""
        name = self.net.add_constant(array.astype(np.float32), f"{self.weight.name}_changed")
        self.node.input[self.weight.slot] = name

    def bias(self) -> Array | None:
        """The bias: zeros where there is none, None where it is no vector that is known."""
        channels = self.array().shape[self.weight.axis]
        if self.node.op_type == "MatMul" or len(self.node.input) < 3 or not self.node.input[2]:
            return np.zeros(channels, np.float32)
        plain = attribute(self.node, "alpha", 1.0) == attribute(self.node, "beta", 1.0) == 1.0
        held = self.net.constant(self.node.input[2])
        return held if plain and held is not None and held.shape == (channels,) else None

    def add_to_bias(self, shift: Array) -> bool:
        """Add to the bias; False where it has none that could be changed."""
        held = self.bias()
        if held is None:
            return False
        if self.node.op_type == "MatMul":
            self._add_behind(shift)
        else:
            self.set_bias(held + shift)
        return True

    def set_bias(self, bias: Array) -> None:
        """Give this node (no MatMul) another bias."""
        name = self.net.add_constant(bias.astype(np.float32), f"{self.node.name}_bias")
        if len(self.node.input) > 2:
            self.node.input[2] = name
        else:
            self.node.input.append(name)

    def _add_behind(self, shift: Array) -> None:
        """A MatMul has no bias: add to the one that is added behind it, or add one."""
        out = self.node.output[0]
        reader = self.net.only_reader(out)
        if reader is not None and reader.op_type == "Add":
            slot = 1 if reader.input[0] == out else 0
            held = self.net.constant(reader.input[slot])
            if held is not None and held.shape == shift.shape:
                name = f"{reader.name}_bias"
                reader.input[slot] = self.net.add_constant((held + shift).astype(np.float32), name)
                return
        self.node.output[0] = self.net.fresh(f"{out}_uncorrected")
        constant = self.net.add_constant(shift.astype(np.float32), f"{self.node.name}_bias")
        name = self.net.fresh(f"Add_{out}")
        added = helper.make_node("Add", [self.node.output[0], constant], [out], name)
        self.net.insert(self.net.position(self.node) + 1, [added])
        self.net.reindex()


def layers_of(net: Network, weights: dict[str, Weight | None]) -> list[Layer]:
    """The layers of a placement, in the order of the network; transposed convolutions left out."""
    nodes = {n.name: n for n in net.graph.node}
    return [
        Layer(net, nodes[name], weight)
        for name, weight in weights.items()
        if weight is not None and nodes[name].op_type != "ConvTranspose"
    ]
