"""Backend: what makes code of kernels for one target. The catalog lists those that exist.

An instance is bound to its target: `find_backend("cpu:avx2", threads)` gives one. Everything
above code generation (tuning, planning, the builder) knows a backend by this protocol alone;
passes and fusion see only its `Abilities`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from braze.core.config import Effort
from braze.core.errors import CompileError
from braze.core.target import Target
from braze.engine.plan import Plan
from braze.fusion.kernel import CompiledKernel, Kernel, Packing, Tactic
from braze.ops.abilities import Abilities
from braze.runtime.engine import Engine

Array = np.ndarray[Any, Any]


class Workload(Protocol):
    """One kernel with buffers at given sizes, on this machine, to time its tactics with."""

    def seconds(self, compiled: CompiledKernel, give_up_above: float) -> float:
        """Best time of one launch; may stop early when it is far above `give_up_above`."""

    def results(self) -> Sequence[Array]:
        """What the launches that were timed last have left: of each output, flat, the elements that
        `spread` names. Empty where results of tactics are not to be compared."""

    def inputs(self) -> Sequence[Array]:
        """What tactics are timed on, in slot order; constants as they come, not packed."""


class Backend(Abilities, Protocol):
    """A code generator and its target; frozen data.

    Where `supports` gives None, `tactics` gives at least one; loop kernels always have one.
    """

    @property
    def target(self) -> Target:
        """What it generates code for."""

    @property
    def generator(self) -> str:
        """Versions of everything that decides which code a kernel and a tactic give.

        A part of timing-cache keys: braze, the backend, and the compilers it uses.
        """

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        """Ways to generate code for `kernel`, the most promising first.

        Empty for an anchor that no template fits.
        """

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        """Code of `kernel` by one of its tactics; raises CompileError."""

    def compile_ahead(
        self, wanted: Sequence[tuple[Kernel, Tactic]]
    ) -> Mapping[int, CompiledKernel | CompileError]:
        """Code of those that are worth compiling side by side, by their position in `wanted`.

        A CompileError stands for a tactic that fails; `compile` is called for what is left out.
        """

    def listing(self, kernel: Kernel, tactic: Tactic, form: str) -> str:
        """The code as text for people; raises ConfigError for a form that it does not have.

        form: "ir" (the compiler's input) or "asm" (instructions).
        """

    def pack(self, array: Array, packing: Packing) -> Array:
        """A constant slot's content laid out as a template asked for."""

    def can_measure(self) -> bool:
        """Whether this machine is the target, so that times measured here mean something."""

    def workload(self, kernel: Kernel, sizes: Mapping[str, int]) -> Workload:
        """Buffers for `kernel` where its symbols have these sizes; raises MemoryError."""

    def require(self) -> None:
        """Raise TargetError unless this machine runs the target's code."""

    def load(self, plan: Plan) -> Engine:
        """The engine of a plan made with this backend, ready to run on this machine."""
