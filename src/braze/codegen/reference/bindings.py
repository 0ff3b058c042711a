"""Memory of the caller: what a run checks of it, and outputs whose shape only the run knows.

The rules and messages are those of the native runtime (native/src/run_memory.cc).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.codegen.reference.shapes import Shapes, tensor_bytes
from braze.core.errors import BindingError, ExecutionError, ShapeError
from braze.engine.content import pack_content
from braze.engine.plan import Plan

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """Memory given for a binding."""

    address: int
    bytes: int

    def array(self) -> Array:
        """Its bytes; the caller keeps them alive."""
        if not self.bytes:
            return np.empty(0, np.uint8)
        memory = (ctypes.c_ubyte * self.bytes).from_address(self.address)
        return np.frombuffer(memoryview(memory), np.uint8)


NO_MEMORY: Final = Span(0, 0)
# called with the number of an output (outputs count from 0), its shape and its bytes
Allocate = Callable[[int, tuple[int, ...], int], Span]


class Bindings:
    """The inputs, then the outputs, of one run."""

    def __init__(self, plan: Plan, shapes: Shapes) -> None:
        """Raises ShapeError for shapes that a tensor cannot have."""
        self._rows = (*plan.inputs, *plan.outputs)
        self._inputs = len(plan.inputs)
        self._shapes = shapes
        self._contents = [pack_content(b.dtype, b.value) for b in self._rows]
        self.index_of = {b.buffer: i for i, b in enumerate(self._rows)}
        self._given: Sequence[Span] = ()
        self._allocate: Allocate | None = None
        self._spans: dict[int, Span] = {}  # those checked
        self._sizes: dict[int, tuple[tuple[int, ...], int]] = {}  # shape and bytes
        for i, (b, content) in enumerate(zip(self._rows, self._contents, strict=True)):
            if self.is_late(i):
                continue
            size = self._measure(i)[1]
            if content and len(content) != size:
                raise ShapeError(
                    f"input '{b.name}' has {size} bytes but the engine was specialised to a "
                    f"content of {len(content)}; pass the shape it was built with"
                )

    def is_late(self, index: int) -> bool:
        """Whether only the run knows the shape."""
        return self._shapes.is_late(*self._rows[index].shape)

    def bind(self, given: Sequence[Span], allocate: Allocate | None) -> None:
        """Take and check the memory; allocate makes it for outputs without. Raises BindingError."""
        self._given, self._allocate = given, allocate
        for i in range(len(self._rows)):
            if not self.is_late(i):
                self._spans[i] = self._taken(i)
        self._check_overlap()

    def bytes_of(self, index: int) -> int:
        """The bytes of the tensor, whose shape is known."""
        return self._measure(index)[1]

    def memory(self, index: int) -> Array:
        """The bytes of the tensor; a late one gets memory when its shape is new."""
        shape, size = self._measure(index)
        if self.is_late(index) and self._sizes.get(index) != (shape, size):
            span = self._taken(index)
            for other, taken in self._spans.items():
                if other != index and _overlap(span, size, taken, self._sizes[other][1]):
                    raise self._overlaps(index, other)
            self._spans[index] = span
            self._sizes[index] = shape, size
        return self._spans.get(index, NO_MEMORY).array()[:size]

    def finish(self) -> None:
        """End a run: every late output has the memory of its last shape."""
        for i in range(self._inputs, len(self._rows)):
            if self.is_late(i):
                self.memory(i)

    def _measure(self, index: int) -> tuple[tuple[int, ...], int]:
        if not self.is_late(index) and index in self._sizes:
            return self._sizes[index]
        b = self._rows[index]
        shape = self._shapes.shape(b.shape)
        measured = shape, tensor_bytes(shape, b.dtype, b.name)
        if not self.is_late(index):
            self._sizes[index] = measured
        return measured

    def _taken(self, index: int) -> Span:
        b, content = self._rows[index], self._contents[index]
        shape, size = self._measure(index)
        span = self._given[index]
        if not span.address and self._allocate is not None and index >= self._inputs:
            span = self._allocate(index - self._inputs, shape, size)
        if span.bytes < size:
            raise BindingError(
                f"tensor '{b.name}' has {span.bytes} bytes of memory but needs {size}; "
                "bind a larger buffer"
            )
        if size and not span.address:
            raise BindingError(f"tensor '{b.name}' is bound to no memory")
        if span.address % b.dtype.itemsize:
            raise BindingError(f"the memory of tensor '{b.name}' is not aligned to its elements")
        if content and span.array()[:size].tobytes() != content:
            raise ExecutionError(
                f"input '{b.name}' differs from the constant content the engine was built "
                "for; pass that content or build the engine again"
            )
        return span

    def _check_overlap(self) -> None:
        """Sorted by address, an overlap shows against what reaches furthest so far."""
        furthest = furthest_output = (0, -1)  # its end, and which binding
        by_address = sorted((s.address, i) for i, s in self._spans.items() if self._sizes[i][1])
        for begin, i in by_address:
            is_output = i >= self._inputs
            end, before = furthest if is_output else furthest_output
            if begin < end:
                raise self._overlaps(i, before)
            here = (begin + self._sizes[i][1], i)
            furthest = max(furthest, here)
            if is_output:
                furthest_output = max(furthest_output, here)

    def _overlaps(self, a: int, b: int) -> BindingError:
        return BindingError(
            f"the memory of tensor '{self._rows[a].name}' overlaps that of "
            f"'{self._rows[b].name}', and one of them is an output; give each output memory of "
            "its own"
        )


def _overlap(a: Span, a_bytes: int, b: Span, b_bytes: int) -> bool:
    met = a.address < b.address + b_bytes and b.address < a.address + a_bytes
    return a_bytes > 0 and b_bytes > 0 and met
