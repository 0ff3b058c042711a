"""Tensors and sizes as functions of `tensorrt.plugin` see them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from braze.tensorrt.enums_plugin import DimensionOperation
from braze.tensorrt.enums_runtime import DataType, TensorFormat
from braze.tensorrt.plugin_fields import IDimensionExpr, IExprBuilder

_O = DimensionOperation


class ShapeExpr:
    """A size with arithmetic."""

    def __init__(self, value: Any = None) -> None:
        self.expr = value if isinstance(value, IDimensionExpr) else IDimensionExpr(value)

    @property
    def is_constant(self) -> bool:
        """Whether it is a number."""
        return self.expr.is_constant()

    def constant_value(self) -> int:
        """The number; ValueError where only the run knows it."""
        value = self.expr.get_constant_value()
        if value is None:
            raise ValueError("the size is not a constant; only the run knows it")
        return value

    def clone(self) -> ShapeExpr:
        """The same size."""
        return ShapeExpr(self.expr)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        known = self.expr.get_constant_value()
        return f"ShapeExpr({'?' if known is None else known})"


def _operator(op: DimensionOperation, swap: bool = False) -> Callable[[ShapeExpr, Any], ShapeExpr]:
    def apply(self: ShapeExpr, other: Any) -> ShapeExpr:
        a, b = self, other if isinstance(other, ShapeExpr) else ShapeExpr(int(other))
        a, b = (b, a) if swap else (a, b)
        return ShapeExpr(IExprBuilder().operation(op, a.expr, b.expr))

    return apply


for _name, _op in (("add", _O.SUM), ("mul", _O.PROD), ("sub", _O.SUB), ("floordiv", _O.FLOOR_DIV)):
    setattr(ShapeExpr, f"__{_name}__", _operator(_op))
    setattr(ShapeExpr, f"__r{_name}__", _operator(_op, swap=True))
ShapeExpr.__eq__ = _operator(_O.EQUAL)  # type: ignore[assignment,method-assign]
setattr(ShapeExpr, "__lt__", _operator(_O.LESS))  # noqa: B010


def _function(op: DimensionOperation, doc: str) -> Callable[[Any, Any], ShapeExpr]:
    def apply(first: Any, second: Any) -> ShapeExpr:
        start = first if isinstance(first, ShapeExpr) else ShapeExpr(int(first))
        return _operator(op)(start, second)

    apply.__doc__ = doc
    return apply


cdiv = _function(_O.CEIL_DIV, "A quotient of sizes, rounded up.")
max_of = _function(_O.MAX, "The larger size.")
min_of = _function(_O.MIN, "The smaller size.")


class ShapeExprs:
    """The sizes of a tensor."""

    def __init__(self, sizes: Iterable[Any] | int = ()) -> None:
        given = [1] * sizes if isinstance(sizes, int) else list(sizes)
        self._sizes = [s if isinstance(s, ShapeExpr) else ShapeExpr(s) for s in given]

    def numel(self) -> ShapeExpr:
        """How many elements there are."""
        total = ShapeExpr(1)
        for size in self._sizes:
            total = _operator(_O.PROD)(total, size)
        return total

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[ShapeExpr]:
        return iter(self._sizes)

    def __getitem__(self, index: int) -> ShapeExpr:
        return self._sizes[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self._sizes[index] = value if isinstance(value, ShapeExpr) else ShapeExpr(value)


class TensorDesc:
    """A tensor while a network is built."""

    def __init__(self, shape_expr: Any = None, dtype: Any = None) -> None:
        self.shape_expr = ShapeExprs(shape_expr if shape_expr is not None else ())
        self.dtype: Any = dtype
        self.format, self.scale = TensorFormat.LINEAR, None

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape_expr)

    @property
    def is_size_tensor(self) -> bool:
        """Whether it is a size: none is."""
        return False

    def like(self) -> TensorDesc:
        """Another one of its sizes and type."""
        return TensorDesc([s.clone() for s in self.shape_expr], self.dtype)

    def aliased(self) -> TensorDesc:
        """Another one that may lie where this one does; here it has memory of its own."""
        return self.like()

    def has_shape(self) -> bool:
        """Whether all sizes are numbers."""
        return all(s.is_constant for s in self.shape_expr)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, where all are numbers."""
        return tuple(s.constant_value() for s in self.shape_expr)


class Tensor:
    """A tensor in a run: numpy and torch take it for an array of the same memory."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: DataType) -> None:
        self.array, self.dtype = array, dtype
        self.format, self.scale = TensorFormat.LINEAR, None
        self.__array_interface__ = array.__array_interface__

    @property
    def data_ptr(self) -> int:
        """Where it lies."""
        return int(self.array.ctypes.data)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return tuple(self.array.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one place of an axis to the next."""
        return tuple(s // self.array.itemsize for s in self.array.strides)

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return self.array.ndim

    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


class AutoTuneCombination:
    """Types and formats that an implementation takes, and tactics to choose from.

    io_types: names of types of all tensors, inputs first: "FP32|FP16, FP32|FP16".
    """

    def __init__(
        self, io_types: str | None = None, formats: str | None = None, tactics: Any = ()
    ) -> None:
        self._types: dict[int, frozenset[str]] = {}
        self._linear: dict[int, bool] = {}
        self._tactics = [int(t) for t in tactics or ()]
        for place, types in enumerate((io_types or "").split(",") if io_types else ()):
            self._types[place] = frozenset(t.strip() for t in types.split("|"))
        given = (formats or "").split(",") if formats else []
        for place in self._types if given else ():
            own = given[place if len(given) > 1 else 0]
            self._linear[place] = "LINEAR" in own.split("|") or "LINEAR" in own

    def pos(self, pos: Any, io_types: str, formats: str = "LINEAR") -> None:
        """What the tensors at some places take."""
        for place in pos if hasattr(pos, "__len__") else (pos,):
            self._types[int(place)] = frozenset(t.strip() for t in io_types.split("|"))
            self._linear[int(place)] = "LINEAR" in formats

    def tactics(self, tactics: Any) -> None:
        """The tactics to choose from."""
        self._tactics = [int(t) for t in tactics]

    @property
    def first_tactic(self) -> int:
        """The tactic that runs: the first; 0 where there is none."""
        return self._tactics[0] if self._tactics else 0

    def takes(self, types: list[str]) -> bool:
        """Whether linear tensors of these types fit."""
        return all(
            (place not in self._types or name in self._types[place])
            and self._linear.get(place, True)
            for place, name in enumerate(types)
        )
