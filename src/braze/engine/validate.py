"""Checks that a Plan refers only to things it has; run before writing and after reading.

Ranges of single fields come from their kinds (`engine/records.py`); here is what relates several
fields. The native reader makes the same checks (generated, and native/src/plan_check.cc) because
it must not trust a file; here they catch a planner's mistake before it reaches a file.
"""

from __future__ import annotations

import math

from braze.engine import schema
from braze.engine.checks import Place, require
from braze.engine.plan import AxisSource, Binding, ElementSource, Plan, Profile
from braze.engine.records import Record, field_kinds
from braze.engine.validate_steps import check_steps


def check_plan(plan: Plan) -> None:
    """Raise EngineFormatError, saying where, unless every index and range in `plan` is sound."""
    Record(Plan).check(plan, Place(counts=list_counts(plan)))
    check_relations(plan)


def check_relations(plan: Plan) -> None:
    """The part of check_plan that decoding a manifest has not done: what relates several fields."""
    alignment = plan.target.alignment
    require(alignment & (alignment - 1) == 0, "alignment", "no power of two")
    _check_sizes(plan)
    _check_symbols(plan)
    for i, buffer in enumerate(plan.buffers):
        aligned = buffer.kind != "weight" or buffer.offset % alignment == 0
        require(aligned, f"buffer {i}", "the weight is not aligned")
    _check_bindings(plan)
    check_steps(plan)
    require(bool(plan.profiles), "profiles", "there is none")
    for i, profile in enumerate(plan.profiles):
        _check_profile(plan, f"profile {i}", profile)
    for weight in plan.weights:
        aligned = weight.offset % schema.WEIGHT_ALIGN == 0
        require(aligned, f"weight {weight.name!r}", "not aligned")


def list_counts(plan: Plan) -> dict[str, int]:
    """The number of entries of every list of `plan`."""
    lists = {name: getattr(plan, name) for name in (*field_kinds(Plan), "every_step")}
    return {name: len(v) for name, v in lists.items() if isinstance(v, tuple)}


def _check_sizes(plan: Plan) -> None:
    for i, size in enumerate(plan.sizes):
        if size.op == "const":
            continue
        count = len(plan.symbols) if size.op == "sym" else i
        operands = (size.a,) if size.op == "sym" else (size.a, size.b)
        fits = all(0 <= operand < count for operand in operands)
        require(fits, f"size {i}", f"{operands} of {size.op} is out of range")


def _check_symbols(plan: Plan) -> None:
    for i, symbol in enumerate(plan.symbols):
        source = symbol.source
        if isinstance(source, AxisSource):
            shape = plan.inputs[source.input].shape
            size = plan.sizes[shape[source.axis]] if source.axis < len(shape) else None
            given = size is not None and (size.op, size.a) == ("sym", i)
            require(given, f"symbol {symbol.name!r}", "its input axis does not give it")
    late = late_sizes(plan)
    for binding in plan.inputs:
        known = not any(late[d] for d in binding.shape)
        require(known, f"input {binding.name!r}", "its shape is known only in the run")
    for i, buffer in enumerate(plan.buffers):
        needed = buffer.kind in ("input", "weight")
        require(not (needed and late[buffer.bytes]), f"buffer {i}", "its size is known too late")


def late_sizes(plan: Plan) -> list[bool]:
    """For every size, whether it is known only in the run."""
    late: list[bool] = []
    for size in plan.sizes:
        if size.op == "sym":
            late.append(not isinstance(plan.symbols[size.a].source, AxisSource))
        else:
            late.append(size.op != "const" and (late[size.a] or late[size.b]))
    return late


def _check_bindings(plan: Plan) -> None:
    names: set[str] = set()
    bound: set[int] = set()
    for kind, bindings in (("input", plan.inputs), ("output", plan.outputs)):
        for binding in bindings:
            where = f"{kind} {binding.name!r}"
            require(binding.name not in names, where, "the name is used twice")
            names.add(binding.name)
            _check_binding(plan, where, kind, binding)
            require(binding.buffer not in bound, where, "its buffer is bound twice")
            bound.add(binding.buffer)
    for i, buffer in enumerate(plan.buffers):
        if buffer.kind in ("input", "output"):
            require(i in bound, f"buffer {i}", f"no {buffer.kind} is bound to it")


def _check_binding(plan: Plan, where: str, kind: str, binding: Binding) -> None:
    found = plan.buffers[binding.buffer].kind
    require(found == kind, where, f"its buffer is of kind {found!r}")
    require(not binding.value or kind == "input", where, "only inputs are specialised to a value")
    if not binding.content:
        return
    free = kind == "input" and not binding.value and binding.dtype.is_int
    require(free, where, "bounds are for integers of inputs that are not specialised")
    dims = [plan.sizes[i] for i in binding.shape]
    count = math.prod(d.a if d.op == "const" else 0 for d in dims)
    require(count == len(binding.content), where, "one symbol an element is needed")
    for symbol in binding.content:
        read = isinstance(plan.symbols[symbol].source, ElementSource)
        require(read, where, "a symbol of its content is not read from memory")


def _check_profile(plan: Plan, where: str, profile: Profile) -> None:
    require(len(profile.ranges) == len(plan.symbols), where, "one range a symbol is needed")
    for symbol, (low, opt, high) in zip(plan.symbols, profile.ranges, strict=True):
        fits = low <= opt <= high and (low >= 0 or not isinstance(symbol.source, AxisSource))
        require(fits, where, f"{symbol.name!r}: {low} <= {opt} <= {high} does not hold")
    require(len(profile.offsets) == len(plan.buffers), where, "one offset a buffer is needed")
    for i, offset in enumerate(profile.offsets):
        if plan.buffers[i].kind == "arena" and offset != -1:
            fits = 0 <= offset <= profile.arena_bytes and offset % plan.target.alignment == 0
            require(fits, where, f"buffer {i}: arena offset {offset} is misplaced")
