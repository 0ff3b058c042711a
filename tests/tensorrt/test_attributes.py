"""What a layer was added with is read from it and set anew; the engine computes by the last."""

from __future__ import annotations

from typing import Any

import numpy as np

import braze.tensorrt as trt
from tests.tensorrt import reference
from tests.tensorrt.networks import check, floats, new_network, plan_of, run_plan


def number(network: Any, values: Any, dtype: Any = np.int32) -> Any:
    array = np.array(values, dtype)
    return network.add_constant(array.shape, np.atleast_1d(array)).get_output(0)


def test_convolutions() -> None:
    x, w, b = floats(2, 3, 6, 6), floats(4, 3, 3, 3, seed=1), floats(4, seed=2)
    v = floats(3, 5, 2, 2, seed=3)

    def make(network: Any, inputs: Any) -> Any:
        conv = network.add_convolution_nd(inputs["x"], 4, (3, 3), w)
        assert isinstance(conv.bias, np.ndarray) and conv.bias.size == 0
        conv.bias = trt.Weights(b)
        np.testing.assert_array_equal(conv.bias, b)
        back = network.add_deconvolution_nd(inputs["x"], 2, (3, 3), floats(3, 2, 3, 3))
        assert back.num_output_maps == 2 and tuple(back.kernel_size_nd) == (3, 3)
        back.num_output_maps, back.kernel_size_nd, back.kernel = 5, (2, 2), trt.Weights(v)
        back.padding_nd = (1, 1)
        assert tuple(back.dilation_nd) == (1, 1) and tuple(back.padding_nd) == (1, 1)
        assert back.kernel.size == v.size and back.bias.size == 0
        return {"conv": conv.get_output(0), "back": back.get_output(0)}

    one, none = (1, 1), (0, 0)
    wanted = reference.conv(x, w, b, one, none, none, one, 1)
    back = reference.deconv(x, v, None, one, one, one, 1)
    check(
        make, {"x": x}, {"conv": wanted.astype(np.float32), "back": back.astype(np.float32)},
        rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_layers_over_a_matrix() -> None:
    x = floats(2, 6)

    def make(network: Any, inputs: Any) -> Any:
        m = inputs["x"]
        sums = network.add_cumulative(
            m, number(network, 1), trt.CumulativeOperation.SUM, False, False
        )
        assert sums.op is trt.CumulativeOperation.SUM and not sums.exclusive and not sums.reverse
        sums.exclusive = sums.reverse = True
        cast = network.add_cast(m, trt.float16)
        assert cast.to_type is trt.float16
        cast.to_type = trt.int32
        top = network.add_topk(m, trt.TopKOperation.MAX, 2, 0b10)
        assert top.op is trt.TopKOperation.MAX
        top.op = trt.TopKOperation.MIN
        part = network.add_slice(m, (0, 0), (2, 2), (1, 1))
        assert [tuple(d) for d in (part.start, part.shape, part.stride)] == [(0, 0), (2, 2), (1, 1)]
        part.start, part.shape, part.stride = (0, 1), (2, 3), (1, 2)
        wide = network.add_unsqueeze(m, number(network, [0]))
        wide.set_input(1, number(network, [1]))
        narrow = network.add_squeeze(wide.get_output(0), number(network, [0]))
        narrow.set_input(1, number(network, [1]))
        step = number(network, 0.5, np.float32)
        whole = network.add_quantize(m, step)
        back = network.add_dequantize(whole.get_output(0), step)
        assert back.to_type is trt.float32
        layers = {"sums": sums, "cast": cast, "top": top, "part": part, "narrow": narrow,
                  "wide": wide, "back": back}  # fmt: skip
        return {name: layer.get_output(0) for name, layer in layers.items()}

    behind = np.flip(np.cumsum(np.flip(x, 1), 1), 1) - x
    check(
        make, {"x": x},
        {
            "sums": behind, "cast": x.astype(np.int32), "top": np.sort(x, 1)[:, :2],
            "part": x[:, 1:6:2], "narrow": x, "wide": x[:, None],
            "back": np.clip(np.rint(x / np.float32(0.5)), -128, 127) * np.float32(0.5),
        },
        rtol=1e-4, atol=1e-5, dynamic=False,
    )  # fmt: skip


def test_layers_over_images() -> None:
    x = floats(2, 3, 4, 4)
    shift, scale, power = (floats(3, seed=i) ** 2 + 0.5 for i in (1, 2, 3))

    def make(network: Any, inputs: Any) -> Any:
        pool = network.add_pooling_nd(inputs["x"], trt.PoolingType.AVERAGE, (2, 2))
        pool.stride_nd, pool.padding_nd = (2, 2), (1, 1)
        pool.average_count_excludes_padding = False
        assert tuple(pool.padding_nd) == (1, 1)
        positive = network.add_unary(inputs["x"], trt.UnaryOperation.ABS).get_output(0)
        one = np.ones(1, np.float32)
        scaled = network.add_scale(positive, trt.ScaleMode.UNIFORM, one, one, one)
        assert scaled.mode is trt.ScaleMode.UNIFORM and scaled.power.size == 1
        scaled.mode = trt.ScaleMode.CHANNEL
        scaled.shift, scaled.scale, scaled.power = map(trt.Weights, (shift, scale, power))
        assert scaled.scale.size == 3
        return {"pool": pool.get_output(0), "scaled": scaled.get_output(0)}

    a, b, c = (v.reshape(1, 3, 1, 1) for v in (shift, scale, power))
    pooled = reference.pool(x, (2, 2), (2, 2), (1, 1), (1, 1), "mean", False, False)
    wanted = {"pool": pooled.astype(np.float32), "scaled": (np.abs(x) * b + a) ** c}
    check(make, {"x": x}, wanted, rtol=1e-4, atol=1e-5)


def test_layers_of_indices() -> None:
    x, i = floats(3, 4), np.int32([[0, 2], [1, 0]])
    ends, updates = np.float32([-1, 1]), floats(2, 4, seed=1)

    def make(network: Any, inputs: Any) -> Any:
        rows = number(network, i)
        pick = network.add_gather(inputs["x"], rows, 0)
        assert pick.mode is trt.GatherMode.DEFAULT
        hot = network.add_one_hot(rows, number(network, ends, np.float32), number(network, 3), -1)
        assert hot.axis == -1
        hot.axis = 0
        put = network.add_scatter(
            inputs["x"], number(network, [[2], [0]]), number(network, updates, np.float32),
            trt.ScatterMode.ELEMENT,
        )  # fmt: skip
        assert put.mode is trt.ScatterMode.ELEMENT
        put.mode = trt.ScatterMode.ND
        layers = {"pick": pick, "hot": hot, "put": put}
        return {name: layer.get_output(0) for name, layer in layers.items()}

    put = x.copy()
    put[[2, 0]] = updates
    hot = np.where(np.arange(3).reshape(3, 1, 1) == i, ends[1], ends[0])
    check(make, {"x": x}, {"pick": x[i], "hot": hot, "put": put}, dynamic=False)


def test_numbers_that_are_made() -> None:
    def make(network: Any, inputs: Any) -> Any:
        fill = network.add_fill((3,), trt.FillOperation.RANDOM_UNIFORM, trt.float32)
        assert tuple(fill.shape) == (3,)
        assert fill.operation is trt.FillOperation.RANDOM_UNIFORM
        fill.operation, fill.shape = trt.FillOperation.LINSPACE, (5,)
        fill.alpha, fill.beta = 1.0, 0.5
        y = network.add_elementwise(
            fill.get_output(0), inputs["x"], trt.ElementWiseOperation.SUM
        ).get_output(0)
        return {"y": y}

    x = floats(5)
    wanted = np.float32([1, 1.5, 2, 2.5, 3]) + x
    check(make, {"x": x}, {"y": wanted}, dynamic=False)


def test_boxes_by_their_centers() -> None:
    """The same boxes in both forms; the second overlaps the first too much."""
    corners = np.float32([[[0, 0, 4, 4], [0, 0, 4, 3], [5, 5, 7, 9]]])
    low, high = corners[..., :2], corners[..., 2:]
    centers = np.concatenate([(low + high) / 2, high - low], -1)
    scores = np.float32([[[0.9], [0.8], [0.7]]])
    for form, boxes in (("CORNER_PAIRS", corners), ("CENTER_SIZES", centers)):
        network, log = new_network()
        b = network.add_input("b", trt.float32, boxes.shape)
        s = network.add_input("s", trt.float32, scores.shape)
        layer = network.add_nms(b, s, number(network, 3))
        layer.bounding_box_format = trt.BoundingBoxFormat[form]
        layer.set_input(3, number(network, 0.5, np.float32))
        out = layer.get_output(0)
        out.name = "y"
        network.mark_output(out)
        data = plan_of(network)
        assert data is not None, log.errors
        got = run_plan(data, b=boxes, s=scores)["y"]
        assert got.tolist() == [[0, 0, 0], [0, 0, 2]], form


def test_bytes_as_numbers() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.uint8, (2, 3))
    assert x.dtype is trt.DataType.UINT8 and x.dtype.itemsize == 1
    y = network.add_cast(x, trt.float32).get_output(0)
    y.name = "y"
    network.mark_output(y)
    data = plan_of(network)
    assert data is not None, log.errors
    a = np.uint8([[0, 1, 127], [128, 200, 255]])
    np.testing.assert_array_equal(run_plan(data, x=a)["y"], a.astype(np.float32))
