"""MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv: exact against integers without bound."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import braze
from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate
from tests.ops.harness import check
from tests.ops.one_node import one_node
from tests.ops.test_quantize_linear import small
from tests.pairs import pairwise

Array = np.ndarray[Any, Any]
BYTES = ("uint8", "int8")


def codes(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Numbers of the whole range of a type."""
    info = np.iinfo(dtype)
    rng = np.random.default_rng([seed, len(shape)])
    return np.asarray(rng.integers(info.min, info.max + 1, shape)).astype(dtype)


def requantized(total: Array, scale: Array, zero: Array) -> Array:
    """round(float32(total) * scale) + zero, saturated."""
    q = np.rint(total.astype(np.int32).astype(np.float32) * scale).astype(np.float64)
    info = np.iinfo(zero.dtype)
    return np.clip(q + zero.astype(np.float64), info.min, info.max).astype(zero.dtype)


SHAPES = [((3, 5), (5, 4)), ((2, 3, 5), (5, 4)), ((2, 1, 3, 7), (3, 7, 2)), ((5,), (5, 3)),
          ((4, 5), (5,)), ((1, 2, 2, 3, 6), (2, 6, 5))]  # fmt: skip


@pytest.mark.parametrize(("a_type", "b_type"), [*itertools.product(BYTES, BYTES)])
@pytest.mark.parametrize(("left", "right"), SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_products(a_type: str, b_type: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = codes(left, a_type), codes(right, b_type, 1)
    rows = left[-2] if len(left) > 1 else 0
    columns = right[-1] if len(right) > 1 else 0
    for a_zero, b_zero in (
        (None, None), (codes((), a_type, 2), codes((), b_type, 3)), (codes((1,), a_type, 4), None),
        (codes((rows,), a_type, 5), codes((columns,), b_type, 6)),
    ):  # fmt: skip
        if 0 in ([z.size for z in (a_zero, b_zero) if z is not None]):
            continue
        wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
        if a_zero is not None:
            wide_a = wide_a - (a_zero[:, None] if a_zero.size > 1 else a_zero).astype(np.int64)
        if b_zero is not None:
            wide_b = wide_b - b_zero.astype(np.int64)
        total = np.matmul(wide_a, wide_b)
        for constant in ((), (1, 2, 3)):
            check("MatMulInteger", [a, b, a_zero, b_zero], [total.astype(np.int32)],
                  constant=constant, opset=10)  # fmt: skip
        z = [np.zeros((), t) if v is None else v for v, t in ((a_zero, a_type), (b_zero, b_type))]
        a_scale, y_scale = np.float32(0.013), np.float32(0.9)
        b_scale = np.linspace(0.01, 0.05, max(columns, 1)).astype(np.float32)
        b_scale = b_scale if columns else b_scale[0]
        for y_type in BYTES:
            y_zero = codes((), y_type, 7)
            want = requantized(total, np.float32(a_scale * b_scale) / y_scale, y_zero)
            given = [a, np.asarray(a_scale), z[0], b, np.asarray(b_scale), z[1],
                     np.asarray(y_scale), y_zero]  # fmt: skip
            check("QLinearMatMul", given, [np.asarray(want)], constant=(1, 2, 3, 4, 5, 6, 7))


def test_products_of_dynamic_size() -> None:
    a, b = codes((3, 7), "uint8"), codes((7, 5), "int8")
    zero = np.asarray(130, np.uint8)
    want = np.matmul(a.astype(np.int32) - 130, b.astype(np.int32))
    check("MatMulInteger", [a, b, zero], [want], constant=(1, 2), dynamic=True)


@pytest.mark.parametrize(("a_value", "b_value"), [(255, 127), (255, -128), (0, -128)])
@pytest.mark.parametrize("k", [2, 300, 70_000])
def test_no_sum_saturates(a_value: int, b_value: int, k: int) -> None:
    """Pairs of products beyond 16 bits, and sums that wrap at 32."""
    a, b = np.full((2, k), a_value, np.uint8), np.full((k, 3), b_value, np.int8)
    zero = np.asarray(255 if a_value == 0 else 0, np.uint8)
    total = (a_value - int(zero)) * b_value * k
    want = np.full((2, 3), total, np.int64).astype(np.int32)
    assert np.array_equal(want, np.full((2, 3), (total + 2**31) % 2**32 - 2**31, np.int64))
    model = one_node("MatMulInteger", [a, b, zero], opset=10, constant=(1, 2), attributes={})
    np.testing.assert_array_equal(evaluate(import_model(model), {"x0": a})["y0"], want)
    for target in ("cpu", "reference") if k < 1000 else ("cpu",):
        got = braze.build(model, target=target, optimization_level=2)({"x0": a})["y0"]
        np.testing.assert_array_equal(got, want)


# ------------------------------------------------------------------ convolutions


def convolved(
    x: Array, w: Array, x_zero: int, w_zero: Array, groups: int, strides: list[int],
    dilations: list[int], pads: list[int],
) -> Array:  # fmt: skip
    """Exact sums in int64; the padding has the value of the zero point, which counts as nothing."""
    rank = x.ndim - 2
    widths = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    data = np.pad(x.astype(np.int64) - x_zero, widths)
    weight = w.astype(np.int64) - w_zero.reshape(-1, *(1,) * (rank + 1))
    out = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(data.shape[2:], w.shape[2:], dilations, strides, strict=True)
    ]
    total = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    filters, channels = w.shape[0] // groups, w.shape[1]
    for k in range(w.shape[0]):
        first = k // filters * channels
        for tap in np.ndindex(*w.shape[2:]):
            window = tuple(
                slice(t * d, t * d + (o - 1) * s + 1, s)
                for t, d, o, s in zip(tap, dilations, out, strides, strict=True)
            )
            for c in range(channels):
                total[:, k] += data[(slice(None), first + c, *window)] * weight[(k, c, *tap)]
    return total


FORMS = [
    {"strides": 1, "dilations": 1, "pads": (0, 0)},
    {"strides": 2, "dilations": 1, "pads": (1, 1)},
    {"strides": 1, "dilations": 2, "pads": (2, 0)},
    {"strides": 2, "dilations": 2, "pads": (0, 3)},
]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: "-".join(map(str, f.values())))
@pytest.mark.parametrize(("x_type", "w_type"), [*itertools.product(BYTES, BYTES)])
def test_convolutions(
    rank: int, groups: int, form: dict[str, Any], x_type: str, w_type: str
) -> None:
    sizes, kernel = (7, 6, 5)[:rank], (3, 2, 2)[:rank]
    x, w = codes((2, 4, *sizes), x_type), codes((8, 4 // groups, *kernel), w_type, 1)
    begin, end = form["pads"]
    strides, dilations = [form["strides"]] * rank, [form["dilations"]] * rank
    pads = [begin] * rank + [end] * rank
    attributes = {"group": groups, "strides": strides, "dilations": dilations, "pads": pads}
    x_zero = codes((), x_type, 2)
    for w_zero in (codes((), w_type, 3), codes((8,), w_type, 4), np.zeros((8,), w_type)):
        total = convolved(x, w, int(x_zero), w_zero, groups, strides, dilations, pads)
        check("ConvInteger", [x, w, x_zero, w_zero], [total.astype(np.int32)], opset=10,
              constant=(1,), **attributes)  # fmt: skip
        bias = np.random.default_rng(5).integers(-30_000, 30_000, 8).astype(np.int32)
        w_scale = np.linspace(0.002, 0.006, 8).astype(np.float32)
        if not w_zero.ndim:
            w_scale = w_scale[3]
        x_scale, y_scale, y_zero = np.float32(0.1), np.float32(1.7), codes((), x_type, 6)
        scale = np.float32(x_scale * w_scale) / y_scale
        wide = np.asarray(scale).reshape(-1, *(1,) * rank)
        for b in (None, bias):
            shift = 0 if b is None else b.reshape(-1, *(1,) * rank)
            want = requantized(total + shift, wide, y_zero)
            given = [x, np.asarray(x_scale), x_zero, w, np.asarray(w_scale), w_zero,
                     np.asarray(y_scale), y_zero, b]  # fmt: skip
            check("QLinearConv", given, [want], opset=10, constant=range(1, 9), **attributes)


@pytest.mark.parametrize("zero", [0, 7, 255])
def test_padding_is_the_zero_point(zero: int) -> None:
    """Also where its size is only known at run time."""
    x, w = codes((1, 2, 6, 7), "uint8"), codes((3, 2, 3, 3), "int8", 1)
    total = convolved(x, w, zero, np.zeros((), np.int8), 1, [2, 2], [1, 1], [0, 1, 1, 1])
    held = np.asarray(zero, np.uint8)
    for dynamic in (False, True):
        check("ConvInteger", [x, w, held], [total.astype(np.int32)], opset=10, constant=(1, 2),
              dynamic=dynamic, auto_pad="SAME_UPPER", strides=[2, 2])  # fmt: skip


@pytest.mark.parametrize(
    ("types", "level", "groups"),
    pairwise([("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")], [0, 2, 4], [1, 32]),
)
def test_engines_equal_onnxruntime_bit_for_bit(
    types: tuple[str, str], level: int, groups: int
) -> None:
    """A 3x3 convolution that transforms would take, and a product, with a dynamic batch.

    Weights have 7 bits: beyond that ONNX Runtime saturates sums of pairs on processors without
    VNNI.
    """
    x_type, w_type = types
    rng = np.random.default_rng(3)
    w = (codes((32, 32 // groups, 3, 3), w_type, 1) // 2).astype(w_type)
    m = (codes((512, 10), w_type, 2) // 2).astype(w_type)
    low = 0 if w_type == "uint8" else -3
    arrays = {
        "xs": np.float32(0.02), "xz": codes((), x_type, 5),
        "w": w, "ws": rng.uniform(0.001, 0.01, 32).astype(np.float32),
        "wz": np.full(32, 60 if w_type == "uint8" else 0, w_type),
        "ys": np.float32(0.2), "yz": np.asarray(9, x_type),
        "b": rng.integers(-900, 900, 32).astype(np.int32),
        "m": m, "ms": np.float32(0.003), "mz": np.asarray(low + 3, w_type),
        "shape": np.array([0, -1]), "zs": np.float32(0.7), "zz": np.asarray(3, x_type),
    }  # fmt: skip
    nodes = [
        helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"],
                         pads=[1, 1, 1, 1], group=groups),
        helper.make_node("Slice", ["c", "st", "en", "ax"], ["t"]),
        helper.make_node("Reshape", ["t", "shape"], ["f"]),
        helper.make_node("QLinearMatMul", ["f", "ys", "yz", "m", "ms", "mz", "zs", "zz"], ["y"]),
    ]  # fmt: skip
    arrays |= {"st": np.array([0, 0]), "en": np.array([4, 4]), "ax": np.array([2, 3])}
    held = [numpy_helper.from_array(np.asarray(a), k) for k, a in arrays.items()]
    x = codes((3, 32, 9, 8), x_type)
    model = small(nodes, {"x": x}, held, outputs=("c", "y"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    del model.graph.output[:]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(x_type))
    model.graph.output.append(helper.make_tensor_value_info("c", kind, ["n", 32, 9, 8]))
    model.graph.output.append(helper.make_tensor_value_info("y", kind, ["n", 10]))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    shapes = {"x": ((1, 32, 9, 8), (2, 32, 9, 8), (4, 32, 9, 8))}
    engine = braze.build(model, shapes=shapes, optimization_level=level, threads=2)
    for batch in (1, 3):
        want = session.run(None, {"x": x[:batch]})
        got = engine({"x": x[:batch]})
        for name, w_ in zip("cy", want, strict=True):
            np.testing.assert_array_equal(got[name], w_)


def test_what_is_refused() -> None:
    x, w = np.zeros((1, 2, 4, 4), np.uint8), np.zeros((3, 3, 2, 2), np.int8)
    with pytest.raises(BrazeError, match="needs 3 input channels"):
        import_model(one_node("ConvInteger", [x, w], opset=10, attributes={}))
    a, b = np.zeros((2, 3), np.uint8), np.zeros((4, 2), np.int8)
    with pytest.raises(BrazeError, match="inner size"):
        import_model(one_node("MatMulInteger", [a, b], opset=10, attributes={}))


def test_they_compile_for_gpus() -> None:
    pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
    w, m = codes((8, 4, 3, 3), "int8"), codes((4, 6), "int8")
    nodes = [
        helper.make_node("ConvInteger", ["x", "w"], ["c"]),
        helper.make_node("MatMulInteger", ["a", "m"], ["y"]),
    ]
    held = [numpy_helper.from_array(a, k) for k, a in (("w", w), ("m", m))]
    feed = {"x": np.zeros((1, 4, 6, 6), np.uint8), "a": np.zeros((3, 4), np.uint8)}
    model = small(nodes, feed, held, outputs=("c", "y"))
    assert braze.compile(model, target="cuda:sm_90", optimization_level=2)
