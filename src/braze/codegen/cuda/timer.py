"""Kernels timed in a process of their own, which is ended when one of them does not come back.

A kernel that hangs, or that writes where it must not, spoils the device context it runs in. Here
that is the context of a child: `python -m braze.codegen.cuda.timer_process`, one pickled request in
and one pickled reply out, both between this program and itself.
"""

from __future__ import annotations

import pickle
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.codegen.cuda.measure import contents
from braze.codegen.cuda.processes import environment
from braze.fusion.kernel import CompiledKernel, Kernel

Array = np.ndarray[Any, Any]
COMMAND: Final = (sys.executable, "-m", "braze.codegen.cuda.timer_process")
# a child starts, opens its context and fills tensors in the first; 120 launches run in the second
OPEN_LIMIT_S, TIME_LIMIT_S = 120.0, 20.0


@dataclass(frozen=True, slots=True)
class Open:
    """Make buffers for a kernel; they replace those of the kernel before."""

    kernel: Kernel
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Time:
    """Time this code on the buffers; the reply's seconds are rough above `give_up_above`."""

    compiled: CompiledKernel
    give_up_above: float


@dataclass(frozen=True, slots=True)
class Reply:
    """seconds of a launch and what it has left (see `Workload.results`), or why there are none;
    no_memory: what was asked for does not fit."""

    seconds: float = 0.0
    results: tuple[Array, ...] = ()
    error: str = ""
    no_memory: bool = False


class Timer:
    """The child, started when it is first needed and again after it was ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.open: Open | None = None  # whose buffers the child has

    def ask(self, request: Open | Time, limit_s: float) -> Reply:
        """The child's reply; one that says so where it died, or was ended after `limit_s`."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], limit_s)
            reply = pickle.load(process.stdout) if ready else Reply(error="it does not come back")
        except (OSError, EOFError, pickle.UnpicklingError):
            reply = Reply(error="it ended the process that runs it")
        assert isinstance(reply, Reply)
        if reply.error:
            self.close()
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(COMMAND, stdin=pipe, stdout=pipe, env=environment())
        return self._process

    def close(self) -> None:
        """End the child, whatever its kernel does."""
        process, self._process, self.open = self._process, None, None
        if process is None:
            return
        process.kill()
        process.wait()
        for end in (process.stdin, process.stdout):
            assert end is not None
            end.close()

    def __del__(self) -> None:
        self.close()


class TimedElsewhere:
    """A `braze.codegen.backend.Workload` whose buffers are in the child of a Timer."""

    def __init__(self, timer: Timer, kernel: Kernel, sizes: Mapping[str, int]) -> None:
        """Raises MemoryError where the buffers do not fit."""
        self._timer = timer
        self._open = Open(kernel, dict(sizes))
        self._results: tuple[Array, ...] = ()
        self._opened()

    def seconds(self, compiled: CompiledKernel, give_up_above: float) -> float:
        """Of one launch; infinite where the kernel fails or does not end."""
        if self._timer.open is not self._open and not self._opened():
            return float("inf")
        reply = self._timer.ask(Time(compiled, give_up_above), TIME_LIMIT_S)
        self._results = reply.results
        return float("inf") if reply.error or reply.no_memory else reply.seconds

    def results(self) -> tuple[Array, ...]:
        """See `braze.codegen.backend.Workload`."""
        return self._results

    def inputs(self) -> list[Array]:
        """See `braze.codegen.backend.Workload`."""
        return contents(self._open.kernel, self._open.sizes)

    def _opened(self) -> bool:
        reply = self._timer.ask(self._open, OPEN_LIMIT_S)
        if reply.no_memory:
            raise MemoryError(reply.error)
        if reply.error:
            return False
        self._timer.open = self._open
        return True
