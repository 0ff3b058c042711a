"""How a layer gets into a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from braze.tensorrt.layer import ILayer
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.network import INetworkDefinition

L = TypeVar("L", bound=ILayer)


class Adding:
    """Base of the parts of INetworkDefinition that add layers."""

    _layers: list[ILayer]

    if TYPE_CHECKING:

        def _tensor(self, name: str, producer: ILayer | None) -> ITensor: ...

        def _complain(self, message: str) -> None: ...

        def _owns(self, tensors: Sequence[ITensor | None], what: str) -> bool: ...

    @property
    def _network(self) -> INetworkDefinition:
        return cast("INetworkDefinition", self)

    def _add(self, kind: type[L], inputs: Sequence[ITensor | None], **values: Any) -> L | None:
        """A layer of a kind with the outputs that it has; None where an input is not the network's.

        Raises TypeError for what is no tensor.
        """
        if not self._owns(inputs, kind.__name__):
            return None
        return self._append(kind(self._network, inputs, **values))

    def _made(self, kind: type[L], **values: Any) -> L:
        """A layer of a kind without inputs, not added yet."""
        return kind(self._network, (), **values)

    def _append(self, layer: L, name: str = "", outputs: Sequence[str] = ()) -> L:
        """Number and name a layer, and give it its outputs."""
        index = len(self._layers)
        layer._number = index
        layer._name = name or f"(Unnamed Layer* {index}) [{layer.word}]"
        names = outputs or _output_names(layer)
        layer._outputs = [self._tensor(n, layer) for n in names]
        self._layers.append(layer)
        return layer

    def _refuse(self, why: str) -> None:
        """Log why a layer is not added; add_* methods return this None."""
        self._complain(why)


def _output_names(layer: ILayer) -> list[str]:
    if layer.outputs == 1:
        return [f"{layer._name}_output"]
    return [f"{layer._name}_output_{i + 1}" for i in range(layer.outputs)]
