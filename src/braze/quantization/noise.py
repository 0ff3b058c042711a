"""What quantizing one layer alone does to the outputs of a network, without a build for each.

Two engines are enough. The first runs the float network and gives, for each layer, how far its
result is from that with its data and weight rounded: the layer's noise. The second is the float
network with an input for each layer, added to its result: it is run with the noise of any layers
and with zeros for the others. Noise is that on float data; what layers do to each other's is left
out, so that sums over many layers are estimates.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from braze.quantization.collect import make_engine, make_runner
from braze.quantization.data import Feed
from braze.quantization.grid import Grid, weight_grid
from braze.quantization.network import Network, Node
from braze.quantization.options import Options
from braze.quantization.placement import Placement
from braze.runtime.engine import Engine

Array = np.ndarray[Any, Any]
_SUFFIX = "__noise"


@dataclass(frozen=True)
class Injection:
    """The float network with noise. noises: by feed, then by layer."""

    engine: Engine
    feeds: list[Feed]
    noises: list[dict[str, Array]]

    def outputs(self, noisy: Collection[str]) -> list[dict[str, Array]]:
        """What it gives for each feed with the noise of some layers."""
        found = []
        for feed, noise in zip(self.feeds, self.noises, strict=True):
            given = {f"{name}{_SUFFIX}": a if name in noisy else np.zeros_like(a)
                     for name, a in noise.items()}  # fmt: skip
            found.append({k: v.copy() for k, v in self.engine({**feed, **given}).items()})
        return found


def make_injection(
    net: Network,
    placement: Placement,
    grids: Mapping[str, Grid],
    options: Options,
    feeds: list[Feed],
    threads: int,
) -> Injection:
    """Both engines, and the noise of each layer on each feed; all feeds have one shape."""
    listening, names = _listening(net, placement, grids, options)
    runner = make_runner(listening, list(names.values()), threads)
    noises = []
    for feed in feeds:
        got = runner(feed)
        noises.append({layer: got[name].copy() for layer, name in names.items()})
    shapes = {name: a.shape for name, a in feeds[0].items()}
    return Injection(make_engine(_injecting(net, noises[0]), threads, shapes), feeds, noises)


def _listening(
    net: Network, placement: Placement, grids: Mapping[str, Grid], options: Options
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """The float model with a second, rounded copy of each layer, and what has the difference."""
    out = Network(net.model)
    nodes = {n.name: n for n in out.graph.node}
    names = {}
    for layer, weight in placement.layers.items():
        node = nodes[layer]
        twin = copy.deepcopy(node)
        twin.name, twin.output[0] = out.fresh(f"{layer}_rounded"), out.fresh(f"{layer}_rounded")
        added = []
        for slot in (0, 1):
            tensor = node.input[slot]
            if weight is not None and slot == weight.slot:
                twin.input[slot] = _rounded_weight(out, tensor, weight.axis, options)
            else:
                added += _rounding(out, twin, slot, grids[placement.root(tensor)])
        names[layer] = out.fresh(f"{layer}{_SUFFIX}")
        added += [twin, helper.make_node("Sub", [twin.output[0], node.output[0]], [names[layer]])]
        out.insert(out.position(node) + 1, added)
    return out.model, names


def _rounded_weight(net: Network, tensor: str, axis: int, options: Options) -> str:
    array = net.constant(tensor)
    assert array is not None
    kind = "e4m3" if options.form == "fp8" else "s8"
    grid = weight_grid(array, axis if options.per_channel else None, kind)
    return net.add_constant(grid.rounded(array), f"{tensor}_rounded")


def _rounding(net: Network, twin: Node, slot: int, grid: Grid) -> list[Node]:
    """Q and DQ in front of an input."""
    tensor = twin.input[slot]
    scale = net.add_constant(grid.scale, f"{tensor}_scale")
    zero = net.add_constant(np.asarray(grid.zero).astype(grid.dtype), f"{tensor}_zero")
    codes, back = net.fresh(f"{tensor}_codes"), net.fresh(f"{tensor}_back")
    twin.input[slot] = back
    return [helper.make_node("QuantizeLinear", [tensor, scale, zero], [codes]),
            helper.make_node("DequantizeLinear", [codes, scale, zero], [back])]  # fmt: skip


def _injecting(net: Network, noise: Mapping[str, Array]) -> onnx.ModelProto:
    """The float model with an input added to the result of each layer."""
    out = Network(net.model)
    nodes = {n.name: n for n in out.graph.node}
    for layer, array in noise.items():
        node = nodes[layer]
        result, name = node.output[0], f"{layer}{_SUFFIX}"
        node.output[0] = out.fresh(f"{result}_clean")
        added = helper.make_node("Add", [node.output[0], name], [result], out.fresh(f"Add_{name}"))
        out.insert(out.position(node) + 1, [added])
        out.graph.input.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(array.shape))
        )
    return out.model
