"""The reference backend: the code of a kernel is its text, and it runs everything, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.codegen.reference.anchors import ANCHORS
from braze.codegen.reference.engine import ReferenceEngine
from braze.codegen.reference.symbols import kernel_symbols
from braze.codegen.reference.target import ReferenceTarget
from braze.core.config import Effort
from braze.core.dims import sym
from braze.core.errors import CompileError, ConfigError, ExecutionError
from braze.core.target import Preferences
from braze.core.version import __version__
from braze.engine.plan import Plan
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import Code, CompiledKernel, HostLaunch, Kernel, Packing, Tactic
from braze.fusion.kernel_text import kernel_text
from braze.ops.lowering import AnchorSpec
from braze.runtime.engine import Engine

Array = np.ndarray[Any, Any]


def reference_backend(variant: str, threads: int) -> ReferenceBackend:
    """The backend for a variant ("" or "float64"); its runs take one thread, whatever is asked."""
    return ReferenceBackend(ReferenceTarget(variant))


@dataclass(frozen=True)
class ReferenceBackend:
    """Implements `braze.codegen.backend.Backend` with an interpreter of kernel texts."""

    target: ReferenceTarget

    @property
    def preferences(self) -> Preferences:
        """Those of a GPU where they change what kernels are, so that tests without one see it."""
        return Preferences(joint_products=True, patch_products=True)

    @property
    def generator(self) -> str:
        return f"braze {__version__} reference"

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        known = type(spec) in ANCHORS
        return None if known else f"the interpreter knows no {spec.kind}"

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        return (Tactic("numpy"),)

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        params = tuple(sym(name) for name in kernel_symbols(kernel))
        code = Code("text", "kernel", self.target.name, kernel_text(kernel).encode("ascii"))
        return CompiledKernel(code, params, HostLaunch(parallel=False))

    def compile_ahead(
        self, wanted: Sequence[tuple[Kernel, Tactic]]
    ) -> Mapping[int, CompiledKernel | CompileError]:
        return {}

    def listing(self, kernel: Kernel, tactic: Tactic, form: str) -> str:
        raise ConfigError(
            f"the reference backend has no listing {form!r}: a kernel's code is its text, which "
            "the stage 'kernels' shows"
        )

    def pack(self, array: Array, packing: Packing) -> Array:
        raise ExecutionError(f"the reference backend packs nothing, not even {packing.kind}")

    def can_measure(self) -> bool:
        return False

    def workload(self, kernel: Kernel, sizes: Mapping[str, int]) -> Any:
        raise ExecutionError("kernels of the reference backend are not timed")

    def require(self) -> None:
        return None

    def load(self, plan: Plan) -> Engine:
        return ReferenceEngine.from_plan(plan)
