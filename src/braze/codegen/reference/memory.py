"""The memory of a run: the plan's buffers at their offsets, watched for mistakes of the planner.

Kernels read and write the real bytes, so a plan that lets buffers overlap computes wrong numbers
here as it would natively. Beyond that every arena byte knows the buffer that wrote it last: a
step that reads bytes of another buffer, or bytes nobody wrote, is an error that names both.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.codegen.reference.shapes import Shapes
from braze.core.errors import EngineFormatError, ShapeError
from braze.engine.plan import Plan
from braze.engine.schema import MIN_ALIGN
from braze.engine.steps import BufferRef

Array = np.ndarray[Any, Any]
NOBODY: Final = -1
POISON: Final = 0xFF  # NaN as a float, -1 as an integer: no result of a right plan


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


class Memory:
    """The buffers of one run."""

    def __init__(self, plan: Plan, shapes: Shapes, bound: Sequence[Span]) -> None:
        """bound: memory of the inputs, then of the outputs, checked to be large enough."""
        self.plan = plan
        profile = plan.profiles[shapes.profile]
        self._arena = np.full(profile.arena_bytes, POISON, np.uint8)
        self._writer = np.full(-(-profile.arena_bytes // MIN_ALIGN), NOBODY, np.int32)
        self._offsets = profile.offsets
        self._sizes = shapes.sizes
        # an empty weight may share its offset with the one behind it, which counts
        stored = zip(plan.weights, plan.weight_data, strict=True)
        weights = {w.offset: np.frombuffer(d, np.uint8) for w, d in stored if w.bytes}
        spans = {
            b.buffer: s for b, s in zip((*plan.inputs, *plan.outputs), bound, strict=True)
        }  # fmt: skip
        self._bytes: list[Array] = []
        for i, buffer in enumerate(plan.buffers):
            size = shapes.sizes[buffer.bytes]
            if size < 0:
                raise ShapeError(f"buffer {i} would have {size} bytes")
            if buffer.kind == "arena":
                start = profile.offsets[i]
                memory = self._arena[start : start + size]
            elif buffer.kind == "weight":
                memory = weights.get(buffer.offset, np.empty(0, np.uint8))[:size]
            else:
                memory = spans[i].array()[:size]
            if memory.size != size:
                raise EngineFormatError(
                    f"buffer {i} of the engine ({size} bytes) lies outside its memory; "
                    "build the engine again"
                )
            self._bytes.append(memory)

    def bytes_of(self, ref: BufferRef) -> Array:
        """The bytes `ref` stands for, from its displacement to the buffer's end."""
        start = 0 if ref.displacement < 0 else self._sizes[ref.displacement]
        if not 0 <= start <= self._bytes[ref.buffer].size:
            raise EngineFormatError(
                f"displacement {start} leaves buffer {ref.buffer}; build the engine again"
            )
        return self._bytes[ref.buffer][start:]

    def tensor(
        self, ref: BufferRef, shape: tuple[int, ...], dtype: np.dtype[Any], where: str
    ) -> Array:
        """The tensor at `ref`, in place; raises EngineFormatError when it leaves its buffer."""
        memory = self.bytes_of(ref)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size > memory.size:
            raise EngineFormatError(
                f"{where}: a tensor of {size} bytes leaves buffer {ref.buffer}; "
                "build the engine again"
            )
        return memory[:size].view(dtype).reshape(shape)

    def check_read(self, ref: BufferRef, tensor: Array, where: str) -> None:
        """Raise EngineFormatError unless every byte of `tensor` was last written as its buffer."""
        writers = self._granules(ref, tensor)
        if writers is None:
            return
        for writer in np.unique(writers[writers != ref.buffer]):
            who = "that no step wrote" if writer == NOBODY else f"that buffer {writer} overwrote"
            raise EngineFormatError(
                f"{where} reads bytes of buffer {ref.buffer} {who}; this is a mistake of the "
                "planner, please report it"
            )

    def mark_written(self, ref: BufferRef, tensor: Array) -> None:
        """Note who wrote these bytes."""
        writers = self._granules(ref, tensor)
        if writers is not None:
            writers[:] = ref.buffer

    def _granules(self, ref: BufferRef, tensor: Array) -> Array | None:
        """The writers of a tensor's bytes, one for MIN_ALIGN bytes (where buffers start)."""
        if self._offsets[ref.buffer] < 0 or not tensor.size:
            return None
        start = address(tensor) - address(self._arena)
        return self._writer[start // MIN_ALIGN : -(-(start + tensor.nbytes) // MIN_ALIGN)]


def address(array: Array) -> int:
    """Where the elements of `array` start."""
    return int(array.__array_interface__["data"][0])


def overlap(a: Array, b: Array) -> bool:
    """Whether two contiguous arrays share bytes."""
    first, second = address(a), address(b)
    return a.nbytes > 0 and b.nbytes > 0 and first < second + b.nbytes and second < first + a.nbytes
