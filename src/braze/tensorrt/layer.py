"""ILayer: what all layers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from braze.tensorrt.enums_layers import LayerType
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.params import member, text, whole
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter
    from braze.tensorrt.network import INetworkDefinition


# attributes of layers that are none of the API
_INNER = frozenset(
    [
        "layer_type",
        "word",
        "outputs",
        "shape_inputs",
        "most_inputs",
        "is_parsed",
        "network",
        "lower",
        "roles",
        "seen",
    ]
)


class ILayer:
    """A layer of a network.

    A class of layers says its type, the word of it in default names, how many outputs it has, which
    inputs decide sizes, and how it is said in ONNX (`lower`).
    """

    layer_type: ClassVar[LayerType]
    word: ClassVar[str]
    outputs: ClassVar[int] = 1
    shape_inputs: ClassVar[tuple[int, ...]] = ()
    most_inputs: ClassVar[int] = 1  # inputs that set_input may give
    is_parsed: ClassVar[bool] = False  # whether it is a node of a parsed model

    def __init__(
        self, network: INetworkDefinition, inputs: Sequence[ITensor | None], **values: Any
    ) -> None:
        self.network = network
        self._type, self._most_inputs = self.layer_type, self.most_inputs
        self._shape_inputs, self._parsed = self.shape_inputs, self.is_parsed
        self._inputs = list(inputs)
        self._values: dict[str, Any] = {}
        self._outputs: list[ITensor] = []
        self._name, self._metadata = "", ""
        self._number = 0  # in its network, which gives it
        self._precision: DataType | None = None
        self._output_types: dict[int, DataType] = {}
        for name, value in values.items():
            getattr(type(self), name)  # a misspelt one is a bug of ours
            self._values[name] = getattr(type(self), name)._convert(value, name)

    def lower(self, emit: Emitter) -> None:
        """Say the layer in ONNX: nodes by `emit.node`, results by `emit.give`."""
        raise NotImplementedError

    def __dir__(self) -> list[str]:
        """The names of the API alone: tools list what a layer has beside them."""
        return [n for n in super().__dir__() if n not in _INNER and (n[0] != "_" or n[:2] == "__")]

    def seen(self) -> ILayer:
        """The layer as `INetworkDefinition.get_layer` gives it: a plain ILayer over the same data.

        Its `type` is the LayerType; scripts assign the class of that type to `__class__`.
        """
        view = ILayer.__new__(ILayer)
        view.__dict__ = self.__dict__
        return view

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ILayer) and self.__dict__ is other.__dict__

    def __hash__(self) -> int:
        return id(self.__dict__)

    def roles(self) -> dict[str, Weights]:
        """The weights of the layer by role (a name of WeightsRole)."""
        return {}

    def _kept(self, name: str) -> Weights:
        """The weights of an attribute, which programs read as arrays."""
        found: Weights = getattr(type(self), name).kept(self)
        return found

    def _read(self) -> list[ITensor | None]:
        """All tensors that it reads."""
        return self._inputs

    # ---- inputs and outputs -------------------------------------------------------------

    @property
    def type(self) -> LayerType:
        """What kind of layer it is."""
        return self._type

    @property
    def name(self) -> str:
        """What the layer is called."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = text(value, "ILayer.name")

    @property
    def metadata(self) -> str:
        """A note that the inspector shows."""
        return self._metadata

    @metadata.setter
    def metadata(self, value: str) -> None:
        self._metadata = text(value, "ILayer.metadata")

    @property
    def num_inputs(self) -> int:
        """How many inputs it has."""
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        """How many outputs it has."""
        return len(self._outputs)

    def get_input(self, index: int) -> ITensor | None:
        """An input, or None."""
        place = whole(index, "get_input")
        return self._inputs[place] if 0 <= place < len(self._inputs) else None

    def get_output(self, index: int) -> ITensor | None:
        """An output, or None."""
        place = whole(index, "get_output")
        return self._outputs[place] if 0 <= place < len(self._outputs) else None

    def set_input(self, index: int, tensor: ITensor) -> None:
        """Replace an input, or give one that stands for an attribute."""
        place = whole(index, "set_input")
        if not self.network._owns([tensor], f"set_input of layer {self.name!r}"):
            return
        if not 0 <= place < max(self._most_inputs, len(self._inputs)):
            self.network._complain(f"layer {self.name!r} has no input {place}")
            return
        self._inputs += [None] * (place + 1 - len(self._inputs))
        self._inputs[place] = tensor
        self.network._changed(self)

    # ---- types --------------------------------------------------------------------------

    @property
    def precision(self) -> DataType:
        """The type the layer computes in, where the configuration obeys or prefers it."""
        return DataType.FLOAT if self._precision is None else self._precision

    @precision.setter
    def precision(self, value: DataType) -> None:
        kind = member(DataType)(value, "ILayer.precision")
        if self.network._is_typed("a precision of a layer"):
            return
        self._precision = kind

    @property
    def precision_is_set(self) -> bool:
        """Whether a precision is set."""
        return self._precision is not None

    def reset_precision(self) -> None:
        """Take the precision back."""
        self._precision = None

    def set_output_type(self, index: int, dtype: DataType) -> None:
        """Set the type of an output."""
        place, kind = whole(index, "set_output_type"), member(DataType)(dtype, "set_output_type")
        if not 0 <= place < len(self._outputs):
            self.network._complain(f"layer {self.name!r} has no output {place}")
        elif not self.network._is_typed("a type of an output"):
            self._output_types[place] = kind
            self.network._changed(self)

    def get_output_type(self, index: int) -> DataType:
        """The type of an output, as set or inferred."""
        place = whole(index, "get_output_type")
        if place in self._output_types or not 0 <= place < len(self._outputs):
            return self._output_types.get(place, DataType.FLOAT)
        return self._outputs[place].dtype

    def output_type_is_set(self, index: int) -> bool:
        """Whether the type of an output is set."""
        return whole(index, "output_type_is_set") in self._output_types

    def reset_output_type(self, index: int) -> None:
        """Take the type of an output back."""
        if self._output_types.pop(whole(index, "reset_output_type"), None) is not None:
            self.network._changed(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
