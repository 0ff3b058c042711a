"""What an engine holds, as plain data: bindings, profiles, layers. Read from its Plan only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from braze.core.dims import evaluate
from braze.engine.plan import Binding, Plan
from braze.engine.steps import Launch, bodies_run
from braze.runtime.report import shape_text, size_dims

CORNERS = ("min", "opt", "max")


def profile_shapes(plan: Plan, profile: int, which: str) -> dict[str, tuple[int, ...]]:
    """Input shapes at the "min", "opt" or "max" corner of a profile."""
    env: Mapping[str, int] = {}
    if plan.profiles:
        ranges = plan.profiles[profile].ranges
        corner = CORNERS.index(which)
        env = {s.name: r[corner] for s, r in zip(plan.symbols, ranges, strict=True)}
    dims = size_dims(plan)
    return {b.name: tuple(evaluate(dims[i], env) for i in b.shape) for b in plan.inputs}


def profile_contents(plan: Plan, profile: int, which: str) -> dict[str, tuple[int, ...]]:
    """Contents, flattened, at a corner of a profile, of the inputs whose content it bounds."""
    corner = CORNERS.index(which)
    return {
        b.name: tuple(plan.profiles[profile].ranges[s][corner] for s in b.content)
        for b in plan.inputs
        if b.content
    }


def binding_shape(plan: Plan, binding: Binding) -> str:
    """A binding's shape: `1x3x224x224`, or as `[n, 3, x_2, x_3]` with the symbols that it has,
    whose names would run together with an x between them.
    """
    sizes = shape_text(plan, binding.shape)
    if any(isinstance(d, str) for d in sizes):
        return f"[{', '.join(map(str, sizes))}]"
    return "x".join(map(str, sizes)) or "scalar"


@dataclass(frozen=True, slots=True)
class EngineSize:
    """Bytes an engine needs: code, weights, and the arena of its largest profile."""

    code: int
    weights: int
    arena: int
    lower_bound: int


def engine_size(plan: Plan) -> EngineSize:
    """Sizes of a plan; `lower_bound` is the largest live set of the same profile."""
    largest = max(plan.profiles, key=lambda p: p.arena_bytes, default=None)
    return EngineSize(
        code=sum(len(m.code) for m in plan.modules),
        weights=0 if plan.stripped else sum(w.bytes for w in plan.weights),
        arena=largest.arena_bytes if largest else 0,
        lower_bound=largest.lower_bound_bytes if largest else 0,
    )


def describe(plan: Plan, detailed: bool = True) -> dict[str, Any]:
    """A JSON-able description: target, bindings, profiles, layers, sizes.

    `Layers` and `Bindings` are spelt as in trtexec's --exportLayerInfo, whose readers look for
    them; layers are bare names unless `detailed`.
    """
    size = engine_size(plan)
    return {
        "Target": dict(plan.target.about),
        "Threads": plan.threads,
        "Layers": [_layer(plan, i) if detailed else s.name for i, s in enumerate(plan.every_step)],
        "Bindings": [b.name for b in (*plan.inputs, *plan.outputs)],
        "Inputs": [_binding(plan, b) for b in plan.inputs],
        "Outputs": [_binding(plan, b) for b in plan.outputs],
        "Profiles": [_profile(plan, k) for k in range(len(plan.profiles))],
        "Code bytes": size.code,
        "Weight bytes": size.weights,
        "Weights left out": plan.stripped,
    }


def _profile(plan: Plan, index: int) -> dict[str, Any]:
    of_inputs = {"shapes": profile_shapes, "values": profile_contents}
    found: dict[str, Any] = {}
    for what, corner in of_inputs.items():
        corners = {which: corner(plan, index, which) for which in CORNERS}
        if what == "shapes" or corners["opt"]:
            found[what] = {w: {n: list(s) for n, s in c.items()} for w, c in corners.items()}
    found["arena_bytes"] = plan.profiles[index].arena_bytes
    found["lower_bound_bytes"] = plan.profiles[index].lower_bound_bytes
    return found


def _binding(plan: Plan, binding: Binding) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": binding.name,
        "dtype": binding.dtype.name,
        "shape": binding_shape(plan, binding),
    }
    if binding.value:
        out["value"] = list(binding.value)
    return out


def _layer(plan: Plan, index: int) -> dict[str, Any]:
    step = plan.every_step[index]
    common = {"Name": step.name, "Kind": step.TAG, "Origins": list(step.origins)}
    if not isinstance(step, Launch):
        return common
    kernel = plan.kernels[step.kernel]
    module = plan.modules[kernel.module]
    return {
        **common,
        "TacticName": step.tactic,
        "Kernel": kernel.entry,
        "ISA": module.needs,
        "CodeBytes": len(module.code),
        "Parallel": step.parallel,
        "Buffers": [_buffer(plan, ref.buffer) for ref in step.buffers],
        "After": list(step.after),
    }


def _buffer(plan: Plan, index: int) -> str:
    buffer = plan.buffers[index]
    return f"{buffer.kind}:{buffer.name or index}"


def own_times(plan: Plan, spent: Sequence[int]) -> list[int]:
    """Of what `Engine.profile` returns, each step's own part: without the bodies that it ran."""
    first = [len(plan.steps)]
    for body in plan.bodies:
        first.append(first[-1] + len(body.steps))
    inside = [sum(spent[a:b]) for a, b in pairwise(first)]
    return [
        ns - sum(inside[b] for b in bodies_run(step))
        for step, ns in zip(plan.every_step, spent, strict=True)
    ]
