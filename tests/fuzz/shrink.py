"""Make a failing case small: drop outputs, steps, sizes and attributes while it still fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.fuzz.bounds import Run
from tests.fuzz.case import Case, Fill, Step, Tensor, source
from tests.fuzz.checks import Outcome, check
from tests.fuzz.sketch import default_fill
from tests.fuzz.ways import Variant

SECONDS = 90.0


def shrink(case: Case, outcome: Outcome, number: int, seconds: float = SECONDS) -> Case:
    """The smallest case found that fails in the same manner and the same variant."""
    way = outcome.variant or Variant()
    kind = manner(outcome.reason)

    def fails(candidate: Case) -> bool:
        o = check(candidate, number, (way,))
        return o.status == "wrong" and manner(o.reason) == kind

    return smallest(case, fails, seconds)


def manner(reason: str) -> str:
    """What sort of failure a reason describes: wrong values, wrong bits, or an exception without
    the names and numbers in it."""
    first = reason.split(" ", 1)[0]
    if first.endswith(":"):
        return re.sub(r"'[^']*'|\d+", "#", reason)
    return "bits" if "bits" in reason else first


def smallest(case: Case, fails: Callable[[Case], bool], seconds: float) -> Case:
    """`case` reduced step by step until no reduction fails any more, or time is up."""
    end = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for candidate in _reductions(case):
            if time.monotonic() > end:
                break
            if _cost(candidate) < _cost(case) and fails(candidate):
                case, changed = candidate, True
                break
    return case


def _cost(case: Case) -> tuple[int, ...]:
    """What counts as smaller: outputs and steps first, then symbols, then everything else."""
    attributes = sum(len(s.attributes) for s in case.steps)
    leaves = case.leaves().values()
    drawn = sum(t.fill != Fill() for t in leaves)
    edges = sum(len(t.fill.strewn) for t in leaves)
    links = sum(len(s.inputs) for s in case.steps)
    return (len(case.steps), len(case.outputs), len(case.sizes), links,
            len(leaves), attributes, drawn, edges)  # fmt: skip


def _reductions(case: Case) -> Iterator[Case]:
    """Smaller cases, the boldest first."""
    if len(case.outputs) > 1:
        for name in case.outputs:
            yield replace(case, outputs=(name,)).trimmed()
        for name in case.outputs:
            rest = tuple(n for n in case.outputs if n != name)
            yield replace(case, outputs=rest).trimmed()
    for step in case.steps:  # an earlier value may be wrong already
        for name in step.outputs:
            if (name,) != case.outputs:
                yield replace(case, outputs=(name,)).trimmed()
    known = types(case)
    for step in reversed(case.steps):
        for name in step.outputs:
            if name in known and name not in case.outputs:
                yield _as_input(case, name, known[name])
    for step in case.steps:
        for before in step.inputs:
            after = step.outputs[0]
            if before and known.get(before) == known.get(after, ()):
                yield _bypassed(case, step, before)
    yield _static(case)
    for i, step in enumerate(case.steps):
        for key in step.attributes:
            rest = {k: v for k, v in step.attributes.items() if k != key}
            yield _with_step(case, i, replace(step, attributes=rest))
        if len(step.inputs) > 1:
            yield _with_step(case, i, replace(step, inputs=step.inputs[:-1]))
    for name, t in case.leaves().items():
        for less in ((), *((one,) for one in t.fill.strewn)):
            if name != case.outside and less != t.fill.strewn:
                yield case.with_leaf(name, replace(t, fill=replace(t.fill, strewn=less)))
    for name, t in case.inputs.items():
        yield replace(case, inputs={**case.inputs, name: replace(t, fill=default_fill(t.dtype))})


def _with_step(case: Case, at: int, step: Step) -> Case:
    return replace(case, steps=(*case.steps[:at], step, *case.steps[at + 1 :])).trimmed()


def types(case: Case) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    """Element type and opt sizes of every tensor of the case; empty where they cannot be had."""
    names = tuple(dict.fromkeys(n for s in case.steps for n in s.outputs if n))
    known = {
        n: (t.dtype, t.sizes(case.env(1)))
        for n, t in (*case.inputs.items(), *case.constants.items())
    }
    try:
        everything = replace(case, outputs=names)
        graph = import_network(everything.model(), shapes=case.shapes()).graph
        with np.errstate(all="ignore"):
            arrays = Run(graph).evaluate(case.feed(case.env(1)), frozenset())
    except BrazeError:
        return known
    return known | {n: (v.dtype.name, arrays[n].shape) for n, v in graph.outputs}


def _as_input(case: Case, name: str, known: tuple[str, tuple[int, ...]]) -> Case:
    """The value as an input of its own (at fixed sizes), and nothing that computes it."""
    dtype, shape = known
    fixed = _static(case)
    steps = tuple(s for s in fixed.steps if name not in s.outputs)
    lost = {o for s in fixed.steps if name in s.outputs for o in s.outputs} - {name}
    if lost & {i for s in steps for i in s.inputs} or lost & set(fixed.outputs):
        return case
    seed = sum(map(ord, name))
    inputs = {**fixed.inputs, name: Tensor(dtype, shape, default_fill(dtype), seed)}
    return replace(fixed, steps=steps, inputs=inputs).trimmed()


def _bypassed(case: Case, step: Step, before: str) -> Case:
    """Readers of the step's result read one of its operands instead."""
    after = step.outputs[0]
    steps = tuple(
        replace(s, inputs=tuple(before if i == after else i for i in s.inputs))
        for s in case.steps if s is not step
    )  # fmt: skip
    outputs = tuple(before if o == after else o for o in case.outputs)
    made = {o for s in steps for o in s.outputs}
    if len(set(outputs)) < len(outputs) or not set(outputs) <= made:
        return case
    return replace(case, steps=steps, outputs=outputs).trimmed()


def _static(case: Case) -> Case:
    """Every symbol replaced by its opt size."""
    env = case.env(1)
    inputs = {n: replace(t, shape=t.sizes(env)) for n, t in case.inputs.items()}
    return replace(case, inputs=inputs, sizes={})


def as_test(case: Case, number: int, outcome: Outcome) -> str:
    """A pytest of the case, ready to paste into test_found.py."""
    way = outcome.variant or Variant()
    changed = {k: v for k, v in vars(way).items() if v != getattr(Variant(), k)}
    given = ", ".join(f"{k}={v!r}" for k, v in changed.items())
    return (
        f"def test_found_{number}() -> None:\n"
        f'    """{outcome.reason[:150]}"""\n'
        f"    case = {source(case, 4)}\n"
        f"    right(case, Variant({given}))\n"
    )
