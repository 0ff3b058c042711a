"""NonMaxSuppression against a plain loop over boxes, in every way of building."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.core.errors import ProfileError, ShapeError
from tests.codegen.anchors.harness import host_isas
from tests.pairs import pairwise

F, INT = TensorProto.FLOAT, TensorProto.INT64
Array = np.ndarray[Any, Any]


def model(
    boxes: list[Any], scores: list[Any], centered: int = 0, turned: bool = False, **given: Any
) -> onnx.ModelProto:
    """given: most, overlap, least; a number is a constant, None an input of the run."""
    inputs, names, constants = [], [], []
    for name in ("most", "overlap", "least"):
        if name not in given:
            names.append("")
            continue
        names.append(name)
        kind, dtype = (INT, np.int64) if name == "most" else (F, np.float32)
        if given[name] is None:
            inputs.append(helper.make_tensor_value_info(name, kind, [1]))
        else:
            constants.append(numpy_helper.from_array(np.array([given[name]], dtype), name))
    nodes = []
    first, second = "boxes", "scores"
    if turned:
        boxes, scores = [boxes[0], boxes[2], boxes[1]], [scores[0], scores[2], scores[1]]
        nodes = [
            helper.make_node("Transpose", [n], [n + "_t"], perm=[0, 2, 1]) for n in (first, second)
        ]
        first, second = "boxes_t", "scores_t"
    nodes.append(
        helper.make_node(
            "NonMaxSuppression", [first, second, *names], ["y"], "nms", center_point_box=centered
        )
    )
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("boxes", F, boxes),
            helper.make_tensor_value_info("scores", F, scores),
            *inputs,
        ],
        [helper.make_tensor_value_info("y", INT, [None, 3])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def corners(box: Array, centered: bool) -> tuple[Any, ...]:
    if centered:
        x, y, w, h = box
        half = np.float32(2)
        return y - h / half, x - w / half, y + h / half, x + w / half
    return min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])


def overlap(a: Array, b: Array, centered: bool) -> Any:
    p, q = corners(a, centered), corners(b, centered)
    high, wide = min(p[2], q[2]) - max(p[0], q[0]), min(p[3], q[3]) - max(p[1], q[1])
    areas = [(r[2] - r[0]) * (r[3] - r[1]) for r in (p, q)]
    if not (high > 0 and wide > 0 and areas[0] > 0 and areas[1] > 0):
        return np.float32(0)
    common = high * wide
    return common / (areas[0] + areas[1] - common)


def expected(
    boxes: Array, scores: Array, most: int = 0, limit: float = 0.0, least: float | None = None,
    centered: bool = False,
) -> Array:  # fmt: skip
    """The definition, box by box."""
    found = []
    for b, c in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        line, kept = scores[b, c], []
        counts = [
            i
            for i, s in enumerate(line)
            if (not np.isnan(s) if least is None else s > np.float32(least))
        ]
        for i in sorted(counts, key=lambda i: (-line[i], i)):
            if len(kept) < most and not any(
                overlap(boxes[b, i], boxes[b, j], centered) > np.float32(limit) for j in kept
            ):
                kept.append(i)
        found += [(b, c, i) for i in kept]
    return np.array(found, np.int64).reshape(-1, 3)


def data(batch: int, classes: int, count: int, seed: int = 0) -> dict[str, Array]:
    """Boxes that overlap, some alike, some without an area; scores with many ties."""
    rng = np.random.default_rng(seed)
    boxes = rng.random((batch, count, 4)).astype(np.float32)
    if count > 3:
        boxes[:, 1] = boxes[:, 0]
        boxes[:, 2, 2:] = boxes[:, 2, :2]
    scores = rng.choice(np.linspace(0, 1, 23, dtype=np.float32), (batch, classes, count))
    return {"boxes": boxes, "scores": scores.astype(np.float32)}


TARGETS = ["reference", *(f"cpu:{isa}" for isa in host_isas())]
# sizes and numbers: known to the build or given by the run, and at what level it is built
WAYS = [(True, 3), (True, 1), (False, 0), (False, 2)]


@pytest.mark.parametrize(
    ("way", "target", "turned", "centered"),
    pairwise(WAYS, TARGETS, [False, True], [False, True]),
)
def test_every_form(way: tuple[bool, int], target: str, turned: bool, centered: bool) -> None:
    fixed, level = way
    options: dict[str, Any] = {"centered": int(centered), "turned": turned}
    if fixed:
        m = model([2, 40, 4], [2, 3, 40], most=6, overlap=0.3, least=0.4, **options)
    else:
        m = model(["b", "n", 4], ["b", 3, "n"], most=None, overlap=None, least=None, **options)
    engine = braze.build(m, target=target, optimization_level=level)
    for seed in range(2):
        feed = data(2, 3, 40, seed)
        want = expected(feed["boxes"], feed["scores"], 6, 0.3, 0.4, centered)
        assert len(want) not in (0, 240)
        if turned:
            feed = {k: np.ascontiguousarray(v.transpose(0, 2, 1)) for k, v in feed.items()}
        if not fixed:
            feed["most"] = np.array([6])
            feed["overlap"], feed["least"] = np.float32([0.3]), np.float32([0.4])
        np.testing.assert_array_equal(engine(feed)["y"], want)


def test_how_many_are_kept() -> None:
    feed = data(1, 2, 25)
    free = braze.build(model(["b", "n", 4], ["b", 2, "n"], most=None, overlap=0.5))
    for i, most in enumerate((0, 1, 5, 30, 1 << 40, (1 << 63) - 1)):
        want = expected(feed["boxes"], feed["scores"], most, 0.5)
        fixed = model([1, 25, 4], [1, 2, 25], most=most, overlap=0.5)
        got = braze.build(fixed, optimization_level=i % 3)(feed)["y"]
        np.testing.assert_array_equal(got, want, f"at most {most}, fixed")
        got = free({**feed, "most": np.array([most])})["y"]
        np.testing.assert_array_equal(got, want, f"at most {most}, given")


def test_nothing_said_keeps_nothing() -> None:
    engine = braze.build(model([1, 9, 4], [1, 1, 9]), optimization_level=1)
    assert engine(data(1, 1, 9))["y"].shape == (0, 3)


def test_no_boxes_classes_or_batch() -> None:
    m = model(["b", "n", 4], ["b", "c", "n"], most=4, overlap=0.5)
    engine = braze.build(m, optimization_level=2)
    for sizes in ((0, 2, 5), (1, 0, 5), (1, 2, 0), (3, 1, 1)):
        feed = data(*sizes)
        want = expected(feed["boxes"], feed["scores"], 4, 0.5)
        np.testing.assert_array_equal(engine(feed)["y"], want, str(sizes))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_numbers_that_are_none(target: str) -> None:
    """A score that is NaN is no candidate; a box with NaN or infinities has no overlap or some."""
    feed = data(1, 1, 30)
    feed["scores"][0, 0, ::7] = np.nan
    feed["scores"][0, 0, 1::9] = np.inf
    feed["scores"][0, 0, 2::9] = -np.inf
    feed["boxes"][0, 3::8, 1] = np.nan
    feed["boxes"][0, 4::8, 2] = np.inf
    for level, given in enumerate(({}, {"least": 0.1}, {"least": float("nan")})):
        m = model([1, 30, 4], [1, 1, 30], most=30, overlap=0.2, **given)
        engine = braze.build(m, target=target, optimization_level=level)
        with np.errstate(all="ignore"):
            want = expected(feed["boxes"], feed["scores"], 30, 0.2, **given)
        np.testing.assert_array_equal(engine(feed)["y"], want)


def test_many_boxes() -> None:
    """100,000 candidates of which few leave the heap; the same for every number of threads."""
    feed = data(1, 2, 100_000)
    feed["boxes"][..., 2:] = feed["boxes"][..., :2] + np.float32(0.01)
    m = model([1, 100_000, 4], [1, 2, 100_000], most=50, overlap=0.4, least=0.5)
    found = [braze.build(m, threads=t, optimization_level=1)(feed)["y"] for t in (1, 2)]
    np.testing.assert_array_equal(*found)
    assert found[0].shape == (100, 3)
    chosen = feed["scores"][0, 0, found[0][:50, 2]]
    assert (np.diff(chosen) <= 0).all() and chosen[0] == 1


def test_sorted_rows_go_on() -> None:
    """The kept boxes are gathered behind it, as detectors do."""
    m = model(["b", "n", 4], ["b", 2, "n"], most=5, overlap=0.4)
    m.graph.node.extend(
        [
            helper.make_node("Slice", ["y", "from", "to", "axes"], ["number"]),
            helper.make_node("Squeeze", ["number", "axes"], ["flat"]),
            helper.make_node("Gather", ["boxes", "flat"], ["picked"], axis=1),
        ]
    )
    for name, value in (("from", 2), ("to", 3), ("axes", 1)):
        m.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    m.graph.output.append(helper.make_tensor_value_info("picked", F, None))
    feed = data(1, 2, 20)
    want = expected(feed["boxes"], feed["scores"], 5, 0.4)
    got = braze.build(m, optimization_level=2)(feed)
    np.testing.assert_array_equal(got["picked"], feed["boxes"][:, want[:, 2]])


def test_wrong_models_and_numbers() -> None:
    with pytest.raises(ShapeError, match=r"nms.*give boxes \[batch, count, 4\]"):
        braze.build(model([9, 4], [1, 1, 9]))
    with pytest.raises(ShapeError, match="numbers of a box"):
        braze.build(model([1, 9, 5], [1, 1, 9]))
    engine = braze.build(model([1, 9, 4], [1, 1, 9], most=None), optimization_level=1)
    with pytest.raises(ProfileError):
        engine({**data(1, 1, 9), "most": np.array([-1])})
