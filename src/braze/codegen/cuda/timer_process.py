"""The process that times kernels: see braze.codegen.cuda.timer."""

from __future__ import annotations

import fcntl
import math
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from braze.codegen.cuda.measure import CudaWorkload
from braze.codegen.cuda.timer import Open, Reply

# how long one waits for another, which may hang in a kernel
TURN_LIMIT_S: Final = 5.0


@contextmanager
def turn(folder: str) -> Iterator[None]:
    """While no other build of this user times a kernel: builds side by side would spoil each
    other's times. Where no lock can be had, or not soon, times are taken without."""
    file = None
    with suppress(OSError):
        file = (Path(folder) / f"braze-gpu-{os.getuid()}.lock").open("a")
    end = time.monotonic() + TURN_LIMIT_S
    while file is not None and time.monotonic() < end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            time.sleep(1e-3)
    try:
        yield
    finally:
        if file is not None:
            file.close()  # which unlocks


def main() -> None:
    """Answer requests until standard input ends. What libraries print goes to standard error."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    work: CudaWorkload | None = None
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if isinstance(request, Open):
                work = None  # its buffers are freed before others are made
                work = CudaWorkload(request.kernel, request.sizes)
                reply = Reply()
            else:
                assert work is not None, "nothing is open"
                with turn(tempfile.gettempdir()):
                    seconds = work.seconds(request.compiled, request.give_up_above)
                reply = Reply(seconds, tuple(work.results()) if seconds < math.inf else ())
        except MemoryError:
            reply = Reply(no_memory=True)
        except Exception as e:  # the context may be spoiled: whoever asks ends this process
            reply = Reply(error=f"{type(e).__name__}: {e}"[:500])
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    main()
