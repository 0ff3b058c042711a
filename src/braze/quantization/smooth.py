"""SmoothQuant: move what is hard to quantize from channels of the data into the weights.

Xiao et al., "SmoothQuant: accurate and efficient post-training quantization for large language
models", ICML 2023: channel j of the data is divided by

    s_j = max|x_j|^alpha / max|w_j|^(1 - alpha)

and row j of every weight that multiplies it is multiplied by it. The division goes into the scale
and shift of a LayerNormalization in front, where only these products read it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from onnx import helper

from braze.quantization.channels import Channels
from braze.quantization.layers import Layer
from braze.quantization.network import Network

Array = np.ndarray[Any, Any]
LEAST: Final = 1e-5  # of maxima and factors, against division by what is next to nothing


def smoothed(layers: list[Layer]) -> dict[str, list[Layer]]:
    """Tensors that can be smoothed, and the matrix products that multiply each."""
    found: dict[str, list[Layer]] = {}
    for layer in layers:
        if not layer.is_convolution and layer.array().ndim == 2:
            found.setdefault(layer.data, []).append(layer)
    return found


def smooth(net: Network, layers: list[Layer], channels: Channels, alpha: float) -> list[str]:
    """Change weights and what is in front of them; gives the tensors that were smoothed."""
    done = []
    for tensor, readers in smoothed(layers).items():
        size = channels.sizes.get(tensor)
        if size is None or len(size) != readers[0].array().shape[readers[0].input_axis]:
            continue
        weight = np.max([_rows(layer) for layer in readers], axis=0)
        s = np.maximum(size, LEAST) ** alpha / np.maximum(weight, LEAST) ** (1 - alpha)
        s = np.where((size > 0) & (weight > 0), np.maximum(s, LEAST), 1.0)
        for layer in readers:
            layer.set_array(layer.array() * (s[:, None] if layer.input_axis == 0 else s))
        _divide(net, tensor, readers, s)
        done.append(tensor)
    net.reindex()
    return done


def _rows(layer: Layer) -> Array:
    return np.asarray(np.abs(layer.array()).max(axis=1 - layer.input_axis), np.float64)


def _divide(net: Network, tensor: str, readers: list[Layer], s: Array) -> None:
    """Divide the data: in the norm that makes it, else by a node of its own."""
    node = net.producer.get(tensor)
    names = {layer.node.name for layer in readers}
    alone = tensor not in net.outputs and all(n.name in names for n in net.readers[tensor])
    if node is not None and node.op_type == "LayerNormalization" and alone:
        held = [net.constant(name) for name in node.input[1:] if name]
        if held and all(a is not None and a.shape == s.shape for a in held):
            for slot, a in enumerate(held, 1):
                assert a is not None
                name = f"{node.name}_smooth"
                node.input[slot] = net.add_constant((a / s).astype(np.float32), name)
            return
    out = net.fresh(f"{tensor}_smooth")
    factor = net.add_constant((1 / s).astype(np.float32), f"{tensor}_smooth_factor")
    mul = helper.make_node("Mul", [tensor, factor], [out], net.fresh(f"Mul_{out}"))
    net.insert(0 if node is None else net.position(node) + 1, [mul])
    for layer in readers:
        layer.node.input[0] = out
