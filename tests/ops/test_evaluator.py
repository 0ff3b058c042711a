"""The graph evaluator: symbols, bfloat16 borders, float64 mode, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, I64, DType
from braze.core.errors import BindingError, DTypeError, ExecutionError, ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType
from braze.ops.base import Array, InferContext, Op
from braze.ops.evaluator import evaluate
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.constant import ConstantOfShape
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.reduce.reduce import Reduce
from tests.ops.check import bf16

N = sym("n")


def chain(dtype: DType = F32) -> Graph:
    """y = exp(x) + 1 for x of shape (n, 2); h = exp(x) is inside."""
    g = GraphBuilder()
    x = g.input("x", TensorType(dtype, (N, 2)))
    h = g.add1(Unary("exp"), x, name="h")
    return g.finish([("y", g.add1(Binary("add"), h, constant_like(g, 1, dtype))), ("x_out", x)])


def test_outputs_inputs_and_kept_values() -> None:
    x = np.zeros((3, 2), np.float32)
    got = evaluate(chain(), {"x": x}, keep=["h"])
    assert set(got) == {"y", "x_out", "h"}
    np.testing.assert_array_equal(got["y"], 2)
    np.testing.assert_array_equal(got["h"], 1)
    np.testing.assert_array_equal(got["x_out"], x)


def test_symbols_reach_attributes() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (N, 2)))
    ones = g.add1(ConstantOfShape((N, 2), 1.0, F32))
    graph = g.finish([("y", g.add1(Binary("add"), x, ones))])
    got = evaluate(graph, {"x": np.zeros((5, 2), np.float32)})["y"]
    np.testing.assert_array_equal(got, np.ones((5, 2)))


def test_bfloat16_is_rounded_after_every_op() -> None:
    graph = chain(BF16)
    x = bf16([[0.1, 1.0]])
    got = evaluate(graph, {"x": x})
    wide = x.astype(np.float32)
    h = bf16(np.exp(wide))
    want = bf16(h.astype(np.float32) + 1)
    assert got["y"].dtype == BF16.numpy
    np.testing.assert_array_equal(got["y"], want)
    np.testing.assert_array_equal(got["x_out"], x)


def test_float64_mode_widens_constants_casts_and_reductions() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F16, (4,)))
    tenth = g.constant(np.array(0.1, np.float32))
    y = g.add1(Binary("mul"), g.add1(Cast(F32), x), tenth)
    graph = g.finish([("y", g.add1(Reduce("sum", (0,), False), y))])
    x_value = np.array([1, 2, 3, 4096], np.float16)
    got = evaluate(graph, {"x": x_value}, float64=True)["y"]
    assert got.dtype == np.float64
    assert got == pytest.approx(4102 * np.float64(np.float32(0.1)), rel=1e-15)


def test_inputs_that_do_not_fit() -> None:
    graph = chain()
    good = np.zeros((3, 2), np.float32)
    with pytest.raises(BindingError, match="x"):
        evaluate(graph, {})
    with pytest.raises(BindingError):
        evaluate(graph, {"x": good, "z": good})
    with pytest.raises(DTypeError):
        evaluate(graph, {"x": good.astype(np.float64)})
    with pytest.raises(ShapeError, match="rank"):
        evaluate(graph, {"x": good[0]})
    with pytest.raises(ShapeError, match="does not fit"):
        evaluate(graph, {"x": np.zeros((3, 3), np.float32)})


def test_one_symbol_in_two_inputs_must_have_one_size() -> None:
    g = GraphBuilder()
    a, b = (g.input(k, TensorType(F32, (N,))) for k in "ab")
    graph = g.finish([("y", g.add1(Binary("add"), a, b))])
    with pytest.raises(ShapeError, match="input b"):
        evaluate(graph, {"a": np.zeros(3, np.float32), "b": np.zeros(1, np.float32)})


def test_guards_are_checked() -> None:
    g = GraphBuilder()
    a = g.input("a", TensorType(F32, (N,)))
    b = g.input("b", TensorType(F32, (sym("m"),)))
    graph = g.finish([("y", g.add1(Binary("add"), a, b))])
    assert graph.guards
    three = np.zeros(3, np.float32)
    assert evaluate(graph, {"a": three, "b": three})["y"].shape == (3,)
    with pytest.raises(ShapeError, match="differ"):
        evaluate(graph, {"a": three, "b": three[:1]})


@dataclass(frozen=True)
class Broken(Op):
    """An op whose reference does not give what its infer promises."""

    what: str

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        assert inputs[0] is not None
        return (inputs[0],)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        if self.what == "raise":
            raise IndexError("position 9 of 3")
        if self.what == "count":
            return x, x
        return (x[:1] if self.what == "shape" else x.astype(np.int64),)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("shape", r"shape \(1,\)"),
        ("type", "type int64"),
        ("count", "2 results"),
        ("raise", "position 9 of 3"),
    ],
)
def test_a_wrong_or_failing_op_is_named(what: str, message: str) -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (3,)))
    g.origins = ("layer1/op",)
    graph = g.finish([("y", g.add1(Broken(what), x))])
    with pytest.raises(ExecutionError, match=message) as caught:
        evaluate(graph, {"x": np.zeros(3, np.float32)})
    assert "Broken" in str(caught.value) and "layer1/op" in str(caught.value)


@dataclass(frozen=True)
class Positives(Op):
    """The positive elements: the output's size depends on the data."""

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        return (TensorType(F32, (sym("count"),)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        x = inputs[0]
        assert x is not None
        return (x[x > 0],)


def test_symbols_that_an_op_makes_are_bound_when_it_ran() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (4,)))
    y = g.add1(Positives(), x)
    ones = g.add1(ConstantOfShape((sym("count"),), 1.0, F32))
    graph = g.finish([("y", g.add1(Binary("add"), y, ones))])
    got = evaluate(graph, {"x": np.array([1, -1, 2, 0], np.float32)})["y"]
    np.testing.assert_array_equal(got, [2, 3])


def test_integer_values_stay_integers_in_float64_mode() -> None:
    g = GraphBuilder()
    x = g.input("x", TensorType(I64, (1,)))
    graph = g.finish([("y", g.add1(Binary("add"), x, g.constant(np.array([1]))))])
    got = evaluate(graph, {"x": np.array([2**62])}, float64=True)["y"]
    assert got.dtype == np.int64 and got[0] == 2**62 + 1
