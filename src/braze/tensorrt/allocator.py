"""Allocators that scripts write: of device memory, and of outputs."""

from __future__ import annotations

from typing import Any

from braze.tensorrt.versioned import IVersionedInterface


class IGpuAllocator(IVersionedInterface):
    """Allocates device memory; derive from it and override all five methods."""

    def __init__(self) -> None:
        return None

    def allocate(self, size: int, alignment: int, flags: int) -> int | None:
        """The address of new memory, or None."""
        raise NotImplementedError("IGpuAllocator.allocate is to be overridden")

    def reallocate(self, address: int, alignment: int, new_size: int) -> int | None:
        """The address of memory that was resized, or None."""
        raise NotImplementedError("IGpuAllocator.reallocate is to be overridden")

    def deallocate(self, memory: int) -> bool:
        """Give memory back; allocators for releases to 9 have `free` for it."""
        if type(self).free is IGpuAllocator.free:
            raise NotImplementedError("IGpuAllocator.deallocate is to be overridden")
        self.free(memory)
        return True

    def free(self, memory: int) -> None:
        """Give memory back, as it was called up to release 9."""
        self.deallocate(memory)

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int | None:
        """New memory in the order of a stream."""
        return self.allocate(size, alignment, flags)

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Give memory back in the order of a stream."""
        return self.deallocate(memory)


class IGpuAsyncAllocator(IGpuAllocator):
    """The same for allocators that work in the order of a stream."""

    def allocate(self, size: int, alignment: int, flags: int) -> int | None:
        """New memory on the default stream."""
        return self.allocate_async(size, alignment, flags, 0)

    def deallocate(self, memory: int) -> bool:
        """Give memory back on the default stream."""
        return self.deallocate_async(memory, 0)

    def allocate_async(self, size: int, alignment: int, flags: int, stream: int) -> int | None:
        """New memory in the order of a stream."""
        raise NotImplementedError("IGpuAsyncAllocator.allocate_async is to be overridden")

    def deallocate_async(self, memory: int, stream: int) -> bool:
        """Give memory back in the order of a stream."""
        raise NotImplementedError("IGpuAsyncAllocator.deallocate_async is to be overridden")


class IOutputAllocator:
    """Gives outputs their memory when their sizes are known; derive from it."""

    def __init__(self) -> None:
        return None

    def reallocate_output(
        self, tensor_name: str, memory: int, size: int, alignment: int
    ) -> int | None:
        """The address of at least `size` bytes; None where there are none."""
        raise NotImplementedError("IOutputAllocator.reallocate_output is to be overridden")

    def reallocate_output_async(
        self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
    ) -> int | None:
        """The same, in the order of a stream."""
        return self.reallocate_output(tensor_name, memory, size, alignment)

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        """Hear of the shape of an output."""
        raise NotImplementedError("IOutputAllocator.notify_shape is to be overridden")
