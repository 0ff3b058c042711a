"""Which tensors decide sizes: those that layers read shapes from, and what these are made of."""

from __future__ import annotations

from collections.abc import Sequence

from braze.tensorrt.enums_layers import LayerType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.tensor import ITensor

# the sizes of what Shape reads decide something, never its content
_NO_CONTENT = (LayerType.SHAPE,)


def decides_sizes(tensor: ITensor, layers: Sequence[ILayer]) -> bool:
    """Whether any layer takes a size from the content of a tensor."""
    deciding: set[ITensor] = set()
    for layer in reversed(layers):
        decided = not deciding.isdisjoint(layer._outputs) and layer._type not in _NO_CONTENT
        for index, source in enumerate(layer._inputs):
            if source is not None and (decided or index in layer._shape_inputs):
                deciding.add(source)
        if tensor in deciding:
            return True
    return False
