"""Intervals of sizes: tight for products of computed sizes, sound for everything (test_dims)."""

from __future__ import annotations

import itertools
import random

import pytest

from braze.core.bounds import bounds
from braze.core.dims import Dim, dmax, evaluate, floordiv, mod, product, sym
from braze.core.errors import ShapeError

N, H, W = sym("N"), sym("H"), sym("W")


def strided(size: Dim, kernel: int, stride: int, pad: int) -> Dim:
    """Size of a convolution's output."""
    return floordiv(size + 2 * pad - kernel, stride) + 1


def values(d: Dim, env: dict[str, tuple[int, int]]) -> list[int]:
    names = sorted(env)
    grid = itertools.product(*(range(env[n][0], env[n][1] + 1) for n in names))
    return [evaluate(d, dict(zip(names, point, strict=True))) for point in grid]


@pytest.mark.parametrize("seed", range(30))
def test_products_of_computed_sizes_have_exact_bounds(seed: int) -> None:
    rng = random.Random(seed)
    env = {n: (lo, lo + rng.randint(0, 9)) for n, lo in zip("NHW", (1, 4, 5), strict=True)}
    sizes: list[Dim] = []
    for s in rng.sample([N, H, W, H], rng.randint(2, 3)):
        kernel = rng.randint(1, 4)
        sizes.append(strided(s, kernel, rng.randint(1, 3), rng.randint(kernel // 2, 2)))
    d = product(sizes) * rng.choice([1, 2, 3])
    found = values(d, env)
    assert bounds(d, env) == (min(found), max(found))


def test_a_product_is_not_minus_one() -> None:
    # what `Equal(size, -1)` of exporters asks; a square map has the same symbol on both axes
    env = {"H": (0, 2**31), "W": (0, 2**31)}
    for other in (H, W):
        assert bounds(strided(H, 3, 2, 1) * strided(other, 3, 2, 1), env)[0] == 0


@pytest.mark.parametrize(
    ("d", "least"),
    [
        (N - floordiv(N, 2), 1),
        (N * H - H, 0),
        (2 * N - floordiv(N, 3) - floordiv(N, 2), 2),
        (N - mod(N, 4), -2),  # near miss: N % 4 moves with N, which no rewriting here sees
        (dmax(N, 4) - N, -5),
    ],
)
def test_terms_that_move_together(d: Dim, least: int) -> None:
    env = {"N": (1, 9), "H": (1, 7)}
    low, high = bounds(d, env)
    assert low == least
    assert low <= min(values(d, env)) and max(values(d, env)) <= high


def test_long_polynomials_and_missing_symbols() -> None:
    many = product([sym(f"s{i}") + 1 for i in range(9)])
    low, high = bounds(many, {f"s{i}": (1, 2) for i in range(9)})
    assert 0 < low <= 2**9 and high >= 3**9
    with pytest.raises(ShapeError, match="symbol W"):
        bounds(H * W, {"H": (1, 2)})
