"""A process that imports once and forks for each job, so that nothing a job does outlives it."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Job = Mapping[str, Any]
MOST_WAITING = 20  # times its seconds of processor time, that a job may take on a busy machine


def serve(work: Callable[[Job], dict[str, Any]]) -> None:
    """Answer every line of standard input, a job with its `seconds` of processor time, by a line of
    JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # exporters print
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(_in_child(work, job)), file=answers, flush=True)


def _in_child(work: Callable[[Job], dict[str, Any]], job: Job) -> dict[str, Any]:
    reader, writer = os.pipe()
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_CPU, (job["seconds"], job["seconds"]))
        try:
            answer = work(job)
        except BaseException as e:
            traceback.print_exc()
            while e.__cause__ is not None:  # exporters say that they failed from something else
                e = e.__cause__
            answer = {"outcome": "failed", "error": sentence(e)}
        with os.fdopen(writer, "w") as out:
            json.dump(answer, out)
        os._exit(0)
    os.close(writer)
    text, late = _read(reader, start + job["seconds"] * MOST_WAITING)
    if late:
        os.kill(pid, signal.SIGKILL)
    _, status, used = os.wait4(pid, 0)
    seconds = {"seconds": round(used.ru_utime + used.ru_stime, 1)}
    if late or (not text and seconds["seconds"] >= job["seconds"]):
        return {"outcome": "time", "error": f"no answer in {job['seconds']} s", **seconds}
    if not text:
        return {"outcome": "crash", "error": f"the process ended by status {status}", **seconds}
    return {**json.loads(text), **seconds}


def _read(reader: int, deadline: float) -> tuple[str, bool]:
    parts: list[bytes] = []
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while (left := deadline - time.monotonic()) > 0:
            if select.select([pipe], [], [], left)[0]:
                if not (part := pipe.read(1 << 16)):
                    return b"".join(parts).decode(), False
                parts.append(part)
    return "", True


def sentence(e: BaseException) -> str:
    """An exception in one line of a length that a table can show."""
    text = " ".join(str(e).split())
    return f"{type(e).__name__}: {text}"[:600]
