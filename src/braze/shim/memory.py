"""Device memory on the host: whole blocks, known by their addresses.

A GPU maps memory in blocks of 2 MiB, and programs come to depend on it: a buffer that is allocated
too small still holds what is copied out of its block. So blocks have that size here too. Pages
that nobody writes take no memory.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any, Final

from braze.shim.errors import Code, DeviceError

GRANULARITY: Final = 2 << 20
PAGE: Final = mmap.PAGESIZE


@dataclass
class _Block:
    """An allocation: the pages behind it, what was asked for, and all that may be touched."""

    pages: mmap.mmap
    asked: int
    size: int


class DeviceMemory:
    """The allocations of one device."""

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._starts: list[int] = []
        self._lock = threading.Lock()

    def allocate(self, size: int) -> int:
        """The address of `size` zeroed bytes at least; raises DeviceError without memory."""
        if not 0 <= size < 1 << 62:
            raise DeviceError(Code.INVALID_VALUE, f"{size} bytes of memory cannot be allocated")
        rounded = max(1, -(-size // GRANULARITY)) * GRANULARITY
        try:
            pages = mmap.mmap(-1, rounded)
        except (OSError, MemoryError, OverflowError, ValueError) as e:
            raise DeviceError(
                Code.OUT_OF_MEMORY, f"no memory for {size} bytes; free some or run smaller shapes"
            ) from e
        start = _address(pages)
        with self._lock:
            self._blocks[start] = _Block(pages, size, rounded)
            insort(self._starts, start)
        return start

    def free(self, address: int) -> None:
        """Give an allocation back; raises DeviceError for an address that is none."""
        with self._lock:
            block = self._blocks.pop(address, None)
            if block is None:
                raise DeviceError(
                    Code.INVALID_VALUE,
                    f"address {address:#x} is not that of an allocation; it may be freed already",
                )
            self._starts.remove(address)
        block.pages.close()

    def room(self, address: int) -> int | None:
        """Bytes from `address` to the end of its block; None where no block holds it."""
        with self._lock:
            at = bisect_right(self._starts, address) - 1
            if at < 0:
                return None
            start = self._starts[at]
            left = start + self._blocks[start].size - address
        return left if left > 0 else None

    def in_use(self) -> int:
        """Bytes of all blocks."""
        with self._lock:
            return sum(block.size for block in self._blocks.values())

    def usable(self, address: int, size: int) -> bool:
        """Whether `size` bytes at `address` can be touched: in one block, or mapped anyhow."""
        room = self.room(address)
        return size <= room if room is not None else is_mapped(address, size)


def is_mapped(address: int, size: int) -> bool:
    """Whether every page of the range belongs to this process."""
    if size == 0:
        return True
    start = address // PAGE * PAGE
    length = address + size - start
    if address <= 0 or address + size >= 1 << 63:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    pages = (ctypes.c_ubyte * -(-length // PAGE))()
    found = libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), pages)
    return bool(found == 0 or ctypes.get_errno() not in (errno.ENOMEM, errno.EINVAL))


def is_writable(address: int, size: int) -> bool:
    """Whether every page of the range may be written, as the system lists them."""
    at, end = address, address + size
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        for line in file:
            place, rights = line.split(maxsplit=2)[:2]
            first, _, last = place.partition("-")
            if int(last, 16) <= at:
                continue
            if int(first, 16) > at or "w" not in rights:
                return False
            at = int(last, 16)
            if at >= end:
                return True
    return at >= end


def copy(target: int, source: int, size: int) -> None:
    """Copy `size` bytes between addresses that were checked; they may overlap."""
    if size:
        ctypes.memmove(target, source, size)


def fill(target: int, pattern: bytes, count: int) -> None:
    """Write `pattern` `count` times to an address that was checked."""
    if len(pattern) == 1:
        ctypes.memset(target, pattern[0], count)
    elif count:
        ctypes.memmove(target, pattern * count, len(pattern) * count)


def _address(pages: mmap.mmap) -> int:
    first: Any = ctypes.c_char.from_buffer(pages)
    return ctypes.addressof(first)  # the view goes with this call, so that the pages can be closed


def total_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * PAGE


def free_memory() -> int:
    """Bytes of memory nobody uses now."""
    return os.sysconf("SC_AVPHYS_PAGES") * PAGE
