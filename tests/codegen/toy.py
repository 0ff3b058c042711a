"""A whole backend for a made-up target: kernels become Python source, a run interprets the plan.

It has no templates (every kernel arrives as loop nests), one tactic, and only fixed sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.core.config import Effort
from braze.core.dims import Dim, is_static
from braze.core.errors import CompileError
from braze.core.target import PREFERENCES, Preferences
from braze.engine.plan import Plan
from braze.expr.fold import bottom_up
from braze.expr.loops import LoopKernel, LoopNest, TensorSpec
from braze.expr.scalar import Expr
from braze.fusion.kernel import Code, CompiledKernel, HostLaunch, Kernel, Packing, Tactic
from braze.ops.lowering import AnchorSpec

OPS = {
    "axis": "i{attr}", "red": "r{attr}", "const": "{attr!r}", "load": "t{attr}[{args}]",
    "cast": "np.{dtype}({args})", "select": "({1} if {0} else {2})",
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "({0} / {1})",
    "floordiv": "({0} // {1})", "mod": "({0} % {1})", "neg": "(-{0})", "and": "({0} & {1})",
    "lt": "({0} < {1})", "le": "({0} <= {1})", "eq": "({0} == {1})",
    "max": "np.maximum({args})", "min": "np.minimum({args})", "exp": "np.exp({0})",
}  # fmt: skip
REDUCES = {"sum": ("0", "r{k} + {x}"), "max": ("-np.inf", "np.maximum(r{k}, {x})")}


@dataclass(frozen=True)
class ToyTarget:
    """Implements `braze.core.target.Target`."""

    name: str = "toy"
    threads: int = 1
    alignment: int = 64
    space: str = "host"
    fingerprint: str = "toy"

    def describe(self) -> dict[str, Any]:
        return {"backend": "toy"}


@dataclass(frozen=True)
class ToyBackend:
    """Implements `braze.codegen.backend.Backend`."""

    target: ToyTarget = ToyTarget()
    preferences: Preferences = PREFERENCES
    generator: str = "toy 1"

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        return "the toy has no templates"

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        return (Tactic("python"),)

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        assert isinstance(kernel, LoopKernel)
        lines = ["def kernel(*buffers):"]
        for i, t in enumerate((*kernel.inputs, *kernel.outputs)):
            if not is_static(t.shape):
                raise CompileError(f"the toy takes fixed sizes only, not {list(t.shape)}")
            lines.append(f"    t{i} = buffers[{i}].view('{t.dtype}').reshape({t.shape})")
        for nest in kernel.nests:
            lines += nest_source(nest, len(kernel.inputs))
        code = Code("text", "kernel", self.target.name, "\n".join(lines).encode())
        return CompiledKernel(code, (), HostLaunch(parallel=False))

    def listing(self, kernel: Kernel, tactic: Tactic, form: str) -> str:
        return self.compile(kernel, tactic).code.data.decode()

    def can_measure(self) -> bool:
        return False  # so that no workload is asked for, as no packing is without templates
    def compile_ahead(self, wanted: Any) -> Any:
        return {}

    def workload(self, kernel: Kernel, sizes: Mapping[str, int]) -> Any: ...
    def pack(self, array: Any, packing: Packing) -> Any: ...
    def require(self) -> None: ...

    def load(self, plan: Plan) -> Any:
        return ToyEngine(plan)


def source(root: Expr) -> str:
    """An expression as Python."""

    def node(e: Expr, args: tuple[str, ...]) -> str:
        if e.op not in OPS:
            raise CompileError(f"the toy cannot compute {e.op}; add it to its table")
        return OPS[e.op].format(*args, args=", ".join(args) or "()", attr=e.attr, dtype=e.dtype)

    return bottom_up(root, node)


def nest_source(nest: LoopNest, inputs: int) -> list[str]:
    """The lines of one loop nest."""
    inner = "        " + loop(nest.inner, len(nest.outer))
    lines = ["    " + loop(nest.outer, 0)]
    for k, r in enumerate(nest.reduces):
        start, step = REDUCES[r.kind]
        lines += [f"        r{k} = np.{r.expr.dtype.numpy.name}({start})", inner]
        lines.append(f"            r{k} = {step.format(k=k, x=source(r.expr))}")
    for s in nest.stores:
        if s.mode != "set" or s.over not in ("outer", "all"):
            raise CompileError(f"the toy has no store over {s.over} of mode {s.mode}")
        place = ", ".join(map(source, s.index)) or "()"
        target = f"            t{inputs + s.slot}[{place}] = {source(s.expr)}"
        lines += [inner if s.over == "all" else "        if True:", target]
    return lines


def loop(sizes: Sequence[Dim], first: int) -> str:
    """A loop over all axes of a nest at once."""
    axes = "".join(f"i{first + k}, " for k in range(len(sizes)))
    return f"for {axes} in np.ndindex{tuple(sizes)}:" if sizes else "for _ in (0,):"


@dataclass(frozen=True)
class ToyEngine:
    """Runs a plan of the toy: memory, then one function call a step."""

    plan: Plan

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        p, size = self.plan, [op.a for op in self.plan.sizes]
        memory = [np.zeros(size[b.bytes], np.uint8) for b in p.buffers]
        weights = (b for b in range(len(memory)) if p.buffers[b].kind == "weight")
        for b, data in zip(weights, p.weight_data, strict=True):
            memory[b] = np.frombuffer(data, np.uint8)
        for b in p.inputs:
            memory[b.buffer] = np.ascontiguousarray(feeds[b.name]).reshape(-1).view(np.uint8)
        for step in p.steps:
            kernel = p.kernels[step.kernel]
            scope: dict[str, Any] = {"np": np}
            exec(p.modules[kernel.module].code, scope)
            scope[kernel.entry](*(memory[ref.buffer] for ref in step.buffers))
        return {
            b.name: memory[b.buffer].view(b.dtype.numpy).reshape([size[d] for d in b.shape])
            for b in p.outputs
        }
