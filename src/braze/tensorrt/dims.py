"""Sizes as TensorRT passes them: Dims and its fixed lengths, and Permutation."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, overload

from braze.tensorrt.numbers import Number

MAX_DIMS: Final = 8


class DimensionType(Number):
    """What an axis is, in releases to 7."""

    SPATIAL = 0
    CHANNEL = 1
    INDEX = 2
    SEQUENCE = 3


def whole_numbers(values: Any, what: str) -> list[int]:
    """The elements of a sequence as ints; TypeError for anything else."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(f"{what}: a sequence of whole numbers is expected, not {values!r}")
    try:
        return [operator.index(v) for v in values]
    except TypeError:
        message = f"{what}: a sequence of whole numbers is expected, not {values!r}"
        raise TypeError(message) from None


class _Numbers:
    """A list of whole numbers of fixed length."""

    def __init__(self, values: list[int]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._values))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return tuple(self._values)[index]

    def __setitem__(self, index: int | slice, value: Any) -> None:
        if not isinstance(index, slice):
            self._values[index] = operator.index(value)
            return
        places = range(len(self))[index]
        for place, item in zip(places, whole_numbers(value, "slice of Dims"), strict=True):
            self._values[place] = item

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, tuple, _Numbers)):
            return NotImplemented
        return list(other) == self._values

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return repr(tuple(self._values))


class Dims(_Numbers):
    """Up to eight sizes, which behave like a tuple; -1 is a size that only the run knows."""

    MAX_DIMS: ClassVar[int] = MAX_DIMS
    _kinds: ClassVar[tuple[DimensionType, ...]] = ()  # of the first axes
    _length: ClassVar[int | None] = None  # of the subclass, if it has one

    def __init__(self, *sizes: Any, shape: Any = None) -> None:
        name, length = type(self).__name__, self._length
        if shape is not None or (len(sizes) == 1 and length != 1):
            values = whole_numbers(sizes[0] if shape is None else shape, name)
        elif length is not None and len(sizes) in (0, length):
            values = whole_numbers(sizes or (0,) * length, name)
        elif sizes:
            raise TypeError(f"{name} takes a sequence of sizes, not {len(sizes)} arguments")
        else:
            values = []
        if len(values) > MAX_DIMS:
            raise ValueError(f"{len(values)} sizes are given, {name} holds {MAX_DIMS} at most")
        if length is not None and len(values) != length:
            raise ValueError(f"{len(values)} sizes are given, {name} holds {length}")
        super().__init__(values)

    def get_type(self, index: int) -> DimensionType:
        """What an axis is, as releases to 7 told: SPATIAL unless the class says otherwise."""
        kinds = (*self._kinds, *[DimensionType.SPATIAL] * MAX_DIMS)
        return kinds[range(len(self))[index]]


class Dims2(Dims):
    """Two sizes."""

    _length = 2


class Dims3(Dims):
    """Three sizes."""

    _length = 3


class Dims4(Dims):
    """Four sizes."""

    _length = 4


class DimsHW(Dims2):
    """Height and width."""

    def __init__(self, *sizes: Any, shape: Any = None, **named: Any) -> None:
        if named:
            sizes = (*sizes, *(named.pop(k) for k in ("h", "w") if k in named))
        if named:
            raise TypeError(f"DimsHW has no argument {next(iter(named))!r}; give h and w")
        super().__init__(*sizes, shape=shape)

    @property
    def h(self) -> int:
        """The height."""
        return self[0]

    @h.setter
    def h(self, value: int) -> None:
        self[0] = value

    @property
    def w(self) -> int:
        """The width."""
        return self[1]

    @w.setter
    def w(self, value: int) -> None:
        self[1] = value


def _size(place: int, what: str) -> Any:
    def get(dims: Dims) -> int:
        return dims[place]

    def put(dims: Dims, value: int) -> None:
        dims[place] = value

    return property(get, put, doc=what)


class DimsCHW(Dims3):
    """Channels, height and width, as releases before 8 called them."""

    _kinds = (DimensionType.CHANNEL,)
    c = _size(0, "The channels.")
    h = _size(1, "The height.")
    w = _size(2, "The width.")


class DimsNCHW(Dims4):
    """Batch, channels, height and width, as releases before 8 called them."""

    _kinds = (DimensionType.INDEX, DimensionType.CHANNEL)
    n = _size(0, "The batch.")
    c = _size(1, "The channels.")
    h = _size(2, "The height.")
    w = _size(3, "The width.")


class Permutation(_Numbers):
    """An order of axes: axis i of the result is axis `permutation[i]` of the input."""

    def __init__(self, order: Sequence[int] = ()) -> None:
        values = whole_numbers(order, "Permutation")
        if len(values) > MAX_DIMS:
            raise ValueError(f"{len(values)} axes are given, Permutation holds {MAX_DIMS} at most")
        # without an order it is as long as it can be, as unused places do not count
        super().__init__(values if len(values) else list(range(MAX_DIMS)))


def as_dims(value: Any, what: str) -> Dims:
    """What may stand for Dims, as Dims: a copy; TypeError for anything else."""
    return Dims(whole_numbers(value, what))
