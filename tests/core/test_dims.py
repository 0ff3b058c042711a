"""Laws of symbolic sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braze.core import dims
from braze.core.bounds import bounds
from braze.core.dims import (
    Dim,
    ceildiv,
    dmax,
    dmin,
    evaluate,
    exact_div,
    floordiv,
    mod,
    parse_dim,
    product,
    substitute,
    sym,
)
from braze.core.errors import ShapeError

N, H, W = sym("N"), sym("H"), sym("W")
symbols = st.sampled_from([N, H, W])
exprs = st.recursive(
    st.one_of(st.integers(-9, 20), symbols),
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, y: x - y, inner, inner),
        st.builds(lambda x, y: x * y, inner, inner),
        st.builds(floordiv, inner, st.integers(1, 9)),
        st.builds(ceildiv, inner, st.integers(1, 9)),
        st.builds(mod, inner, st.integers(1, 9)),
        st.builds(dmax, inner, inner),
        st.builds(dmin, inner, inner),
    ),
    max_leaves=10,
)
envs = st.fixed_dictionaries({k: st.integers(0, 40) for k in "NHW"})


@given(exprs, envs)
def test_text_round_trip(e: Dim, env: dict[str, int]) -> None:
    again = parse_dim(str(e))
    assert evaluate(again, env) == evaluate(e, env)


@given(exprs, exprs, envs)
def test_arithmetic_is_exact(a: Dim, b: Dim, env: dict[str, int]) -> None:
    x, y = evaluate(a, env), evaluate(b, env)
    assert evaluate(a + b, env) == x + y
    assert evaluate(a - b, env) == x - y
    assert evaluate(a * b, env) == x * y
    assert evaluate(dmax(a, b), env) == max(x, y)
    assert evaluate(dmin(a, b), env) == min(x, y)


@given(exprs, st.integers(1, 12), envs)
def test_division(a: Dim, b: int, env: dict[str, int]) -> None:
    x = evaluate(a, env)
    assert evaluate(floordiv(a, b), env) == x // b
    assert evaluate(ceildiv(a, b), env) == -(-x // b)
    assert evaluate(mod(a, b), env) == x % b


@given(exprs, exprs, envs)
def test_equal_means_equal(a: Dim, b: Dim, env: dict[str, int]) -> None:
    if a == b:
        assert evaluate(a, env) == evaluate(b, env)
    assert a + b == b + a
    assert a * b == b * a
    assert a - a == 0


@given(exprs, envs, st.integers(0, 5))
def test_bounds_hold_every_value(e: Dim, env: dict[str, int], slack: int) -> None:
    lo, hi = bounds(e, {k: (max(0, v - slack), v + slack) for k, v in env.items()})
    assert lo <= evaluate(e, env) <= hi


@given(exprs, envs)
def test_substitute_then_evaluate(e: Dim, env: dict[str, int]) -> None:
    partly = substitute(e, {"N": env["N"]})
    assert evaluate(partly, env) == evaluate(e, env)


@given(exprs, exprs, envs)
def test_exact_division_is_exact(a: Dim, b: Dim, env: dict[str, int]) -> None:
    q = exact_div(a, b)
    if q is not None and evaluate(b, env) != 0:
        assert evaluate(q, env) * evaluate(b, env) == evaluate(a, env)


def test_canonical_forms() -> None:
    assert N * H * W * 4 // (H * W) == N * 4
    assert (2 * H + 1) // 2 == H
    assert floordiv(floordiv(H - 1, 2), 3) == floordiv(H - 1, 6)
    assert dmax(H, H + 1) == H + 1
    assert exact_div(N * H + N, H + 1) == N
    assert exact_div(N * H + 1, H) is None
    assert product([N, 2, H]) == 2 * H * N
    assert mod(6 * N, 3) == 0


def test_errors() -> None:
    with pytest.raises(ShapeError, match="divides by zero"):
        floordiv(3, 0)
    with pytest.raises(ShapeError, match="needs a value for H"):
        evaluate(H + 1, {"N": 1})
    with pytest.raises(ShapeError, match="has no bounds"):
        bounds(H, {})
    for text in ["", "1 +", "f(x)", "a.b", "__import__('os')", "(" * 500]:
        with pytest.raises(ShapeError):
            parse_dim(text)
    assert dims.symbols(floordiv(N, H) + W) == {"N", "H", "W"}


def test_symbolic_sizes_are_no_numbers() -> None:
    assert dims.static([2, 3]) == (2, 3)
    assert dims.number(7) == 7
    for call in (lambda: dims.static((2, N + 1)), lambda: dims.number(N + 1)):
        with pytest.raises(ShapeError, match=r"size N \+ 1 is dynamic"):
            call()
