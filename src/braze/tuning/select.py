"""Choose a tactic for every kernel: from the timing cache, by measurement, or the first one.

Backends list their tactics best guess first, so that the first is what runs where nothing may be
measured (optimization levels 0 to 2, or another processor's code).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from braze.core.errors import CompileError, ExecutionError
from braze.core.target import CpuTarget
from braze.core.trace import Trace
from braze.fusion.kernel import CompiledKernel, Kernel, Packing, Tactic
from braze.fusion.lower import LoweredRegion, Lowerer
from braze.fusion.region import Region
from braze.tuning.measure import Workload
from braze.tuning.timing_cache import TimingCache

Array = np.ndarray[Any, Any]
MEASURED_FROM_LEVEL = 3


class Backend(Protocol):
    """What the tuner needs of a code generator."""

    def tactics(self, kernel: Kernel, target: CpuTarget, level: int) -> tuple[Tactic, ...]: ...

    def compile_kernel(
        self, kernel: Kernel, tactic: Tactic, target: CpuTarget
    ) -> CompiledKernel: ...

    def pack(self, array: Array, packing: Packing) -> Array: ...

    def kernel_text(self, kernel: Kernel) -> str: ...


@dataclass(frozen=True)
class Choice:
    """What was chosen for one region."""

    lowered: LoweredRegion
    compiled: CompiledKernel
    tactic: Tactic


@dataclass
class Tuner:
    """Chooses tactics for the regions of one build; equal kernels are compiled once.

    env: sizes to measure at (the profile's opt values); measure: False where the target is not
    this machine.
    """

    backend: Backend
    target: CpuTarget
    level: int
    env: Mapping[str, int]
    cache: TimingCache
    measure: bool
    trace: Trace
    _chosen: dict[str, tuple[CompiledKernel, Tactic]] = field(default_factory=dict)

    def choose(self, region: Region, lower: Lowerer) -> Choice:
        """The kernel, its code and its tactic for one region.

        Raises CompileError when neither a template nor the generic loop nest can compile it.
        """
        lowered = lower(region)
        assert lowered is not None
        tactics = self.backend.tactics(lowered.kernel, self.target, self.level)
        if not tactics:
            fallback = lower(region, fallback=True)
            if fallback is not None:
                lowered = fallback
                tactics = self.backend.tactics(lowered.kernel, self.target, self.level)
        if not tactics:
            raise CompileError(
                f"region {region.root.name} ({region.label}) has no code for "
                f"{self.target.isa}; please report this model"
            )
        text = self.backend.kernel_text(lowered.kernel)
        if text not in self._chosen:
            self._chosen[text] = self._pick(region, lowered.kernel, tactics, text)
        compiled, tactic = self._chosen[text]
        return Choice(lowered, compiled, tactic)

    def _pick(
        self, region: Region, kernel: Kernel, tactics: tuple[Tactic, ...], text: str
    ) -> tuple[CompiledKernel, Tactic]:
        if len(tactics) == 1 or self.level < MEASURED_FROM_LEVEL or not self.measure:
            return self.backend.compile_kernel(kernel, tactics[0], self.target), tactics[0]
        sizes = ",".join(f"{k}={v}" for k, v in sorted(self.env.items()))
        keys = [TimingCache.key(text, str(t), sizes, self.target.fingerprint) for t in tactics]
        times = [self.cache.get(k) for k in keys]
        built: dict[int, CompiledKernel] = {}
        if any(t is None for t in times):
            try:
                work = Workload(kernel, self.env, self.target.threads)
            except MemoryError:
                raise ExecutionError(
                    f"region {region.root.name} ({region.label}) can not be measured: its tensors "
                    "at the opt shapes do not fit into memory; use smaller opt shapes, or "
                    "optimization_level=2, which measures nothing"
                ) from None
            best = float("inf")
            for i, tactic in enumerate(tactics):
                known = times[i]
                if known is None:
                    built[i] = self.backend.compile_kernel(kernel, tactic, self.target)
                    known = work.seconds(built[i], self.backend.pack, best)
                    self.cache.put(keys[i], known)
                    times[i] = known
                best = min(best, known)
        final = [float("inf") if t is None else t for t in times]
        winner = min(range(len(tactics)), key=lambda i: (final[i], i))
        self.trace.decide(
            "tactic",
            name=region.root.name,
            chosen=str(tactics[winner]),
            candidates=[str(t) for t in tactics],
        )
        if winner not in built:
            built[winner] = self.backend.compile_kernel(kernel, tactics[winner], self.target)
        return built[winner], tactics[winner]
