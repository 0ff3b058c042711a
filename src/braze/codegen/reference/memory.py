"""The memory of a run: the plan's buffers at their offsets, watched for mistakes of the planner.

Steps read and write the real bytes, so a plan that lets buffers overlap computes wrong numbers
here as it would natively. Beyond that every byte of the arena, of outputs and of buffers with
memory of their own knows the buffer that wrote it last: a step that reads bytes of another buffer,
or bytes nobody wrote, is an error that names both. A buffer that shrinks loses its content, and an
output must be written whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from braze.codegen.reference.bindings import Bindings
from braze.codegen.reference.shapes import Shapes
from braze.core.errors import EngineFormatError, ExecutionError, ShapeError
from braze.engine.plan import Plan
from braze.engine.schema import MIN_ALIGN
from braze.engine.steps import BufferRef

Array = np.ndarray[Any, Any]
NOBODY: Final = -1
POISON: Final = 0xFF  # NaN as a float, -1 as an integer: no result of a right plan


class _Block:
    """Bytes, and who wrote each MIN_ALIGN of them (where buffers start) last."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self.writers: Array = np.full(-(-data.size // MIN_ALIGN), NOBODY, np.int32)


def _fresh(size: int) -> _Block:
    try:
        return _Block(np.full(size, POISON, np.uint8))
    except (MemoryError, ValueError) as e:  # ValueError: more than an address has room for
        raise ExecutionError(
            f"no memory for the {size} bytes of working memory this run needs; "
            "use fewer contexts or smaller shapes"
        ) from e


@dataclass(frozen=True, slots=True)
class View:
    """Bytes of a buffer, in place. block, start: where they lie, None for those not watched."""

    buffer: int
    data: Array
    block: _Block | None = None
    start: int = 0

    def tensor(self, shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> Array:
        """The tensor at its beginning; raises EngineFormatError when it leaves the buffer."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size > self.data.size:
            raise EngineFormatError(
                f"{where}: a tensor of {size} bytes leaves buffer {self.buffer}; "
                "build the engine again"
            )
        return self.data[:size].view(dtype).reshape(shape)

    def part(self, start: int) -> View:
        """The bytes from `start` on."""
        return View(self.buffer, self.data[start:], self.block, self.start + start)

    def check_read(self, size: int, where: str) -> None:
        """Raise EngineFormatError unless this buffer wrote the first `size` bytes last."""
        writers = self._writers(size)
        for writer in np.unique(writers[writers != self.buffer]):
            who = "that no step wrote" if writer == NOBODY else f"that buffer {writer} overwrote"
            raise EngineFormatError(
                f"{where} reads bytes of buffer {self.buffer} {who}; this is a mistake of the "
                "planner, please report it"
            )

    def mark(self, size: int, defined: bool = True) -> None:
        """Note that this buffer's user wrote the first `size` bytes; undefined: nobody may read."""
        self._writers(size)[:] = self.buffer if defined else NOBODY

    def _writers(self, size: int) -> Array:
        if self.block is None or not size:
            return np.empty(0, np.int32)
        return self.block.writers[self.start // MIN_ALIGN : -(-(self.start + size) // MIN_ALIGN)]


class Memory:
    """The buffers of one run. Those of known size are checked to lie in their memory at once."""

    def __init__(self, plan: Plan, shapes: Shapes, bindings: Bindings) -> None:
        self.plan = plan
        self.bindings = bindings
        self._shapes = shapes
        self._profile = plan.profiles[shapes.profile]
        self._own: dict[int, _Block] = {}
        self._outputs: dict[int, _Block] = {}
        self._last_bytes: dict[int, int] = {}  # of buffers in the arena whose size may change
        if plan.stripped:
            raise ExecutionError(
                "the weights of the engine were left out when it was built (stripped); refit it "
                "before it runs"
            )
        # an empty weight may share its offset with the one behind it, which counts
        stored = zip(plan.weights, plan.weight_data, strict=True)
        self._weights = {w.offset: np.frombuffer(d, np.uint8) for w, d in stored if w.bytes}
        for i in range(len(plan.buffers)):
            if not self.is_late(BufferRef(i)):
                self._check_place(i)

    @cached_property
    def _arena(self) -> _Block:
        return _fresh(self._profile.arena_bytes)

    def buffer_bytes(self, buffer: int) -> int:
        """The size of a buffer; raises ShapeError for a negative one."""
        size = self._shapes.at(self.plan.buffers[buffer].bytes)
        if size < 0:
            raise ShapeError(f"buffer {buffer} would have {size} bytes")
        return size

    def is_late(self, ref: BufferRef) -> bool:
        """Whether only the run knows what `ref` stands for."""
        sizes = [self.plan.buffers[ref.buffer].bytes]
        sizes += [ref.displacement] if ref.displacement >= 0 else []
        binding = self.bindings.index_of.get(ref.buffer)
        return self._shapes.is_late(*sizes) or (
            binding is not None and self.bindings.is_late(binding)
        )

    def room(self, ref: BufferRef) -> int:
        """Bytes from the displacement to the buffer's end; raises EngineFormatError if beyond."""
        size = self.buffer_bytes(ref.buffer)
        start = 0 if ref.displacement < 0 else self._shapes.at(ref.displacement)
        if not 0 <= start <= size:
            raise EngineFormatError(
                f"displacement {start} leaves buffer {ref.buffer}; build the engine again"
            )
        return size - start

    def view(self, ref: BufferRef) -> View:
        """The bytes `ref` stands for, from its displacement to the buffer's end."""
        size = self.buffer_bytes(ref.buffer)
        start = size - self.room(ref)
        self._check_place(ref.buffer)
        kind = self.plan.buffers[ref.buffer].kind
        if kind == "arena":
            block, first = self._arena_block(ref.buffer, size)
            return View(ref.buffer, block.data[first + start : first + size], block, first + start)
        if kind == "weight":
            return View(ref.buffer, self._weight(ref.buffer)[start:size])
        if kind == "output":
            block = self._output_block(ref.buffer)
            return View(ref.buffer, block.data[start:size], block, start)
        memory = self.bindings.memory(self.bindings.index_of[ref.buffer])
        return View(ref.buffer, memory[start:size])

    def finish(self) -> None:
        """End a run; raises EngineFormatError for an output that was not written whole."""
        self.bindings.finish()
        for b in self.plan.outputs:
            block = self._output_block(b.buffer)
            whole = View(b.buffer, block.data, block)
            whole.check_read(block.data.size, f"output '{b.name}': the caller")

    def _output_block(self, buffer: int) -> _Block:
        """The tensor of an output; what was written is forgotten when it gets other memory."""
        memory = self.bindings.memory(self.bindings.index_of[buffer])
        block = self._outputs.get(buffer)
        same = block is not None and block.data.size == memory.size
        if block is None or not same or address(block.data) != address(memory):
            block = self._outputs[buffer] = _Block(memory)
        return block

    def _check_place(self, buffer: int) -> None:
        """Raise EngineFormatError unless a buffer lies in its memory."""
        b, size = self.plan.buffers[buffer], self.buffer_bytes(buffer)
        if b.kind in ("input", "output"):
            if size > self.bindings.bytes_of(self.bindings.index_of[buffer]):
                raise EngineFormatError(
                    f"buffer {buffer} is larger than the tensor bound to it; build the engine again"
                )
            return
        if b.kind == "arena":
            offset, room = self._profile.offsets[buffer], self._profile.arena_bytes
        else:
            offset, room = b.offset, b.offset + self._weight(buffer).size
        if offset >= 0 and offset + size > room:
            raise EngineFormatError(
                f"buffer {buffer} of the engine ({size} bytes at {offset}) lies outside its memory "
                f"of {room} bytes; build the engine again"
            )

    def _weight(self, buffer: int) -> Array:
        return self._weights.get(self.plan.buffers[buffer].offset, np.empty(0, np.uint8))

    def _arena_block(self, buffer: int, size: int) -> tuple[_Block, int]:
        """Where an arena buffer of `size` bytes lies; it keeps its content only when it grows."""
        offset = self._profile.offsets[buffer]
        if offset < 0:
            block = self._own.get(buffer)
            if block is None or block.data.size != size:
                before, block = block, _fresh(size)
                if before is not None and before.data.size < size:
                    block.data[: before.data.size] = before.data
                    block.writers[: before.writers.size] = before.writers
                self._own[buffer] = block
            return block, 0
        last_bytes = self._last_bytes.setdefault(buffer, size)
        self._last_bytes[buffer] = size
        if last_bytes > size:
            last = -(-(offset + last_bytes) // MIN_ALIGN)
            writers = self._arena.writers[offset // MIN_ALIGN : last]
            writers[writers == buffer] = NOBODY
        return self._arena, offset


def address(array: Array) -> int:
    """Where the elements of `array` start."""
    return int(array.__array_interface__["data"][0])


def overlap(a: Array, b: Array) -> bool:
    """Whether two contiguous arrays share bytes."""
    first, second = address(a), address(b)
    return a.nbytes > 0 and b.nbytes > 0 and first < second + b.nbytes and second < first + a.nbytes
