"""From what a user passes to memory the native runtime can read, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import addressof, c_char
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from braze.core.dtypes import BF16, DType
from braze.core.elements import relabelled
from braze.core.errors import DTypeError, ExecutionError

OUTPUT_ALIGN: Final = 64
NO_NUMBERS: Final = "OSUMm"  # kinds of numpy's types: objects, texts and times

Array = npt.NDArray[Any]


def as_input(name: str, dtype: DType, storage: np.dtype[Any], value: Any) -> Array:
    """`value` as a contiguous array of `storage`, dtype's numpy type; no copy if it is one already.

    Values are never converted between types: that could hide a mistake. Numbers and lists of them
    have a type only as arrays. bfloat16 is an array of
    ml_dtypes.bfloat16; uint16 bit patterns are taken too.
    """
    array = value if isinstance(value, np.ndarray) else _converted(name, value)
    if type(array) is not np.ndarray:
        _refuse_masks(f"input {name!r}", array)
    if array.dtype != storage:
        array = relabelled(array, dtype)
        if array.dtype != storage:
            _reject(name, dtype, array, value)
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    with memory_for(f"a contiguous copy of input {name!r}", array.nbytes):
        copied: Array = array.copy(order="C")
    return copied


@contextmanager
def memory_for(what: str, size: int) -> Iterator[None]:
    """Turns running out of memory into an ExecutionError that says what `size` bytes were for."""
    try:
        yield
    except MemoryError as e:
        raise ExecutionError(
            f"no memory for {what} ({size} bytes); free some memory or run smaller shapes"
        ) from e


def _refuse_masks(what: str, array: Any) -> None:
    """Raise DTypeError for an array with masked elements, whose numbers mean nothing."""
    if np.ma.is_masked(array):
        raise DTypeError(
            f"{what} is an array with masked elements, which no model has; fill them with "
            "array.filled(number)"
        )


def _converted(name: str, value: Any) -> Array:
    try:
        with memory_for(f"input {name!r} as an array", sys.getsizeof(value)):
            return np.asarray(value)
    except ExecutionError:
        raise
    except Exception as e:  # whatever the conversions of other libraries raise
        raise DTypeError(f"input {name!r} is no array ({e}); give a numpy array") from e


def _reject(name: str, dtype: DType, array: Array, given: Any) -> None:
    if array.dtype.kind in NO_NUMBERS or array.dtype.names:
        what = type(given).__name__
        if isinstance(given, np.ndarray):
            what = f"an array of {array.dtype}"
        raise DTypeError(
            f"input {name!r} is {what}, which holds no numbers; give an array of {dtype}"
        )
    if not hasattr(given, "dtype"):
        raise DTypeError(
            f"input {name!r} is {type(given).__name__}, whose numbers become {array.dtype}; give "
            f"numpy.asarray(..., {dtype.numpy.name!r})"
        )
    if array.dtype.newbyteorder("=") == dtype.numpy:
        raise DTypeError(
            f"input {name!r} is in byte order {array.dtype.byteorder!r}, not the machine's; "
            "convert it with array.astype(array.dtype.newbyteorder('='))"
        )
    hint = " of ml_dtypes" if dtype is BF16 else ""
    raise DTypeError(
        f"input {name!r} has element type {array.dtype} but the engine takes {dtype}{hint}; "
        f"convert it with array.astype({dtype.numpy.name!r})"
    )


def address_of(array: Array) -> int:
    """Where the elements of `array`, which is contiguous, start.

    By its buffer, which takes a third of the time that numpy needs to describe an array; those that
    are read-only, empty or of a type without one are described.
    """
    try:
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return int(array.__array_interface__["data"][0])


def empty_output(
    name: str, shape: tuple[int, ...], storage: np.dtype[Any], size: int
) -> tuple[Array, int]:
    """A new array of `size` bytes at an address that is a multiple of 64, and that address.

    Raises ExecutionError, naming the tensor, when there is no memory.
    """
    try:  # not memory_for: this is on the way of every run
        raw = np.empty(size + OUTPUT_ALIGN, np.uint8)
    except (MemoryError, ValueError) as e:  # ValueError: more bytes than an address has room for
        raise ExecutionError(
            f"no memory for output {name!r} of {size} bytes; free some memory or run smaller shapes"
        ) from e
    start = addressof(c_char.from_buffer(raw))  # type: ignore[arg-type]
    offset = -start % OUTPUT_ALIGN
    return np.ndarray(shape, storage, raw, offset), start + offset
