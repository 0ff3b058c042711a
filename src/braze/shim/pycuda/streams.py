"""Streams and events of `pycuda.driver`."""

from __future__ import annotations

from braze.runtime.stream import Event as _Event
from braze.runtime.stream import Stream as _Stream
from braze.shim.device import handle_of, host_device, wait
from braze.shim.errors import DeviceError
from braze.shim.pycuda.errors import refuse


class Stream:
    """A queue of work; `handle` is the int TensorRT takes."""

    def __init__(self, flags: int = 0) -> None:
        self._stream: _Stream = host_device().new_stream()
        self.handle = handle_of(self._stream)

    def synchronize(self) -> None:
        """Wait until everything is done."""
        try:
            wait(self._stream)
        except DeviceError as e:
            refuse(e)

    def is_done(self) -> bool:
        """Whether everything is done."""
        return self._stream.query()

    def wait_for_event(self, event: Event) -> None:
        """Let later work wait for an event."""
        self._stream.wait_event(event.native)

    def __int__(self) -> int:
        return self.handle

    __index__ = __int__


class Event:
    """A mark in a stream."""

    def __init__(self, flags: int = 0) -> None:
        self._device = host_device()
        self.handle = self._device.create_event()

    @property
    def native(self) -> _Event:
        """The runtime's event."""
        return self._device.event(self.handle)

    def record(self, stream: Stream | None = None) -> Event:
        """Mark where the stream is now."""
        self._device.record_event(self.handle, handle_or_default(stream))
        return self

    def synchronize(self) -> Event:
        """Wait for the mark."""
        self.native.synchronize()
        return self

    def query(self) -> bool:
        """Whether the stream has come to the mark."""
        return self.native.query()

    def time_since(self, start: Event) -> float:
        """Milliseconds from `start`."""
        return start.native.elapsed_ms(self.native)

    def time_till(self, end: Event) -> float:
        """Milliseconds to `end`."""
        return self.native.elapsed_ms(end.native)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._device.destroy_event(self.handle)


def handle_or_default(stream: Stream | None) -> int:
    """The int of a stream; 0, the default stream, without one."""
    return 0 if stream is None else int(stream)
