"""Conv, ConvTranspose and pools against onnx.reference and plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.core.dtypes import F32
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType
from braze.ops.base import Op
from braze.ops.evaluator import evaluate
from braze.ops.lowering import Anchor, Decompose, Nest
from braze.ops.pool.pool import AveragePool, MaxPool
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from tests.ops.harness import check, expected, import_node, ramp
from tests.ops.lowering import run_lowered

CONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 7, 6), (4, 3, 3, 3), {}),
    ((1, 4, 7, 6), (6, 2, 3, 2), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((1, 4, 9, 9), (4, 1, 3, 3), {"group": 4, "pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    ((1, 3, 5, 5), (2, 3, 1, 1), {"strides": [2, 2]}),
    ((2, 3, 11), (4, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2]}),
    ((2, 3, 11), (4, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [3]}),
    ((1, 2, 8, 9), (3, 2, 3, 3), {"auto_pad": "VALID", "strides": [2, 3]}),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"pads": [1, 1, 0, 0, 1, 1]}),
]


@pytest.mark.parametrize(("x", "w", "attrs"), CONVS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_conv(x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], dynamic: bool) -> None:
    inputs = [ramp(*x), ramp(*w), ramp(w[0])]
    check("Conv", inputs, constant=[1, 2], dynamic=dynamic, rtol=1e-4, atol=1e-4, **attrs)


def _one_op(op: Op, *shapes: tuple[int, ...]) -> tuple[Graph, dict[str, np.ndarray]]:
    g = GraphBuilder()
    feeds = {f"x{i}": ramp(*s) for i, s in enumerate(shapes)}
    outs = g.add(op, *(g.input(n, TensorType(F32, a.shape)) for n, a in feeds.items()))
    return g.finish([(f"y{i}", v) for i, v in enumerate(outs)]), feeds


def _same_in_both_layouts(op: Op, channels_last: Op, *shapes: tuple[int, ...]) -> None:
    """An NHWC op on moved axes equals the NCHW op, by reference and by lowering."""
    graph, feeds = _one_op(op, *shapes)
    want = evaluate(graph, feeds)["y0"]
    moved = (shapes[0][0], *shapes[0][2:], shapes[0][1])
    other, _ = _one_op(channels_last, moved, *shapes[1:])
    feeds = {**feeds, "x0": np.ascontiguousarray(np.moveaxis(feeds["x0"], 1, -1))}
    for got in (evaluate(other, feeds)["y0"], run_lowered(other, feeds)["y0"]):
        np.testing.assert_allclose(np.moveaxis(got, -1, 1), want, rtol=1e-4, atol=1e-4)


def test_channels_last() -> None:
    two = ((2, 1), (1, 2), (1, 0, 2, 1))
    for groups, w in ((1, (6, 4, 3, 2)), (2, (6, 2, 3, 2)), (4, (8, 1, 3, 2))):
        conv = Conv(*two, groups)
        _same_in_both_layouts(conv, Conv(*two, groups, "NHWC"), (2, 4, 6, 7), w)
    one = ((2,), (1,), (1, 1))
    _same_in_both_layouts(Conv(*one), Conv(*one, 1, "NHWC"), (2, 3, 9), (4, 3, 3))
    window = ((3, 2), *two)
    _same_in_both_layouts(MaxPool(*window), MaxPool(*window, False, "NHWC"), (2, 3, 8, 9))
    _same_in_both_layouts(
        AveragePool(*window, True), AveragePool(*window, True, "NHWC"), (2, 3, 8, 9)
    )


def test_conv_lowers_to_an_anchor_only_channels_last() -> None:
    x, w = TensorType(F32, (1, 3, 8, 8)), TensorType(F32, (4, 3, 3, 3))
    same = ((1, 1), (1, 1), (0, 0, 0, 0))
    y = TensorType(F32, (1, 4, 6, 6))
    assert isinstance(Conv(*same).lower([x, w], [y]), Nest)
    x, y = TensorType(F32, (1, 8, 8, 3)), TensorType(F32, (1, 6, 6, 4))
    low = Conv(*same, 1, "NHWC").lower([x, w], [y])
    assert isinstance(low, Anchor) and low.fallback is not None


def test_conv_weight_that_does_not_fit_the_groups_is_named() -> None:
    with pytest.raises(ShapeError, match=r"'c1'.*needs 6 input channels but 'x0' has 4"):
        import_node("Conv", [ramp(1, 4, 5, 5), ramp(4, 3, 3, 3)], opset=13, constant=[1], group=2)
    with pytest.raises(ShapeError, match="does not fit"):
        import_node("Conv", [ramp(1, 3, 1, 5), ramp(4, 3, 3, 3)], opset=13)


def _scatter(
    x: np.ndarray, w: np.ndarray, s: int, d: int, pads: tuple[int, int], extra: int
) -> Any:
    """A 1-D transposed convolution, one product at a time."""
    n, k = x.shape[2], w.shape[2]
    full = np.zeros((x.shape[0], w.shape[1], (n - 1) * s + (k - 1) * d + 1 + extra))
    for i in range(n):
        for t in range(k):
            full[:, :, i * s + t * d] += x[:, :, i].astype("f8") @ w[:, :, t].astype("f8")
    return full[:, :, pads[0] : full.shape[2] - pads[1]].astype("f4")


@pytest.mark.parametrize("s", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize(("pads", "extra"), [((0, 0), 0), ((1, 0), 0), ((0, 2), 1)])
def test_conv_transpose_1d(s: int, d: int, pads: tuple[int, int], extra: int) -> None:
    x, w = ramp(2, 3, 5), ramp(3, 4, 3)  # asymmetric pads
    want = [_scatter(x, w, s, d, pads, extra)]
    attrs = {"strides": [s], "dilations": [d], "pads": list(pads), "output_padding": [extra]}
    check("ConvTranspose", [x, w], want, rtol=1e-4, atol=1e-4, **attrs)


@pytest.mark.parametrize(
    ("x", "w", "attrs", "size"),
    [
        ((1, 1, 5, 5), (1, 2, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (10, 10)),
        ((1, 1, 2, 2), (1, 2, 3, 3), {"auto_pad": "SAME_UPPER"}, (2, 2)),
        (
            (1, 1, 5, 5),
            (1, 2, 3, 3),
            {"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_padding": [1, 1]},
            (10, 10),
        ),
        (
            (1, 1, 28, 28),
            (1, 1, 3, 3),
            {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
            (56, 56),
        ),
        ((1, 1, 3, 3), (1, 2, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}, (10, 8)),
    ],
)
def test_conv_transpose_sizes(
    x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, Any], size: tuple[int, ...]
) -> None:
    made = import_node("ConvTranspose", [ramp(*x), ramp(*w)], opset=13, **attrs)
    assert made.outputs[0].shape[2:] == size
    got = evaluate(made.graph, made.feeds)["y0"]
    np.testing.assert_allclose(run_lowered(made.graph, made.feeds)["y0"], got, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_conv_transpose_groups(group: int, bias: bool) -> None:
    x, w, b = ramp(2, 4, 5, 4), ramp(4, 3, 3, 2), ramp(3 * group)
    attrs = {"strides": [2, 1], "pads": [1, 0, 0, 1]}
    step = 4 // group
    parts = [
        expected("ConvTranspose", [x[:, i : i + step], w[i : i + step]], 21, 1, attrs)[0]
        for i in range(0, 4, step)
    ]
    want = np.concatenate(parts, axis=1) + (b.reshape(-1, 1, 1) if bias else 0)
    inputs = [x, w, b] if bias else [x, w]
    want = want.astype("f4")
    check("ConvTranspose", inputs, [want], group=group, rtol=1e-4, atol=1e-4, **attrs)


@pytest.mark.parametrize(
    ("fields", "w"),
    [
        (((2, 2), (1, 1), (0, 0, 0, 0), (0, 0), 1), (4, 3, 2, 2)),
        (((2, 1), (1, 2), (1, 0, 0, 1), (1, 0), 1), (4, 3, 3, 2)),
        (((3, 2), (1, 1), (2, 0, 1, 1), (0, 0), 2), (4, 3, 2, 3)),
        (((1, 1), (1, 1), (3, 0, 1, 1), (0, 0), 1), (4, 3, 2, 3)),
    ],
)
def test_conv_transpose_channels_last(fields: Any, w: tuple[int, ...]) -> None:
    _same_in_both_layouts(ConvTranspose(*fields), ConvTranspose(*fields, "NHWC"), (2, 4, 5, 4), w)
    low = ConvTranspose(*fields, "NHWC")
    graph, _ = _one_op(low, (2, 5, 4, 4), w)
    node = graph.nodes[0]
    lowered = low.lower([v.type for v in node.inputs], [node.output.type])
    assert isinstance(lowered, Decompose)


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 2, 7, 6), {"kernel_shape": [3, 2]}),
    ((1, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 1, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 3], "ceil_mode": 1}),
    ((1, 1, 9), {"kernel_shape": [4], "strides": [3], "pads": [2, 1], "ceil_mode": 1}),
    ((1, 1, 9, 8), {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 1, 9, 8), {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ((1, 1, 9, 8), {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 0, 1, 1]}),
    ((1, 1, 4, 5, 4), {"kernel_shape": [2, 2, 3], "strides": [2, 1, 1]}),
]


def _plain_pool(
    x: np.ndarray, attrs: dict[str, Any], size: tuple[int, ...], how: str
) -> np.ndarray:
    """Visit every window and keep the elements inside the input (or its padding)."""
    rank = x.ndim - 2
    kernel = attrs["kernel_shape"]
    strides, dilations = attrs.get("strides", [1] * rank), attrs.get("dilations", [1] * rank)
    pads = attrs["pads"]
    out = np.zeros((*x.shape[:2], *size), np.float64)
    for at in np.ndindex(*size):
        seen, count = [], 0
        for tap in np.ndindex(*kernel):
            p = [o * s + t * d - b for o, s, t, d, b in
                 zip(at, strides, tap, dilations, pads[:rank], strict=True)]  # fmt: skip
            inside = all(0 <= q < n for q, n in zip(p, x.shape[2:], strict=True))
            framed = all(-pads[i] <= q < x.shape[2 + i] + pads[rank + i] for i, q in enumerate(p))
            count += framed if how == "padded mean" else inside
            if inside:
                seen.append(x[(slice(None), slice(None), *p)].astype("f8"))
        here = (slice(None), slice(None), *at)
        if how == "max":
            out[here] = np.max(seen, axis=0)
        elif how == "norm":
            out[here] = np.sqrt(np.sum(np.square(seen), axis=0))
        else:
            out[here] = np.sum(seen, axis=0) / count
    return out.astype(x.dtype)


def _resolved(op: str, x: np.ndarray, attrs: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    made = import_node(op, [x], opset=22, **attrs)
    pool = made.graph.nodes[-1].op
    return {**attrs, "pads": list(pool.pads)}, made.outputs[0].shape[2:]


@pytest.mark.parametrize(("shape", "attrs"), POOLS)
@pytest.mark.parametrize(
    ("op", "how", "extra"),
    [
        ("MaxPool", "max", {}),
        ("AveragePool", "mean", {}),
        ("AveragePool", "padded mean", {"count_include_pad": 1}),
        ("LpPool", "norm", {}),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_pools(
    shape: tuple[int, ...], attrs: dict[str, Any], op: str, how: str, extra: Any, dynamic: bool
) -> None:
    x = ramp(*shape)
    full, size = _resolved(op, x, {**attrs, **extra})
    want = _plain_pool(x, full, size, how)
    check(op, [x], [want], opset=22, dynamic=dynamic, rtol=1e-5, atol=1e-5, **attrs, **extra)


@pytest.mark.parametrize(
    ("op", "shape", "attrs", "size"),
    [
        (
            "MaxPool",
            (1, 1, 3, 6, 5),
            {"kernel_shape": [3] * 3, "strides": [3] * 3, "pads": [1] * 6, "ceil_mode": 1},
            (2, 3, 2),
        ),
        ("MaxPool", (1, 1, 4), {"kernel_shape": [3], "strides": [2], "dilations": [2]}, (0,)),
        (
            "MaxPool",
            (1, 1, 4),
            {"kernel_shape": [3], "strides": [2], "dilations": [2], "ceil_mode": 1},
            (1,),
        ),
        (
            "MaxPool",
            (1, 1, 6),
            {"kernel_shape": [3], "strides": [2], "auto_pad": "VALID", "ceil_mode": 1},
            (2,),
        ),
        ("AveragePool", (1, 1, 2), {"kernel_shape": [3], "strides": [3], "ceil_mode": 1}, (1,)),
    ],
)
def test_pool_sizes(op: str, shape: tuple[int, ...], attrs: dict[str, Any], size: Any) -> None:
    x = ramp(*shape)
    made = import_node(op, [x], opset=19, **attrs)
    assert made.outputs[0].shape[2:] == size
    got = evaluate(made.graph, made.feeds)["y0"]
    low = run_lowered(made.graph, made.feeds)["y0"]
    np.testing.assert_allclose(low, got, rtol=1e-6)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_max_pool_indices(order: int, pads: list[int]) -> None:
    x = ramp(2, 2, 5, 4)
    attrs = {"kernel_shape": [2, 2], "strides": [2, 1], "pads": pads, "storage_order": order}
    got = check("MaxPool", [x], opset=12, num_outputs=2, **attrs)
    assert got[1].dtype == np.int64


def test_max_pool_of_the_lowest_value_points_inside() -> None:
    x = np.zeros((1, 1, 3, 3), np.uint8)
    made = import_node("MaxPool", [x], opset=12, num_outputs=2, kernel_shape=[2, 2],
                       dilations=[2, 2], pads=[1, 1, 1, 1])  # fmt: skip
    want = np.array([[[[4, 3, 4], [1, 0, 1], [4, 3, 4]]]])
    np.testing.assert_array_equal(evaluate(made.graph, made.feeds)["y1"], want)
    np.testing.assert_array_equal(run_lowered(made.graph, made.feeds)["y1"], want)


def test_max_pool_propagates_nan() -> None:
    x = ramp(1, 1, 4)
    x[0, 0, 1] = np.nan
    want = np.array([[[np.nan, np.nan, x[0, 0, 3]]]], np.float32)
    want[0, 0, 2] = max(x[0, 0, 2:])
    check("MaxPool", [x], [want], kernel_shape=[2])


def test_global_pools() -> None:
    x = ramp(2, 3, 4, 5)
    check("GlobalAveragePool", [x])
    check("GlobalMaxPool", [x])
    for p in (1, 2, 3):
        want = (np.abs(x.astype("f8")) ** p).sum((2, 3), keepdims=True) ** (1 / p)
        check("GlobalLpPool", [x], [want.astype("f4")], p=p, rtol=1e-4)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (3, 2), (4, 2), (5, 3), (2, 2)], ids=str)
def test_transposed_convolutions_of_infinities(kernel: int, stride: int) -> None:
    """An output that no tap reaches is zero, whatever the inputs beside it are."""
    w = ramp(3, 3, kernel)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[stride])
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = np.ones((1, 3, 4), np.float32)
    x[0, 1, 1] = np.inf
    want = braze.build(model, optimization_level=0)({"x": x})["y"]
    assert np.isinf(want).any() and np.isfinite(want).any()
    for level in (1, 2):
        got = braze.build(model, optimization_level=level)({"x": x})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
