"""Work on large arrays by several threads: numpy and hashlib let go of the interpreter there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
# fewer bytes are done before a thread has started
MIN_BYTES = 1 << 24
MAX_THREADS = 8


def in_parallel(work: Callable[[T], R], items: Sequence[T], num_bytes: int) -> list[R]:
    """`work` of each item, in order; by threads where `num_bytes` in all are worth it.

    Raises what `work` raises, and MemoryError where no thread can be started.
    """
    threads = min(len(os.sched_getaffinity(0)), MAX_THREADS, len(items))
    if threads < 2 or num_bytes < MIN_BYTES:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        try:
            pending = [pool.submit(work, item) for item in items]
        except RuntimeError as e:
            raise MemoryError("no room for another thread") from e
        return [one.result() for one in pending]
