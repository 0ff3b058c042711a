"""ITensor: an input of a network or what a layer gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braze.tensorrt.deprecation import warn_deprecated
from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_runtime import DataType, TensorFormat, TensorLocation
from braze.tensorrt.params import member, precise, sizes, text, whole

if TYPE_CHECKING:
    from braze.tensorrt.layer import ILayer
    from braze.tensorrt.network import INetworkDefinition

ALL_FORMATS = (1 << (max(map(int, TensorFormat)) + 1)) - 1


class ITensor:
    """A tensor of a network. Shapes and types of what layers give are inferred when asked for."""

    def __init__(
        self, network: INetworkDefinition, number: int, name: str, producer: ILayer | None
    ) -> None:
        self._network, self._number, self._name = network, number, name
        self._producer = producer
        self._declared_shape = Dims()  # of a network input
        self._dtype: DataType | None = None  # as set: of a network input, or an output
        self._own_dtype: DataType | None = None  # of a network input, as it was added
        self._axis_names: dict[int, str] = {}
        self._location = TensorLocation.DEVICE
        self._formats = ALL_FORMATS
        self._range: tuple[float, float] | None = None
        self._broadcast = False

    @property
    def name(self) -> str:
        """What the tensor is called; inputs and outputs are found by it."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = text(value, "ITensor.name")

    @property
    def shape(self) -> Dims:
        """The sizes, -1 for those that only the run knows; a copy."""
        if self._producer is None:
            return sizes(self._declared_shape, "shape")
        return self._network._shape_of(self)

    @shape.setter
    def shape(self, value: Dims) -> None:
        if self._producer is not None:
            self._network._complain(f"tensor {self.name!r}: only a network input takes a shape")
            return
        self._declared_shape = sizes(value, "ITensor.shape")
        self._network._changed(None)

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return self._dtype or self._network._dtype_of(self)

    @dtype.setter
    def dtype(self, value: DataType) -> None:
        self._dtype = member(DataType)(value, "ITensor.dtype")
        if self._producer is None:
            self._network._changed(None)

    @property
    def location(self) -> TensorLocation:
        """Where the tensor lies in a run."""
        return self._location

    @location.setter
    def location(self, value: TensorLocation) -> None:
        self._location = member(TensorLocation)(value, "ITensor.location")

    @property
    def allowed_formats(self) -> int:
        """Bits of the TensorFormats that the tensor may have as an input or output."""
        return self._formats

    @allowed_formats.setter
    def allowed_formats(self, value: int) -> None:
        self._formats = whole(value, "ITensor.allowed_formats")

    @property
    def is_network_input(self) -> bool:
        """Whether it is an input of the network."""
        return self in self._network._inputs

    @property
    def is_network_output(self) -> bool:
        """Whether it is marked as an output of the network."""
        return self in self._network._outputs or self in self._network._shape_outputs

    @property
    def is_shape_tensor(self) -> bool:
        """Whether sizes depend on its content."""
        return self._network._decides_sizes(self)

    @property
    def is_execution_tensor(self) -> bool:
        """Whether the run computes it for more than sizes."""
        return not self.is_shape_tensor or self.is_network_output

    # ---- names of axes ------------------------------------------------------------------

    def set_dimension_name(self, index: int, name: str) -> None:
        """Name an axis of a network input; axes of one name have one size."""
        place = whole(index, "set_dimension_name")
        self._axis_names[place] = text(name, "set_dimension_name")
        self._network._changed(None)

    def get_dimension_name(self, index: int) -> str | None:
        """What an axis of a network input is called, or None."""
        return self._axis_names.get(whole(index, "get_dimension_name"))

    # ---- deprecated ---------------------------------------------------------------------

    @property
    def dynamic_range(self) -> tuple[float, float] | None:
        """The range of the values, for quantization; None where none is set."""
        return self._range

    @dynamic_range.setter
    def dynamic_range(self, value: tuple[float, float]) -> None:
        warn_deprecated("ITensor.dynamic_range", "10.1", "Q/DQ layers")
        ends = tuple(value)
        if len(ends) != 2:
            raise ValueError("Dynamic range must contain exactly 2 elements")
        if not self._set_range(*ends):
            raise ValueError("Error in set dynamic range")

    def set_dynamic_range(self, min: float, max: float) -> bool:
        """Set the range of the values; False where it is none."""
        warn_deprecated("ITensor.set_dynamic_range", "10.1", "Q/DQ layers")
        return self._set_range(min, max)

    def _set_range(self, low: float, high: float) -> bool:
        low, high = precise(low, "dynamic range"), precise(high, "dynamic range")
        if not low <= high:
            self._network._complain(f"tensor {self.name!r}: the range {low}, {high} is empty")
            return False
        self._range = (low, high)
        return True

    def get_dynamic_range(self) -> float | None:
        """The larger end of the range, as releases before 8 gave it."""
        return None if self._range is None else max(map(abs, self._range))

    def reset_dynamic_range(self) -> None:
        """Take the range back."""
        self._range = None

    @property
    def broadcast_across_batch(self) -> bool:
        """Of networks with an implicit batch: whether all of a batch share it."""
        return self._broadcast

    @broadcast_across_batch.setter
    def broadcast_across_batch(self, value: bool) -> None:
        self._broadcast = bool(value)

    def __repr__(self) -> str:
        return f"<ITensor {self.name!r}>"
