"""How far from float64 a right answer may be: measured on the graph itself, element by element.

Every run of a perturbed graph stands for one way to round: each floating-point value is disturbed
by its own unit roundoff at each use (a value may be computed again in another kernel, or kept in
registers and never rounded), and more where an op sums many terms. What that does to an output
element is how ill-conditioned the element is, and the bound is a fixed multiple of it. So a bound
is as tight as the arithmetic allows: 1e-6 of a value behind a convolution, wide behind a
cancellation, and none for integers, which must be equal.

A float may be NaN, an infinity or finite where some of the runs make it that, and nothing else; an
integer or truth value that a rounding can turn into another (a tie) is not compared. Elements of
which there is more than one kind are counted as unsure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from braze.core.dtypes import DType
from braze.ir.graph import Graph, Node, Value
from braze.ops.base import Op
from braze.ops.evaluator import _in_float64, _Run
from braze.ops.lowering import SUM_BLOCK, Pointwise, View
from braze.ops.norm.batch_norm import BatchNorm
from braze.ops.norm.normalization import LayerNorm
from braze.ops.pointwise.activation import Gelu, Mish, Silu
from braze.ops.pointwise.cast import Cast
from braze.ops.pool.pool import LpPool
from braze.ops.pool.unpool import Det
from braze.ops.product.attention import LAYOUTS, FusedAttention
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.product.einsum import Einsum
from braze.ops.product.matmul import MatMul
from braze.ops.random.random import Random
from braze.ops.recurrent.recurrence import Recurrence
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.scan import Cumulative
from braze.ops.reduce.softmax import Softmax
from tests.fuzz.case import stored
from tests.fuzz.left_open import met_without_weight, moved_places, unseen
from tests.fuzz.overflow import (
    FACTOR_BEHIND,
    TOP,
    TOP_OF_DOUBLES,
    drawn_sums,
    largest_factor,
    largest_state,
)
from tests.fuzz.transforms import transform_loss

Array = np.ndarray[Any, Any]

# unit roundoff, smallest normal (below it kernels flush to zero), largest finite; float64 is given
# four units, as the runs are in float64 themselves and less would vanish in them
ROUNDOFF = {
    "float64": (2.0**-51, 2.0**-1022, 1.7976931348623157e308),
    "float32": (2.0**-24, 2.0**-126, 3.4028234663852886e38),
    "float16": (2.0**-11, 2.0**-24, 65504.0),
    "bfloat16": (2.0**-8, 2.0**-126, 3.3895313892515355e38),
}
PRODUCTS = (MatMul, Conv, ConvTranspose, Einsum)
RUNS = 3
# Runs more before an element counts as wrong: three may by chance all leave it nearly in place
# or, where sums overflow, none may have drawn the one of four results that a kernel has. Few are
# asked first, as many of a graph that they clear would take the time of several others.
RUNS_TO_CONVICT = (20, 400)
# The largest quotient of a right kernel's error by the spread of 16 runs was 1.1 in 120 builds of
# 60 graphs; a wrong element is off by thousands. Between them there is room for rare roundings.
FACTOR = 10.0
# No normal number that is made of a word of 32 bits is larger: sqrt(-2 log 2**-33).
LARGEST_NORMAL = 6.8
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

    def give_sizes(self) -> None:
        """Read the sizes that values so far give."""
        self._give_sizes()


class Perturbed(Run):
    """One evaluation in which every use of a rounded value is disturbed by its roundoff.

    rng: None rounds to the nearest number of the type and disturbs nothing: what saturates (a
    sigmoid far out) then ties exactly, which no random disturbance makes likely.
    """

    def __init__(self, graph: Graph, rng: np.random.Generator | None) -> None:
        super().__init__(graph)
        self.rng = rng
        self.rough: set[Value] = set()
        # whether what is hardly below the top stays there in this run
        self.stays = rng is not None and rng.random() < 0.5
        self.scales = any(getattr(n.op, "op", "") in ("mul", "div") for n in graph.nodes)
        self.factor = max(FACTOR_BEHIND, largest_factor(graph)) if self.scales else 1.0
        # how far above the top what is computed stays in this run, as with a scale in its terms
        moves = rng is not None and has_movable_factor(graph) and rng.random() < 0.5
        self.room = self.factor if moves else 1.0
        self.masks: set[Value] = set()  # given infinities, and what only adds to them or moves them
        # whether attention whose scores have overflowed gives 0 in this run, as one op does
        self.unmasks = rng is not None and rng.random() < 0.5
        # whether values without any weight are left out in this run where softmax has none for
        # them, and are met where an axis that keeps its size is resampled
        self.unsees = rng is not None and rng.random() < 0.5
        self.weighs = any(isinstance(n.op, Softmax) for n in graph.nodes)

    def step(self, node: Node) -> None:
        """See Run.step."""
        self._step(node)

    def _step(self, node: Node) -> None:
        kind = kind_of(node)
        given = {v: self.values[v] for v in node.inputs if v is not None}
        self.rough.update(v for v, a in given.items() if _flushed(a, v.dtype))
        self._note_masks(node, given)
        rounds = kind == "rounds" or (kind == "exact" and not self.rough.isdisjoint(given))
        if rounds:
            factor = _accumulation(node, given)
            for v, a in given.items():
                if v in self.rough or (kind == "rounds" and not _is_power(node, v)):
                    self.values[v] = self.disturbed(a, v.dtype, factor, v in self.rough)
            self.values.update(moved_places(node, self.values, self.rng))
        super()._step(node)
        if self.unmasks and isinstance(node.op, Softmax):
            self._unmask(node)
        if self.unsees:
            self.values.update(unseen(node, self.values, self.weighs))
            sized = node.op.specialize(self.env)
            self.values.update(met_without_weight(node, sized, self.values))
        if kind == "rounds":  # what only picks elements has nothing inside that overflows
            op = _in_float64(node.op.specialize(self.env))
            self.values.update(drawn_sums(node, op, self.values, self.rng, self.factor))
        self.values.update(given)
        loss = _inner_loss(node, node.op.specialize(self.env), given)
        if loss is not None and self.rng is not None:
            v = node.outputs[0]
            noise = self.rng.uniform(-1.0, 1.0, self.values[v].shape)
            self.values[v] = self.values[v] + noise * (loss + ROUNDOFF[v.dtype.name][1])
        if rounds or not self.rough.isdisjoint(given):
            self.rough.update(node.outputs)

    def _note_masks(self, node: Node, given: Mapping[Value, Array]) -> None:
        """Infinities of data are masks until a product has read them."""
        made = self.graph.producer
        self.masks.update(v for v, a in given.items() if v not in made and np.isinf(a).any())
        if not isinstance(node.op, MatMul) and not self.masks.isdisjoint(given):
            self.masks.update(node.outputs)

    def _unmask(self, node: Node) -> None:
        """Rows of scores that have all overflowed below: attention as one op gives 0, not NaN. A
        mask of infinities that may hide a row is never part of it."""
        assert isinstance(node.op, Softmax) and node.inputs[0] is not None
        x, v = self.values[node.inputs[0]], node.outputs[0]
        products = any(isinstance(n.op, MatMul) for n in self.graph.nodes)
        if products and not node.op.log and node.inputs[0] not in self.masks:
            top = TOP_OF_DOUBLES if v.dtype.bits == 64 else TOP  # also where float64 goes on
            # a scale that is applied before the product may be applied behind it
            lost = ~(np.abs(x) <= top) if self.scales else x < -top
            hidden = lost.all(node.op.axis, keepdims=True)
            self.values[v] = np.where(hidden, 0.0, self.values[v])

    def disturbed(
        self, a: Array, dtype: DType, factor: float = 1.0, computed: bool = True
    ) -> Array:
        """`a` with each element moved by about `factor` roundoffs, to a number of its type: where
        two rounded results are compared, equal ones must be possible. A zero that was not computed
        stays one."""
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
            if self.rng.random() < 0.3:  # one use flushes, and another one does not
                moved = np.where(np.abs(a) < tiny, np.copysign(0.0, a), moved)
            if self.stays or not computed:
                moved = np.where(np.abs(a) <= top, np.clip(moved, -top, top), moved)
            if not computed:  # a zero that is given is one
                moved = np.where(a == 0, a, moved)
            moved = np.where(np.isfinite(a), moved, a)
            if dtype.bits < 64:
                narrow = moved.astype(stored(dtype.name)).astype(np.float64)
                moved = np.where(np.isfinite(narrow), narrow, moved)
                top *= self.room if computed else 1.0
            return np.where(np.abs(moved) > top, np.copysign(np.inf, moved), moved)

    def _leave(self, value: Value) -> Array:
        a = super()._leave(value)
        return self.disturbed(a, value.dtype) if value in self.rough else a


def has_movable_factor(graph: Graph) -> bool:
    """Whether a constant factor may be moved from one side of a product to another, so that an
    intermediate overflows with it or without it (docs/semantics.md)."""
    if not any(isinstance(n.op, PRODUCTS) for n in graph.nodes):
        return False
    held = set(graph.constants)
    factors = [n for n in graph.nodes if getattr(n.op, "op", "") in ("mul", "div")]
    return any(isinstance(n.op, BatchNorm) for n in graph.nodes) or any(
        held.intersection(n.inputs) for n in factors
    )


def _is_power(node: Node, v: Value) -> bool:
    """Whether a value is an exponent alone: nearly 2 is no power of a negative number."""
    return getattr(node.op, "op", "") == "pow" and v is node.inputs[1] and v is not node.inputs[0]


def _flushed(a: Array, dtype: DType) -> bool:
    """Whether there are numbers that kernels count as zero."""
    if not dtype.is_float:
        return False
    return bool(((a != 0) & (np.abs(a) < FLUSHED[dtype.name])).any())


def _inner_loss(node: Node, op: Op, given: Mapping[Value, Array]) -> Array | float | None:
    """What an op loses inside, where its formula has terms that are larger than its result or
    factors that are flushed to zero before they are scaled up.

    log(sum) of a sum near 1 is as uncertain as the sum; x / 2 (1 + erf(x / sqrt 2)), as ONNX
    defines Gelu, is as uncertain as x where the erf is near -1; x tanh(softplus(x)) and
    x sigmoid(x) are x times something that is flushed far below 0. A determinant is a sum of
    products of a number from each row, all of which are in the product of the rows' sums. Powers
    under a root are flushed while their root is not small: the p-th root of n numbers flushed. What
    a cell clips, or saturates, is not moved by its operands, but rounded in functions near 1, and
    one less such a function is a share of the state before. A norm takes a mean off that is
    rounded, also where the differences are so alike that moving the operands hardly moves it. A
    transformed convolution rounds all of a patch for each output of it (transforms.py). Attention
    flushes a weight before it meets a value. Normal numbers are made of words that are rounded to
    floats, the same in all kernels, by a logarithm and a cosine that end in other bits in each.
    """
    name = node.outputs[0].dtype.name
    if isinstance(op, Random) and op.normal:
        (rounded,), (exact,) = op.reference(), _in_float64(op).reference()
        return np.abs(rounded - exact) + ROUNDOFF[name][0] * LARGEST_NORMAL
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
    if isinstance(op, Recurrence):
        arrays = [None if v is None else given[v] for v in node.inputs]
        return ROUNDOFF[name][0] * largest_state(op, arrays)
    if isinstance(op, LayerNorm):
        x, scale, *_ = (None if v is None else given[v] for v in (*node.inputs, None))
        assert x is not None
        unit = min(ROUNDOFF[name][0], ROUNDOFF["float32"][0])
        return unit * _mean_by_deviation(op, x) * np.abs(1.0 if scale is None else scale)
    if (power := _rooted(op)) > 1:
        return float((_terms(node, given) * FLUSHED[name]) ** (1 / power))
    if isinstance(op, FusedAttention):
        value = node.inputs[2]
        assert value is not None
        return FLUSHED[name] * _sum_of_values(op, given[value])
    if isinstance(op, Conv):  # float16 and bfloat16 are summed in float32
        return transform_loss(node, given, min(ROUNDOFF[name][0], ROUNDOFF["float32"][0]))
    return None


def _mean_by_deviation(op: LayerNorm, x: Array) -> Array:
    """The largest number of each row, as its mean may be, by its deviation."""
    axes = tuple(range(op.axis % x.ndim, x.ndim))
    size = np.abs(x).max(axes, keepdims=True, initial=0.0)
    deviation = np.sqrt(np.square(x - x.mean(axes, keepdims=True)).mean(axes, keepdims=True))
    return np.asarray(size / (deviation + math.sqrt(op.epsilon)))


def _sum_of_values(op: FusedAttention, v: Array) -> Array:
    """The magnitudes of all keys' values, for each element of the result."""
    sizes = np.where(np.isfinite(v), np.abs(v), 0.0).transpose(LAYOUTS[op.v_layout])
    return np.asarray(sizes.sum(2, keepdims=True).transpose(LAYOUTS[op.out_layout]))


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


def kind_of(node: Node) -> str:
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
