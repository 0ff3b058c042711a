"""Casts of 8-bit floats: every code, every rounding border, and every op that must refuse them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import braze
from braze.core.dtypes import (
    BOOL,
    F8E8M0,
    F16,
    F32,
    F64,
    I8,
    NARROW,
    NUMBERS,
    DType,
)
from braze.core.elements import numbers, stored, unpack
from braze.core.errors import BrazeError, DTypeError, UnsupportedOpError
from braze.frontend.onnx.importer import import_model
from braze.ops.catalog import IMPORTERS
from braze.ops.pointwise.cast import Cast, CastToFloat8
from braze.ops.writing.minifloat import FORMATS
from tests.ops.check import run1

FLOAT8 = sorted(FORMATS, key=str)


def every_code(dtype: DType) -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(dtype.numpy)


def borders(dtype: DType) -> np.ndarray:
    """float64: every number of `dtype`, every tie between neighbours, and just beside each."""
    exact = every_code(dtype).astype(np.float64)
    exact = np.unique(exact[np.isfinite(exact)])
    most = exact[-1]
    ties = (exact[1:] + exact[:-1]) / 2
    step = most - exact[-2]
    far = [most + step / 2, most + step, 4 * most, 1e30, 1e300, np.inf]
    points = np.concatenate([exact, ties, far, np.negative(far)])
    beside = [np.nextafter(points.astype(np.float32), np.float32(d)) for d in (-np.inf, np.inf)]
    return np.concatenate([points, *beside, points * (1 + 2.0**-40), [0.0, -0.0, np.nan]])


def by_ml_dtypes(x: np.ndarray, to: DType, saturate: bool) -> np.ndarray:
    """ONNX Cast by ml_dtypes; the inputs must be float32 (it rounds float64 twice)."""
    most = float(ml_dtypes.finfo(to.numpy).max)
    return (np.clip(x, -most, most) if saturate else x).astype(to.numpy)


@pytest.mark.parametrize("source", [*FLOAT8, F8E8M0], ids=str)
@pytest.mark.parametrize("to", [F32, F64, F16, I8, BOOL], ids=str)
def test_every_code_is_decoded(source: DType, to: DType) -> None:
    x = every_code(source)
    # run_op compares the lowering with the reference; 0 tolerance, conversion up is exact
    y = run1(Cast(to), x, symbolic=False, rtol=0, atol=0)
    if to.is_float:
        want = x.astype(np.float32).astype(to.numpy)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(np.signbit(y[y == 0]), np.signbit(want[y == 0]))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("to", FLOAT8, ids=str)
def test_float32_is_encoded_as_ml_dtypes_does(to: DType, saturate: bool) -> None:
    with np.errstate(all="ignore"):
        x = borders(to).astype(np.float32)
    y = run1(CastToFloat8(to, saturate), x, symbolic=False, rtol=0, atol=0)
    want = by_ml_dtypes(x, to, saturate)
    np.testing.assert_array_equal(y.astype(np.float32), want.astype(np.float32))
    known = ~np.isnan(x)  # which NaN comes out is open
    np.testing.assert_array_equal(y.view(np.uint8)[known], want.view(np.uint8)[known])


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("to", FLOAT8, ids=str)
def test_float64_is_rounded_once(to: DType, saturate: bool) -> None:
    x = borders(to)
    y = run1(CastToFloat8(to, saturate), x, symbolic=False, rtol=0, atol=0)
    inside = np.abs(x) <= float(ml_dtypes.finfo(to.numpy).max)
    codes = every_code(to).astype(np.float64)
    codes = np.unique(codes[np.isfinite(codes)])
    nearest = np.abs(x[inside, None] - codes).min(axis=1)
    np.testing.assert_array_equal(np.abs(x[inside] - y[inside].astype(np.float64)), nearest)


@pytest.mark.parametrize("to", FLOAT8, ids=str)
@pytest.mark.parametrize("source", [t for t in NUMBERS if t not in (F32, F64)], ids=str)
def test_every_source_is_encoded(source: DType, to: DType) -> None:
    rng = np.random.default_rng(0)
    if source.is_float:
        x = stored(rng.standard_normal(300) * 100, source)
    elif source is BOOL:
        x = np.array([True, False])
    else:
        info = np.iinfo(source.numpy)
        low = max(info.min, -500)
        x = np.concatenate([rng.integers(low, 500 if info.max > 500 else info.max, 300)])
        x = np.concatenate([x.astype(source.numpy), np.array([info.min, info.max], source.numpy)])
    y = run1(CastToFloat8(to, True), x, symbolic=False, rtol=0, atol=0)
    want = by_ml_dtypes(numbers(x, source).astype(np.float32), to, True)
    np.testing.assert_array_equal(y.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("to", FLOAT8, ids=str)
@pytest.mark.parametrize("source", FLOAT8, ids=str)
def test_one_format_to_another(source: DType, to: DType) -> None:
    x = every_code(source)
    y = run1(CastToFloat8(to, False), x, symbolic=False, rtol=0, atol=0)
    np.testing.assert_array_equal(
        y.astype(np.float32), x.astype(np.float32).astype(to.numpy).astype(np.float32)
    )


def model(nodes: list, inputs: list, outputs: list, constants: list = ()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


def info(name: str, dtype: DType, shape: list) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype.onnx, shape)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("level", [0, 2])
def test_an_engine_takes_and_gives_8_bit_floats(dtype: DType, level: int) -> None:
    """In, through arithmetic, and out, with a symbolic size."""
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "wide"], ["square"]),
        helper.make_node("Cast", ["square"], ["y"], to=dtype.onnx),
    ]
    proto = model(nodes, [info("x", dtype, ["n", 5])], [info("y", dtype, ["n", 5])])
    engine = braze.build(
        proto, shapes={"x": ((1, 5), (7, 5), (60, 5))}, optimization_level=level, threads=1
    )
    x = every_code(dtype)[:255].reshape(51, 5)
    y = engine({"x": x})["y"]
    assert y.dtype == dtype.numpy
    want = by_ml_dtypes(x.astype(np.float32) ** 2, dtype, True)
    np.testing.assert_array_equal(y.astype(np.float32), want.astype(np.float32))
    with pytest.raises(DTypeError, match=dtype.name):
        engine({"x": x.view(np.uint8)})


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("how", ["raw", "field", "constant"])
def test_constants_of_every_narrow_type_are_read(dtype: DType, how: str) -> None:
    raw = np.random.default_rng(1).integers(0, 256, 8, np.uint8)
    values = unpack(raw, dtype, 7 if dtype.bits < 8 else 8)
    count = 7 if dtype.bits < 8 else 8
    packed = raw[: -(-count * dtype.bits // 8)]
    proto = TensorProto(name="w", data_type=dtype.onnx, dims=[count])
    if how == "field":
        proto.int32_data.extend(packed.tolist())
    else:
        proto.raw_data = packed.tobytes()
    cast = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    node = [helper.make_node("Constant", [], ["w"], value=proto)] if how == "constant" else []
    whole = model(
        [*node, cast], [], [info("y", F32, [count])], [] if how == "constant" else [proto]
    )
    graph = import_model(whole)
    (y,) = (graph.constant(v) for _, v in graph.outputs)
    assert y is not None
    np.testing.assert_array_equal(y, values.astype(np.float32))


@pytest.mark.parametrize("dtype", [t for t in NARROW if t.bits < 8], ids=str)
def test_types_below_a_byte_are_constants_only(dtype: DType) -> None:
    to_float = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    taken = model([to_float], [info("x", dtype, [4])], [info("y", F32, [4])])
    with pytest.raises(BrazeError, match=f"'x' is {dtype}, which braze takes as constants only"):
        import_model(taken)
    to_narrow = helper.make_node("Cast", ["x"], ["y"], to=dtype.onnx)
    given = model([to_narrow], [info("x", F32, [4])], [info("y", dtype, [4])])
    with pytest.raises(UnsupportedOpError, match=f"nothing is converted to {dtype}"):
        import_model(given)


def narrow_nodes() -> list[tuple[str, str]]:
    return sorted(k for k in IMPORTERS if k[1] not in ("Cast", "CastLike"))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("constant", [False, True])
def test_every_other_op_refuses_narrow_types_or_moves_them_unchanged(
    dtype: DType, constant: bool
) -> None:
    """The whole catalog: a typed error, or a result (Identity, Shape); never another exception."""
    kinds = set()
    for domain, op in narrow_nodes():
        for inputs in (1, 2, 3):
            names = [f"x{i}" for i in range(inputs)]
            node = helper.make_node(op, names, ["y"], domain=domain, name="n")
            if op in ("Concat", "Softmax", "Gather"):
                node.attribute.append(helper.make_attribute("axis", 0))
            raw = np.arange(1, 17, dtype=np.uint8)[: -(-4 * dtype.bits // 8)].tobytes()
            tensors = [
                TensorProto(name=n, data_type=dtype.onnx, dims=[2, 2], raw_data=raw) for n in names
            ]
            given = [] if constant else [info(n, dtype, [2, 2]) for n in names]
            graph = helper.make_graph(
                [node], "g", given, [onnx.ValueInfoProto(name="y")], tensors if constant else []
            )
            opsets = [helper.make_opsetid("", 25)] + [helper.make_opsetid(domain, 1)] * bool(domain)
            proto = helper.make_model(graph, opset_imports=opsets)
            try:
                result = import_model(proto)
            except BrazeError as e:
                assert "report" not in str(e) and "Error:" not in str(e), f"{op}: {e}"
                kinds.add("refused")
                continue
            kinds.add(op)
            moved = {"Cast", "Reshape", "Transpose"}
            assert not [n for n in result.nodes if n.op.name not in moved], (op, result.nodes)
    views = {"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"}
    assert kinds <= {"refused", "Identity", "Dropout", "Shape", "Size", "Constant", *views}, kinds


def test_values_of_inputs_may_be_8_bit_floats() -> None:
    dtype = FLOAT8[0]
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    proto = model([cast], [info("x", dtype, [2])], [info("y", F32, [2])])
    given = np.array([1.5, -2.0], dtype.numpy)
    assert import_model(proto, values={"x": given}).specialized == {"x": (1.5, -2.0)}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("level", [0, 2])
def test_views_move_codes(target: str, level: int) -> None:
    """A Reshape in front of the conversion and a Transpose behind it, whatever moves past what."""
    dtype = FLOAT8[0]
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=dtype.onnx),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    shape = TensorProto(
        name="shape", data_type=TensorProto.INT64, dims=[2], raw_data=np.array([5, 12]).tobytes()
    )
    whole = model(nodes, [info("x", F32, [3, 4, 5])], [info("y", F32, [12, 5])], [shape])
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    got = braze.build(whole, target=target, optimization_level=level)({"x": x})["y"]
    want = x.reshape(5, 12).astype(dtype.numpy).T.astype(np.float32)
    np.testing.assert_array_equal(got, want)
