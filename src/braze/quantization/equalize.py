"""Cross-layer equalization: give the channels between two layers like ranges on both sides.

Nagel et al., "Data-free quantization through weight equalization and bias correction", ICCV 2019.
Where nothing but functions with f(s x) = s f(x) stand between two layers, output channel i of the
first may be divided, and input channel i of the second multiplied, by any s_i > 0. With

    s_i = sqrt(r1_i / r2_i)

the largest weights r1_i and r2_i of the channel become equal. Pairs are gone through until the
factors are near 1. It is for weights with one scale for all channels; data gains too.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from braze.quantization.layers import Layer
from braze.quantization.network import Network, attribute

Array = np.ndarray[Any, Any]
SWEEPS: Final = 20
CLOSE: Final = 1e-3
_HOMOGENEOUS: Final = ("Relu", "LeakyRelu", "MaxPool", "AveragePool", "Identity")


def equalize(net: Network, layers: list[Layer]) -> int:
    """Change weights and biases; gives how many pairs were equalized."""
    pairs = [pair for layer in layers if (pair := _pair(net, layer, layers)) is not None]
    for _ in range(SWEEPS):
        if max((_equalized(a, b) for a, b in pairs), default=0.0) < CLOSE:
            break
    return len(pairs)


def _pair(net: Network, second: Layer, layers: list[Layer]) -> tuple[Layer, Layer] | None:
    """The layer in front, where nothing else reads what is between and channels match."""
    tensor = second.data
    while net.only_reader(tensor) is not None:
        node = net.producer.get(tensor)
        if node is None:
            return None
        first = next((x for x in layers if x.node is node), None)
        if first is not None:
            return (first, second) if _fit(first, second) else None
        if node.op_type not in _HOMOGENEOUS or len([o for o in node.output if o]) != 1:
            return None
        tensor = node.input[0]
    return None


def _fit(first: Layer, second: Layer) -> bool:
    outputs = first.array().shape[first.weight.axis]
    if first.is_convolution != second.is_convolution or first.bias() is None:
        return False
    if first.node.op_type == "Gemm" and attribute(first.node, "alpha", 1.0) != 1.0:
        return False
    if second.groups > 1:
        return second.array().shape[1] == 1 and bool(second.groups == outputs)
    return bool(second.array().shape[second.input_axis] == outputs)


def _equalized(first: Layer, second: Layer) -> float:
    """One step; gives how far the largest factor was from 1."""
    w1, w2, bias = first.array(), second.array(), first.bias()
    axis2 = 0 if second.groups > 1 else second.input_axis
    r1, r2 = _sizes(w1, first.weight.axis), _sizes(w2, axis2)
    there = (r1 > 0) & (r2 > 0)
    s = np.sqrt(np.divide(r1, r2, out=np.ones_like(r1), where=there))
    first.set_array(w1 / _along(s, w1.ndim, first.weight.axis))
    second.set_array(w2 * _along(s, w2.ndim, axis2))
    if bias is not None and bias.any():
        first.set_bias(bias / s)
    return float(np.abs(s - 1).max())


def _sizes(w: Array, axis: int) -> Array:
    others = tuple(a for a in range(w.ndim) if a != axis)
    return np.asarray(np.abs(w).max(axis=others), np.float64)


def _along(s: Array, rank: int, axis: int) -> Array:
    return s.reshape([-1 if a == axis else 1 for a in range(rank)])
