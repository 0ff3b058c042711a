"""The host as a device: its memory, and its streams and events by the ints programs hold."""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Final

from braze.runtime.stream import Event, Stream
from braze.shim.errors import Code, DeviceError
from braze.shim.memory import DeviceMemory, copy, fill

# what CUDA calls its default streams: the null stream, the legacy one, that of each thread
DEFAULT_STREAMS: Final = (0, 1, 2)


class HostDevice:
    """Memory, streams and events. Handles of streams and events are the native runtime's."""

    def __init__(self) -> None:
        self.memory = DeviceMemory()
        self._streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
        self._kept: dict[int, Stream] = {}
        self._events: dict[int, Event] = {}
        self._event_numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._here = threading.local()  # .working: whether this thread is that of a stream
        self._to_free: list[int] = []
        self.last_error = threading.local()  # .code: of the thread's last call of the runtime

    # ---- streams ------------------------------------------------------------------------

    def new_stream(self) -> Stream:
        """A stream that lives as long as somebody holds it; `handle_of` has its int."""
        stream = Stream()
        with self._lock:
            self._streams[handle_of(stream)] = stream
        return stream

    def create_stream(self) -> int:
        """The handle of a stream that lives until `destroy_stream`."""
        stream = self.new_stream()
        self._kept[handle_of(stream)] = stream
        return handle_of(stream)

    def destroy_stream(self, handle: int) -> None:
        """Let go of a stream; what it was given is still done."""
        if self._kept.pop(handle, None) is None:
            raise DeviceError(Code.INVALID_HANDLE, f"{handle} is no stream; it may be destroyed")

    def stream(self, handle: int) -> Stream | None:
        """The stream of a handle, None for a default stream; raises DeviceError for neither."""
        if handle in DEFAULT_STREAMS:
            return None
        with self._lock:
            stream = self._streams.get(handle)
        if stream is None:
            raise DeviceError(Code.INVALID_HANDLE, f"{handle} is no stream; it may be destroyed")
        return stream

    def enqueue(self, handle: int, call: Callable[[], None]) -> None:
        """Call a function on a stream; on a default stream at once, after all other work."""
        stream = self.stream(handle)
        if stream is not None:
            stream.call(functools.partial(self._work, call))
            return
        self.synchronize()
        call()

    def _work(self, call: Callable[[], None]) -> None:
        self._here.working = True
        try:
            call()
        finally:
            self._here.working = False

    def synchronize(self) -> None:
        """Wait for all streams; raises the first error since their last synchronization."""
        with self._lock:
            streams = list(self._streams.values())
        errors: list[DeviceError] = []
        for stream in streams:
            try:
                wait(stream)
            except DeviceError as e:
                errors.append(e)
        if errors:
            raise errors[0]

    # ---- events -------------------------------------------------------------------------

    def create_event(self) -> int:
        """The handle of a new event."""
        with self._lock:
            handle = next(self._event_numbers)
            self._events[handle] = Event()
        return handle

    def destroy_event(self, handle: int) -> None:
        """Forget an event."""
        self.event(handle)
        del self._events[handle]

    def event(self, handle: int) -> Event:
        """The event of a handle; raises DeviceError for an unknown one."""
        event = self._events.get(handle)
        if event is None:
            raise DeviceError(Code.INVALID_HANDLE, f"{handle} is no event; it may be destroyed")
        return event

    def record_event(self, handle: int, stream: int) -> None:
        """Mark where a stream is now; the default stream has done everything by then."""
        event, found = self.event(handle), self.stream(stream)
        if found is None:
            self.synchronize()
            event.record(self._default)
            event.synchronize()
        else:
            event.record(found)

    @functools.cached_property
    def _default(self) -> Stream:
        return Stream()  # carries the marks of the default stream, whose work is done at once

    # ---- memory -------------------------------------------------------------------------

    def free(self, address: int) -> None:
        """Give memory back once all work is done, as cudaFree does."""
        if getattr(self._here, "working", False):
            # garbage that was collected on the thread of a stream, which cannot wait for itself
            self._to_free.append(address)
            return
        try:
            self.synchronize()
        finally:
            self.memory.free(address)
            while self._to_free:
                self.memory.free(self._to_free.pop())

    def copy(self, target: int, source: int, size: int, stream: int | None = None) -> None:
        """Copy bytes, at once or in the order of a stream; raises DeviceError for bad addresses."""
        self.require(target, size, "the target of a copy")
        self.require(source, size, "the source of a copy")
        if stream is None:
            self.synchronize()
            copy(target, source, size)
            return
        self.enqueue(stream, lambda: copy(target, source, size))

    def fill(self, target: int, pattern: bytes, count: int, stream: int | None = None) -> None:
        """Write a pattern `count` times, at once or in the order of a stream."""
        self.require(target, len(pattern) * count, "memory to fill")
        if stream is None:
            self.synchronize()
            fill(target, pattern, count)
            return
        self.enqueue(stream, lambda: fill(target, pattern, count))

    def require(self, address: int, size: int, what: str) -> None:
        """Raise DeviceError unless `size` bytes at `address` can be touched."""
        if size < 0 or not self.memory.usable(address, size):
            raise DeviceError(
                Code.INVALID_VALUE,
                f"{what} ({size} bytes at {address:#x}) is no memory of this process, "
                "or longer than its block; it may have been freed",
            )


def handle_of(stream: Stream) -> int:
    """The int that programs know a stream by."""
    return int(stream.handle.value or 0)


def wait(stream: Stream) -> None:
    """Wait for a stream; what its work raised is a launch that failed, as on a GPU."""
    try:
        stream.synchronize()
    except DeviceError:
        raise
    except Exception as e:  # whatever callbacks of the program raised on the stream
        raise DeviceError(Code.LAUNCH_FAILED, str(e) or type(e).__name__) from e


@functools.cache
def host_device() -> HostDevice:
    """The one host device of this process, as every program sees the same GPU 0."""
    return HostDevice()
