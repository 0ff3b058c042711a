"""A plan as text without code bytes: every field that a change of a stage could move.

Sizes are written as expressions of the symbols, buffers as b0, b1, ... Content hashes are left
out: the last bits of folded constants may depend on the version of numpy.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from braze.core.dims import Dim
from braze.engine.plan import Plan
from braze.engine.steps import BufferRef
from braze.runtime.report import size_dims

# fields of steps and other records that hold indexes into Plan.sizes
SIZE_FIELDS = {"params", "shape", "bytes", "lhs", "rhs", "grid"}
# left out: names and origins stand in the regions, hashes and code may differ between machines
SKIPPED = {"name", "origins", "content_hash", "code"}


def plan_text(plan: Plan) -> str:
    """One line for each record."""
    sizes = size_dims(plan)
    lines = [f"{_record(sizes, plan.target)} threads {plan.threads}"]
    lines += [f"guard {_dim(sizes, g.lhs)} == {_dim(sizes, g.rhs)}: {g.what}" for g in plan.guards]
    for kind, bindings in (("input", plan.inputs), ("output", plan.outputs)):
        for b in bindings:
            shape = ", ".join(_dim(sizes, d) for d in b.shape)
            content = f" = {b.value}" if b.value else ""
            lines.append(f"{kind} {b.name}: {b.dtype}[{shape}] in b{b.buffer}{content}")
    for i, buffer in enumerate(plan.buffers):
        at = ""
        if buffer.kind == "arena":
            at = " at " + " | ".join(str(p.offsets[i]) for p in plan.profiles)
        elif buffer.kind == "weight":
            at = f" at {buffer.offset}"
        lines.append(f"b{i} {buffer.kind}{at}: {_dim(sizes, buffer.bytes)} bytes, {buffer.name}")
    lines += [f"weight {w.name}: {w.dtype}{list(w.shape)} at {w.offset}" for w in plan.weights]
    for p in plan.profiles:
        ranges = dict(zip((s.name for s in plan.symbols), p.ranges, strict=True))
        lines.append(f"profile {ranges} arena {p.arena_bytes}, at least {p.lower_bound_bytes}")
    for i, k in enumerate(plan.kernels):
        module = plan.modules[k.module]
        lines.append(f"kernel {i} {_record(sizes, k)} {module.kind} for {module.needs}")
    lines += [f"step {i} {_record(sizes, s)}" for i, s in enumerate(plan.steps)]
    lines += [f"debug {_record(sizes, d)}" for d in plan.debug]
    return "\n".join(lines)


def _dim(sizes: list[Dim], index: int) -> str:
    return str(sizes[index])


def _record(sizes: list[Dim], record: Any) -> str:
    """A dataclass of the plan by its fields, so that new kinds of steps need no code here.

    Fields that have their default are left out, so that new fields move no text.
    """
    parts = [type(record).__name__]
    for f in fields(record):
        if f.name not in SKIPPED and getattr(record, f.name) != f.default:
            parts.append(f"{f.name}={_value(sizes, f.name, getattr(record, f.name))}")
    return " ".join(parts)


def _value(sizes: list[Dim], name: str, value: Any) -> str:
    if isinstance(value, BufferRef):
        moved = "" if value.displacement < 0 else f"+{_dim(sizes, value.displacement)}"
        return f"b{value.buffer}{moved}"
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(sizes, name, v) for v in value) + "]"
    if name in SIZE_FIELDS and isinstance(value, int):
        return _dim(sizes, value)
    return str(value)
