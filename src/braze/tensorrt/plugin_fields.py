"""What plugins are told of tensors and sizes, and the fields they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_plugin import DimensionOperation, PluginFieldType
from braze.tensorrt.enums_runtime import DataType, TensorFormat
from braze.tensorrt.params import member, text, whole

_FIELD_TYPES: Final = {
    np.dtype(np.float16): PluginFieldType.FLOAT16,
    np.dtype(np.float32): PluginFieldType.FLOAT32,
    np.dtype(np.float64): PluginFieldType.FLOAT64,
    np.dtype(np.int8): PluginFieldType.INT8,
    np.dtype(np.int16): PluginFieldType.INT16,
    np.dtype(np.int32): PluginFieldType.INT32,
    np.dtype(np.int64): PluginFieldType.INT64,
}


class FallbackString(str):
    """A string; what may be one is taken for one."""


class PluginField:
    """An attribute of a plugin: a name, and an array."""

    def __init__(
        self, name: str = "", data: Any = None, type: PluginFieldType = PluginFieldType.UNKNOWN
    ) -> None:
        self.name = text(name, "PluginField")
        self.data = data
        kind = member(PluginFieldType)(type, "PluginField")
        if kind is PluginFieldType.UNKNOWN and isinstance(self.data, np.ndarray):
            kind = _FIELD_TYPES.get(self.data.dtype, kind)
        self.type = kind

    name: str
    type: PluginFieldType

    @property
    def data(self) -> Any:
        """The content, as an array where it is one."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value

    @property
    def size(self) -> int:
        """How many elements it has."""
        return 0 if self.data is None else int(np.size(self.data))


class PluginFieldCollection(list[PluginField]):
    """Fields; it behaves like a list."""


class PluginFieldCollection_(PluginFieldCollection):
    """Fields as a creator lists them."""


class NodeIndices(list[int]):
    """Places of nodes; it behaves like a list."""


class SubGraphCollection(list[tuple[list[int], bool]]):
    """Groups of nodes, and whether they are supported; it behaves like a list."""


class PluginTensorDesc:
    """A tensor as a plugin is told of it."""

    dims: Dims
    type: DataType
    format: TensorFormat
    scale: float

    def __init__(self) -> None:
        self.dims, self.type = Dims(), DataType.FLOAT
        self.format, self.scale = TensorFormat.LINEAR, 1.0


class DynamicPluginTensorDesc:
    """A tensor whose sizes are between bounds."""

    desc: PluginTensorDesc
    min: Dims
    opt: Dims
    max: Dims

    def __init__(self) -> None:
        self.desc = PluginTensorDesc()
        self.min, self.opt, self.max = Dims(), Dims(), Dims()


# ---- arithmetic on sizes ----------------------------------------------------------------


class IDimensionExpr:
    """A size: a number, or one that only the run knows.

    how: where it comes from, as JSON holds it: ["const", n], ["axis", input, axis], or the name of
    a DimensionOperation and two of these; None for what the plugin itself gives.
    """

    def __init__(self, value: int | None, how: list[Any] | None = None, sizes: bool = False):
        self._value, self._sizes = value, sizes
        self.how = ["const", value] if how is None and value is not None else how

    def is_constant(self) -> bool:
        """Whether it is a number."""
        return self._value is not None

    def get_constant_value(self) -> int | None:
        """The number, or None."""
        return self._value

    def is_size_tensor(self) -> bool:
        """Whether the plugin gives it when it runs."""
        return self._sizes


class DimsExprs:
    """Sizes of a tensor: DimsExprs(count), or of a sequence."""

    def __init__(self, sizes: Iterable[IDimensionExpr] | int = ()) -> None:
        if isinstance(sizes, int):
            self._sizes = [IDimensionExpr(0) for _ in range(sizes)]
        else:
            self._sizes = list(sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, index: int) -> IDimensionExpr:
        return self._sizes[index]

    def __setitem__(self, index: int, value: IDimensionExpr) -> None:
        self._sizes[index] = value


class IExprBuilder:
    """Arithmetic on sizes."""

    def __init__(self) -> None:
        return None

    def constant(self, value: int) -> IDimensionExpr:
        """A number."""
        return IDimensionExpr(whole(value, "constant"))

    def operation(
        self, op: DimensionOperation, first: IDimensionExpr, second: IDimensionExpr
    ) -> IDimensionExpr:
        """An operation on two sizes."""
        kind = member(DimensionOperation)(op, "operation")
        a, b = first.get_constant_value(), second.get_constant_value()
        known = None if a is None or b is None else int(_OPERATIONS[kind](a, b))
        if known is not None or first.how is None or second.how is None:
            return IDimensionExpr(known)
        return IDimensionExpr(None, [kind.name, first.how, second.how])

    def declare_size_tensor(
        self, output_index: int, opt: IDimensionExpr, upper: IDimensionExpr
    ) -> IDimensionExpr:
        """A size that the plugin gives as one of its outputs."""
        whole(output_index, "declare_size_tensor")
        return IDimensionExpr(None, sizes=True)


_O = DimensionOperation
_OPERATIONS: Final[dict[DimensionOperation, Any]] = {
    _O.SUM: lambda a, b: a + b,
    _O.PROD: lambda a, b: a * b,
    _O.MAX: max,
    _O.MIN: min,
    _O.SUB: lambda a, b: a - b,
    _O.EQUAL: lambda a, b: a == b,
    _O.LESS: lambda a, b: a < b,
    _O.FLOOR_DIV: lambda a, b: a // b,
    _O.CEIL_DIV: lambda a, b: -(-a // b),
}


def evaluate(how: Sequence[Any], shapes: Sequence[Sequence[int]]) -> int:
    """A size (`IDimensionExpr.how`) for shapes of the inputs."""
    if how[0] == "const":
        return int(how[1])
    if how[0] == "axis":
        return int(shapes[how[1]][how[2]])
    a, b = (evaluate(part, shapes) for part in how[1:])
    return int(_OPERATIONS[DimensionOperation[how[0]]](a, b))


class ISymExpr:
    """An argument of a kernel, as a plugin that brings kernels says it."""

    def __init__(self) -> None:
        self.type, self.dtype, self.expr = None, None, None


class ISymExprs:
    """Arguments of a kernel."""

    nbSymExprs: int

    def __init__(self, count: int = 0) -> None:
        self._held: list[ISymExpr | None] = [None] * count
        self.nbSymExprs = count

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, index: int) -> ISymExpr | None:
        return self._held[index]

    def __setitem__(self, index: int, value: ISymExpr) -> None:
        self._held[index] = value


class KernelLaunchParams:
    """How a kernel of a plugin is launched."""

    grid_x: Any
    grid_y: Any
    grid_z: Any
    block_x: Any
    block_y: Any
    block_z: Any
    shared_mem: Any

    def __init__(self) -> None:
        self.grid_x = self.grid_y = self.grid_z = 1
        self.block_x = self.block_y = self.block_z = 1
        self.shared_mem = 0
