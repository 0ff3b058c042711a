"""Conditions of loads: kept, merged, and never such that a load waits for itself."""

from __future__ import annotations

from braze.core.dtypes import BOOL, F32, I64
from braze.expr.guards import load_guards
from braze.expr.scalar import Expr, axis, binary, const, load, select

HERE = (axis(0),)
X, Y = load(0, HERE, F32), load(1, HERE, F32)
A = load(2, HERE, BOOL)


def inside(low: int) -> Expr:
    return binary("le", const(low, I64), axis(0))


def test_a_load_under_a_select_is_made_where_it_holds() -> None:
    padded = select(inside(1), X, const(0.0, F32))
    assert load_guards([padded]) == {X: inside(1)}
    assert load_guards([padded, X]) == {X: None}


def test_conditions_that_read_the_load_itself_are_dropped() -> None:
    first = select(A, X, Y)
    root = select(binary("lt", first, Y), first, X)
    assert load_guards([root]) == {A: None, X: None, Y: None}


def test_what_bounds_an_index_stays_when_a_condition_on_data_goes() -> None:
    first = select(inside(1), X, const(0.0, F32))
    again = select(inside(1), X, const(1.0, F32))
    root = select(binary("lt", first, Y), again, Y)
    assert load_guards([root])[X] == inside(1)


def test_loads_that_guard_each_other_do_not_wait_for_each_other() -> None:
    zero = const(0.0, F32)
    left = select(binary("lt", zero, X), Y, zero)
    right = select(binary("lt", zero, Y), X, zero)
    guards = load_guards([left, right])
    assert sum(g is None for g in guards.values()) >= 1


def test_many_alternatives_keep_what_they_share() -> None:
    roots = [
        select(inside(1), select(inside(k), X, const(float(k), F32)), const(0.0, F32))
        for k in range(2, 40)
    ]
    assert load_guards(roots)[X] == inside(1)
