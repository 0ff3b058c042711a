"""Kernels whose sizes may not go together are not timed: they could read beside their tensors."""

from __future__ import annotations

from braze.core.dims import dmax, sym
from braze.ir.graph import SizeGuard
from braze.ir.run_sizes import unsure_symbols

N, S, T = sym("n"), sym("s"), sym("t")


def test_symbols_of_guards_that_do_not_hold() -> None:
    guards = (SizeGuard(N, S * T, "count"), SizeGuard(dmax(N, 4), N, "least"))
    assert unsure_symbols(guards, {"n": 12, "s": 3, "t": 4}) == set()
    assert unsure_symbols(guards, {"n": 12, "s": 3, "t": 5}) == {"n", "s", "t"}
    assert unsure_symbols(guards[1:], {"n": 2}) == {"n"}


def test_what_can_not_be_told_is_unsure() -> None:
    assert unsure_symbols((SizeGuard(N, S, "count"),), {"n": 12}) == {"n", "s"}
    assert unsure_symbols((SizeGuard(N, N, "count"),), {}) == set()
