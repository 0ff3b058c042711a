"""The text report of a plan: what `Engine.inspect` and `braze inspect` print."""

from __future__ import annotations

import json
from collections.abc import Sequence

from braze.core.dims import DIM_OPS, Dim, sym
from braze.engine.plan import Binding, Plan, SizeOp
from braze.engine.steps import Call, If, Launch, LibraryCall, Loop, Step


def size_dims(plan: Plan) -> list[Dim]:
    """Every entry of the shape program as a dim."""
    dims: list[Dim] = []
    for size in plan.sizes:
        dims.append(_dim(plan, size, dims))
    return dims


def _dim(plan: Plan, size: SizeOp, dims: Sequence[Dim]) -> Dim:
    if size.op == "const":
        return size.a
    if size.op == "sym":
        return sym(plan.symbols[size.a].name)
    a, b = dims[size.a], dims[size.b]
    if size.op == "add":
        return a + b
    if size.op == "mul":
        return a * b
    return DIM_OPS[size.op](a, b)


def shape_text(plan: Plan, shape: Sequence[int]) -> tuple[int | str, ...]:
    """A shape of size indexes with numbers where they are constant, else expressions as text."""
    dims = size_dims(plan)
    return tuple(d if isinstance(d, int) else str(d) for d in (dims[i] for i in shape))


def describe_plan(plan: Plan) -> str:
    """The whole report."""
    dims = size_dims(plan)
    target = ", ".join(f"{key} {value}" for key, value in sorted(plan.target.about.items()))
    code_bytes = sum(len(m.code) for m in plan.modules)
    weight_bytes = sum(w.bytes for w in plan.weights)
    lines = [f"target: {target}", f"threads: {plan.threads}"]
    lines += _binding_lines(plan, "inputs", plan.inputs, dims)
    lines += _binding_lines(plan, "outputs", plan.outputs, dims)
    left_out = ", left out (stripped): it runs once it is refitted" if plan.stripped else ""
    lines.append(f"weights: {len(plan.weights)}, {_bytes(weight_bytes)}{left_out}")
    lines.append(f"code: {len(plan.kernels)} kernels, {_bytes(code_bytes)}")
    lines += _profile_lines(plan)
    lines += _step_lines(plan, dims)
    if plan.record:
        lines.append("record:")
        text = json.dumps(plan.record, indent=2, sort_keys=True)
        lines += [f"  {line}" for line in text.splitlines()]
    return "\n".join(lines)


def _bytes(count: int) -> str:
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 10_000_000 else f"{count / 1e6:.1f} MB"


def _binding_lines(
    plan: Plan, title: str, bindings: Sequence[Binding], dims: Sequence[Dim]
) -> list[str]:
    lines = [f"{title}:"]
    for b in bindings:
        shape = ", ".join(str(dims[i]) for i in b.shape)
        content = "  constant content" if b.value else ""
        if b.content:
            names = ", ".join(plan.symbols[s].name for s in b.content)
            content = f"  content ({names}) as in the profiles"
        lines.append(f"  {b.name}  {b.dtype} [{shape}]{content}")
    return lines


def _profile_lines(plan: Plan) -> list[str]:
    lines = ["profiles:"]
    for i, profile in enumerate(plan.profiles):
        ranges = ", ".join(
            f"{symbol.name} {low}..{opt}..{high}"
            for symbol, (low, opt, high) in zip(plan.symbols, profile.ranges, strict=True)
        )
        arena, bound = _bytes(profile.arena_bytes), _bytes(profile.lower_bound_bytes)
        lines.append(f"  {i}: {ranges or 'static shapes'}  arena {arena} (lower bound {bound})")
    return lines


def _step_lines(plan: Plan, dims: Sequence[Dim]) -> list[str]:
    lines = [f"steps: {len(plan.steps)}"]
    for i, step in enumerate(plan.every_step):
        lines += _body_title(plan, i)
        lines.append(f"  {i:4} {step.name}  {_what(plan, step)}".rstrip())
        if step.origins:
            lines.append(f"       from {', '.join(step.origins)}")
        if isinstance(step, (Launch, LibraryCall)) and step.params:
            lines.append(f"       params {', '.join(str(dims[p]) for p in step.params)}")
    return lines


def _body_title(plan: Plan, step: int) -> list[str]:
    """The title of a body before its first step."""
    first = len(plan.steps)
    for i, body in enumerate(plan.bodies):
        if step == first and body.steps:
            return [f"body {i} {body.name}: {len(body.steps)}"]
        first += len(body.steps)
    return []


def _what(plan: Plan, step: Step) -> str:
    if isinstance(step, Launch):
        mode = "parallel" if step.parallel else "serial"
        needs = plan.modules[plan.kernels[step.kernel].module].needs
        return f"{mode}  {needs}  {step.tactic}"
    if isinstance(step, LibraryCall):
        return f"{step.library}.{step.routine}  {step.tactic}"
    if isinstance(step, If):
        return f"if: body {step.then}, else: body {step.otherwise}"
    if isinstance(step, (Loop, Call)):
        return f"{step.TAG} of body {step.body}"
    return step.TAG
