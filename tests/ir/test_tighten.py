"""Sizes simplified by bounds keep their value everywhere within the bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braze.core.dims import Dim, dmax, dmin, evaluate, floordiv, mod, sym
from braze.ir.tighten import tighten

N, M = sym("n"), sym("m")
BOUNDS = {"n": (16, 100), "m": (0, 7)}


def test_choices_that_bounds_settle_disappear() -> None:
    assert tighten(dmax(N, 8), BOUNDS) == N
    assert tighten(dmin(N, 8), BOUNDS) == 8
    assert tighten(dmax(M, N), BOUNDS) == N
    assert tighten(floordiv(M, 8), BOUNDS) == 0
    assert tighten(mod(M, 8), BOUNDS) == M
    assert tighten(mod(M + 16, 8), BOUNDS) == M
    assert tighten(dmax(dmax(N, 1) - 16, 0) + 2 * N, BOUNDS) == 3 * N - 16


def test_choices_that_bounds_leave_open_stay() -> None:
    for d in (dmax(N, 17), dmin(N, 99), floordiv(M, 7), mod(M, 7), floordiv(N, M)):
        assert tighten(d, BOUNDS) == d
    assert tighten(5, BOUNDS) == 5


LEAVES = st.one_of(st.integers(-20, 120), st.sampled_from([N, M]))


def combine(children: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    pairs = st.tuples(children, children)
    positive = st.tuples(children, st.integers(1, 40))
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: dmax(*p)),
        pairs.map(lambda p: dmin(*p)),
        positive.map(lambda p: floordiv(*p)),
        positive.map(lambda p: mod(*p)),
        positive.map(lambda p: p[0] * p[1]),
    )


@given(st.recursive(LEAVES, combine, max_leaves=8), st.integers(16, 100), st.integers(0, 7))
def test_the_value_is_kept(d: Dim, n: int, m: int) -> None:
    env = {"n": n, "m": m}
    assert evaluate(tighten(d, BOUNDS), env) == evaluate(d, env)
