"""RoiAlign with as many points as the size of a region asks for, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import braze
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate
from tests.contributed.peer import run_peer

Array = np.ndarray[Any, Any]
X = np.random.default_rng(0).standard_normal((2, 3, 12, 10)).astype("f")
# inside, over the edges, of no size, thin, of negative size, far outside
ROIS = np.array([[1, 1, 9, 9], [-3, 2, 6, 15], [4, 4, 4, 4], [0, 0, 0.5, 11.5], [7, 8, 2, 3],
                 [50, 50, 60, 80], [0, 0, 10, 12]], np.float32)  # fmt: skip


def network(kind: int = TensorProto.FLOAT, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], **attributes)
    shapes = {"x": ["B", 3, "H", "W"], "r": ["R", 4]}
    given = [helper.make_tensor_value_info(k, kind, s) for k, s in shapes.items()]
    given.append(helper.make_tensor_value_info("i", TensorProto.INT64, ["R"]))
    out = [helper.make_tensor_value_info("y", kind, None)]
    opsets = [helper.make_opsetid("", 16)]
    return helper.make_model(
        helper.make_graph([node], "g", given, out), opset_imports=opsets, ir_version=8
    )


def feed_of(rois: Array, x: Array = X) -> dict[str, Array]:
    return {"x": x, "r": rois.astype(x.dtype), "i": np.arange(len(rois)) % 2}


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("rule", ["half_pixel", "output_half_pixel"])
def test_points_follow_the_size(target: str, mode: str, rule: str) -> None:
    model = network(mode=mode, coordinate_transformation_mode=rule, output_height=2,
                    output_width=3, spatial_scale=0.75)  # fmt: skip
    engine = braze.build(model, target=target, optimization_level=1)
    for rois in (ROIS, ROIS[2:3], ROIS[4:5], 3 * ROIS, ROIS[:0]):
        feed = feed_of(rois)
        [want] = run_peer(model, feed)
        # sums of up to two hundred products around 1, in another order
        np.testing.assert_allclose(engine(feed)["y"], want, 1e-5, 1e-5)
        if target == "reference":
            found = evaluate(import_model(model), feed)["y"]
            np.testing.assert_allclose(found, want, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_types(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    engine = braze.build(network(kind, output_height=2, output_width=2), optimization_level=1)
    x = X.astype(dtype)
    [want] = run_peer(network(output_height=2, output_width=2), feed_of(ROIS, x.astype("f")))
    got = engine(feed_of(ROIS, x))["y"]
    assert got.dtype == dtype
    # one rounding to 11 bits of numbers around 1
    np.testing.assert_allclose(got, want, 1e-3 if dtype == "f2" else 1e-5, 1e-3)


def test_regions_without_a_number_have_no_points() -> None:
    engine = braze.build(network(output_height=2, output_width=2), optimization_level=1)
    rois = ROIS[:3].copy()
    rois[1, 2] = np.nan
    got = engine(feed_of(rois))["y"]
    assert (got[1] == 0).all()
    [want] = run_peer(network(output_height=2, output_width=2), feed_of(ROIS[:3]))
    np.testing.assert_allclose(got[::2], want[::2], 1e-5, 1e-5)


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("sign", [1, -1])  # where all is negative, a point beside the image is most
def test_regions_much_larger_than_the_image(target: str, mode: str, sign: int) -> None:
    rule = "half_pixel" if sign > 0 else "output_half_pixel"
    model = network(mode=mode, coordinate_transformation_mode=rule, output_height=2, output_width=3)
    engine = braze.build(model, target=target, optimization_level=1)
    rois = np.array([[-400, 3, 7, 900], [-3, -2000, 12, 2000], [1, 2, 1000, 8], [-9, -9, 40, 30],
                     [2.3, 2.3, 6.1, 6.2]])  # fmt: skip
    feed = feed_of(rois, sign * np.abs(X))
    [want] = run_peer(model, feed)
    assert want.any()
    # float32 positions up to 2,000 have errors of 1e-4 of a pixel
    np.testing.assert_allclose(engine(feed)["y"], want, 1e-3, 1e-3 * np.abs(want).max())


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_region_that_never_ends_takes_no_longer(target: str) -> None:
    model = network(output_height=2, output_width=2)
    engine = braze.build(model, target=target, optimization_level=1)
    rois = np.array([[1, 1, 9, 9], [-3.4e38, -3.4e38, 3.4e38, 3.4e38], [0, 0, 3.4e38, np.inf]])
    got = engine(feed_of(rois))["y"]  # 2**40 points a bin, were all of them looked at
    assert np.isfinite(got).all()
    [want] = run_peer(model, feed_of(rois[:1]))
    np.testing.assert_allclose(got[:1], want, 1e-5, 1e-5)


def test_regions_of_a_picture_of_another_rank_are_refused() -> None:
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"])
    given = [helper.make_tensor_value_info(n, k, s) for n, k, s in
             (("x", 1, [5]), ("r", 1, [2, 4]), ("i", 7, [2]))]  # fmt: skip
    out = [helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph([node], "g", given, out)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    with pytest.raises(braze.BrazeError, match="shape"):
        braze.build(model)
