"""Streams and events: work in order on a thread of its own, and marks to wait for."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import Any

from braze.runtime.native import HOST_FN, check, library


class Event:
    """A mark in a stream; record it there, wait for it anywhere."""

    def __init__(self) -> None:
        self._lib = library()
        self.handle = c_void_p()
        check(self._lib.braze_event_create(ctypes.byref(self.handle)))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._lib.braze_event_destroy(self.handle)
            del self.handle

    def record(self, stream: Stream) -> None:
        """Mark the point after everything enqueued on `stream` so far."""
        check(self._lib.braze_event_record(self.handle, stream.handle))

    def synchronize(self) -> None:
        """Wait until the stream has come to the latest record."""
        check(self._lib.braze_event_synchronize(self.handle))

    def query(self) -> bool:
        """Whether the stream has come to the latest record."""
        done = ctypes.c_int32()
        check(self._lib.braze_event_query(self.handle, ctypes.byref(done)))
        return bool(done.value)

    def elapsed_ms(self, end: Event) -> float:
        """Milliseconds from this record to that of `end`; both must be complete."""
        ms = ctypes.c_double()
        check(self._lib.braze_event_elapsed_ms(self.handle, end.handle, ctypes.byref(ms)))
        return ms.value


class Stream:
    """A first-in first-out queue of runs and calls, served by a thread that sleeps when idle."""

    def __init__(self) -> None:
        self._lib = library()
        self.handle = c_void_p()
        self._alive: deque[tuple[int, Any]] = deque()
        self._errors: list[BaseException] = []
        check(self._lib.braze_stream_create(ctypes.byref(self.handle)))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._lib.braze_stream_destroy(self.handle)
            del self.handle

    def synchronize(self) -> None:
        """Wait for everything enqueued so far; raises the first error since the last call."""
        try:
            check(self._lib.braze_stream_synchronize(self.handle))
            if self._errors:
                raise self._errors[0]
        finally:
            self._errors.clear()
            self._forget_finished()

    def query(self) -> bool:
        """Whether everything enqueued is finished."""
        enqueued, finished = self._progress()
        return enqueued == finished

    def wait_event(self, event: Event) -> None:
        """Let later work on this stream wait for the latest record of `event`."""
        check(self._lib.braze_stream_wait_event(self.handle, event.handle))

    def call(self, function: Callable[[], None]) -> None:
        """Call `function` on the stream's thread when its turn comes.

        What it raises shows in `synchronize`, as the errors of runs do.
        """
        errors = self._errors

        def guarded(_user: object) -> None:
            try:
                function()
            except BaseException as e:  # it cannot pass through the native runtime
                errors.append(e)

        native_function = HOST_FN(guarded)
        check(self._lib.braze_stream_call(self.handle, native_function, None))
        self.keep_alive(native_function)

    def keep_alive(self, *objects: Any) -> None:
        """Hold references to `objects` until the work enqueued so far is finished."""
        self._forget_finished()
        self._alive.append((self._progress()[0], objects))

    def _progress(self) -> tuple[int, int]:
        enqueued, finished = c_int64(), c_int64()
        check(
            self._lib.braze_stream_progress(
                self.handle, ctypes.byref(enqueued), ctypes.byref(finished)
            )
        )
        return enqueued.value, finished.value

    def _forget_finished(self) -> None:
        finished = self._progress()[1]
        while self._alive and self._alive[0][0] <= finished:
            self._alive.popleft()
