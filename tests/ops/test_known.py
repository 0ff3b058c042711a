"""Shape arithmetic: known contents through integer ops, `specialize`, symbolic decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dims import dmax, dmin, floordiv, substitute, sym
from braze.core.dtypes import BOOL, F16, F32, I8, I32, I64, DType
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.move.shape import Reshape
from braze.ops.pointwise.activation import Clip, Relu
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.constant import ConstantOfShape, Range
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.reduce.reduce import Reduce

N, M = sym("n"), sym("m")
ANY = GraphBuilder()  # symbols without bounds: any size from 0 on


def contents(*values: Any) -> np.ndarray[Any, Any]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def vector(dtype: DType, size: int) -> TensorType:
    return TensorType(dtype, (size,))


def binary(op: str, a: Any, b: Any, dtype: DType = I64) -> Any:
    known = Binary(op).known([contents(a), contents(b)], [vector(dtype, 1)] * 2, ANY)
    return None if known is None else known[0][0]


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        ("add", N, 2, N + 2), ("sub", N, N, 0), ("mul", N, M, N * M), ("div", N * 4, 2, N * 2),
        ("div", N, 2, floordiv(N, 2)), ("div", -7, 2, -3), ("div", 7, 0, 0), ("mod", -7, 3, 2),
        ("fmod", -7, 3, -1), ("mod", N * 4, 2, 0), ("max", N, 0, N), ("min", N, -1, -1),
        ("pow", N, 2, N * N), ("pow", 2, 5, 32), ("max", N + 3, N + 1, N + 3),
    ],
)  # fmt: skip
def test_binary_on_sizes(op: str, a: Any, b: Any, want: Any) -> None:
    assert binary(op, a, b) == want


@pytest.mark.parametrize(("op", "a", "b"), [("div", N - 5, 2), ("div", 2, N), ("pow", 2, N)])
def test_what_cannot_be_told_is_unknown(op: str, a: Any, b: Any) -> None:
    assert binary(op, a, b) is None


def test_truncating_division_differs_from_floor_division_only_below_zero() -> None:
    # n - 5 may be negative, where toward-zero and floor differ: refusing to answer is right
    assert binary("div", N + 5, 2) == floordiv(N + 5, 2)
    assert binary("div", N - 5, 2) is None


def test_constants_wrap_like_their_type() -> None:
    assert binary("add", 100, 100, I8) == -56
    assert binary("mul", 2**31, 2, I32) == 0


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        ("eq", N, N, True),
        ("eq", N, -1, False),
        ("eq", N, 1, None),
        ("eq", N + 2, 1, False),
        ("lt", N, N + 1, True),
        ("lt", N, 0, False),
        ("lt", N, 5, None),
        ("le", 0, N, True),
        ("le", N + 1, 0, False),
        ("eq", 3, 4, False),
    ],
)
def test_comparisons_of_sizes(op: str, a: Any, b: Any, want: Any) -> None:
    known = Compare(op).known([contents(a), contents(b)], [vector(I64, 1)] * 2, ANY)
    assert (None if known is None else known[0][0]) is want


def test_where_picks_by_a_known_condition() -> None:
    known = Where().known([contents(True, False), contents(N, 1), contents(5)], [None] * 3, ANY)
    assert known is not None
    assert list(known[0]) == [N, 5]
    assert Where().known([None, contents(1), contents(2)], [None] * 3, ANY) is None


def test_casts_of_sizes() -> None:
    def cast(value: Any, to: DType) -> Any:
        known = Cast(to).known([contents(value)], [vector(I64, 1)], ANY)
        return None if known is None else known[0][0]

    assert cast(N, I32) == N
    assert cast(N, F32) == N
    assert cast(N, F16) is None  # 2049 would be rounded
    assert cast(2**24 + 1, F32) is None
    assert cast(300, I8) == 44
    assert cast(5, BOOL) is True
    assert cast(N, BOOL) is None


def test_unary_on_sizes() -> None:
    def unary(op: str, value: Any) -> Any:
        known = Unary(op).known([contents(value)], [vector(I64, 1)], ANY)
        return None if known is None else known[0][0]

    assert unary("neg", N) == N * -1
    assert unary("abs", N) == N
    assert unary("abs", N - 3) is None
    assert unary("sign", -4) == -1
    assert unary("exp", 1) is None


@pytest.mark.parametrize(
    ("kind", "want"),
    [("prod", N * M * 2), ("sum", N + M + 2), ("max", dmax(dmax(N, M), 2)), ("mean", None)],
)
def test_reductions_of_sizes(kind: str, want: Any) -> None:
    known = Reduce(kind, (0,), True).known([contents(N, M, 2)], [vector(I64, 3)], ANY)
    if want is None:
        assert known is None
        return
    assert known is not None
    assert known[0].shape == (1,) and known[0][0] == want


def test_reductions_of_no_sizes() -> None:
    nothing = [np.empty((0,), dtype=object)]
    product = Reduce("prod", (0,), False).known(nothing, [vector(I64, 0)], ANY)
    assert product is not None and product[0].shape == () and product[0].item() == 1
    assert Reduce("max", (0,), False).known(nothing, [vector(I64, 0)], ANY) is None


def test_reductions_keep_the_other_axes() -> None:
    x = np.array([[N, 2], [3, M]], dtype=object)
    known = Reduce("prod", (0,), False).known([x], [TensorType(I64, (2, 2))], ANY)
    assert known is not None and list(known[0]) == [N * 3, M * 2]


def test_clips_of_sizes() -> None:
    known = Clip(0, 7).known([contents(N, -3, 9)], [vector(I64, 3)], ANY)
    assert known is not None and list(known[0]) == [dmin(N, 7), 0, 7]
    known = Relu().known([contents(N, -3)], [vector(I64, 2)], ANY)
    assert known is not None and list(known[0]) == [N, 0]


def test_a_chain_folds_while_it_is_built() -> None:
    g = GraphBuilder()
    size = g.add1(ConstantOfShape((1,), 3, I64))
    assert list(g.sizes(size)) == [3]  # type: ignore[arg-type]
    four = g.add1(Binary("add"), size, g.constant(np.array([1])))
    assert list(g.sizes(four)) == [4]  # type: ignore[arg-type]
    ramp = g.add1(Range(N, 2, 3, I64))
    assert list(g.sizes(ramp)) == [N, N + 2, N + 4]  # type: ignore[arg-type]


def scaled(op: str, value: Any, factor: float, after: str, dtype: DType = F32) -> Any:
    """Content of Cast(after(op(Cast(value), factor)), int64)."""
    types = [vector(dtype, 1)]
    steps = Cast(dtype).known([contents(value)], [vector(I64, 1)], ANY)
    steps = steps and Binary(op).known([steps[0], contents(factor)], types * 2, ANY)
    if after:
        steps = steps and Unary(after).known([steps[0]], types, ANY)
    steps = steps and Cast(I64).known([steps[0]], types, ANY)
    return None if steps is None else steps[0][0]


@pytest.mark.parametrize(
    ("op", "factor", "after", "want"),
    [("mul", 2.0, "", N * 2), ("mul", 0.5, "floor", floordiv(N, 2)),
     ("mul", 0.5, "", floordiv(N, 2)), ("mul", 1.5, "floor", floordiv(N * 3, 2)),
     ("div", 3.0, "ceil", floordiv(N + 2, 3)), ("div", 2.0, "floor", floordiv(N, 2)),
     ("div", 0.5, "floor", N * 2), ("mul", 0.0, "", 0), ("mul", 1.0, "floor", N)],
)  # fmt: skip
def test_sizes_scaled_in_float(op: str, factor: float, after: str, want: Any) -> None:
    got = scaled(op, N, factor, after)
    assert got == want
    if not isinstance(got, int):
        for n in (1, 2, 3, 7, 1000, 65535):
            x = np.float32(n)
            y = x * np.float32(factor) if op == "mul" else x / np.float32(factor)
            y = {"floor": np.floor, "ceil": np.ceil, "": np.trunc}[after](y)
            assert substitute(got, {"n": n}) == int(y)


@pytest.mark.parametrize(
    ("op", "factor"), [("mul", 0.7), ("mul", 1 / 3), ("div", 0.3), ("mul", float("nan")),
                       ("div", 0.0), ("div", 1000.0)],
)  # fmt: skip
def test_scalings_that_float32_may_round_are_unknown(op: str, factor: float) -> None:
    assert scaled(op, N, float(np.float32(factor)), "floor") is None


def test_a_size_that_may_be_negative_does_not_truncate_to_floor() -> None:
    assert scaled("mul", N - 3, 0.5, "") is None
    assert scaled("mul", N - 3, 0.5, "floor") == floordiv(N - 3, 2)


def test_half_precision_sizes_are_unknown() -> None:
    assert scaled("mul", N, 2.0, "", F16) is None


def test_specialize_replaces_sizes_inside_fields() -> None:
    op = Reshape((N, M * 2, 3))
    assert op.specialize({"n": 4, "m": 5}) == Reshape((4, 10, 3))
    assert op.specialize({"n": 4}) == Reshape((4, M * 2, 3))
    plain = Reduce("sum", (1,), True)
    assert plain.specialize({"n": 4}) is plain
    assert Range(N, 1.0, N - 1, F32).specialize({"n": 3}) == Range(3, 1.0, 2, F32)
