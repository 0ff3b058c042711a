"""Nests that see nothing of each other share a launch. That the results stay right, `test_nests`
of interpreted.py and of tests/gpu shows for a concatenation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from braze.codegen.cuda.triton.nests import nest_sources
from braze.codegen.cuda.triton.together import MOST_TOGETHER, groups
from braze.core.dims import Dim, sym
from braze.core.dtypes import F32, I64
from braze.expr.index import to_expr
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, const, load
from tests.codegen.loops.kernels import cases

pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")


def nest(size: Dim, first: int, value: Expr | None = None) -> LoopNest:
    """output[first + i] = input[i], or another value."""
    index = binary("add", axis(0), const(first, I64))
    value = load(0, (axis(0),), F32) if value is None else value
    return LoopNest((size,), (), (), (Store(0, (index,), value),))


def kernel(*nests: LoopNest) -> LoopKernel:
    return LoopKernel((TensorSpec(F32, (64,)),), (TensorSpec(F32, (256,)),), nests)


def test_parts_of_a_concatenation_are_one_launch() -> None:
    (case,) = [c for c in cases() if c.name == "concat"]
    assert groups(case.kernel) == [[0, 1]]
    parts = kernel(nest(64, 0), *(nest(8, 64 + 8 * i) for i in range(MOST_TOGETHER)))
    assert groups(parts) == [[*range(MOST_TOGETHER)], [MOST_TOGETHER]]
    first, second = nest_sources(parts, 16, 1, 2)
    assert (first.grid, second.grid) == (4 + MOST_TOGETHER - 1, 1)
    assert first.text.count("@triton.jit") == MOST_TOGETHER + 1
    assert second.text.count("@triton.jit") == 1


def test_warps_of_a_launch_are_the_most_of_its_nests() -> None:
    from braze.codegen.cuda.triton.nests import sources_of_nests

    parts = kernel(nest(64, 0), nest(32, 64))
    (both,) = sources_of_nests(parts, [(16, 1, 2), (32, 1, 4)])
    assert both.warps == 4 and both.grid == 4 + 1


READS = nest(8, 64, load(1, (axis(0),), F32))  # slot 1 is the output
ADDS = replace(nest(8, 64), stores=tuple(replace(s, mode="add") for s in nest(8, 64).stores))


@pytest.mark.parametrize(
    "other", [nest(8, 63), READS, ADDS, replace(nest(8, 64), serial=True)],
    ids=["same place", "reads", "adds", "serial"],
)  # fmt: skip
def test_near_misses(other: LoopNest) -> None:
    assert groups(kernel(nest(64, 0), nest(8, 64))) == [[0, 1]]
    assert groups(kernel(nest(64, 0), other)) == [[0], [1]]
    if other is not READS:
        assert groups(kernel(other, nest(64, 64 + 8))) in ([[0], [1]], [[0, 1]])
        assert groups(kernel(other, nest(64, 60))) == [[0], [1]]


def test_sizes_that_are_not_known_keep_launches_of_their_own() -> None:
    size = sym("n")
    parts = kernel(nest(64, 0), nest(size, 64))
    assert len(nest_sources(parts, 16, 1, 2)) == 2


def test_nests_that_read_a_size_have_launches_of_their_own() -> None:
    """Both have a known number of programs, but one of them reads the last element of n."""
    n = sym("n")
    last = nest(8, 64, load(0, (to_expr(n - 1),), F32))
    parts = LoopKernel((TensorSpec(F32, (n,)),), (TensorSpec(F32, (256,)),), (nest(8, 0), last))
    assert groups(parts) == [[0, 1]]
    first, second = nest_sources(parts, 16, 1, 2)
    assert (first.grid, second.grid) == (1, 1) and second.params
