"""Run the launches of one kernel on the GPU, outside of any engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from braze.codegen.cuda.driver import Driver, find_card, placed
from braze.codegen.cuda.triton.cubin import compile_cubin
from braze.codegen.cuda.triton.nests import TritonSource
from braze.core.dims import evaluate
from braze.expr.loops import TensorSpec

Array = np.ndarray[Any, Any]


@lru_cache(maxsize=1)
def driver() -> Driver:
    """One driver for all tests of a process."""
    return Driver()


def run(
    launches: Sequence[TritonSource],
    inputs: Sequence[Array],
    outputs: Sequence[TensorSpec],
    env: Mapping[str, int],
) -> tuple[list[Array], int]:
    """The outputs (poisoned before the run) and the status word."""
    card = find_card()
    assert card is not None
    gpu = driver()
    made = []
    for spec in outputs:
        out = np.zeros(tuple(evaluate(d, env) for d in spec.shape), spec.dtype.numpy)
        out.reshape(-1).view(np.uint8)[:] = 0x55
        made.append(out)
    status = np.zeros(4, np.int32)
    tensors = [gpu.upload(np.ascontiguousarray(a)) for a in (*inputs, *made)]
    word = gpu.upload(status)
    counters = np.zeros(max(1, *(s.counters for s in launches), 1), np.int32)
    counted = gpu.upload(counters)
    noise = np.full(max(1, *(s.scratch_bytes for s in launches), 1), 0xFF, np.uint8)
    scratch = gpu.upload(noise)  # what is in scratch must not matter
    for source in launches:
        addresses = [*tensors, *([scratch] if source.scratch_bytes else []), word]
        addresses += [counted] if source.counters else []
        cubin = compile_cubin(source, int(card.capability.removeprefix("sm_")))
        programs = evaluate(source.grid, env)
        if programs:
            function = gpu.function(cubin.code, cubin.entry, cubin.threads, cubin.shared)
            sizes = [evaluate(p, env) for p in source.params]
            maps = [placed(m, env) for m in source.maps]
            gpu.launch(function, programs, addresses, sizes, maps=maps)
    gpu.synchronize()
    for array, address in zip(made, tensors[len(inputs) :], strict=True):
        gpu.read(address, array)
    gpu.read(word, status)
    gpu.read(counted, counters)
    for address in (*tensors, word, counted, scratch):
        gpu.free(address)
    assert not counters.any(), "a launch left its counters as they are not to be"
    return made, int(status[0])
