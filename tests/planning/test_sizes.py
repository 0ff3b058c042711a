"""The shape program computes what DimExprs mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braze.core.dims import Dim, ceildiv, dmax, dmin, evaluate, floordiv, mod, sym
from braze.core.errors import ShapeError
from braze.engine.plan import SizeOp
from braze.planning.sizes import SizeTable

NAMES = ("a", "b")
BINARY = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "max": max,
    "min": min,
}
leaves = st.one_of(st.integers(0, 20), st.sampled_from([sym(n) for n in NAMES]))
dims = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, y: x - y, inner, inner),
        st.builds(lambda x, y: x * y, inner, inner),
        st.builds(floordiv, inner, st.integers(1, 7)),
        st.builds(ceildiv, inner, st.integers(1, 7)),
        st.builds(mod, inner, st.integers(1, 7)),
        st.builds(dmax, inner, inner),
        st.builds(dmin, inner, inner),
    ),
    max_leaves=8,
)


def run(program: list[SizeOp], symbols: tuple[int, ...]) -> list[int]:
    values: list[int] = []
    for op in program:
        if op.op == "const":
            values.append(op.a)
        elif op.op == "sym":
            values.append(symbols[op.a])
        else:
            values.append(BINARY[op.op](values[op.a], values[op.b]))
    return values


@given(dims, st.integers(0, 50), st.integers(0, 50))
def test_program_equals_evaluate(size: Dim, a: int, b: int) -> None:
    table = SizeTable(NAMES)
    index = table.index(size)
    assert run(table.ops, (a, b))[index] == evaluate(size, {"a": a, "b": b})


def test_equal_sizes_share_steps() -> None:
    table = SizeTable(NAMES)
    a, b = sym("a"), sym("b")
    first = table.index(floordiv(a * b + 1, 2))
    count = len(table.ops)
    assert table.index(floordiv(b * a + 1, 2)) == first
    assert len(table.ops) == count


def test_unknown_symbol_is_an_error() -> None:
    with pytest.raises(ShapeError, match="size symbol z"):
        SizeTable(NAMES).index(sym("z") + 1)
