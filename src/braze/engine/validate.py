"""Checks that a Plan refers only to things it has; run before writing and after reading.

The native reader makes the same checks (native/src/plan_parse.cc) because it must not trust a
file; here they catch a planner's mistake before it reaches a file.
"""

from __future__ import annotations

from collections.abc import Iterable

from braze.core.errors import EngineFormatError
from braze.engine import schema
from braze.engine.plan import SIZE_OPS, Binding, BufferRef, Plan, Profile, Step, Weight

_INT64 = range(-(1 << 63), 1 << 63)


def _require(condition: bool, where: str, what: str) -> None:
    if not condition:
        raise EngineFormatError(f"{where}: {what}; rebuild the engine")


def _indexes(where: str, what: str, values: Iterable[int], count: int) -> None:
    for value in values:
        _require(
            type(value) is int and 0 <= value < count,
            where,
            f"{what} index {value!r} is not in [0, {count})",
        )


def check_plan(plan: Plan) -> None:
    """Raise EngineFormatError, saying where, unless every index and range in `plan` is sound."""
    num_sizes = len(plan.sizes)
    _require(1 <= plan.threads <= schema.MAX_WORKERS, "threads", f"{plan.threads} is out of range")
    _check_sizes(plan)
    for i, guard in enumerate(plan.guards):
        _indexes(f"guard {i}", "size", (guard.lhs, guard.rhs), num_sizes)
    for buffer_index, buffer in enumerate(plan.buffers):
        where = f"buffer {buffer_index}"
        _require(buffer.kind in schema.BUFFER_KINDS, where, f"kind {buffer.kind!r} is unknown")
        _indexes(where, "size", (buffer.bytes,), num_sizes)
        _require(buffer.offset in _INT64 and buffer.offset >= 0, where, "negative offset")
        aligned = buffer.kind != "weight" or buffer.offset % schema.WEIGHT_ALIGN == 0
        _require(aligned, where, "the weight is not aligned")
    _check_bindings(plan)
    for i, step in enumerate(plan.steps):
        _check_step(plan, i, step)
    _require(bool(plan.profiles), "profiles", "there is none")
    for i, profile in enumerate(plan.profiles):
        _check_profile(plan, f"profile {i}", profile)
    for weight in plan.weights:
        _check_weight(f"weight {weight.name!r}", weight)
    for tensor in plan.debug:
        where = f"debug tensor {tensor.name!r}"
        _indexes(where, "size", tensor.shape, num_sizes)
        _require(len(tensor.shape) <= schema.MAX_RANK, where, "too many axes")
        _indexes(where, "step", (tensor.step,), len(plan.steps))
        _check_ref(plan, where, tensor.ref)


def _check_sizes(plan: Plan) -> None:
    for i, size in enumerate(plan.sizes):
        where = f"size {i}"
        _require(size.op in SIZE_OPS, where, f"operation {size.op!r} is unknown")
        if size.op == "const":
            _require(size.a in _INT64, where, f"{size.a} does not fit 64 bits")
        elif size.op == "sym":
            _indexes(where, "symbol", (size.a,), len(plan.symbols))
        else:
            _indexes(where, "earlier size", (size.a, size.b), i)


def _check_bindings(plan: Plan) -> None:
    names: set[str] = set()
    bound: set[int] = set()
    symbols: set[int] = set()
    for kind, bindings in (("input", plan.inputs), ("output", plan.outputs)):
        for binding in bindings:
            where = f"{kind} {binding.name!r}"
            _require(binding.name not in names, where, "the name is used twice")
            names.add(binding.name)
            _check_binding(plan, where, kind, binding)
            _require(binding.buffer not in bound, where, "its buffer is bound twice")
            bound.add(binding.buffer)
            if kind == "input":
                dims = [plan.sizes[i] for i in binding.shape]
                symbols |= {d.a for d in dims if d.op == "sym"}
    for i, buffer in enumerate(plan.buffers):
        if buffer.kind in ("input", "output"):
            _require(i in bound, f"buffer {i}", f"no {buffer.kind} is bound to it")
    for i, size in enumerate(plan.sizes):
        if size.op == "sym":
            symbol = plan.symbols[size.a]
            _require(size.a in symbols, f"size {i}", f"no input axis gives symbol {symbol!r}")


def _check_binding(plan: Plan, where: str, kind: str, binding: Binding) -> None:
    _require(binding.dtype.name in schema.DTYPE_BYTES, where, "unknown element type")
    _require(len(binding.shape) <= schema.MAX_RANK, where, "too many axes")
    _indexes(where, "size", binding.shape, len(plan.sizes))
    _indexes(where, "buffer", (binding.buffer,), len(plan.buffers))
    found = plan.buffers[binding.buffer].kind
    _require(found == kind, where, f"its buffer is of kind {found!r}")
    _require(not binding.value or kind == "input", where, "only inputs are specialised to a value")


def _check_ref(plan: Plan, where: str, ref: BufferRef) -> None:
    _indexes(where, "buffer", (ref.buffer,), len(plan.buffers))
    if ref.displacement != -1:
        _indexes(where, "size", (ref.displacement,), len(plan.sizes))


def _check_step(plan: Plan, index: int, step: Step) -> None:
    where = f"step {index} {step.name!r}"
    _indexes(where, "kernel", (step.kernel,), len(plan.kernels))
    _indexes(where, "size", step.params, len(plan.sizes))
    _indexes(where, "earlier step", step.after, index)
    for ref in step.buffers:
        _check_ref(plan, where, ref)


def _check_profile(plan: Plan, where: str, profile: Profile) -> None:
    _require(len(profile.ranges) == len(plan.symbols), where, "one range a symbol is needed")
    for symbol, (low, opt, high) in zip(plan.symbols, profile.ranges, strict=True):
        fits = low in _INT64 and high in _INT64 and 0 <= low <= opt <= high
        _require(fits, where, f"symbol {symbol!r}: {low} <= {opt} <= {high} does not hold")
    _require(len(profile.offsets) == len(plan.buffers), where, "one offset a buffer is needed")
    _require(profile.arena_bytes in _INT64 and profile.arena_bytes >= 0, where, "arena size")
    _require(profile.lower_bound_bytes in _INT64, where, "lower bound")
    for i, offset in enumerate(profile.offsets):
        if plan.buffers[i].kind == "arena":
            fits = 0 <= offset <= profile.arena_bytes and offset % schema.ARENA_ALIGN == 0
            _require(fits, where, f"buffer {i}: arena offset {offset} is misplaced")


def _check_weight(where: str, weight: Weight) -> None:
    _require(weight.dtype.name in schema.DTYPE_BYTES, where, "unknown element type")
    _require(weight.bytes in _INT64 and weight.bytes >= 0, where, "negative size")
    _require(weight.offset in _INT64 and weight.offset >= 0, where, "negative offset")
    _require(weight.offset % schema.WEIGHT_ALIGN == 0, where, "not 64-byte aligned")
