"""Gather, scatter, one-hot, top-k, non-zero, boxes and reversed sequences against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

import braze.tensorrt as trt
from tests.tensorrt.networks import check, floats, new_network, outputs_of, plan_of

G = trt.GatherMode


def test_gathers_of_all_modes() -> None:
    x = floats(2, 4, 5)
    flat = np.array([[3, 0], [1, -1]], np.int32)
    shared = np.array([[1, 4, 0], [2, 2, 3]], np.int32)
    places = np.array([[0, 3], [1, 2]], np.int32)
    element = np.array([[[3, 0, 1, 2, 0]]] * 2, np.int32)
    nd = np.array([[[0, 1]], [[1, 3]]], np.int32)
    nd_shared = np.array([[[1], [0]], [[3], [2]]], np.int32)

    def make(network: Any, inputs: Any) -> Any:
        def ints(array: Any) -> Any:
            return network.add_constant(array.shape, array).get_output(0)

        def batched(where: Any, axis: int) -> Any:
            layer = network.add_gather(inputs["x"], inputs[where], axis)
            layer.num_elementwise_dims = 1
            return layer.get_output(0)

        elements = network.add_gather_v2(inputs["x"], inputs["element"], G.ELEMENT)
        elements.axis = 1
        tuples = network.add_gather_v2(inputs["x"], ints(nd), G.ND)
        rows = network.add_gather_v2(inputs["x"], inputs["nd_shared"], G.ND)
        rows.num_elementwise_dims = 1
        assert rows.mode is G.ND and elements.axis == 1
        return {
            "default": network.add_gather(inputs["x"], ints(flat), 1).get_output(0),
            "shared2": batched("shared", 2),
            "shared1": batched("places", 1),
            "elements": elements.get_output(0),
            "nd": tuples.get_output(0),
            "rows": rows.get_output(0),
        }

    expected = {
        "default": x[:, flat],
        "shared2": np.stack([x[b][:, shared[b]] for b in range(2)]),
        "shared1": np.stack([x[b][places[b]] for b in range(2)]),
        "elements": np.take_along_axis(x, element.astype(np.int64), 1),
        "nd": np.stack([x[0, 1], x[1, 3]])[:, None],
        "rows": np.stack([x[b][nd_shared[b, :, 0]] for b in range(2)]),
    }
    feeds = {
        "x": x, "shared": shared, "places": places, "element": element, "nd_shared": nd_shared,
    }  # fmt: skip
    check(make, feeds, expected, dynamic=False)


def test_gather_with_any_batch() -> None:
    x, where = floats(3, 4, 5), np.array([2, 0], np.int64)

    def make(network: Any, inputs: Any) -> Any:
        indices = network.add_constant((2,), where).get_output(0)
        return {"y": network.add_gather(inputs["x"], indices, 1).get_output(0)}

    check(make, {"x": x}, {"y": x[:, where]})


def test_scatters() -> None:
    x, u = floats(2, 4, 5), floats(2, 2, 5, seed=1)
    where = np.array([[[0, 3, 1, 1, 2], [2, 0, 3, 2, 0]]] * 2, np.int32)
    nd, rows = np.array([[0, 3], [1, 0]], np.int32), floats(2, 5, seed=2)

    def make(network: Any, inputs: Any) -> Any:
        element = network.add_scatter(
            inputs["x"], inputs["where"], inputs["u"], trt.ScatterMode.ELEMENT
        )
        element.axis = 1
        places = network.add_constant(nd.shape, nd).get_output(0)
        data = network.add_constant(rows.shape, rows).get_output(0)
        tuples = network.add_scatter(inputs["x"], places, data, trt.ScatterMode.ND)
        return {"element": element.get_output(0), "nd": tuples.get_output(0)}

    element, tuples = x.copy(), x.copy()
    np.put_along_axis(element, where.astype(np.int64), u, 1)
    tuples[0, 3], tuples[1, 0] = rows
    feeds = {"x": x, "where": where, "u": u}
    check(make, feeds, {"element": element, "nd": tuples}, dynamic=False)


def test_one_hot_top_k_and_reversed_sequences() -> None:
    i, x = np.array([[0, 2], [1, 3]], np.int32), floats(2, 3, 7)
    lengths = np.array([2, 3], np.int32)

    def make(network: Any, inputs: Any) -> Any:
        values = network.add_constant((2,), np.array([-1, 5], np.float32)).get_output(0)
        depth = network.add_constant((), np.array([4], np.int32)).get_output(0)
        top = network.add_topk(inputs["x"], trt.TopKOperation.MAX, 3, 1 << 2)
        low = network.add_topk(inputs["x"], trt.TopKOperation.MIN, 1, 1 << 1)
        low.set_input(1, network.add_constant((), np.array([2], np.int32)).get_output(0))
        assert (top.k, top.axes, top.num_outputs) == (3, 4, 2)
        reverse = network.add_reverse_sequence(inputs["x"], inputs["lengths"])
        assert (reverse.batch_axis, reverse.sequence_axis) == (1, 0)
        reverse.batch_axis, reverse.sequence_axis = 0, 1
        return {
            "hot": network.add_one_hot(inputs["i"], values, depth, -1).get_output(0),
            "values": top.get_output(0),
            "places": top.get_output(1),
            "low": low.get_output(0),
            "low_places": low.get_output(1),
            "reverse": reverse.get_output(0),
        }

    order, lowest = np.argsort(-x, 2)[..., :3], np.argsort(x, 1)[:, :2]
    reverse = x.copy()
    for b, n in enumerate(lengths):
        reverse[b, :n] = x[b, :n][::-1]
    expected = {
        "hot": np.where(np.arange(4) == i[..., None], np.float32(5), np.float32(-1)),
        "values": np.take_along_axis(x, order, 2),
        "places": order.astype(np.int32),
        "low": np.take_along_axis(x, lowest, 1),
        "low_places": lowest.astype(np.int32),
        "reverse": reverse,
    }
    check(make, {"i": i, "x": x, "lengths": lengths}, expected)


def test_non_zero_gives_what_there_is() -> None:
    x = np.array([[0, 1, 0], [2, 0, 3]], np.float32)

    def make(network: Any, inputs: Any) -> Any:
        layer = network.add_non_zero(inputs["x"])
        assert tuple(layer.get_output(0).shape) == (2, -1)
        return {"y": layer.get_output(0)}

    check(make, {"x": x}, {"y": np.stack(np.nonzero(x)).astype(np.int32)})


def overlap(a: Any, b: Any) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inner = np.prod(np.maximum(high - low, 0))
    return float(inner / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner))


def best_boxes(boxes: Any, scores: Any, most: int, limit: float, least: float) -> Any:
    found = []
    for n in range(boxes.shape[0]):
        for c in range(scores.shape[2]):
            kept: list[int] = []
            for at in np.argsort(-scores[n, :, c], kind="stable"):
                free = all(overlap(boxes[n, at], boxes[n, k]) <= limit for k in kept)
                if scores[n, at, c] > least and len(kept) < most and free:
                    kept.append(int(at))
            found += [(n, c, at) for at in kept]
    return np.array(found, np.int32).reshape(-1, 3)


def test_boxes() -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 8, (2, 12, 2))
    boxes = np.concatenate([low, low + rng.uniform(1, 4, (2, 12, 2))], 2).astype(np.float32)
    scores = rng.uniform(0, 1, (2, 12, 3)).astype(np.float32)

    def make(network: Any, inputs: Any) -> Any:
        most = network.add_constant((), np.array([3], np.int32)).get_output(0)
        layer = network.add_nms(inputs["boxes"], inputs["scores"], most)
        assert layer.bounding_box_format is trt.BoundingBoxFormat.CORNER_PAIRS
        layer.set_input(3, network.add_constant((), np.array([0.3], np.float32)).get_output(0))
        layer.set_input(4, network.add_constant((), np.array([0.2], np.float32)).get_output(0))
        return {"found": layer.get_output(0), "count": layer.get_output(1)}

    feeds = {"boxes": boxes, "scores": scores}
    outputs = outputs_of(make, feeds, dynamic=False)
    wanted = best_boxes(boxes, scores, 3, 0.3, 0.2)
    np.testing.assert_array_equal(outputs["found"], wanted)
    assert outputs["count"] == len(wanted)


def test_what_is_refused() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    assert network.add_topk(x, trt.TopKOperation.MAX, -1, 1) is None and log.errors
    two = network.add_topk(x, trt.TopKOperation.MAX, 1, 3)
    network.mark_output(two.get_output(0))
    assert plan_of(network) is None and "2 are set" in log.errors[-1]
    two.axes = 8
    assert plan_of(network) is None and "0b1000" in log.errors[-1]


def test_indices_are_whole_numbers() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_gather(x, x, 0)
    network.mark_output(layer.get_output(0))
    assert plan_of(network) is None
    assert "its indices are FLOAT" in log.errors[-1] and layer.name in log.errors[-1]
