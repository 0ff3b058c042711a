"""Triton kernels compiled side by side, in processes of their own.

A worker is `python -m braze.codegen.cuda.triton.worker`: one JSON line in, one out. A process that
dies over a kernel (a compiler that crashes) costs that kernel alone.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from braze.codegen.cuda.processes import environment
from braze.codegen.cuda.triton.cubin import Cubin
from braze.codegen.cuda.triton.nests import TritonSource
from braze.core.errors import CompileError

A_WORKER = 4  # kernels that are worth its start, which takes longer than to compile one
COMMAND = (sys.executable, "-m", "braze.codegen.cuda.triton.worker")


def request(source: TritonSource, capability: int) -> str:
    """A source as the line that a worker reads."""
    return json.dumps({
        "entry": source.entry, "text": source.text, "pointers": source.pointers,
        "sizes": len(source.params), "warps": source.warps, "stages": source.stages,
        "maps": [(m.dtype.name, m.box, m.swizzle) for m in source.maps],
        "capability": capability, "registers": source.registers,
    })  # fmt: skip


def answer(cubin: Cubin) -> str:
    """A cubin as the line that a worker writes."""
    code = base64.b64encode(cubin.code).decode()
    return json.dumps(
        {"entry": cubin.entry, "code": code, "shared": cubin.shared, "threads": cubin.threads}
    )


class _Worker:
    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            COMMAND, stdin=pipe, stdout=pipe, text=True, env=environment()
        )

    def compile(self, source: TritonSource, capability: int) -> Cubin | CompileError:
        """The cubin, or why there is none."""
        reply: dict[str, Any] | None = None
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(request(source, capability) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            reply = json.loads(line) if line else None
        except (OSError, ValueError):
            reply = None
        if reply is None:
            self.close()
            self.__init__()  # type: ignore[misc]
            return CompileError(f"the compiler of GPU code died over kernel {source.entry}")
        if "error" in reply:
            return CompileError(str(reply["error"]))
        code = base64.b64decode(reply["code"])
        return Cubin(str(reply["entry"]), code, int(reply["shared"]), int(reply["threads"]))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def compile_all(
    sources: Sequence[TritonSource], capability: int, workers: int
) -> list[Cubin | CompileError]:
    """A cubin or an error for each source, in order; equal sources are compiled once."""
    distinct = list(dict.fromkeys(request(s, capability) for s in sources))
    by_text = {request(s, capability): s for s in sources}
    idle: SimpleQueue[_Worker] = SimpleQueue()
    team = [_Worker() for _ in range(max(1, min(workers, len(distinct) // A_WORKER)))]
    for worker in team:
        idle.put(worker)

    def one(text: str) -> Cubin | CompileError:
        worker = idle.get()
        try:
            return worker.compile(by_text[text], capability)
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(len(team)) as threads:
            done = dict(zip(distinct, threads.map(one, distinct), strict=True))
    finally:
        for worker in team:
            worker.close()
    return [done[request(s, capability)] for s in sources]
