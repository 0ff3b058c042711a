"""Write Quantize and Dequantize nodes into a model where a placement says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from onnx import helper

from braze.quantization.grid import Grid, weight_grid
from braze.quantization.network import Network, Node
from braze.quantization.options import Options
from braze.quantization.placement import Bias, Placement, Weight

Array = np.ndarray[Any, Any]
_INT32: Final = float(1 << 31)


@dataclass
class Writer:
    """One model that is being quantized. grids: of the tensors that are read quantized, by the
    tensor that stands for all of one grid (`Placement.root`); notes: what was left, and why.
    """

    net: Network
    options: Options
    placement: Placement
    grids: Mapping[str, Grid]

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        self._nodes = {n.name: n for n in self.net.graph.node}
        self._parameters: dict[str, tuple[str, str]] = {}
        self._weights: dict[tuple[str, int | None], str] = {}
        self._weight_grids: dict[str, Grid] = {}
        self._added: list[Node] = []  # nodes on constants, which come first

    def write(self) -> None:
        """All of it."""
        for weight in self.placement.layers.values():
            if weight is not None:
                self._write_weight(weight)
        for bias in self.placement.biases:
            self._write_bias(bias)
        after = {name: self._pair(name) for name in self.placement.reads}
        ordered = list(self._added)
        made = {o for n in self.net.graph.node for o in n.output}
        ordered += [n for name, pair in after.items() if name not in made for n in pair]
        for node in self.net.graph.node:
            ordered.append(node)
            for name in node.output:
                ordered += after.get(name, ())
        copies = []
        for node in ordered:
            copy = type(node)()
            copy.CopyFrom(node)
            copies.append(copy)
        del self.net.graph.node[:]
        self.net.graph.node.extend(copies)
        self.net.drop_unused()

    def _pair(self, tensor: str) -> list[Node]:
        """Quantize and Dequantize of a tensor, which its readers are given."""
        root = self.placement.root(tensor)
        scale, zero = self._of(root, self.grids[root])
        codes = self.net.fresh(f"{tensor}_quantized")
        out = self.net.fresh(f"{tensor}_dequantized")
        for name, slot in self.placement.reads[tensor]:
            self._nodes[name].input[slot] = out
        return [
            self._node("QuantizeLinear", [tensor, scale, zero], codes),
            self._node("DequantizeLinear", [codes, scale, zero], out),
        ]

    def _of(self, name: str, grid: Grid) -> tuple[str, str]:
        """The initializers of a grid's scale and zero point."""
        if name not in self._parameters:
            zero = np.full(grid.scale.shape, grid.zero).astype(grid.dtype)
            self._parameters[name] = (
                self.net.add_constant(grid.scale, f"{name}_scale"),
                self.net.add_constant(zero, f"{name}_zero_point"),
            )
        return self._parameters[name]

    def _write_weight(self, weight: Weight) -> None:
        axis = weight.axis if self.options.per_channel else None
        key = weight.name, axis
        if key not in self._weights:
            array = self.net.constant(weight.name)
            assert array is not None
            grid = weight_grid(array, axis, "e4m3" if self.options.form == "fp8" else "s8")
            self._weights[key] = self._constant(weight.name, grid.quantize(array), grid)
        self._nodes[weight.node].input[weight.slot] = self._weights[key]

    def _constant(self, name: str, codes: Array, grid: Grid) -> str:
        """A constant as codes and a Dequantize; gives the dequantized tensor."""
        scale, zero = self._of(self.net.fresh(f"{name}_grid"), grid)
        held = self.net.add_constant(codes, f"{name}_quantized")
        out = self.net.fresh(f"{name}_dequantized")
        self._weight_grids[out] = grid
        self._added.append(self._node("DequantizeLinear", [held, scale, zero], out, grid.axis))
        return out

    def _write_bias(self, bias: Bias) -> None:
        """The bias on the grid of the sums, unless that grid does not reach it."""
        array = self.net.constant(bias.name)
        assert array is not None
        node = self._nodes[bias.node]
        weight = self._weight_grids[node.input[bias.weight.slot]]
        data = self.grids[self.placement.root(bias.data)]
        scale = np.asarray(data.scale * weight.scale, np.float32)
        codes = np.rint(array.astype(np.float64) / scale.astype(np.float64))
        if array.dtype != np.float32 or scale.size not in (1, array.size):
            return
        if not (np.abs(codes) < _INT32).all() or (scale < np.finfo(np.float32).tiny).any():
            self.notes.append(
                f"the bias of {bias.node} stays float: it is too large for the scale of its sums"
            )
            return
        axis = 0 if scale.ndim else None
        held = self.net.add_constant(codes.astype(np.int32), f"{bias.name}_quantized")
        zero = self.net.add_constant(np.zeros(scale.shape, np.int32), f"{bias.name}_zero")
        inputs = [held, self.net.add_constant(scale, f"{bias.name}_scale"), zero]
        out = self.net.fresh(f"{bias.name}_dequantized")
        self._added.append(self._node("DequantizeLinear", inputs, out, axis))
        node.input[bias.slot] = out

    def _node(self, op: str, inputs: list[str], output: str, axis: int | None = None) -> Node:
        node = helper.make_node(op, inputs, [output], self.net.fresh(f"{op}_{output}"))
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        return node
