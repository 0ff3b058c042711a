"""Constants, ranges, identity matrices, triangles, Dropout and Identity."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from braze.core.dims import sym
from braze.core.dtypes import BF16, BOOL, F16, F32, F64, I16, I32, I64, U8
from braze.core.errors import BrazeError, ShapeError
from braze.frontend.onnx.importer import import_model
from braze.ir.builder import GraphBuilder
from braze.ops.base import Op
from braze.ops.evaluator import evaluate
from braze.ops.move.trilu import Trilu
from braze.ops.pointwise.constant import ConstantOfShape, Eye, Range
from tests.ops.check import bf16, run1, run_node
from tests.ops.lowering import run_lowered


def made(op: Op, **env: int) -> np.ndarray[Any, Any]:
    """The output of an op without inputs, by reference and by lowering."""
    g = GraphBuilder()
    carrier = g.input("sizes", _carrier_type(env))
    graph = g.finish([("y", g.add1(op)), ("unused", carrier)])
    feeds = {"sizes": np.zeros(tuple(env.values()), np.float32)}
    y = evaluate(graph, feeds)["y"]
    np.testing.assert_array_equal(run_lowered(graph, feeds, env)["y"], y)
    return y


def _carrier_type(env: dict[str, int]) -> Any:
    from braze.ir.graph import TensorType

    return TensorType(F32, tuple(sym(name) for name in env))


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (1.5, F32, np.float32(1.5)),
        (7, I64, np.int64(7)),
        (1, BOOL, np.True_),
        (0.1, F16, np.float16(0.1)),
        (-3, I16, np.int16(-3)),
        (200, U8, np.uint8(200)),
    ],
)
def test_constant_of_shape(value: float, dtype: Any, want: Any) -> None:
    y = made(ConstantOfShape((sym("n"), 3), value, dtype), n=2)
    assert y.dtype == want.dtype
    np.testing.assert_array_equal(y, np.full((2, 3), want))


def test_constant_of_shape_in_bfloat16() -> None:
    y = made(ConstantOfShape((2,), 1.5, BF16))
    np.testing.assert_array_equal(y, bf16([1.5, 1.5]))


@pytest.mark.parametrize("dtype", [I64, I32, I16, F32, F64, F16])
def test_range_of_sizes(dtype: Any) -> None:
    y = made(Range(2, 3, sym("n") + 1, dtype), n=4)
    np.testing.assert_array_equal(y, np.arange(2, 2 + 15, 3).astype(dtype.numpy))
    y = made(Range(sym("n"), -1, sym("n"), dtype), n=4)
    np.testing.assert_array_equal(y, np.array([4, 3, 2, 1]).astype(dtype.numpy))


def test_range_importer() -> None:
    def scalars(*values: Any) -> dict[str, np.ndarray[Any, Any]]:
        return dict(zip("abc", map(np.asarray, values), strict=True))

    for start, limit, delta in [(3, 9, 3), (10, 4, -2), (5, 5, 1), (5, 2, 1), (0, 10, 3)]:
        (y,) = run_node("Range", {}, 11, scalars(start, limit, delta))
        np.testing.assert_array_equal(y, np.arange(start, limit, delta))
    (y,) = run_node("Range", {}, 11, scalars(*np.array([1.0, 2.0, 0.3], np.float32)))
    np.testing.assert_allclose(y, [1, 1.3, 1.6, 1.9], rtol=1e-6)
    with pytest.raises(BrazeError, match="delta"):
        run_node("Range", {}, 11, scalars(0, 3, 0))
    (y,) = run_node("Range", scalars(0, 3, 1), 11)
    np.testing.assert_array_equal(y, np.arange(3))


def range_of_sizes(start: float, offset: float, delta: float) -> onnx.ModelProto:
    """y = Range(start, float(n) + offset, delta) with n the size of input x."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["f", "offset"], ["end"]),
        helper.make_node("Squeeze", ["end"], ["limit"]),
        helper.make_node("Range", ["start", "limit", "delta"], ["y"]),
    ]
    numbers = {"start": start, "delta": delta, "offset": [offset]}
    graph = helper.make_graph(
        nodes,
        "range",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("start", "offset", "delta"), [(0.5, 0, 1), (0.5, 3, 1.5), (0, 1, 0.25), (7.5, 0, -0.5)]
)
def test_range_of_sizes_with_halves(start: float, offset: float, delta: float) -> None:
    graph = import_model(range_of_sizes(start, offset, delta), shapes={"x": ((1,), (4,), (9,))})
    for n in (1, 4, 9):
        y = evaluate(graph, {"x": np.zeros(n, np.float32)})["y"]
        np.testing.assert_array_equal(y, np.arange(start, n + offset, delta, dtype=np.float32))


@pytest.mark.parametrize("k", [-2, 0, 1, 5])
def test_eye(k: int) -> None:
    np.testing.assert_array_equal(made(Eye(3, sym("n"), k, I32), n=4), np.eye(3, 4, k))
    (y,) = run_node("EyeLike", {"x": np.zeros((3, 4), np.int32)}, 9, k=k, dtype=1)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, np.eye(3, 4, k))


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("k", [-3, -1, 0, 2, 7])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_trilu(upper: bool, k: int, dtype: str) -> None:
    x = np.arange(1, 25).reshape(2, 3, 4).astype(dtype)
    want = np.triu(x, k) if upper else np.tril(x, k)
    np.testing.assert_array_equal(run1(Trilu(upper, k), x), want)
    np.testing.assert_array_equal(run1(Trilu(upper, None), x, np.array(k)), want)
    (y,) = run_node("Trilu", {"x": x}, 14, {"k": np.array(k)}, upper=int(upper))
    np.testing.assert_array_equal(y, want)


def test_trilu_keeps_nan_out_of_the_zero_part() -> None:
    x = np.full((2, 2), np.nan, np.float32)
    y = run1(Trilu(True, 0), x)
    assert y[1, 0] == 0 and np.isnan(y[0, 1])
    with pytest.raises(ShapeError):
        run1(Trilu(True, 0), np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("attributes", "want"),
    [
        ({"value_float": 1.5}, np.float32(1.5)),
        ({"value_floats": [1.0, 2.0]}, np.float32([1, 2])),
        ({"value_int": 3}, np.int64(3)),
        ({"value_ints": [3, 4]}, np.int64([3, 4])),
        ({"value": onnx.numpy_helper.from_array(np.array([[True]]))}, np.array([[True]])),
        (
            {"value": helper.make_tensor("v", TensorProto.BFLOAT16, [2], [1.5, -2.0])},
            bf16([1.5, -2]),
        ),
    ],
)
def test_constant_of_every_kind(attributes: dict[str, Any], want: Any) -> None:
    (y,) = run_node("Constant", {}, 13, **attributes)
    assert y.dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(y, want)


def test_string_constants_are_refused() -> None:
    with pytest.raises(BrazeError):
        run_node("Constant", {}, 13, value_string="x")


def test_constant_of_shape_importer() -> None:
    (y,) = run_node("ConstantOfShape", {}, 9, {"shape": np.array([2, 0, 3])})
    assert y.shape == (2, 0, 3) and y.dtype == np.float32
    value = onnx.numpy_helper.from_array(np.array([7], np.int8))
    (y,) = run_node("ConstantOfShape", {}, 20, {"shape": np.zeros(0, np.int64)}, value=value)
    assert y.shape == () and y == 7 and y.dtype == np.int8


def test_identity_and_dropout_vanish() -> None:
    x = np.array([1.0, 2.0], np.float32)
    (y,) = run_node("Identity", {"x": x}, 13)
    np.testing.assert_array_equal(y, x)
    y, mask = run_node("Dropout", {"x": x}, 13, num_outputs=2)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == np.bool_ and mask.all()
    _, mask = run_node("Dropout", {"x": x}, 7, num_outputs=2, ratio=0.3)
    assert mask.dtype == np.float32 and (mask == 1).all()
    model = _dropout_model(training=False)
    assert not import_model(model).nodes


def test_training_dropout_that_drops_nothing_is_nothing() -> None:
    assert import_model(_dropout_model(training=True, ratio=0.5)).nodes
    assert not import_model(_dropout_model(training=True, ratio=0.0)).nodes


def _dropout_model(training: bool, ratio: float = 0.5) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Dropout", ["x", "r", "t"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [
            onnx.numpy_helper.from_array(np.float32(ratio), "r"),
            onnx.numpy_helper.from_array(np.array(training), "t"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
