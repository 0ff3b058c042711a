"""How far from float64 a right answer may be: measured on the graph itself, element by element.

Every run of a perturbed graph stands for one way to round: each floating-point value is disturbed
by its own unit roundoff at each use (a value may be computed again in another kernel, or kept in
registers and never rounded), and more where an op sums many terms. What that does to an output
element is how ill-conditioned the element is, and the bound is a fixed multiple of it. So a bound
is as tight as the arithmetic allows: 1e-6 of a value behind a convolution, wide behind a
cancellation, and none for integers, which must be equal.

An element that a rounding can turn into another integer, truth value, NaN or infinity (a tie, an
overflow) is unsure: it is counted and not compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from braze.core.dtypes import DType
from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Op
from braze.ops.evaluator import _Run
from braze.ops.lowering import SUM_BLOCK, Pointwise, View
from braze.ops.pointwise.activation import Gelu, Mish, Silu
from braze.ops.pointwise.cast import Cast
from braze.ops.pool.pool import LpPool
from braze.ops.pool.unpool import Det
from braze.ops.product.conv import Conv
from braze.ops.recurrent.recurrence import Recurrence
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.scan import Cumulative
from braze.ops.reduce.softmax import Softmax
from tests.fuzz.case import stored
from tests.fuzz.transforms import transform_loss

Array = np.ndarray[Any, Any]

# unit roundoff, smallest normal (below it kernels flush to zero), largest finite; float64 is given
# four units, as the runs are in float64 themselves and less would vanish in them
ROUNDOFF = {
    "float64": (2.0**-51, 2.0**-1022, 1.797e308),
    "float32": (2.0**-24, 2.0**-126, 3.402e38),
    "float16": (2.0**-11, 2.0**-24, 65504.0),
    "bfloat16": (2.0**-8, 2.0**-126, 3.389e38),
}
RUNS = 3
# Runs more before an element counts as wrong: three may by chance all leave it nearly in place
RUNS_TO_CONVICT = 16
# The largest quotient of a right kernel's error by the spread of 16 runs was 1.1 in 120 builds of
# 60 graphs; a wrong element is off by thousands. Between them there is room for rare roundings.
FACTOR = 10.0
# What kernels compute in float32 or float64 is flushed to zero below this, also inside an op.
FLUSHED = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-126, "bfloat16": 2.0**-126}


class Run(_Run):
    """The float64 evaluator, with its steps open to the generator."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, True)

    def enter(self, array: Array, dtype: DType) -> Array:
        """A stored array as the evaluator computes with it."""
        return self._enter(array, dtype)

    def step(self, node: Node) -> None:
        """Run one node on `self.values`."""
        self._step(node)


class Perturbed(Run):
    """One evaluation in which every use of a rounded value is disturbed by its roundoff.

    rng: None rounds to the nearest number of the type and disturbs nothing: what saturates (a
    sigmoid far out) then ties exactly, which no random disturbance makes likely.
    """

    def __init__(self, graph: Graph, rng: np.random.Generator | None) -> None:
        super().__init__(graph)
        self.rng = rng
        self.rough: set[Value] = set()

    def step(self, node: Node) -> None:
        """See Run.step."""
        self._step(node)

    def _step(self, node: Node) -> None:
        kind = _kind(node)
        given = {v: self.values[v] for v in node.inputs if v is not None}
        rounds = kind == "rounds" or (kind == "exact" and not self.rough.isdisjoint(given))
        if rounds:
            factor = _accumulation(node, given)
            for v, a in given.items():
                if kind == "rounds" or v in self.rough:
                    self.values[v] = self.disturbed(a, v.dtype, factor)
        super()._step(node)
        self.values.update(given)
        loss = _inner_loss(node, given)
        if loss is not None and self.rng is not None:
            v = node.outputs[0]
            noise = self.rng.uniform(-1.0, 1.0, self.values[v].shape)
            self.values[v] = self.values[v] + noise * (loss + ROUNDOFF[v.dtype.name][1])
        if rounds or not self.rough.isdisjoint(given):
            self.rough.update(node.outputs)

    def disturbed(self, a: Array, dtype: DType, factor: float = 1.0) -> Array:
        """`a` with each element moved by about `factor` roundoffs, to a number of its type: where
        two rounded results are compared, equal ones must be possible."""
        if not dtype.is_float:
            return a
        unit, tiny, top = ROUNDOFF[dtype.name]
        if self.rng is None:  # and what is too small is zero, as kernels flush it
            nearest = a.astype(stored(dtype.name)).astype(np.float64)
            return np.where(np.abs(nearest) < tiny, np.copysign(0.0, nearest), nearest)
        # more than half a step of the type's numbers, or rounding would undo it
        noise = self.rng.uniform(0.5, 2.0, a.shape) * self.rng.choice([-1.0, 1.0], a.shape)
        with np.errstate(all="ignore"):
            moved = a + noise * (unit * factor * np.abs(a) + tiny)
            if dtype.bits < 64:
                moved = moved.astype(stored(dtype.name)).astype(np.float64)
            return np.where(np.abs(moved) > top, np.copysign(np.inf, moved), moved)

    def _leave(self, value: Value) -> Array:
        a = super()._leave(value)
        return self.disturbed(a, value.dtype) if value in self.rough else a



def _inner_loss(node: Node, given: Mapping[Value, Array]) -> Array | float | None:
    """What an op loses inside, where its formula has terms that are larger than its result or
    factors that are flushed to zero before they are scaled up.

    log(sum) of a sum near 1 is as uncertain as the sum; x / 2 (1 + erf(x / sqrt 2)), as ONNX
    defines Gelu, is as uncertain as x where the erf is near -1; x tanh(softplus(x)) and
    x sigmoid(x) are x times something that is flushed far below 0. A determinant is a sum of
    products of a number from each row, all of which are in the product of the rows' sums. Powers
    under a root are flushed while their root is not small: the p-th root of n numbers flushed. A
    transformed convolution rounds all of a patch for each output of it (transforms.py).
    """
    name = node.outputs[0].dtype.name
    op = node.op
    if (isinstance(op, Softmax) and op.log) or (isinstance(op, Reduce) and op.kind == "logsumexp"):
        return ROUNDOFF[name][0]
    if isinstance(op, Gelu):
        (x,) = given.values()
        return ROUNDOFF[name][0] * np.abs(x)
    if isinstance(op, (Mish, Silu)):
        (x,) = given.values()
        return FLUSHED[name] * np.abs(x)
    if isinstance(op, Det):
        (x,) = given.values()
        return ROUNDOFF[name][0] * np.abs(x).sum(-1).prod(-1)
    if (power := _rooted(op)) > 1:
        return float((_terms(node, given) * FLUSHED[name]) ** (1 / power))
    if isinstance(op, Conv):  # float16 and bfloat16 are summed in float32
        return transform_loss(node, given, min(ROUNDOFF[name][0], ROUNDOFF["float32"][0]))
    return None


def _rooted(op: Op) -> int:
    """Of which power an op sums before it takes the root; 1 for all others."""
    if isinstance(op, Reduce) and op.kind == "l2":
        return 2
    return op.p if isinstance(op, LpPool) else 1


# Ops whose result is one of their operands' elements or a small exact integer: no rounding.
EXACT = frozenset({
    "Relu", "Clip", "Where", "Equal", "Less", "LessOrEqual", "Compare", "IsNaN", "IsInf", "Gather",
    "GatherElements", "GatherND", "Concat", "Split", "MaxPool", "TopK", "ArgReduce", "OneHot",
    "ThresholdedRelu", "Trilu", "ReverseSequence", "MaxUnpool", "Hardmax",
})  # fmt: skip
EXACT_KINDS = frozenset({"neg", "abs", "sign", "floor", "ceil", "round", "not", "max", "min"})


def _kind(node: Node) -> str:
    """"moves" (no arithmetic at all), "exact" (picks or compares) or "rounds"."""
    types = [None if v is None else v.type for v in node.inputs]
    low = node.op.lower(types, [v.type for v in node.outputs])
    if isinstance(low, View):
        return "moves"
    if isinstance(node.op, Cast):
        source = node.inputs[0]
        assert source is not None
        widens = not node.op.to.is_float or source.dtype.bits <= node.op.to.bits
        return "exact" if widens else "rounds"
    name = type(node.op).__name__
    kind = getattr(node.op, "op", getattr(node.op, "kind", ""))
    return "exact" if name in EXACT or kind in EXACT_KINDS else "rounds"


def _accumulation(node: Node, given: Mapping[Value, Array]) -> float:
    """How many roundoffs the operands of a sum are disturbed by, so that the sum moves about as
    much as the roundings of its own additions move it.

    A chain of m additions rounds m partial sums, each by at most a roundoff u of it: for roundings
    that are independent and uniform, a standard deviation of at most u sqrt(m / 3) times the
    largest partial sum, which is no larger than the sum S of the magnitudes of the n terms.
    Operands disturbed by sqrt(n) u each, with a random factor of root mean square 1.3, move the sum
    by 1.3 u sqrt(n) times the root of the sum of their squares, which is at least 1.3 u S (Cauchy
    and Schwarz). So the quotient of the two is at most 0.44 sqrt(m). Sums run in blocks of b, one
    after the other, and m is b + n / b: at most 334 for the sums a graph can have, a quotient of
    at most 8 that FACTOR has room for. A scan is one chain of n: its operands are disturbed by
    sqrt(n / (b + n / b)) times as much, which gives it the same quotient.
    """
    terms = _terms(node, given)
    chain = SUM_BLOCK + terms / SUM_BLOCK
    scans = isinstance(node.op, Cumulative) and terms > chain
    return math.sqrt(terms * (terms / chain if scans else 1.0))


def _terms(node: Node, given: Mapping[Value, Array]) -> int:
    """About how many terms an output element sums, 1 for pointwise ops."""
    sizes = [a.size for v, a in given.items() if v.dtype.is_float]
    if not sizes or not node.outputs:
        return 1
    types = [None if v is None else v.type for v in node.inputs]
    if isinstance(node.op.lower(types, [v.type for v in node.outputs]), Pointwise):
        return 1
    if isinstance(node.op, Recurrence):  # of a state's sums, over all steps
        x, weight = list(given.values())[:2]
        return int(max(1, len(x)) * weight.shape[-1])
    longest = max(max(a.shape, default=1) for a in given.values())
    second = [a for a in given.values() if a.ndim > 1]
    return max(1, longest, math.prod(second[1].shape[1:]) if len(second) > 1 else 1)


@dataclass
class Expected:
    """One output: exact values, the spread that roundings cause, and which elements are sure."""

    dtype: DType
    exact: Array
    spread: Array
    sure: Array

    def bound(self) -> Array:
        """The largest error allowed, for each element."""
        if not self.dtype.is_float:
            return np.zeros(self.exact.shape)
        unit, tiny, _ = ROUNDOFF[self.dtype.name]
        with np.errstate(all="ignore"):
            return FACTOR * (self.spread + tiny) + unit * np.abs(self.exact)

    def error(self, got: Array) -> tuple[float, str]:
        """The largest error as a multiple of its bound (inf: of another kind), and where it is."""
        if got.shape != self.exact.shape:
            return math.inf, f"shape {got.shape} for {self.exact.shape}"
        if not got.size or not self.sure.any():
            return 0.0, ""
        y, want = as_float64(got, self.dtype), self.exact
        if not self.dtype.is_float:
            wrong = (got != want) & self.sure
            return (math.inf if wrong.any() else 0.0), _place(wrong, got, want)
        finite = np.isfinite(want)
        with np.errstate(all="ignore"):
            odd = self.sure & np.where(finite, ~np.isfinite(y), ~_same(y, want))
            if odd.any():
                return math.inf, _place(odd, y, want)
            ratio = np.where(finite & self.sure, np.abs(y - want) / self.bound(), 0.0)
        worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        mark = np.zeros(ratio.shape, bool)
        mark[worst] = True
        return float(ratio[worst]), _place(mark, y, want, int((ratio > 1).sum()))


def _same(a: Array, b: Array) -> Array:
    return (a == b) | (np.isnan(a) & np.isnan(b))


def _place(wrong: Array, got: Array, want: Array, count: int | None = None) -> str:
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    many = int(wrong.sum()) if count is None else count
    return f"{many} of {wrong.size} elements; at {list(at)}: {got[at]!r} for {want[at]!r}"


def as_float64(a: Array, dtype: DType) -> Array:
    """What a run returns, as float64."""
    return a.astype(np.float64) if dtype.is_float else a


def expected(
    graph: Graph, feed: Mapping[str, Array], runs: int = RUNS, seed: int = 0
) -> dict[str, Expected]:
    """Exact outputs of an imported graph and what `runs` ways of rounding make of them.

    feed: stored arrays by input name. Raises what the evaluator raises for a feed that does not
    fit; a perturbed run that fails (an index that a rounding moves out of range) leaves all unsure.
    """
    with np.errstate(all="ignore"):
        exact = Run(graph).evaluate(feed, frozenset())
        others: list[Mapping[str, Array]] = [Perturbed(graph, None).evaluate(feed, frozenset())]
        rng = np.random.default_rng(seed)
        for _ in range(runs):
            others.append(Perturbed(graph, rng).evaluate(feed, frozenset()))
        return {
            name: _combine(v.dtype, exact[name], [o[name] for o in others])
            for name, v in graph.outputs
        }


def _combine(dtype: DType, exact: Array, others: Sequence[Array]) -> Expected:
    spread, sure = np.zeros(exact.shape), np.ones(exact.shape, bool)
    for o in others:
        if not dtype.is_float:
            sure &= o == exact
            continue
        finite = np.isfinite(exact)
        sure &= np.where(finite, np.isfinite(o), _same(o, exact))
        spread = np.maximum(spread, np.where(finite & np.isfinite(o), np.abs(o - exact), 0.0))
    return Expected(dtype, exact, spread, sure)
