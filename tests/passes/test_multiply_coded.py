"""Products by dequantized constants become products by their codes where there is a template."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from braze.codegen.catalog import find_backend
from braze.core.dims import sym
from braze.core.dtypes import F16, F32, U8
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.product.matmul import MatMul
from braze.ops.quant.coded import CodedMatMul
from braze.ops.quant.linear import Dequantize, RepeatBlocks
from braze.passes.base import PassContext
from braze.passes.decompose import decompose
from braze.passes.fold.fold_constants import fold_constants
from braze.passes.rules.multiply_coded import multiply_coded
from tests.passes.rule_checks import Net

Array = np.ndarray[Any, Any]
N = sym("n")


@dataclass
class Weight:
    """A dequantized constant [k, n]; blocks along `axis` of the codes as they are stored."""

    k: int = 120
    n: int = 7
    block: int = 32  # 0: a scale for each column; -1: one for all
    dtype: str = "uint8"
    codes: tuple[int, int] = (0, 16)
    zeros: tuple[int, int] | None = (0, 16)
    turned: bool = False
    across: bool = False  # blocks along n
    to: Any = F32
    folded: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(4))

    def add(self, g: Net) -> Value:
        shape = (self.n, self.k) if self.turned else (self.k, self.n)
        axis = int(self.turned) ^ int(self.across)
        small = list(shape)
        if self.block > 0:
            small[axis] = -(-shape[axis] // self.block)
        else:
            small[axis] = 1
        if self.block < 0:
            small = []
        codes = self.rng.integers(*self.codes, shape).astype(self.dtype)
        parts = [g.constant(codes)]
        scale = self.rng.uniform(0.01, 0.1, small)
        given = [scale.astype(self.to.numpy)]
        if self.zeros is not None:
            given.append(self.rng.integers(*self.zeros, small).astype(self.dtype))
        for array in given:
            if self.block > 0:
                v = g.add1(RepeatBlocks(axis, self.block, shape[axis]), g.constant(array))
                if self.folded:
                    where = np.arange(shape[axis]) // self.block
                    v = g.constant(np.take(array, where, axis))
            else:
                v = g.constant(array)
            parts.append(v)
        parts += [None] * (3 - len(parts))  # type: ignore[list-item]
        y = g.add1(Dequantize(self.to), *parts)
        return g.add1(Transpose((1, 0)), y) if self.turned else y


def rewritten(w: Weight, shape: tuple[Any, ...] = (N, 2), target: str = "cpu:avx2") -> Graph | None:
    """The graph after the rule, whose meaning is the same; None where it is left alone."""
    g = Net()
    x = g.tensor("x", *shape, w.k, dtype=w.to)
    graph = g.finish([("y", g.op1("neg", g.add1(MatMul(), x, w.add(g))))])
    after = multiply_coded(graph, PassContext(backend=find_backend(target, 1)))
    if after is graph:
        return None
    verify(after, graph)
    real = [2 if d is N else d for d in (*shape, w.k)]
    feed = {"x": np.random.default_rng(1).standard_normal(real).astype(np.float32)}
    want = evaluate(graph, feed)["y"]
    # the same numbers are multiplied, and where there is no template the same product is left
    np.testing.assert_array_equal(evaluate(after, feed)["y"], want)
    apart = decompose(after, PassContext(backend=find_backend("cuda:sm_90", 1)))
    assert not any(isinstance(n.op, CodedMatMul) for n in apart.nodes)
    np.testing.assert_array_equal(evaluate(apart, feed)["y"], want)
    return after


def found(graph: Graph | None) -> CodedMatMul:
    assert graph is not None
    (op,) = [n.op for n in graph.nodes if isinstance(n.op, CodedMatMul)]
    assert len(graph.nodes) == 2  # and what follows
    return op


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("folded", [False, True])
def test_blocks(turned: bool, folded: bool) -> None:
    op = found(rewritten(Weight(turned=turned, folded=folded)))
    assert (op.bits, op.group, op.own) == (4, 32, True)
    op = found(rewritten(Weight(turned=turned, folded=folded, zeros=(8, 9))))
    assert (op.own, op.zero) == (False, 8)


@pytest.mark.parametrize(
    ("weight", "want"),
    [
        (Weight(dtype="int8", codes=(-8, 8), zeros=None), (4, 32, 8)),
        (Weight(dtype="int8", codes=(-128, 128), zeros=None), (8, 32, 128)),
        (Weight(codes=(0, 256), zeros=(200, 201)), (8, 32, 200)),
        (Weight(codes=(0, 4), zeros=(2, 3)), (2, 32, 2)),
        (Weight(dtype="int8", codes=(-2, 2), zeros=None, block=16), (2, 16, 2)),
        (Weight(block=0, k=512, zeros=(3, 4)), (4, 256, 3)),
        (Weight(block=-1, k=520, zeros=(3, 4)), (4, 64, 3)),
        (Weight(block=512, k=1024, zeros=None, n=3), (4, 256, 0)),
        (Weight(block=48, k=96, zeros=None), (4, 16, 0)),
        # a zero point far from codes of few bits
        (Weight(dtype="int8", codes=(-8, 8), zeros=(-100, -99)), (8, 32, 28)),
    ],
)
def test_bits_groups_and_zero_points(weight: Weight, want: tuple[int, int, int]) -> None:
    op = found(rewritten(weight))
    assert (op.bits, op.group, op.zero) == want and not op.own


def test_zero_points_of_groups_take_a_byte() -> None:
    op = found(rewritten(Weight(dtype="int8", codes=(-8, 8), zeros=(-100, 100))))
    assert (op.bits, op.own) == (8, True)


@pytest.mark.parametrize(
    ("weight", "shape"),
    [
        (Weight(block=24, k=96), (2,)),  # 8 is the largest group of sums' blocks in it
        (Weight(across=True, block=3), (2,)),  # and others for every row
        (Weight(to=F16, zeros=None), (2,)),
        (Weight(), (64,)),  # so many rows are faster by numbers
        (Weight(), ()),  # a vector
    ],
)
def test_near_misses(weight: Weight, shape: tuple[Any, ...]) -> None:
    assert rewritten(weight, shape) is None


def test_other_near_misses() -> None:
    assert rewritten(Weight(), target="cuda:sm_90") is None  # no template there
    for case in ("codes", "scale", "data", "reshaped"):
        g = Net()
        x = g.tensor("x", 2, 64) if case != "data" else g.random(2, 64)
        codes = g.tensor("q", 64, 8, dtype=U8) if case == "codes" else g.constant(
            np.ones((64, 8), np.uint8)
        )  # fmt: skip
        scale = g.tensor("s", 1, 8) if case == "scale" else g.random(1, 8)
        w = g.add1(Dequantize(F32), codes, scale, None)
        if case == "reshaped":
            w = g.add1(Reshape((64, 8)), g.add1(Reshape((8, 64)), w))
        graph = g.finish([("y", g.add1(MatMul(), x, w))])
        context = PassContext(backend=find_backend("cpu:avx2", 1))
        assert multiply_coded(graph, context) is graph, case


def test_what_no_template_takes_is_a_constant_as_before() -> None:
    g = Net()
    y = g.add1(MatMul(), g.tensor("x", 64, 120), Weight().add(g))
    graph = g.finish([("y", y)])
    context = PassContext(backend=find_backend("cpu:avx2", 1))
    after = fold_constants(multiply_coded(graph, context), context)
    assert [n.op for n in after.nodes] == [MatMul()]
