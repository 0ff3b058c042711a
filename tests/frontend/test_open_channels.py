"""Group normalisation of channels of which only the run knows how many there are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import braze
from braze.core.errors import ShapeError
from braze.frontend.onnx.importer import import_model
from tests.frontend.test_operand_shapes import Array, one

R = np.random.default_rng(3)
X = R.standard_normal((2, 6, 3, 4)).astype(np.float32)


def group_norm(channels: int, opset: int, given: bool, dynamic: str) -> onnx.ModelProto:
    """Three groups; scale and bias are constants or given."""
    count = channels if opset >= 21 else 3
    vectors = {k: R.standard_normal(count).astype(np.float32) for k in "sb"}
    inputs = {"x": X[:, :1].repeat(channels, 1), **(vectors if given else {})}
    constants = {} if given else vectors
    return one(
        "GroupNormalization",
        inputs,
        constants,
        "x s b",
        opset=opset,
        dynamic=dynamic,
        num_groups=3,
    )


def measured(x: Array, scale: Array, bias: Array) -> Array:
    groups = x.astype(np.float64).reshape(len(x), 3, -1)
    mean, variance = groups.mean(2, keepdims=True), groups.var(2, keepdims=True)
    y = ((groups - mean) / np.sqrt(variance + 1e-5)).reshape(x.shape)
    wide = [v.repeat(x.shape[1] // len(v)).reshape(-1, 1, 1) for v in (scale, bias)]
    return y * wide[0] + wide[1]


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_scale_and_bias_of_constants(opset: int, target: str) -> None:
    proto = group_norm(6, opset, False, "x")
    scale, bias = (onnx.numpy_helper.to_array(t) for t in proto.graph.initializer)
    engine = braze.build(proto, target=target, optimization_level=0)
    np.testing.assert_allclose(engine({"x": X})["y"], measured(X, scale, bias), 1e-4, 1e-5)
    for channels in (7, 9):
        x = np.resize(X, (2, channels, 3, 4))
        if opset == 18 and channels == 9:  # a scale a group says nothing of the channels
            np.testing.assert_allclose(engine({"x": x})["y"], measured(x, scale, bias), 1e-4, 1e-5)
            continue
        with pytest.raises(ShapeError, match=r"node 'here', GroupNorm"):
            engine({"x": x})


def test_scale_and_bias_of_open_size() -> None:
    engine = braze.build(group_norm(6, 21, True, "xsb"), target="reference", optimization_level=0)
    for channels in (3, 6, 9):
        x = np.resize(X, (2, channels, 3, 4))
        scale, bias = X.reshape(-1)[:channels], X.reshape(-1)[-channels:]
        y = engine({"x": x, "s": scale, "b": bias})["y"]
        np.testing.assert_allclose(y, measured(x, scale, bias), 1e-4, 1e-5)
    x, v = X[:, :4], X.reshape(-1)[:4]
    with pytest.raises(ShapeError, match="channels that 3 groups leave over"):
        engine({"x": x, "s": v, "b": v})


@pytest.mark.parametrize("dynamic", ["", "x"])
def test_known_channels_that_do_not_divide(dynamic: str) -> None:
    with pytest.raises(ShapeError, match=r"'here'.*7 channels do not divide into 3 groups"):
        import_model(group_norm(7, 21, False, dynamic))


def test_instances_are_groups_of_one_channel() -> None:
    vectors = {k: R.standard_normal(6).astype(np.float32) for k in "sb"}
    proto = one("InstanceNormalization", {"x": X}, vectors, "x s b", dynamic="x")
    fixed = one("InstanceNormalization", {"x": X}, vectors, "x s b")
    engine, known = (braze.build(p, target="reference") for p in (proto, fixed))
    np.testing.assert_allclose(engine({"x": X})["y"], known({"x": X})["y"], 1e-5, 1e-6)
    with pytest.raises(ShapeError, match="'here', InstanceNorm scale"):
        engine({"x": np.resize(X, (2, 5, 3, 4))})
