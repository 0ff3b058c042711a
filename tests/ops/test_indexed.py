"""Scatter, OneHot, TopK, Einsum, DepthToSpace, ReverseSequence, unpooling, sampling, transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.dtypes import F32
from braze.core.errors import ExecutionError, ShapeError, UnsupportedOpError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.evaluator import evaluate
from braze.ops.pool.unpool import Det
from braze.ops.product.einsum import Einsum
from braze.ops.product.matmul import MatMul
from tests.ops.harness import check, import_node, ints, ramp
from tests.ops.lowering import run_lowered

REDUCTIONS = ["none", "add", "mul", "max", "min"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_scatter_elements_with_more_updates_than_rows(reduction: str, dtype: str) -> None:
    """Duplicate indices, more updates than rows."""
    data, updates = ramp(3, 2, dtype=dtype), ramp(7, 2, dtype=dtype)
    indices = np.array([[0, 1], [1, 1], [-1, 0], [0, 0], [2, 2], [1, -3], [0, 2]])
    want = data.copy()
    how = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for i, j in np.ndindex(7, 2):
        k = indices[i, j]
        want[k, j] = (
            how[reduction](want[k, j], updates[i, j]) if reduction != "none" else updates[i, j]
        )
    check("ScatterElements", [data, indices, updates], [want], axis=0, reduction=reduction)


def test_scatter_elements_axis_and_old_name() -> None:
    data = ramp(2, 5)
    indices, updates = np.array([[1, 3]]), np.array([[1.1, 2.1]], np.float32)
    check("ScatterElements", [data, indices, updates], axis=1)
    want = data.copy()
    want[0, [1, 3]] = updates[0]
    check("Scatter", [data, indices, updates], [want], opset=9, axis=1)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "indices"),
    [
        ((4, 3), [[1], [3], [1]]),
        ((4, 3), [[0, -1], [3, 1]]),
        ((3, 2, 2), [[[0], [-2]], [[2], [0]]]),
    ],
)
def test_scatter_nd(reduction: str, shape: tuple[int, ...], indices: list[Any]) -> None:
    """Reduction none, k other than rank-1, negative indices."""
    at = np.array(indices, np.int64)
    updates = ramp(*at.shape[:-1], *shape[at.shape[-1] :])
    want = ramp(*shape)
    how = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for i in np.ndindex(*at.shape[:-1]):
        place = tuple(at[i])
        new = updates[i] if reduction == "none" else how[reduction](want[place], updates[i])
        want[place] = new
    check("ScatterND", [ramp(*shape), at, updates], [want], reduction=reduction)


@pytest.mark.parametrize(
    ("op", "indices"), [("ScatterElements", ints(3)), ("ScatterND", ints(-4).reshape(1, 1))]
)
def test_scatter_out_of_range_raises(op: str, indices: np.ndarray) -> None:
    made = import_node(op, [ramp(3), indices, ramp(1)], opset=18)
    with pytest.raises(ExecutionError):
        evaluate(made.graph, made.feeds)
    with pytest.raises(ExecutionError):
        run_lowered(made.graph, made.feeds)


def test_one_hot() -> None:
    values = np.array([2, 5], np.float32)
    indices = np.array([[0, -1], [3, 7]])  # 7 is outside: all off
    check("OneHot", [indices, np.array(4), values], constant=[1], axis=1)
    want = [np.where(np.arange(3) == [[1], [2]], values[1], values[0])]
    check("OneHot", [np.array([1.0, 2.0], np.float32), ints(3), values], want, constant=[1])
    check("OneHot", [indices, np.array(4), values], axis=1)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("dynamic", [False, True])
def test_top_k(largest: int, axis: int, dynamic: bool) -> None:
    x = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [5, 8, 9, 7, 9]], np.float32)
    order = np.argsort(-x if largest else x, axis=axis, kind="stable").take([0, 1], axis)
    want = [np.take_along_axis(x, order, axis), order]
    attrs = {"axis": axis, "largest": largest}
    check("TopK", [x, ints(2)], want, constant=[1], num_outputs=2, dynamic=dynamic, **attrs)
    if largest:
        check("TopK", [x], want, opset=9, num_outputs=2, k=2, axis=axis)


def test_top_k_nan_integers_and_limits() -> None:
    x = np.array([1, np.nan, 3, np.nan], np.float32)
    want = [x[[1, 3, 2]], ints(1, 3, 2)]
    check("TopK", [x, ints(3)], want, constant=[1], num_outputs=2)
    y = np.array([3, 7, 7, -2], np.int64)
    check("TopK", [y, ints(4)], [y[[1, 2, 0, 3]], ints(1, 2, 0, 3)], constant=[1], num_outputs=2)
    with pytest.raises(ShapeError):
        import_node("TopK", [x, ints(5)], opset=13, constant=[1], num_outputs=2)
    check("TopK", [x, ints(3)], want, num_outputs=2)


def test_top_k_of_a_long_axis() -> None:
    # detectors rank all their anchors; counting ranks would compare 10**10 pairs
    x = ramp(1, 100_000) % np.float32(7)
    order = np.argsort(-x, axis=1, kind="stable")[:, :1000]
    want = [np.take_along_axis(x, order, 1), order]
    check("TopK", [x, ints(1000)], want, constant=[1], num_outputs=2)


def test_what_is_picked_by_constants_and_by_data() -> None:
    x = np.array([[1, 0], [3, 2]], np.float32)
    made = import_node("NonZero", [x], opset=13, constant=[0])
    np.testing.assert_array_equal(evaluate(made.graph, {})["y0"], np.stack(np.nonzero(x)))
    check("NonZero", [x], [np.stack(np.nonzero(x))], opset=13)
    keep = np.array([False, True])
    check("Compress", [x, keep], [x[1:]], opset=11, constant=[1], axis=0)
    check("Compress", [x, np.array([1, 0, 1], bool)], [x.ravel()[[0, 2]]], opset=11, constant=[1])
    check("Compress", [x, keep], [x[:, 1:]], opset=11, axis=1)


EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ii->i", [(3, 3)]),
    ("ii->", [(3, 3)]),
    ("ij->ji", [(2, 3)]),
    ("ij->", [(2, 3)]),
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (3, 4)]),
    ("b...,b...->b...", [(2, 3), (2, 3)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bhqk,bkhd->bqhd", [(2, 3, 4, 5), (2, 5, 3, 6)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij,ij->i", [(3, 4), (3, 4)]),
    (",ij->ij", [(), (2, 3)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("i,i,i->", [(4,), (4,), (4,)]),
    ("iij,jk->ik", [(3, 3, 4), (4, 2)]),
    ("ij,kj->", [(2, 3), (4, 3)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EINSUMS)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [ramp(*s) for s in shapes]
    want = [np.asarray(np.einsum(equation, *arrays), np.float32)]
    check("Einsum", arrays, want, equation=equation, rtol=1e-4, atol=1e-4)


def test_einsum_becomes_a_product_where_it_is_one() -> None:
    made = import_node("Einsum", [ramp(2, 3), ramp(3, 4)], opset=13, equation="ij,jk->ki")
    kinds = {type(n.op) for n in made.graph.nodes}
    assert MatMul in kinds and Einsum not in kinds
    made = import_node("Einsum", [ramp(3, 3), ramp(3, 4)], opset=13, equation="ii,ik->k")
    assert Einsum in {type(n.op) for n in made.graph.nodes}
    with pytest.raises(ShapeError):
        import_node("Einsum", [ramp(2, 3)], opset=13, equation="ijk->i")


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_depth_to_space(mode: str, dynamic: bool) -> None:
    if not dynamic:
        check("DepthToSpace", [ramp(2, 8, 3, 2)], blocksize=2, mode=mode)
    check("SpaceToDepth", [ramp(2, 3, 4, 6)], blocksize=2, dynamic=dynamic)


def test_reverse_sequence() -> None:
    x = ramp(4, 3, 2)
    check("ReverseSequence", [x, ints(4, 1, 2)], opset=10, time_axis=0, batch_axis=1)
    made = import_node("ReverseSequence", [x, ints(5, 1, 2)], opset=10)
    with pytest.raises(ExecutionError):
        evaluate(made.graph, made.feeds)
    with pytest.raises(ExecutionError):
        run_lowered(made.graph, made.feeds)


def test_max_unpool_undoes_max_pool() -> None:
    x = ramp(1, 2, 4, 6)
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    y, index = check("MaxPool", [x], opset=12, num_outputs=2, **attrs)
    want = np.zeros_like(x)
    want.reshape(-1)[index.reshape(-1)] = y.reshape(-1)
    check("MaxUnpool", [y, index], [want], opset=11, **attrs)
    larger = np.pad(want, ((0, 0), (0, 0), (0, 1), (0, 2)))
    sizes = ints(1, 2, 5, 8)
    check("MaxUnpool", [y, index, sizes], [larger], opset=11, constant=[2], **attrs)


def test_col2im() -> None:
    for attrs in ({}, {"strides": [2, 1], "pads": [1, 0, 1, 1]}, {"dilations": [1, 2]}):
        counts = [
            (5 + p + q - (k - 1) * d - 1) // s + 1
            for k, d, s, p, q in zip(
                (2, 3),
                attrs.get("dilations", (1, 1)),
                attrs.get("strides", (1, 1)),
                attrs.get("pads", (0,) * 4)[:2],
                attrs.get("pads", (0,) * 4)[2:],
                strict=True,
            )
        ]
        x = ramp(2, 12, counts[0] * counts[1])
        check("Col2Im", [x, ints(5, 5), ints(2, 3)], constant=[1, 2], rtol=1e-4, **attrs)


def test_det() -> None:
    for size in (1, 2, 3, 4):
        check("Det", [ramp(2, size, size)], rtol=1e-3, atol=1e-3)
    with pytest.raises(UnsupportedOpError):
        import_node("Det", [ramp(5, 5)], opset=13)
    some = np.random.default_rng(0).normal(size=(5, 4, 4))
    np.testing.assert_allclose(Det().reference(some)[0], np.linalg.det(some), rtol=1e-12)


def test_det_with_infinities_is_what_its_products_are() -> None:
    """Elimination, as numpy has it, gives -inf and 0 for the last two."""
    inf = np.inf
    x = np.array([[[1, inf], [2, 3]], [[inf, 1], [0, 0]], [[0, 1], [inf, inf]]], np.float32)
    g = GraphBuilder()
    graph = g.finish([("y", g.add1(Det(), g.input("x", TensorType(F32, x.shape))))])
    for found in (evaluate(graph, {"x": x})["y"], run_lowered(graph, {"x": x})["y"]):
        assert [str(d) for d in found] == ["-inf", "nan", "nan"]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_grid_sample(mode: str, padding: str, align: int) -> None:
    """Positions inside, on the border and far outside."""
    grid = (ramp(2, 3, 5, 2) * 0.7).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    check("GridSample", [ramp(2, 3, 4, 6), grid], opset=20, rtol=1e-3, atol=1e-3, **attrs)
    if mode != "cubic":
        volume = (ramp(1, 2, 2, 3, 3) * 0.6).astype(np.float32)
        check("GridSample", [ramp(1, 2, 3, 4, 2), volume], opset=20, rtol=1e-3, atol=1e-3, **attrs)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("rule", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, rule: str) -> None:
    """10 x 10, two regions, two points a bin; one region hangs over the image."""
    rois = np.array([[1, 2, 7.5, 8], [4, -3, 13, 6]], np.float32)
    check(
        "RoiAlign",
        [ramp(2, 3, 10, 10), rois, ints(1, 0)],
        opset=16,
        mode=mode,
        coordinate_transformation_mode=rule,
        output_height=3,
        output_width=2,
        sampling_ratio=2,
        spatial_scale=0.9,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [None, 6, 9])
def test_dft(inverse: bool, parts: int, length: int | None) -> None:
    x = ramp(2, 7, 3, parts)
    values = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    y = (np.fft.ifft if inverse else np.fft.fft)(values, n=length, axis=1)
    want = [np.stack([y.real, y.imag], axis=-1).astype(np.float32)]
    inputs = [x, None if length is None else np.array(length), np.array(1)]
    check("DFT", inputs, want, opset=20, constant=[1, 2], inverse=int(inverse), atol=1e-4)
    old = inputs[:2] if length is not None else inputs[:1]
    check("DFT", old, want, opset=17, constant=[1], axis=1, inverse=int(inverse), atol=1e-4)


def test_dft_onesided() -> None:
    for n in (6, 7):
        x = ramp(2, n, 1)
        y = np.fft.rfft(x[..., 0], axis=1)
        want = np.stack([y.real, y.imag], axis=-1).astype(np.float32)
        check("DFT", [x], [want], opset=20, onesided=1, atol=1e-4)
        back = [x, want, np.array(n)]
        check("DFT", [want, back[2]], [x], opset=20, constant=[1], onesided=1, inverse=1, atol=1e-4)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", [False, True])
def test_stft(onesided: int, window: bool) -> None:
    x = ramp(2, 20, 1)
    w = np.hanning(8).astype(np.float32) if window else None
    frames = np.stack([x[:, i : i + 8, 0] for i in range(0, 13, 3)], axis=1) * (
        1 if w is None else w
    )
    y = (np.fft.rfft if onesided else np.fft.fft)(frames, axis=-1)
    want = [np.stack([y.real, y.imag], axis=-1).astype(np.float32)]
    inputs = [x, np.array(3), w, np.array(8)]
    check("STFT", inputs, want, opset=17, constant=[1, 3], onesided=onesided, atol=1e-4)


def test_mel_weight_matrix() -> None:
    inputs = [np.array(v) for v in (8, 16, 8192)] + [np.array(v, np.float32) for v in (0, 4096)]
    made = import_node("MelWeightMatrix", inputs, opset=17, constant=range(5))
    got = evaluate(made.graph, {})["y0"]
    assert got.shape == (9, 8) and got.dtype == np.float32
    assert got.max() == 1.0 and (got >= 0).all()


def test_tensor_scatter() -> None:
    cache, update = ramp(2, 3, 4, 2), ramp(2, 3, 2, 2)
    want = cache.copy()
    want[0, :, 1:3], want[1, :, 2:4] = update[0], update[1]
    check("TensorScatter", [cache, update, ints(1, 2)], [want], opset=24)
    want = cache.copy()
    want[0, :, :2], want[1, :, 3], want[1, :, 0] = update[0], update[1, :, 0], update[1, :, 1]
    attrs = {"mode": "circular"}
    check("TensorScatter", [cache, update, ints(4, 3)], [want], opset=24, **attrs)
    made = import_node("TensorScatter", [cache, update, ints(0, 3)], opset=24)
    with pytest.raises(ExecutionError):
        run_lowered(made.graph, made.feeds)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("offset_group", [1, 2])
def test_deform_conv(mask: bool, offset_group: int) -> None:
    x, w, bias = ramp(2, 4, 5, 6), ramp(6, 2, 2, 3), ramp(6)
    offsets = (ramp(2, offset_group * 12, 3, 3) * 0.4).astype(np.float32)
    m = ramp(2, offset_group * 6, 3, 3) if mask else None
    attrs = {"group": 2, "offset_group": offset_group, "pads": [1, 0, 0, 1], "strides": [2, 2]}
    check("DeformConv", [x, w, offsets, bias, m], opset=19, rtol=1e-3, atol=1e-3, **attrs)
    with pytest.raises(ShapeError):
        import_node("DeformConv", [x, w, offsets[:, :-1]], opset=19, **attrs)


def test_deform_conv_without_offsets_is_conv() -> None:
    x, w = ramp(1, 2, 5, 6), ramp(3, 2, 3, 3)
    (want,) = check("Conv", [x, w], pads=[1, 1, 1, 1], rtol=1e-4, atol=1e-4)
    zeros = np.zeros((1, 18, 5, 6), np.float32)
    check("DeformConv", [x, w, zeros], [want], opset=19, pads=[1] * 4, rtol=1e-4, atol=1e-4)
