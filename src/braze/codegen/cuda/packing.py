"""Constant operands rearranged at build time into what the templates read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from braze.core.errors import CompileError
from braze.fusion.kernel import Packing


def pack_constant(array: NDArray[Any], packing: Packing) -> NDArray[Any]:
    """`array` in the layout `packing` asks for, flat; raises CompileError for another backend's."""
    parameters = dict(packing.parameters)
    if packing.kind == "taps":
        return pack_taps(array, parameters["groups"])
    raise CompileError(
        f"packing {packing.kind!r} is not known to the CUDA backend; rebuild the engine"
    )


def pack_taps(weight: NDArray[Any], groups: int) -> NDArray[Any]:
    """[K, C/g, *kernel] -> [g][tap][input channel][output channel], flat."""
    out_channels, in_channels = weight.shape[:2]
    taps = weight.reshape(groups, out_channels // groups, in_channels, -1)
    return np.ascontiguousarray(taps.transpose(0, 3, 2, 1)).reshape(-1)
