"""What a caller passes, inputs and memory, checked against what an engine takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

import numpy as np

from braze.core.errors import BindingError, ShapeError
from braze.runtime.arguments import memory_range
from braze.runtime.arrays import Array, address_of, as_input
from braze.runtime.loaded import TensorRow

NO_INPUTS: Final[Mapping[str, Any]] = MappingProxyType({})


def input_arrays(rows: Sequence[TensorRow], inputs: Mapping[str, Any]) -> list[Array]:
    """The array for each input of an engine, contiguous and of its element type.

    Raises what `ordered` and `host_array` raise.
    """
    values = ordered(rows, inputs)
    return [host_array(row, value) for row, value in zip(rows, values, strict=True)]


def ordered(rows: Sequence[TensorRow], inputs: Mapping[str, Any]) -> list[Any]:
    """What was passed for each input; raises BindingError for names that are missing or unknown."""
    if type(inputs) is not dict and not isinstance(inputs, Mapping):
        raise BindingError(
            f"inputs must be a dict of arrays by input name, not {type(inputs).__name__}; "
            f"the engine takes the inputs {[row.name for row in rows]}"
        )
    try:
        values = [inputs[row.name] for row in rows]
    except KeyError:
        _reject_names(rows, inputs)
    if len(inputs) != len(values):
        _reject_names(rows, inputs)
    return values


def is_ready(row: TensorRow, value: Any) -> bool:
    """Whether `host_array` gives `value` itself: a quick answer for most of what is passed."""
    if type(value) is not np.ndarray or value.dtype != row.storage or value.ndim != row.rank:
        return False
    flags = value.flags
    return flags.c_contiguous and flags.aligned


def host_array(row: TensorRow, value: Any) -> Array:
    """`value` as an array for an input; raises what `as_input` raises, and ShapeError for another
    number of axes.
    """
    array = as_input(row.name, row.dtype, row.storage, value)
    if array.ndim != row.rank:
        raise ShapeError(
            f"input {row.name!r} has shape {array.shape} but the engine takes "
            f"{row.rank} axes; reshape it"
        )
    return array


def _reject_names(rows: Sequence[TensorRow], inputs: Mapping[str, Any]) -> NoReturn:
    expected = [row.name for row in rows]
    missing = [name for name in expected if name not in inputs]
    extra = [name for name in inputs if name not in expected]
    raise BindingError(
        f"the engine takes the inputs {expected}"
        + (f"; missing: {missing}" if missing else "")
        + (f"; unknown: {extra}" if extra else "")
    )


@dataclass(frozen=True, slots=True)
class PassedMemory:
    """Memory for a tensor; `keep` owns it where that is not the caller's business."""

    keep: Any
    address: int
    nbytes: int
    shape: tuple[int, ...] | None = None  # of an array; an address has none


def passed_memory(row: TensorRow, memory: Array | int, size: int | None = None) -> PassedMemory:
    """The memory to bind to a tensor: an array, or an address with a size in bytes.

    Raises BindingError, and what `as_input` raises for an array of another type.
    """
    if isinstance(memory, int):
        if size is None:
            raise BindingError(f"binding {row.name!r} to an address needs its size in bytes")
        return PassedMemory(None, *memory_range(row.name, memory, size))
    array = as_input(row.name, row.dtype, row.storage, memory)
    same = isinstance(memory, np.ndarray) and address_of(array) == address_of(memory)
    if row.is_output and not same:
        raise BindingError(f"output {row.name!r} needs a contiguous, aligned array")
    return PassedMemory(array, address_of(array), array.nbytes, array.shape)


def check_bound_shape(row: TensorRow, bound: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Raise ShapeError for an array that is bound to a tensor of another shape in this run.

    Arrays of one axis are flat memory for tensors of other ranks. What is too small, or has a size
    that only the run knows, is the runtime's to refuse.
    """
    flat = len(bound) == 1 and row.rank != 1
    small = math.prod(bound) < math.prod(shape)
    if bound != shape and not (flat or small or row.shape_from_run):
        kind = "output" if row.is_output else "input"
        raise ShapeError(
            f"{kind} {row.name!r} has shape {shape} in this run but is bound to an array of "
            f"{bound}; bind one of that shape, or a flat one with room for it"
        )
