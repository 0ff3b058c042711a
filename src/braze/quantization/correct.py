"""Bias correction: what rounding weights adds to the mean of each output is taken off the bias.

Nagel et al., "Data-free quantization through weight equalization and bias correction", ICCV 2019,
with the mean of the data measured where they derive it from batch normalization: an output's error
has the mean  E[(w~ - w) x] = (w~ - w) E[x]. At borders that are padded this is an approximation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from braze.quantization.channels import Channels
from braze.quantization.grid import weight_grid
from braze.quantization.layers import Layer

Array = np.ndarray[Any, Any]


def correct_biases(layers: list[Layer], channels: Channels, per_channel: bool, kind: str) -> int:
    """Change biases; gives how many layers were corrected."""
    done = 0
    for layer in layers:
        mean, w = channels.mean(layer.data), layer.array()
        if mean is None or (w.ndim > 2 and not layer.is_convolution):
            continue
        grid = weight_grid(w, layer.weight.axis if per_channel else None, kind)
        error = grid.rounded(w).astype(np.float64) - w
        done += layer.add_to_bias(-_shift(layer, error, mean))
    return done


def _shift(layer: Layer, error: Array, mean: Array) -> Array:
    if not layer.is_convolution:
        return np.asarray(mean @ error if layer.input_axis == 0 else error @ mean)
    taps = error.reshape(*error.shape[:2], -1).sum(2)  # output by input channel of its group
    by_group = mean.reshape(layer.groups, -1)
    group = np.arange(len(taps)) // (len(taps) // layer.groups)
    return np.asarray((taps * by_group[group]).sum(1))
