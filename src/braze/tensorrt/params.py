"""Attributes of layers: what they accept, and that changing one is noticed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import numpy as np

from braze.tensorrt.dims import Dims, Permutation, as_dims
from braze.tensorrt.numbers import Number
from braze.tensorrt.weights import Weights, as_weights

if TYPE_CHECKING:
    from braze.tensorrt.layer import ILayer

T = TypeVar("T")
E = TypeVar("E", bound=Number)
Convert = Callable[[Any, str], T]


class Param(Generic[T]):
    """An attribute of a layer. convert: value, what it is for -> value as kept, or TypeError."""

    def __init__(self, convert: Convert[T], default: Any, doc: str) -> None:
        self._convert, self._default, self.__doc__ = convert, default, doc
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, layer: None, owner: type) -> Param[T]: ...
    @overload
    def __get__(self, layer: ILayer, owner: type) -> T: ...
    def __get__(self, layer: ILayer | None, owner: type) -> T | Param[T]:
        if layer is None:
            return self
        if self._name not in layer._values:
            # containers are handed out, so each layer has its own
            layer._values[self._name] = self._convert(self._default, self._name)
        value: T = layer._values[self._name]
        return value

    def __set__(self, layer: ILayer, value: Any) -> None:
        converted = self._convert(value, f"{type(layer).__name__}.{self._name}")
        if layer._parsed:
            layer.network._complain(
                f"layer {layer.name!r} is a node of a parsed model, whose {self._name.lstrip('_')} "
                "cannot be changed; change the model"
            )
            return
        layer._values[self._name] = converted
        layer.network._changed(layer)


class WeightsParam(Param[Any]):
    """Weights: set as Weights or an array, read as a flat array (Weights of what numpy lacks)."""

    def __init__(self, doc: str) -> None:
        super().__init__(weights, None, doc)

    def __get__(self, layer: ILayer | None, owner: type) -> Any:
        return self if layer is None else self.kept(layer).numpy()

    def kept(self, layer: ILayer) -> Weights:
        """The Weights themselves."""
        found: Weights = super().__get__(layer, type(layer))
        return found


def whole(value: Any, what: str) -> int:
    """A whole number."""
    if isinstance(value, Number):
        raise TypeError(f"{what}: a whole number is expected, not {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: a whole number is expected, not {value!r}") from None


def real(value: Any, what: str) -> float:
    """A number, as a float32 holds it."""
    if isinstance(value, (int, float, np.number, np.bool_)):
        return float(np.float32(value))
    raise TypeError(f"{what}: a number is expected, not {value!r}")


def precise(value: Any, what: str) -> float:
    """A number, as a float64 holds it."""
    if isinstance(value, (int, float, np.number, np.bool_)):
        return float(value)
    raise TypeError(f"{what}: a number is expected, not {value!r}")


def flag(value: Any, what: str) -> bool:
    """True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{what}: True or False is expected, not {value!r}")


def text(value: Any, what: str) -> str:
    """A string."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{what}: a string is expected, not {value!r}")


def sizes(value: Any, what: str) -> Dims:
    """Dims."""
    return as_dims(value, what)


def order(value: Any, what: str) -> Permutation:
    """A Permutation."""
    if isinstance(value, Permutation) or hasattr(value, "__len__"):
        return Permutation(list(value))
    raise TypeError(f"{what}: a Permutation is expected, not {value!r}")


def weights(value: Any, what: str) -> Weights:
    """Weights."""
    return as_weights(value, what)


def member(enum: type[E]) -> Convert[E]:
    """A member of an enum."""

    def convert(value: Any, what: str) -> E:
        if isinstance(value, enum):
            return value
        raise TypeError(f"{what}: a member of {enum.__name__} is expected, not {value!r}")

    return convert
