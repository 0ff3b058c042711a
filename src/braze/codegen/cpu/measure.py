"""Measurement of one compiled kernel on this machine, through the runtime that will execute it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.spread import spread
from braze.core.dims import Dim, evaluate
from braze.core.dtypes import BOOL, I8, U8, DType
from braze.expr.loops import LoopKernel, TensorSpec
from braze.fusion.kernel import CompiledKernel, HostLaunch, Kernel, Packing
from braze.runtime.native import LoadedKernel, require_isa

Array = np.ndarray[Any, Any]
WARMUP, FEW, BUDGET_S, MOST = 2, 3, 0.004, 40
SLOW_S = 0.1  # a run as long as this is dominated by itself, not by cold caches and new pages


def sample(dtype: DType, shape: tuple[int, ...], seed: int) -> Array:
    """Plausible data: small floats, codes of 8 bits, zeros for integers that may be indexes."""
    rng = np.random.default_rng(seed)
    if dtype in (I8, U8):
        return rng.integers(0, 100, shape, dtype.numpy)
    if dtype is BOOL or not dtype.is_float:
        return np.zeros(shape, dtype.numpy)
    return rng.uniform(-1, 1, shape).astype(dtype.numpy)


class CpuWorkload:
    """Buffers for one kernel at given sizes, shared by all tactics that are tried on it."""

    def __init__(self, kernel: Kernel, env: Mapping[str, int], threads: int) -> None:
        self._env = env
        self._threads = threads
        outputs = kernel.outputs if isinstance(kernel, LoopKernel) else (kernel.output,)
        self._inputs = [self._array(s, i) for i, s in enumerate(kernel.inputs)]
        self._outputs = [self._array(s, 99) for s in outputs]
        flat = [] if any(s.dtype.bits < 8 for s in outputs) else self._outputs
        # of each output what is compared
        self._watched = [[o.reshape(-1)[part] for part in spread(o.size)] for o in flat]
        self._packed: dict[tuple[int, Packing], Array] = {}

    def _array(self, spec: TensorSpec, seed: int) -> Array:
        return sample(spec.dtype, tuple(evaluate(d, self._env) for d in spec.shape), seed)

    def _value(self, size: Dim) -> int:
        return evaluate(size, self._env)

    def seconds(self, compiled: CompiledKernel, give_up_above: float) -> float:
        """Best time of one launch; stops early when it is far above `give_up_above`."""
        assert isinstance(compiled.launch, HostLaunch)
        inputs = list(self._inputs)
        for slot, packing in compiled.packings:
            if (slot, packing) not in self._packed:
                packed = np.ascontiguousarray(pack_anchor(inputs[slot], packing))
                self._packed[slot, packing] = packed
            inputs[slot] = self._packed[slot, packing]
        buffers = [*inputs, *self._outputs]
        scratch = self._value(compiled.launch.scratch_bytes)
        if scratch:
            buffers.append(np.zeros(scratch * self._threads, np.uint8))
        require_isa(compiled.own_code.needs)
        kernel = LoadedKernel(compiled.own_code.data, compiled.own_code.entry)
        for part in (p for parts in self._watched for p in parts):
            part.view(np.uint8)[...] = 0xFF  # what another tactic has left there proves nothing
        workers = self._threads if compiled.launch.parallel else 1
        params = [self._value(p) for p in compiled.params]

        def time(warmup: int, repeats: int) -> list[float]:
            return kernel.time(buffers, params, workers=workers, warmup=warmup, repeats=repeats)

        return _best(time, give_up_above)

    def results(self) -> list[Array]:
        """See `braze.codegen.backend.Workload`."""
        return [np.concatenate(parts) for parts in self._watched]

    def inputs(self) -> list[Array]:
        """See `braze.codegen.backend.Workload`."""
        return self._inputs


def _best(time: Callable[[int, int], list[float]], give_up_above: float) -> float:
    """The best of the runs that `time` measures, given how many are not counted and how many are.

    A slow kernel runs once more at most: its runs differ little, and tactics are many.
    """
    (cold,) = time(0, 1)
    if cold > SLOW_S:
        return cold if cold > 2 * give_up_above else min(cold, *time(0, 1))
    first = min(time(WARMUP - 1, FEW))
    if first > 2 * give_up_above:
        return first
    repeats = int(min(MOST, max(FEW, BUDGET_S / max(first, 1e-7))))
    return min(first, *time(0, repeats))
