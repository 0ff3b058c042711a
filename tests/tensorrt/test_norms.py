"""Scale, softmax and normalizations against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

import braze.tensorrt as trt
from tests.tensorrt import reference
from tests.tensorrt.networks import check, floats


def constant(network: Any, array: Any, shape: Any = None) -> Any:
    return network.add_constant(array.shape if shape is None else shape, array).get_output(0)


def test_scales_of_all_modes() -> None:
    x = np.abs(floats(2, 3, 4, 5)) + 0.1
    one = [np.array([v], np.float32) for v in (0.5, 2.0, 1.5)]
    each = [np.abs(floats(3, seed=i)) + 0.1 for i in range(3)]
    full = [np.abs(floats(3, 4, 5, seed=i)) + 0.1 for i in range(3)]
    last = np.abs(floats(5, seed=4)) + 0.1

    def make(network: Any, inputs: Any) -> Any:
        add, m = network.add_scale, trt.ScaleMode
        nd = network.add_scale_nd(inputs["x"], m.CHANNEL, None, last, None, 3)
        assert nd.channel_axis == 3 and nd.shift.size == 0
        return {
            "uniform": add(inputs["x"], m.UNIFORM, *one).get_output(0),
            "channel": add(inputs["x"], m.CHANNEL, *each).get_output(0),
            "elementwise": add(inputs["x"], m.ELEMENTWISE, *full).get_output(0),
            "shift": add(inputs["x"], m.CHANNEL, shift=each[0]).get_output(0),
            "last": nd.get_output(0),
            "nothing": add(inputs["x"], m.UNIFORM).get_output(0),
        }

    def ref(shift: Any, scale: Any, power: Any) -> Any:
        return (x.astype(np.float64) * scale + shift) ** power

    channels = [e.reshape(3, 1, 1) for e in each]
    expected = {
        "uniform": ref(*one), "channel": ref(*channels), "elementwise": ref(*full),
        "shift": x + channels[0], "last": x * last, "nothing": x,
    }  # fmt: skip
    check(make, {"x": x}, {k: v.astype(np.float32) for k, v in expected.items()})


def test_softmaxes() -> None:
    x, bounds = floats(2, 3, 4, 5), np.array([[[[1], [5], [3], [2]]]] * 2, np.int32)
    bounds = np.broadcast_to(bounds, (2, 3, 4, 1)).copy()

    def make(network: Any, inputs: Any) -> Any:
        usual, last = network.add_softmax(inputs["x"]), network.add_softmax(inputs["x"])
        assert usual.axes == 0b10
        last.axes = 1 << 3
        ragged = network.add_ragged_softmax(inputs["x"], inputs["b"])
        return {
            "usual": usual.get_output(0),
            "last": last.get_output(0),
            "ragged": ragged.get_output(0),
        }

    masked = np.where(np.arange(5) < bounds, x, -np.inf)
    expected = {
        "usual": reference.softmax(x, 1), "last": reference.softmax(x, 3),
        "ragged": reference.softmax(masked, 3),
    }  # fmt: skip
    check(make, {"x": x, "b": bounds}, {k: v.astype(np.float32) for k, v in expected.items()})


def normalized(x: Any, axes: Any, epsilon: float = 1e-5) -> Any:
    d = x.astype(np.float64)
    mean, variance = d.mean(axes, keepdims=True), d.var(axes, keepdims=True)
    return (d - mean) / np.sqrt(variance + epsilon)


def test_normalizations() -> None:
    x = floats(2, 4, 3, 5)
    layer_scale, layer_bias = floats(1, 1, 3, 5, seed=1), floats(1, 1, 3, 5, seed=2)
    scale, bias = floats(1, 4, 1, 1, seed=3), floats(1, 4, 1, 1, seed=4)
    group_scale, group_bias = floats(1, 2, 1, 1, seed=5), floats(1, 2, 1, 1, seed=6)
    spatial = 0b1100

    def make(network: Any, inputs: Any) -> Any:
        def add(which: Any, s: Any, b: Any, axes: int, **values: Any) -> Any:
            layer = which(inputs["x"], constant(network, s), constant(network, b), axes)
            for name, value in values.items():
                setattr(layer, name, value)
            return layer

        first, second = network.add_normalization, network.add_normalization_v2
        layer = add(first, layer_scale, layer_bias, spatial, epsilon=1e-3)
        assert layer.axes == spatial and not layer.is_v2
        assert add(second, scale, bias, spatial, num_groups=2).is_v2
        return {
            "layer": layer.get_output(0),
            "instance": add(first, scale, bias, spatial).get_output(0),
            "channels": add(first, scale, bias, 0b10).get_output(0),
            "groups": add(first, group_scale, group_bias, spatial, num_groups=2).get_output(0),
            "groups2": add(second, scale, bias, spatial, num_groups=2).get_output(0),
        }

    grouped = normalized(x.reshape(2, 2, 2, 3, 5), (2, 3, 4)).reshape(x.shape)
    expected = {
        "layer": normalized(x, (2, 3), 1e-3) * layer_scale + layer_bias,
        "instance": normalized(x, (2, 3)) * scale + bias,
        "channels": normalized(x, (1,)) * scale + bias,
        "groups": grouped * group_scale.repeat(2, 1) + group_bias.repeat(2, 1),
        "groups2": grouped * scale + bias,
    }
    wanted = {k: v.astype(np.float32) for k, v in expected.items()}
    check(make, {"x": x}, wanted, rtol=1e-4, atol=1e-5)  # differences of near numbers
