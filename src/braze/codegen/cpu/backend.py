"""The CPU backend: tactics of a kernel, its machine code, and how it is timed and run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from braze.codegen.cpu.anchors import anchor_support, anchor_tactics, compile_anchor
from braze.codegen.cpu.host import host_cpu
from braze.codegen.cpu.llvm.halves import ROUNDS_BF16
from braze.codegen.cpu.loops.template import compile_loops, loop_tactics
from braze.codegen.cpu.measure import CpuWorkload
from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.cpu.product.dot import halves_of
from braze.codegen.cpu.product.tactics import MAX_ROWS
from braze.codegen.cpu.target import EXTRAS, VARIANTS, CpuTarget, is_tiles, with_extras
from braze.core.config import Effort
from braze.core.dtypes import BF16
from braze.core.errors import CompileError, ConfigError, TargetError
from braze.core.target import Preferences
from braze.core.version import __version__
from braze.engine.plan import Plan
from braze.expr.loops import LoopKernel, TensorSpec
from braze.fusion.kernel import CompiledKernel, Kernel, Packing, Tactic
from braze.ops.lowering import AnchorSpec
from braze.runtime.engine import Engine
from braze.runtime.native import host_features, host_isa, require_isa

REVISION: Final = 3  # change with every change to what a tactic means
LISTINGS: Final = {"ir": "llvm", "asm": "assembly"}


def cpu_backend(variant: str, threads: int) -> CpuBackend:
    """The backend for any processor with an instruction set, or ("") for this machine's.

    A variant that is named (VARIANTS) gives the same engine wherever it is built: blocks are cut
    for common caches. Times are measured here in any case, so both know which processor this is.
    """
    host = host_cpu()
    if variant:
        isa, wanted = VARIANTS[variant]
        return CpuBackend(CpuTarget(isa, threads, extras=wanted, model=host.model))
    isa, found = host_isa(), host_features()
    extras = tuple(e for e, base in EXTRAS.items() if e in found and base == isa)
    extras = tuple(e for e in extras if not is_tiles(e) or _runs(f"{isa}+{e}"))
    here = CpuTarget(isa, threads, host.l1_bytes, host.l2_bytes, extras, host.model)
    return CpuBackend(here)


def _runs(needs: str) -> bool:
    """Whether the system lets this process use what the processor has: tiles have to be asked for,
    and a sandbox may refuse them."""
    try:
        require_isa(needs)
    except TargetError:
        return False
    return True


@dataclass(frozen=True)
class CpuBackend:
    """Implements `braze.codegen.backend.Backend` with templates written in LLVM IR."""

    target: CpuTarget

    @property
    def preferences(self) -> Preferences:
        halves = halves_of(self.target)
        widens = frozenset({"fp16", "bf16"}) - halves
        return Preferences(halves=halves, widens=widens, held_rows=MAX_ROWS)

    @property
    def generator(self) -> str:
        compiler = ".".join(map(str, llvm.llvm_version_info))
        own = f"braze {__version__} cpu {REVISION}"
        return f"{own} llvmlite {llvmlite.__version__} LLVM {compiler}"

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        return anchor_support(spec, inputs, constant)

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        if isinstance(kernel, LoopKernel):
            found = loop_tactics(kernel, self.target, effort)
        else:
            found = anchor_tactics(kernel, self.target, effort)
        return tuple(self._rounding(kernel, tactic) for tactic in found)

    def _rounding(self, kernel: Kernel, tactic: Tactic) -> Tactic:
        """`tactic` with the instruction that rounds to bfloat16, where that may be asked for."""
        outputs = kernel.outputs if isinstance(kernel, LoopKernel) else (kernel.output,)
        narrow = any(t.dtype is BF16 for t in (*kernel.inputs, *outputs))
        wanted = ("with", ROUNDS_BF16)
        if not narrow or ROUNDS_BF16 not in self.target.extras or wanted in tactic.parameters:
            return tactic
        return replace(tactic, parameters=(*tactic.parameters, wanted))

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        # code that needs more than the instruction set says so by its tactic
        target = with_extras(self.target, tactic)
        if isinstance(kernel, LoopKernel):
            return compile_loops(kernel, tactic, target)
        return compile_anchor(kernel, tactic, target)

    def compile_ahead(
        self, wanted: Sequence[tuple[Kernel, Tactic]]
    ) -> Mapping[int, CompiledKernel | CompileError]:
        return {}

    def listing(self, kernel: Kernel, tactic: Tactic, form: str) -> str:
        if form not in LISTINGS:
            raise ConfigError(f"there is no listing {form!r}; use {' or '.join(LISTINGS)}")
        there = CpuBackend(replace(self.target, emit=LISTINGS[form]))
        return there.compile(kernel, tactic).own_code.data.decode()

    def pack(self, array: np.ndarray[Any, Any], packing: Packing) -> np.ndarray[Any, Any]:
        return pack_anchor(array, packing)

    def can_measure(self) -> bool:
        return self.target.isa == host_isa() and set(self.target.extras) <= set(host_features())

    def workload(self, kernel: Kernel, sizes: Mapping[str, int]) -> CpuWorkload:
        return CpuWorkload(kernel, sizes, self.target.threads)

    def require(self) -> None:
        require_isa(self.target.needs)

    def load(self, plan: Plan) -> Engine:
        return Engine.from_plan(plan)
