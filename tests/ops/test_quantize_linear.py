"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: exact against plain integer formulas."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import braze
from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate
from tests.ops.harness import check
from tests.ops.one_node import one_node

Array = np.ndarray[Any, Any]
INTEGERS = ("uint8", "int8", "uint16", "int16")
SHAPES = {1: (12,), 2: (6, 8), 3: (2, 6, 5), 4: (2, 4, 3, 5), 5: (2, 4, 2, 1, 3)}


def spread(
    where: str, shape: tuple[int, ...], axis: int, block: int, param: Array
) -> Array:
    """A scale or zero point as an array of the shape of the data."""
    if param.size == 1 and where != "block":
        return np.broadcast_to(param.reshape(()), shape)
    if where == "axis":
        return np.broadcast_to(param.reshape(-1, *(1,) * (len(shape) - axis - 1)), shape)
    return np.take(param, np.arange(shape[axis]) // block, axis)


def parameters(
    where: str, shape: tuple[int, ...], axis: int, block: int, dtype: str, float_type: Any
) -> tuple[Array, Array]:
    """A scale and a zero point: for all (rank 0 or 1), for an axis, or for blocks of it."""
    rng = np.random.default_rng([axis, block, len(shape)])
    size: tuple[int, ...] = {"scalar": (), "one": (1,), "axis": (shape[axis],)}.get(where, ())
    if where == "block":
        size = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    info = np.iinfo(dtype)
    scale = rng.uniform(0.02, 0.11, size).astype(float_type)
    zero = rng.integers(max(info.min, -300), min(info.max, 300) + 1, size).astype(dtype)
    return np.asarray(scale), np.asarray(zero)


def quantized(x: Array, scale: Array, zero: Array | None, dtype: str) -> Array:
    """Exact: float32 quotient, half to even, integers without bound, saturated."""
    with np.errstate(all="ignore"):
        q = np.rint((x.astype(np.float32) / scale.astype(np.float32)).astype(np.float64))
    q = q + (0 if zero is None else zero.astype(np.int64))
    info = np.iinfo(dtype)
    return np.clip(np.nan_to_num(q, nan=info.min), info.min, info.max).astype(dtype)


WHERE = [("scalar", 0), ("one", 0), ("axis", 0), ("block", 4), ("block", 5)]


@pytest.mark.parametrize("rank", SHAPES)
@pytest.mark.parametrize(("where", "block"), WHERE, ids=str)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_quantize_and_dequantize(rank: int, where: str, block: int, dtype: str) -> None:
    shape = SHAPES[rank]
    for axis in range(-rank, rank, 2) if where == "axis" else (rank - 1, 0):
        k = axis % rank
        scale, zero = parameters(where, shape, k, block, dtype, np.float32)
        rng = np.random.default_rng(rank)
        x = rng.normal(0, 8, shape).astype(np.float32)
        x.flat[:6] = [np.inf, -np.inf, np.nan, -0.0, 1e30, -1e30]
        q = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
        wide, offset = (spread(where, shape, k, block, p) for p in (scale, zero))
        more = {"axis": axis} if where in ("axis", "block") else {}
        more |= {"block_size": block} if block else {}
        for dynamic, given in ((False, zero), (where != "one", zero), (False, None)):
            z = np.zeros_like(zero) if given is None else zero
            want = quantized(x, wide, None if given is None else offset, dtype)
            constant = () if dynamic else (1, 2)
            check("QuantizeLinear", [x, scale, z], [want], constant=constant, dynamic=dynamic,
                  rtol=0, atol=0, **more)  # fmt: skip
            minus = 0 if given is None else offset.astype(np.int64)
            back = (q.astype(np.int64) - minus).astype(np.float32) * wide
            check("DequantizeLinear", [q, scale, given], [back], constant=constant,
                  dynamic=dynamic, rtol=0, atol=0, **more)  # fmt: skip


def test_ties_go_to_even_before_the_zero_point_is_added() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5], np.float32)
    one = np.float32(1)
    for zero in (0, 3):
        want = np.array([-2, -2, 0, 0, 2, 2, 4], np.int8) + np.int8(zero)
        check("QuantizeLinear", [x, np.asarray(one), np.asarray(zero, np.int8)], [want])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_scales_divide_in_their_type_and_multiply_in_float32(dtype: Any) -> None:
    """`precision` widens the division; the quotient is otherwise rounded before the integer is."""
    rng = np.random.default_rng(5)
    x = rng.normal(0, 3, 4000).astype(dtype)
    scale, zero = np.asarray(0.0371, dtype), np.asarray(3, np.int8)
    exact = x.astype(np.float32) / scale.astype(np.float32)
    narrow = np.clip(np.rint(exact.astype(dtype).astype(np.float32)) + 3, -128, 127)
    wide = np.clip(np.rint(exact) + 3, -128, 127)
    assert (narrow != wide).any()
    check("QuantizeLinear", [x, scale, zero], [narrow.astype(np.int8)], opset=23)
    check("QuantizeLinear", [x, scale, zero], [wide.astype(np.int8)], opset=23, precision=1)
    q = rng.integers(-128, 128, 300).astype(np.int8)
    back = ((q.astype(np.int32) - 3).astype(np.float32) * scale.astype(np.float32)).astype(dtype)
    check("DequantizeLinear", [q, scale, zero], [back], rtol=0, atol=0, opset=23)
    wide_back = (q.astype(np.int32) - 3).astype(np.float32) * scale.astype(np.float32)
    check("DequantizeLinear", [q, scale, zero], [wide_back], rtol=0, atol=0, opset=23,
          output_dtype=1)  # fmt: skip


def test_int32_is_dequantized_without_wrapping() -> None:
    q = np.array([2**31 - 1, -(2**31), 0, 16_777_217], np.int32)
    zero = np.asarray(-5, np.int32)
    want = (q.astype(np.int64) + 5).astype(np.float32) * np.float32(0.5)
    check("DequantizeLinear", [q, np.asarray(0.5, np.float32), zero], [want], rtol=0, atol=0)


def test_int32_is_quantized() -> None:
    x = np.array([0, 7, -9, 1000, 25], np.int32)
    want = np.array([0, 4, 0, 255, 12], np.uint8)
    check("QuantizeLinear", [x, np.asarray(2, np.float32), np.asarray(0, np.uint8)], [want])


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("where", ["scalar", "axis", "block"])
def test_weights_below_a_byte(name: str, where: str) -> None:
    """Constants of these types are unpacked; what is quantized at run time keeps their range."""
    kind = getattr(ml_dtypes, name)
    low, high = int(ml_dtypes.iinfo(kind).min), int(ml_dtypes.iinfo(kind).max)
    rng = np.random.default_rng(3)
    q = rng.integers(low, high + 1, (5, 7))
    size = {"scalar": (), "axis": (7,), "block": (5, 3)}[where]
    scale = np.asarray(rng.uniform(0.1, 0.4, size).astype(np.float32))
    zero = np.asarray(rng.integers(low, high + 1, size))
    block = {"block_size": 3} if where == "block" else {}
    wide, offset = (spread(where, (5, 7), 1, 3, p) for p in (scale, zero))
    codes = [q.astype(kind), scale, zero.astype(kind)]
    want = (q - offset).astype(np.float32) * wide
    check("DequantizeLinear", codes, [want], opset=25, constant=(0, 1, 2), rtol=0, atol=0, axis=1,
          **block)  # fmt: skip
    x = rng.normal(0, 2, (5, 7)).astype(np.float32)
    x[0, :3] = np.nan, np.inf, -np.inf
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, **block),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, **block),
    ]
    held = [onnx.numpy_helper.from_array(a, k) for a, k in zip(codes[1:], "sz", strict=True)]
    model = small(nodes, {"x": x}, held, opset=25)
    quotient = np.nan_to_num(np.rint(x / wide), nan=-1e9) + offset
    want = (np.clip(quotient, low, high) - offset).astype(np.float32) * wide
    for target in ("cpu", "reference"):
        (y,) = braze.build(model, target=target, optimization_level=2)({"x": x}).values()
        np.testing.assert_array_equal(y, want)


FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("saturate", [0, 1])
def test_8_bit_floats_are_a_division_and_a_conversion(name: str, saturate: int) -> None:
    kind = getattr(ml_dtypes, name)
    x = np.random.default_rng(2).normal(0, 60, (4, 6)).astype(np.float32)
    x[0, :4] = 1e9, -1e9, np.nan, 0.0
    scale = np.random.default_rng(4).uniform(0.1, 0.9, 6).astype(np.float32)
    quotient = x / scale
    if saturate:
        most = float(ml_dtypes.finfo(kind).max)
        quotient = np.clip(quotient, -most, most)
    with np.errstate(all="ignore"):
        q = quotient.astype(kind)
    zero = np.zeros(6, kind)
    check("QuantizeLinear", [x, scale, zero], [q], opset=23, axis=1, constant=(1, 2), rtol=0,
          atol=0, saturate=saturate)  # fmt: skip
    back = q.astype(np.float32) * scale
    check("DequantizeLinear", [q, scale, zero], [back], opset=23, axis=1, rtol=0, atol=0)
    check("DequantizeLinear", [q, scale], [back], opset=23, axis=1, constant=(0,), rtol=0, atol=0)


def test_float4_weights_and_scales_that_are_powers_of_two() -> None:
    """float4_e2m1fn in blocks with float8_e8m0fnu scales, as microscaling formats have them."""
    q = np.array([[0, 0.5, -1, 1.5], [2, -3, 4, 6]], ml_dtypes.float4_e2m1fn)
    scale = np.array([[0.25, 4.0], [1.0, 0.5]], ml_dtypes.float8_e8m0fnu)
    want = q.astype(np.float32) * np.repeat(scale.astype(np.float32), 2, axis=1)
    check("DequantizeLinear", [q, scale], [want], opset=25, constant=(0, 1), axis=1, block_size=2,
          output_dtype=TensorProto.FLOAT, rtol=0, atol=0)  # fmt: skip


def small(
    nodes: list[onnx.NodeProto], feed: dict[str, Array], held: list[TensorProto], opset: int = 21,
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:  # fmt: skip
    """A model of these nodes whose inputs have the types and shapes of `feed`."""
    given = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for k, a in feed.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", given, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("where", ["scalar", "axis", "block"])
def test_engines_equal_onnxruntime_bit_for_bit(dtype: str, where: str) -> None:
    """Both directions, 2,000 elements, on the processor and on the reference."""
    shape, block = (10, 50, 4), 5 if where == "block" else 0
    scale, zero = parameters(where, shape, 1, block, dtype, np.float32)
    more = {"block_size": block} if block else {}
    names = [onnx.numpy_helper.from_array(a, k) for a, k in ((scale, "s"), (zero, "z"))]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, **more),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, **more),
    ]
    feed = {"x": np.random.default_rng(1).normal(0, 12, shape).astype(np.float32)}
    model = small(nodes, feed, names, outputs=("q", "y"))
    del model.graph.output[:]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model.graph.output.append(helper.make_tensor_value_info("q", kind, shape))
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, shape))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for target in ("cpu", "reference"):
        got = braze.build(model, target=target, optimization_level=2)(feed)
        for name, want in zip("qy", session.run(None, feed), strict=True):
            np.testing.assert_array_equal(got[name], want)


@pytest.mark.parametrize("low", [-3.0, 0.5, -9.0, 0.0])
def test_dynamic_quantization_equals_onnxruntime(low: float) -> None:
    x = np.random.default_rng(7).uniform(low, 5.0 if low else 0.0, (7, 33)).astype(np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    model = small([node], {"x": x}, [], outputs=("q", "s", "z"))
    del model.graph.output[:]
    for name, kind, shape in (("q", 2, (7, 33)), ("s", 1, ()), ("z", 2, ())):
        model.graph.output.append(helper.make_tensor_value_info(name, kind, shape))
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    by_reference = evaluate(import_model(model), {"x": x})
    engine = braze.build(model, optimization_level=2)({"x": x})
    for name, w in zip("qsz", want, strict=True):
        np.testing.assert_array_equal(by_reference[name], w)
        np.testing.assert_array_equal(engine[name], w)


REFUSED = [
    ("QuantizeLinear", [(4, 6), (5,), None], {"axis": 1}, "5 and 6 differ"),
    ("QuantizeLinear", [(4, 6), (2, 6), None], {"axis": 0}, "no block_size"),
    ("QuantizeLinear", [(4, 6), (4, 2), None], {"axis": 1, "block_size": 4, "output_dtype": 1},
     "nothing is quantized to float32"),
    ("QuantizeLinear", [(4, 6), (4, 3), None], {"axis": 1, "block_size": 4}, "differ"),
    ("QuantizeLinear", [(4, 6), (6,), None], {"axis": 2}, "outside a tensor of rank 2"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "shapes", "attributes", "why"), REFUSED)
def test_parameters_that_do_not_fit(
    op: str, shapes: list[Any], attributes: dict[str, Any], why: str
) -> None:
    arrays = [None if s is None else np.ones(s, np.float32) for s in shapes]
    with pytest.raises(BrazeError, match=why):
        import_model(one_node(op, arrays, opset=23, attributes=attributes))


def test_they_compile_for_gpus() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, block_size=4),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, block_size=4),
    ]
    held = [
        onnx.numpy_helper.from_array(np.full((6, 2), v, t), k)
        for k, v, t in (("s", 0.1, np.float32), ("z", 3, np.int8))
    ]
    pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
    x = np.zeros((6, 8), np.float32)
    assert braze.compile(small(nodes, {"x": x}, held), target="cuda:sm_90", optimization_level=2)
