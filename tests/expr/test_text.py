"""Kernel text: parse(print(k)) is k, and different kernels differ in text."""

from __future__ import annotations

import pytest

from braze.core.dims import dmax, sym
from braze.core.dtypes import F32, I64
from braze.core.errors import ModelError
from braze.expr.scalar import binary, const, dim, load
from braze.expr.text import expr_text, loops_text, parse_expr, parse_loops
from tests.codegen.loops.kernels import Case, cases, dequantize, keep_positive, softmax


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_kernels_survive_printing(case: Case) -> None:
    assert parse_loops(loops_text(case.kernel)) == case.kernel


def test_symbolic_shapes_survive() -> None:
    n, m = sym("n"), sym("m")
    kernel = softmax(dmax(n, m) // 3, (n * m + 2) % 5)
    assert parse_loops(loops_text(kernel)) == kernel
    assert parse_loops(loops_text(dequantize(n, 3))) == dequantize(n, 3)
    assert parse_loops(loops_text(keep_positive(n))) == keep_positive(n)


def test_every_literal_keeps_its_bits() -> None:
    for value in (0.1, -0.0, float("inf"), 1e-45, 3.4e38):
        e = const(value, F32)
        assert parse_expr(expr_text(e)) == e


def test_shared_parts_are_printed_once() -> None:
    x = load(0, (dim(sym("n")),), F32)
    for _ in range(64):
        x = binary("add", x, x)
    assert len(expr_text(x).splitlines()) == 66


def test_near_misses_differ() -> None:
    a = loops_text(softmax(4, 8))
    assert a != loops_text(softmax(4, 9))
    assert a != a.replace("reduce max", "reduce min")
    assert expr_text(const(1, I64)) != expr_text(const(1.0, F32))


@pytest.mark.parametrize("text", ["", "loops", "%0 = nonsense int64 3", "%1 = axis int64 0"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ModelError):
        parse_expr(text)
    with pytest.raises(ModelError):
        parse_loops(text)
