"""Quantized ops of com.microsoft against onnxruntime.

`equal` where onnxruntime sums integers and scales once: the same bits. `near` where it computes
with floats in an order or with a table of its own: a code may differ by one where its number is
within a few roundings of a half, so at most one step, and in few elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from tests.contributed.peer import compare, feeds_of, node_model, run_braze, run_peer
from tests.pairs import pairwise

Array = np.ndarray[Any, Any]
BYTES = ("uint8", "int8")


def codes(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Numbers of the whole range of a type."""
    info = np.iinfo(dtype)
    rng = np.random.default_rng([seed, *shape])
    return np.asarray(rng.integers(info.min, info.max + 1, shape)).astype(dtype)


def small_codes(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Of 7 bits: beyond, onnxruntime saturates sums of pairs on processors without VNNI."""
    return np.asarray(codes(shape, dtype, seed) // 2).astype(dtype)


def f(value: float) -> Array:
    return np.asarray(value, np.float32)


def equal(op: str, inputs: Sequence[Array | None], **options: Any) -> None:
    """The same bits, with parameters given at run time and as constants."""
    compare(op, inputs, **options)
    last = [i for i, a in enumerate(inputs) if i > 0 and a is not None]
    compare(op, inputs, constant=last, engine=False, **options)


def near(
    op: str,
    inputs: Sequence[Array | None],
    constant: Sequence[int] = (),
    share: float = 0.02,
    softmax_opset: int | None = None,
    **attributes: Any,
) -> None:
    """At most one step away, in at most a `share` of the elements."""
    model = node_model(op, inputs, constant=constant, **attributes)
    if softmax_opset is not None:  # an attribute whose name node_model takes for itself
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("opset", softmax_opset))
    feeds = feeds_of(inputs, constant)
    (want,) = run_peer(model, feeds)
    for way, (got,) in run_braze(model, feeds).items():
        assert got.dtype == want.dtype and got.shape == want.shape, way
        off = np.abs(got.astype(int) - want.astype(int))
        assert off.max(initial=0) <= 1, (op, way, off.max())
        assert (off > 0).mean() <= share, (op, way, (off > 0).mean())


def test_quantize_and_dequantize_are_those_of_onnx() -> None:
    x = np.random.default_rng(1).normal(0, 9, (4, 6)).astype(np.float32)
    for dtype in ("uint8", "int8", "uint16", "int16"):
        equal("QuantizeLinear", [x, f(0.11), codes((), dtype)])
        equal("DequantizeLinear", [codes((4, 6), dtype), f(0.11), codes((), dtype)])
        per_axis = np.linspace(0.1, 0.3, 6).astype(np.float32)
        equal("QuantizeLinear", [x, per_axis, codes((6,), dtype)], axis=1)
        equal("DequantizeLinear", [codes((4, 6), dtype), per_axis, codes((6,), dtype)], axis=1)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("shapes", [((2, 3, 7), (2, 3, 7)), ((4, 5), (1, 5)), ((3, 4), ()),
                                    ((6,), (2, 3, 6)), ((2, 1, 3, 1), (4, 1, 5))])  # fmt: skip
def test_sums_and_products(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (codes(s, dtype, i) for i, s in enumerate(shapes))
    za, zb, zc = (codes((), dtype, i) for i in (5, 6, 7))
    near("QLinearAdd", [a, f(0.031), za, b, f(0.053), zb, f(0.071), zc])
    equal("QLinearMul", [a, f(0.03), za, b, f(0.05), zb, f(0.21), zc])
    # onnxruntime does not take absent zero points, which its documentation lets be absent
    none = np.zeros((), dtype)
    for op in ("QLinearAdd", "QLinearMul"):
        given = [a, f(0.031), none, b, f(0.053), none, f(0.071), none]
        (want,) = run_braze(node_model(op, given), feeds_of(given), engine=False)["reference"]
        for i in (2, 5, 7):
            given[i] = None
        got = run_braze(node_model(op, given), feeds_of(given), engine=False)
        np.testing.assert_array_equal(got["lowering"][0], want)


@pytest.mark.parametrize("dtype", BYTES)
def test_a_product_of_every_pair_of_codes(dtype: str) -> None:
    """Exact, scaled once: a formula of integers."""
    every = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    equal("QLinearMul", [every[:, None], f(0.031), codes((), dtype), every, f(0.017),
                        codes((), dtype, 3), f(0.173), codes((), dtype, 4)])  # fmt: skip


@pytest.mark.parametrize("dtype", BYTES)
def test_functions_of_one_number(dtype: str) -> None:
    every = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype).reshape(4, 64)
    for zero in (codes((), dtype, 2), None):
        to = [f(1 / 256), np.asarray(np.iinfo(dtype).min, dtype)]
        near("QLinearSigmoid", [every, f(0.05), zero, *to], constant=(1, 3, 4))
        near("QLinearLeakyRelu", [every, f(0.05), zero, f(0.04), codes((), dtype, 3)], alpha=0.2,
             constant=(1, 3, 4))  # fmt: skip


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 11), (2, 12)])
def test_softmax(dtype: str, axis: int, opset: int) -> None:
    x = codes((2, 5, 8), dtype)
    to = [f(1 / 256), np.asarray(np.iinfo(dtype).min, dtype)]
    near("QLinearSoftmax", [x, f(0.06), codes((), dtype, 2), *to], constant=(1, 2, 3, 4),
         axis=axis, softmax_opset=opset)  # fmt: skip


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 16, 7), (2, 2, 3, 4, 3), (1, 3, 33, 35)])
def test_global_averages_are_sums_of_integers(dtype: str, shape: tuple[int, ...]) -> None:
    given = [codes(shape, dtype), f(0.031), codes((), dtype, 1), f(0.017), codes((), dtype, 2)]
    equal("QLinearGlobalAveragePool", given)
    if len(shape) == 4:
        equal("QLinearGlobalAveragePool", given, channels_last=1)
        equal("QLinearGlobalAveragePool", given, symbols={0: (0, 2, 3)})


@pytest.mark.parametrize("dtype", BYTES)
def test_averages(dtype: str) -> None:
    x = codes((2, 3, 9, 8), dtype)
    to = [f(0.04), codes((), dtype, 3)]
    # means of few codes are often halves, which the order of roundings decides
    for attributes in (
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [2, 3], "pads": [0, 1, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
    ):
        near("QLinearAveragePool", [x, f(0.05), codes((), dtype, 1), *to], constant=(1, 2, 3, 4),
             share=0.05, **attributes)  # fmt: skip


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenation(dtype: str, axis: int) -> None:
    zero, scale = codes((), dtype, 5), f(0.05)
    parts = [(codes((2, 3, 4), dtype, 1), scale, zero), (codes((2, 3, 4), dtype, 2), f(0.02), zero),
             (codes((2, 3, 4), dtype, 3), scale, codes((), dtype, 6))]  # fmt: skip
    given = [scale, zero, *(a for part in parts for a in part)]
    near("QLinearConcat", given, constant=(0, 1, 3, 4, 6, 7, 9, 10), axis=axis)


@pytest.mark.parametrize("dtype", BYTES)
def test_where(dtype: str) -> None:
    pick = codes((3, 4), "int8") > 0
    x, y = codes((3, 4), dtype, 1), codes((1, 4), dtype, 2)
    near("QLinearWhere", [pick, x, f(0.05), codes((), dtype, 3), y, f(0.03), codes((), dtype, 4),
                          f(0.04), codes((), dtype, 5)], constant=(2, 3, 5, 6, 7, 8))  # fmt: skip


# ------------------------------------------------------------------ products


@pytest.mark.parametrize(("a_type", "b_type"), [("uint8", "uint8"), ("uint8", "int8"),
                                                ("int8", "int8")])  # fmt: skip
@pytest.mark.parametrize("columns", [False, True])
def test_products_as_floats(a_type: str, b_type: str, columns: bool) -> None:
    """The sum is exact; its product with the scale and the bias round twice."""
    a, b = codes((2, 5, 64), a_type), small_codes((64, 7), b_type, 1)
    scale = np.linspace(0.01, 0.03, 7).astype(np.float32) if columns else f(0.02)
    zero = small_codes((7,) if columns else (), b_type, 2)
    bias = np.random.default_rng(1).normal(0, 1, 7).astype(np.float32)
    for a_zero, b_zero, c in ((codes((), a_type, 3), zero, bias), (None, None, None)):
        given = [a, b, f(0.02), scale, a_zero, b_zero, c]
        # sums of up to 200 whose rounding is 1e-5
        compare("MatMulIntegerToFloat", given, constant=(1,))
    x = np.random.default_rng(2).normal(0, 2, (2, 5, 64)).astype(np.float32)
    if a_type == "uint8":
        compare("DynamicQuantizeMatMul", [x, b, scale, zero, bias], constant=(1, 2, 3, 4))
        compare("DynamicQuantizeMatMul", [x, b, scale], constant=(1, 2))


@pytest.mark.parametrize(
    ("turned", "types", "columns"),
    pairwise(
        [(0, 0), (1, 0), (0, 1), (1, 1)],
        [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")],
        [False, True],
    ),
)
def test_gemm(types: tuple[str, str], turned: tuple[int, int], columns: bool) -> None:
    a_type, b_type = types
    a = codes((40, 6) if turned[0] else (6, 40), a_type)
    b = small_codes((7, 40) if turned[1] else (40, 7), b_type, 1)
    c = np.random.default_rng(3).integers(-900, 900, 7).astype(np.int32)
    turns = {"transA": turned[0], "transB": turned[1]}
    scale = np.linspace(0.001, 0.003, 7).astype(np.float32)
    a_part = [a, f(0.02), codes((), a_type, 2)]
    b_part = [b, *((scale, np.zeros(7, b_type)) if columns else (f(0.002), codes((), b_type, 3)))]
    equal("QGemm", [*a_part, *b_part, c, f(0.1), codes((), a_type, 4)], **turns)
    equal("QGemm", [*a_part, *b_part, None, f(0.1), codes((), a_type, 4)], alpha=0.5, **turns)
    compare("QGemm", [*a_part, *b_part, c], **turns)


def test_convolution_with_channels_first_and_last() -> None:
    x, w = codes((1, 4, 6, 5), "uint8"), small_codes((8, 4, 3, 3), "int8")
    rest = [f(0.02), codes((), "uint8", 3), w, f(0.01), np.asarray(0, np.int8), f(0.3),
            codes((), "uint8", 4)]  # fmt: skip
    equal("QLinearConv", [x, *rest], pads=[1, 1, 1, 1])
    equal("QLinearConv", [np.ascontiguousarray(x.transpose(0, 2, 3, 1)), *rest], channels_last=1,
          pads=[1, 1, 1, 1])  # fmt: skip


# ------------------------------------------------------------------ weights of few bits


def packed(q: Array, bits: int) -> Array:
    """Codes in bytes, lowest bits first."""
    stream = np.unpackbits(q.astype(np.uint8)[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(stream.reshape(*q.shape[:-1], -1), axis=-1, bitorder="little")


@pytest.mark.parametrize(
    ("sizes", "bits", "zeros"),
    pairwise([(64, 32), (80, 16), (96, 128), (40, 32)], [2, 4, 8], ["none", "packed", "floats"]),
)
def test_matmul_nbits(bits: int, zeros: str, sizes: tuple[int, int]) -> None:
    depth, block = sizes
    rng = np.random.default_rng([bits, depth])
    blocks = -(-depth // block)
    q = rng.integers(0, 1 << bits, (9, blocks, block)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.05, (9, blocks)).astype(np.float32)
    x = rng.normal(0, 1, (2, 3, depth)).astype(np.float32)
    offset: Array = np.full((9, blocks), 1 << (bits - 1))
    zero: Array | None = None
    if zeros == "packed":
        offset = rng.integers(0, 1 << bits, (9, blocks))
        zero = packed(offset, bits)
    elif zeros == "floats":
        zero = rng.uniform(0, (1 << bits) - 1, (9, blocks)).astype(np.float32)
        offset = zero
    wide = ((q - offset[..., None]) * scales[..., None]).reshape(9, -1)[:, :depth]
    want = (x.astype(np.float64) @ wide.T.astype(np.float64)).astype(np.float32)
    bias = rng.normal(0, 1, 9).astype(np.float32)
    given = [x, packed(q, bits), scales, zero, None, bias]
    # 128 products of up to 12 in float32
    compare("MatMulNBits", given, constant=(1, 2, 3, 5), want=[want + bias], tolerance=4, N=9,
            K=depth, bits=bits, block_size=block)  # fmt: skip


def test_matmul_nbits_equals_onnxruntime() -> None:
    """And in groups that g_idx names, which onnxruntime takes with float zero points alone."""
    rng = np.random.default_rng(3)
    q = rng.integers(0, 16, (9, 2, 32)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.05, (9, 2)).astype(np.float32)
    x = rng.normal(0, 1, (3, 64)).astype(np.float32)
    for zero in (None, packed(rng.integers(0, 16, (9, 2)), 4)):
        compare("MatMulNBits", [x, packed(q, 4), scales, zero], constant=(1, 2, 3), tolerance=4,
                N=9, K=64, bits=4, block_size=32)  # fmt: skip
    groups = rng.integers(0, 2, 64).astype(np.int32)
    wide = (q.reshape(9, 64).astype(np.float32) - 8) * scales[:, groups]
    compare("MatMulNBits", [x, packed(q, 4), scales, None, groups], constant=(1, 2, 4),
            want=[x @ wide.T], tolerance=4, N=9, K=64, bits=4, block_size=32)  # fmt: skip


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("indices", [np.array([[0, 5], [3, 3]]), np.array(4), np.array([-1, 2])])
def test_gather_of_blocks(bits: int, zeros: bool, indices: Array) -> None:
    rng = np.random.default_rng(bits)
    q = rng.integers(0, 1 << bits, (6, 64)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.05, (6, 4)).astype(np.float32)
    zero = packed(rng.integers(0, 1 << bits, (6, 4)), bits) if zeros else None
    data = packed(q, bits)
    compare("GatherBlockQuantized", [data, indices, scales, zero], constant=(0, 2, 3), bits=bits,
            block_size=16, gather_axis=0, quantize_axis=1)  # fmt: skip


@pytest.mark.parametrize("kind", [TensorProto.UINT4, TensorProto.INT4])
@pytest.mark.parametrize("zeros", [False, True])
def test_gather_of_blocks_of_a_type_of_four_bits(kind: int, zeros: bool) -> None:
    """Without zero points its numbers are taken as they are; bytes that hold them are not."""
    rng = np.random.default_rng(kind)
    low = 0 if kind == TensorProto.UINT4 else -8
    q, zero = rng.integers(low, low + 16, (6, 64)), rng.integers(low, low + 16, (6, 4))
    scales = rng.uniform(0.01, 0.05, (6, 4)).astype(np.float32)
    constants = [helper.make_tensor("q", kind, q.shape, q.ravel()),
                 numpy_helper.from_array(scales, "s")]  # fmt: skip
    constants += [helper.make_tensor("z", kind, zero.shape, zero.ravel())] * zeros
    node = helper.make_node(
        "GatherBlockQuantized", ["q", "i", *[c.name for c in constants[1:]]], ["y"],
        domain="com.microsoft", block_size=16, gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
        [onnx.ValueInfoProto(name="y")], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    m = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    want = ((q - np.repeat(zero, 16, 1) * zeros) * np.repeat(scales, 16, 1))[[4, 1]]
    for target in ("cpu", "reference"):
        y = braze.build(m, target=target)({"i": np.array([4, 1])})["y"]
        np.testing.assert_allclose(y, want, rtol=1e-6)  # one rounding of float32
