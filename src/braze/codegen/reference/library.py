"""Copies and the routines of the library "braze" in numpy (native/src/library.cc)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from braze.codegen.reference.memory import View, overlap
from braze.core.dtypes import DType
from braze.core.elements import numbers
from braze.core.errors import EngineFormatError, EngineVersionError, TargetError
from braze.engine.checks import require
from braze.engine.plan import Plan
from braze.engine.records import ELEMENTS
from braze.engine.steps import LibraryCall
from braze.ops.index.topk import sorted_order

Array = np.ndarray[Any, Any]


class Routine(Protocol):
    """What a library call runs: reads, writes: how many buffers, in this order; params: sizes."""

    reads: ClassVar[int]
    writes: ClassVar[int]
    params: ClassVar[int]

    def sizes(self, params: Sequence[int], rooms: Sequence[int]) -> tuple[int, ...]:
        """Bytes it may use of each buffer; raises EngineFormatError for one without the room."""

    def run(self, views: Sequence[View], params: Sequence[int], where: str) -> None:
        """Raises EngineFormatError where a buffer is too small or holds what nobody wrote."""


@dataclass(frozen=True, slots=True)
class TopK:
    """values, places = the first k of every row of n in sorted order; the last is scratch memory.

    Of equal elements the first comes first; NaN is larger than every number.
    """

    reads: ClassVar[int] = 1
    writes: ClassVar[int] = 3
    params: ClassVar[int] = 3
    dtype: DType
    largest: bool

    def sizes(self, params: Sequence[int], rooms: Sequence[int]) -> tuple[int, ...]:
        """See Routine.sizes."""
        rows, n, k = params
        element = self.dtype.itemsize
        need_bytes(k <= n)
        return (
            need(rooms[0], rows, n, element), need(rooms[1], rows, k, element),
            need(rooms[2], rows, k, 8), need(rooms[3], n, 8),
        )  # fmt: skip

    def run(self, views: Sequence[View], params: Sequence[int], where: str) -> None:
        """See Routine.run."""
        rows, n, k = params
        sizes = self.sizes(params, [v.data.size for v in views])
        views[0].check_read(sizes[0], where)
        check_apart(views, sizes, self.reads, where)
        x = views[0].data[: sizes[0]].view(self.dtype.numpy).reshape(rows, n)
        order = sorted_order(numbers(x, self.dtype), 1, self.largest)[:, :k]
        write(views[1], np.take_along_axis(x, order, 1))
        write(views[2], order.astype(np.int64))
        views[3].mark(sizes[3], defined=False)


@dataclass(frozen=True, slots=True)
class NonZero:
    """places[count], count = where the n elements are not zero; places has room for all n."""

    reads: ClassVar[int] = 1
    writes: ClassVar[int] = 2
    params: ClassVar[int] = 1
    dtype: DType

    def sizes(self, params: Sequence[int], rooms: Sequence[int]) -> tuple[int, ...]:
        """See Routine.sizes."""
        (n,) = params
        return need(rooms[0], n, self.dtype.itemsize), need(rooms[1], n, 8), need(rooms[2], 8)

    def run(self, views: Sequence[View], params: Sequence[int], where: str) -> None:
        """See Routine.run."""
        sizes = self.sizes(params, [v.data.size for v in views])
        views[0].check_read(sizes[0], where)
        check_apart(views, sizes, self.reads, where)
        x = numbers(views[0].data[: sizes[0]].view(self.dtype.numpy), self.dtype)
        found = np.flatnonzero(x).astype(np.int64)
        views[1].mark(sizes[1], defined=False)
        write(views[1], found)
        write(views[2], np.array([found.size], np.int64))


def find_routine(plan: Plan, step: LibraryCall) -> Routine:
    """The routine of a library call; raises TargetError, EngineFormatError, EngineVersionError."""
    if step.library != "braze":
        raise _unknown(step, "library")
    if step.routine not in ("topk", "nonzero"):
        raise _unknown(step, "routine")
    kind = TopK if step.routine == "topk" else NonZero
    _check_form(plan, step, kind)
    dtype = _dtype(step)
    routine: Routine = NonZero(dtype)
    if kind is TopK:
        routine = TopK(dtype, _attribute(step, "largest", bool, "true or false"))
    if dtype.is_narrow:  # nothing compares these
        raise _unknown(step, "routine for this element type")
    return routine


def copy_sizes(params: Sequence[int], rooms: Sequence[int]) -> tuple[int, ...]:
    """Routine.sizes of a copy, whose only param is the bytes."""
    return need(rooms[0], params[0]), need(rooms[1], params[0])


def copy(source: View, target: View, size: int, where: str) -> None:
    """Copy `size` bytes, which may overlap; raises EngineFormatError as Routine.run does."""
    copy_sizes((size,), (source.data.size, target.data.size))
    source.check_read(size, where)
    write(target, source.data[:size].copy())


def write(view: View, values: Array) -> None:
    """Put the bytes of `values` at the beginning of a view."""
    view.data[: values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    view.mark(values.nbytes)


def need(room: int, *factors: int) -> int:
    """The product of counts and an element size; raises EngineFormatError if it does not fit."""
    need_bytes(min(factors) >= 0)
    size = int(np.prod(np.array(factors, object)))
    need_bytes(size <= room)
    return size


def need_bytes(enough: bool) -> None:
    """Raise EngineFormatError unless `enough`."""
    if not enough:
        raise EngineFormatError(
            "a buffer of a copy or library call is too small for what it does; "
            "build the engine again"
        )


def check_apart(views: Sequence[View], sizes: Sequence[int], reads: int, where: str) -> None:
    """Raise EngineFormatError where what a call writes overlaps what it reads or writes."""
    parts = [view.data[:size] for view, size in zip(views, sizes, strict=True)]
    for i in range(reads, len(parts)):
        for j in range(i):
            if overlap(parts[i], parts[j]):
                raise EngineFormatError(
                    f"{where}: buffers {i} and {j} of the call overlap; this is a mistake of the "
                    "planner, please report it"
                )


def _check_form(plan: Plan, step: LibraryCall, kind: type[TopK] | type[NonZero]) -> None:
    where = f"library call {step.name}"
    require(len(step.buffers) == kind.reads + kind.writes, where, "the number of buffers is wrong")
    require(len(step.params) == kind.params, where, "the number of params is wrong")
    for ref in step.buffers[kind.reads :]:
        writable = plan.buffers[ref.buffer].kind in ("arena", "output")
        require(writable, where, "it writes to a buffer that is only read")


def _attribute(step: LibraryCall, name: str, kind: type, what: str) -> Any:
    if name not in step.attributes:
        raise EngineFormatError(
            f"the engine's attributes of a library call lacks {name}; build the engine again"
        )
    value = step.attributes[name]
    if not isinstance(value, kind):
        raise EngineFormatError(f"the engine's {name} is not {what}; build the engine again")
    return value


def _dtype(step: LibraryCall) -> DType:
    name = _attribute(step, "dtype", str, "a text")
    if name not in ELEMENTS:
        raise EngineVersionError(
            f"the engine's dtype is '{name}', which this braze does not know; upgrade braze"
        )
    return ELEMENTS[name]


def _unknown(step: LibraryCall, what: str) -> TargetError:
    return TargetError(
        f"the engine calls {step.routine} of library {step.library} in step '{step.name}', but "
        f"this runtime has no such {what}; use a runtime that has it or build the engine for this "
        "one"
    )
