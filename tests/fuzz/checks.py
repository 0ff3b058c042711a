"""Run one case in several ways and hold every output against its bound."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from braze.core.errors import (
    BrazeError,
    CompileError,
    ExecutionError,
    InternalError,
    ProfileError,
    ShapeError,
    UnsupportedOpError,
)
from braze.frontend.onnx.importer import import_network
from braze.ir.graph import Graph, Value
from braze.ops.product.attention import FusedAttention
from tests.fuzz.bounds import PRODUCTS, RUNS, RUNS_TO_CONVICT, Run, kind_of
from tests.fuzz.case import Case
from tests.fuzz.expected import Expected, expected, unsure
from tests.fuzz.forcing import build, guarded_outputs
from tests.fuzz.inside import inside
from tests.fuzz.ways import Variant, variants

Array = np.ndarray[Any, Any]
# A build that says one of these about a valid model refuses it; any other error is a fault.
REFUSALS = (UnsupportedOpError, ShapeError, ProfileError)
FAULTS = (CompileError, InternalError)  # of braze itself, whatever the model is
SECONDS = 60
LARGEST = ("max", "-max")
LINEAR = {"add", "sub", "mul"}


@dataclass
class Outcome:
    """What became of a case. status: right, refused or wrong."""

    status: str = "right"
    reason: str = ""  # why refused, or what is wrong, in one line
    variant: Variant | None = None
    templates: set[tuple[str, str]] = field(default_factory=set)
    tactics: set[str] = field(default_factory=set)  # those taken, as text
    compared: int = 0
    unsure: int = 0
    worst: float = 0.0  # largest error seen, as a part of its bound
    slots: int = 0  # outputs whose rows were compared bit by bit
    refused_data: int = 0  # runs that ended with an error, as they had to

    def fail(self, variant: Variant | None, reason: str) -> Outcome:
        """Mark the case as wrong."""
        self.status, self.variant, self.reason = "wrong", variant, reason
        return self


class TooSlowError(Exception):
    """A case took longer than SECONDS."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TooSlowError inside after `seconds` of processor time, so that a busy machine does not
    matter; a process that waits for ever is ended by the parent."""

    def stop(_signal: int, _frame: Any) -> None:
        raise TooSlowError(f"took more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check(
    case: Case, number: int = 0, ways: tuple[Variant, ...] | None = None, count: int = 2
) -> Outcome:
    """Build and run `case` in the given ways (default: `count` ways of `number`)."""
    out = Outcome()
    try:
        with limited(SECONDS), np.errstate(all="ignore"):
            for way in ways or variants(case, number, count):
                out.variant = way
                _check_way(case, number, way, out)
                if out.status != "right":
                    return out
    except Exception as e:  # whatever else comes out of a valid model is a finding
        place = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{place.filename.rsplit('/', 1)[-1]}:{place.lineno} {place.name}"
        return out.fail(out.variant, f"{type(e).__name__}: {_line(e)} [{where}]")
    return out


def _check_way(case: Case, number: int, way: Variant, out: Outcome) -> None:
    env, shapes = case.env(1), case.shapes()
    if way.fixed:
        shapes = {n: t.sizes(env) for n, t in case.inputs.items()}
    plain = None
    try:
        plain = import_network(case.model(), shapes=shapes)
        values = case.contents() if way.bounded else None
        imported = import_network(case.model(), shapes=shapes, values=values) if values else plain
        more: Mapping[str, Array] = {}
        if way.inside and case.steps:
            types = {name: v.dtype.onnx for name, v in plain.graph.outputs}
            model, more = inside(case.model(), way.inside, number, types)
            within = {**shapes, **dict.fromkeys(more, ())}
            imported = import_network(model, shapes=within, values=values)
        built, chosen = build(imported, way.level, way.target, way.turn)
        engine = Fed(built, more) if more else built
    except BrazeError as e:
        if case.outside and not isinstance(e, FAULTS):
            out.refused_data += 1
            return
        if isinstance(e, ExecutionError) and plain is not None and _fails(plain.graph, case):
            out.refused_data += 1  # an index of constants that is out of range
            return
        if not isinstance(e, REFUSALS):
            raise
        out.status, out.reason = "refused", f"{type(e).__name__}: {_line(e)}"
        return
    out.templates |= chosen.used
    out.tactics |= chosen.tactics
    graph = plain.graph
    envs = [case.env(k) for k in (1, 0, 2)] if case.sizes and not way.fixed else [env]
    for salt, sizes in enumerate(envs):
        feed = case.feed(sizes, salt)
        _check_run(graph, engine, feed, number, case, out)
        if out.status != "right":
            out.reason += f" (sizes {sizes})" if sizes else ""
            return
    if "n" in case.sizes and not way.fixed and number % 3 == 0 and not case.outside:
        _compare_slots(case, graph, engine, out)


def _check_run(
    graph: Graph, engine: Any, feed: Mapping[str, Array], number: int, case: Case, out: Outcome
) -> None:
    """One run: right results, or an error where the reference has one."""
    try:
        want = expected(graph, feed, seed=number, edges=case.edges)
    except (ShapeError, ExecutionError) as e:  # the model does not fit together at these sizes, or
        if not _refuses(engine, feed, out):  # an index is out of range
            if not _unread(engine, feed, case):
                out.fail(out.variant, f"it runs where the reference has an error: {_line(e)}")
            return
        out.refused_data += 1
        if case.outside in case.inputs:  # and it goes on with better ones
            plain = case.inside()
            better = {**feed, case.outside: plain.inputs[case.outside].data(_env(case, feed))}
            _check_run(graph, engine, better, number, plain, out)
        return
    if case.outside and any(v.name == case.outside for n in graph.nodes for v in n.inputs if v):
        out.fail(out.variant, f"the reference has no error for an index of {case.outside}")
        return
    if _splits_largest(case, out.variant):
        sums, others = behind_products(graph)
        want |= {name: want[name].of_any_kind() for name in sums}
        want |= {name: unsure(want[name].dtype, want[name].exact) for name in others}
    _compare(graph, feed, _run(engine, feed, out), want, out, case.edges)


def _splits_largest(case: Case, way: Variant | None) -> bool:
    """Whether the largest number, whose TF32 part is infinite, may be beside products of a GPU
    (docs/semantics.md)."""
    if way is None or not way.target.startswith("cuda"):
        return False
    strewn = {s for t in case.leaves().values() for s in t.fill.strewn}
    return not strewn.isdisjoint(LARGEST)


def behind_products(graph: Graph) -> tuple[list[str], list[str]]:
    """The outputs that are sums and products of what products give, infinite or NaN where these
    are, and the others that products reach, which may have picked anything by that."""
    sums, others = set[Value](), set[Value]()
    for n in graph.nodes:
        given = {i for i in n.inputs if i is not None}
        product = isinstance(n.op, PRODUCTS)
        if product or isinstance(n.op, FusedAttention) or not given.isdisjoint(sums | others):
            linear = product or kind_of(n) == "moves" or getattr(n.op, "op", "") in LINEAR
            (sums if linear and given.isdisjoint(others) else others).update(n.outputs)
    first, second = ([name for name, v in graph.outputs if v in s] for s in (sums, others))
    return first, second


def _unread(engine: Any, feed: Mapping[str, Array], case: Case) -> bool:
    """Whether the input with the wrong index does nothing, whatever it holds: a constant condition
    has left out what reads it."""
    if case.outside not in case.inputs:
        return False
    tensor, env = case.inside().inputs[case.outside], _env(case, feed)
    first = tensor.data(env, 0)
    more = (tensor.data(env, salt) for salt in range(1, 9))
    other = next((d for d in more if (d != first).any()), None)
    if other is None:  # equal results would tell nothing
        return False
    one, two = (engine({**feed, case.outside: d}) for d in (first, other))
    return all(a.tobytes() == two[name].tobytes() for name, a in one.items())


def _env(case: Case, feed: Mapping[str, Array]) -> dict[str, int]:
    """The sizes of a feed."""
    return {
        d: n for name, t in case.inputs.items()
        for d, n in zip(t.shape, feed[name].shape, strict=True) if isinstance(d, str)
    }  # fmt: skip


@dataclass(frozen=True)
class Fed:
    """An engine with some inputs given."""

    engine: Any
    more: Mapping[str, Array]

    def __call__(self, feed: Mapping[str, Array], **options: Any) -> Mapping[str, Array]:
        """The outputs for the other inputs."""
        found: Mapping[str, Array] = self.engine({**feed, **self.more}, **options)
        return found


def _fails(graph: Graph, case: Case) -> bool:
    """Whether the reference has an error too."""
    try:
        Run(graph).evaluate(case.feed(case.env(1)), frozenset())
    except ExecutionError:
        return True
    return False


def _refuses(engine: Any, feed: Mapping[str, Array], out: Outcome) -> bool:
    """Whether a run ends with an error, and writes nowhere else."""
    with guarded_outputs() as strayed:
        try:
            engine(feed)
        except BrazeError as e:
            if isinstance(e, FAULTS):
                raise
            for name in strayed():
                out.fail(out.variant, f"bytes beside output {name} were written to")
            return True
    return False


def _run(engine: Any, feed: Mapping[str, Array], out: Outcome) -> dict[str, Array]:
    """Outputs of two workers, which must be those of one, bit by bit; inputs must survive."""
    kept = {n: a.copy() for n, a in feed.items()}
    with guarded_outputs() as strayed:
        got = dict(engine(feed))
        again = engine(feed, workers=1)
        for name in strayed():
            out.fail(out.variant, f"bytes beside output {name} were written to")
    for name, a in got.items():
        if a.tobytes() != again[name].tobytes():
            out.fail(out.variant, f"output {name} differs between one worker and two")
    for name, a in kept.items():
        if a.tobytes() != feed[name].tobytes():
            out.fail(out.variant, f"input {name} was written to")
    return got


def _compare(
    graph: Graph, feed: Mapping[str, Array], got: Mapping[str, Array],
    want: Mapping[str, Expected], out: Outcome, edges: bool = False,
) -> None:  # fmt: skip
    if out.status != "right":
        return
    if set(got) != set(want):
        out.fail(out.variant, f"outputs {sorted(got)} for {sorted(want)}")
        return
    for w in want.values():
        out.compared += w.exact.size
        out.unsure += int(w.exact.size - w.sure.sum())
    errors = {name: w.error(got[name]) for name, w in want.items()}
    for runs in RUNS_TO_CONVICT:  # by chance all runs may have left an element nearly in place
        if max(error for error, _ in errors.values()) <= 1:
            break
        surer = expected(graph, feed, runs, seed=RUNS, edges=edges)
        errors |= {n: surer[n].error(got[n]) for n, (error, _) in errors.items() if error > 1}
    name, (error, place) = max(errors.items(), key=lambda found: found[1][0])
    out.worst = max(out.worst, error)
    if error > 1:
        out.fail(out.variant, f"output {name} is {error:.3g} times its bound away: {place}")


def _compare_slots(case: Case, graph: Graph, engine: Any, out: Outcome) -> None:
    """Where the model treats the rows of a batch one by one, each has the bits it has alone."""
    env = {**case.env(1), "n": case.sizes["n"][2]}
    count = env["n"]
    batched = {n for n, t in case.inputs.items() if t.shape[:1] == ("n",)}
    elsewhere = any("n" in t.shape[1:] for t in case.inputs.values())
    if count < 2 or case.sizes["n"][0] > 1 or not batched or elsewhere:
        return
    feed, inner = case.feed(env, 7), frozenset(v.name for n in graph.nodes for v in n.outputs)
    try:
        want = Run(graph).evaluate(feed, inner)
    except (ShapeError, ExecutionError):
        return
    got = engine(feed)
    rows = range(count) if count <= 3 else (0, count - 1)
    parts = [
        {n: np.ascontiguousarray(a[row : row + 1]) if n in batched else a for n, a in feed.items()}
        for row in rows
    ]
    exact = [Run(graph).evaluate(part, inner) for part in parts]
    alone = [engine(part) for part in parts]
    for name, a in got.items():
        w = want[name]
        each = zip(exact, rows, strict=True)
        if w.shape[:1] != (count,) or not all(_is_row(w, e[name], row) for e, row in each):
            continue
        if not all(_is_apart(graph, name, want, e, r) for e, r in zip(exact, rows, strict=True)):
            continue
        for one, row in zip(alone, rows, strict=True):
            out.slots += 1
            if a[row].tobytes() != one[name][0].tobytes():
                out.fail(out.variant, f"row {row} of output {name} has other bits when alone")
                return


def _is_row(whole: Array, alone: Array, row: int) -> bool:
    """Whether a row is what it is alone, and finite; not where rows know of each other, as those of
    a Gram matrix do (all rows must say so: one may by chance)."""
    if alone.shape != (1, *whole.shape[1:]):
        return False
    if whole.dtype.kind == "f" and not np.isfinite(whole).all():
        return False
    return bool(np.allclose(whole[row], alone[0], rtol=1e-12, atol=0))


def _is_apart(
    graph: Graph, name: str, whole: Mapping[str, Array], alone: Mapping[str, Array], row: int
) -> bool:
    """Whether all that an output is made of is a row, or the same in both: a number that the count
    of rows decides may vanish in a softmax but for its rounding."""
    todo, seen = [v for n, v in graph.outputs if n == name], set[Value]()
    while todo:
        v = todo.pop()
        if v in seen or v not in graph.producer:
            continue
        seen.add(v)
        a, b = whole[v.name], alone[v.name]
        parts = [a] if a.shape == b.shape else []
        parts += [a[row : row + 1]] if b.shape == (1, *a.shape[1:]) else []
        if not any(np.allclose(p, b, rtol=1e-12, atol=0, equal_nan=True) for p in parts):
            return False
        todo += [i for i in graph.producer[v].inputs if i is not None]
    return True


def _line(e: BaseException) -> str:
    return " ".join(str(e).split())[:300]


def refusal_kind(reason: str) -> str:
    """A refusal without the names and numbers in it, to count by."""
    text = reason.split("): ", 1)[-1] if "): " in reason else reason
    return "".join("#" if c.isdigit() else c for c in text)[:110]


__all__ = ["Outcome", "check", "refusal_kind"]
