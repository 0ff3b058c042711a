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
    waiting = [
        source
        for layer in layers
        for index in layer._shape_inputs
        if (source := layer.get_input(index)) is not None
    ]
    deciding: set[ITensor] = set()
    while waiting:
        found = waiting.pop()
        if found is tensor:
            return True
        if found not in deciding:
            deciding.add(found)
            producer = found._producer
            if producer is not None and producer._type not in _NO_CONTENT:
                waiting += [t for t in producer._read() if t is not None]
    return False
