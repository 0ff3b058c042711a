"""Convolution, deconvolution, pooling, padding and LRN against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze.tensorrt as trt
from tests.tensorrt import reference
from tests.tensorrt.networks import check, floats, new_network, plan_of

P = trt.PaddingMode


def single(array: Any) -> Any:
    return array.astype(np.float32)


def test_convolutions() -> None:
    x, b = floats(2, 4, 9, 8), floats(6, seed=2)
    w, g = floats(6, 4, 3, 2, seed=1), floats(6, 2, 3, 2, seed=3)

    def make(network: Any, inputs: Any) -> Any:
        def add(kernel: Any, bias: Any, **values: Any) -> Any:
            layer = network.add_convolution_nd(inputs["x"], 6, trt.Dims2(3, 2), kernel, bias)
            for name, value in values.items():
                setattr(layer, name, value)
            return layer.get_output(0)

        tensor = network.add_constant(w.shape, w).get_output(0)
        by_input = network.add_convolution_nd(inputs["x"], 6, (3, 2), trt.Weights())
        by_input.set_input(1, tensor)
        by_input.set_input(2, network.add_constant((6,), b).get_output(0))
        return {
            "plain": add(w, None),
            "bias": add(w, b, stride_nd=(2, 1), padding_nd=(1, 1)),
            "sides": add(w, b, pre_padding=(0, 2), post_padding=(1, 0), dilation_nd=(2, 1)),
            "groups": add(g, b, num_groups=2),
            "up": add(w, b, stride_nd=(3, 3), padding_mode=P.EXPLICIT_ROUND_UP),
            "upper": add(w, b, stride_nd=(2, 3), padding_mode=P.SAME_UPPER),
            "lower": add(w, b, stride_nd=(2, 3), padding_mode=P.SAME_LOWER),
            "inputs": by_input.get_output(0),
        }

    def ref(kernel: Any, bias: Any, stride: Any = (1, 1), pre: Any = (0, 0), post: Any = (0, 0),
            dilation: Any = (1, 1), groups: int = 1) -> Any:  # fmt: skip
        return single(reference.conv(x, kernel, bias, stride, pre, post, dilation, groups))

    def same(upper: bool) -> Any:
        pads = [reference.same_padding(n, k, s, upper) for n, k, s in ((9, 3, 2), (8, 2, 3))]
        return ref(w, b, (2, 3), *zip(*pads, strict=True))

    expected = {
        "plain": ref(w, None),
        "bias": ref(w, b, (2, 1), (1, 1), (1, 1)),
        "sides": ref(w, b, pre=(0, 2), post=(1, 0), dilation=(2, 1)),
        "groups": ref(g, b, groups=2),
        "up": ref(w, b, (3, 3), post=(0, 0)) if (9 - 3) % 3 == (8 - 2) % 3 == 0 else None,
        "upper": same(True),
        "lower": same(False),
        "inputs": ref(w, b),
    }
    check(make, {"x": x}, expected, rtol=1e-4, atol=1e-5)  # sums of 24 terms, some near 0


def test_convolution_that_rounds_sizes_up() -> None:
    x, w = floats(1, 2, 8, 9), floats(3, 2, 3, 3, seed=1)

    def make(network: Any, inputs: Any) -> Any:
        layer = network.add_convolution_nd(inputs["x"], 3, (3, 3), w)
        layer.stride_nd, layer.padding_mode = (2, 4), P.EXPLICIT_ROUND_UP
        return {"y": layer.get_output(0)}

    padded = single(reference.conv(x, w, None, (2, 4), (0, 0), (1, 2), (1, 1), 1))
    check(make, {"x": x}, {"y": padded}, rtol=1e-4, atol=1e-5)


def test_convolution_over_three_axes() -> None:
    x, w = floats(2, 2, 4, 5, 6), floats(3, 2, 2, 3, 2, seed=1)

    def make(network: Any, inputs: Any) -> Any:
        layer = network.add_convolution_nd(inputs["x"], 3, (2, 3, 2), w)
        layer.stride_nd = (1, 2, 2)
        return {"y": layer.get_output(0)}

    expected = reference.conv(x, w, None, (1, 2, 2), (0,) * 3, (0,) * 3, (1,) * 3, 1)
    check(make, {"x": x}, {"y": single(expected)}, rtol=1e-4, atol=1e-5)


def test_deconvolutions() -> None:
    x, w, b = floats(2, 4, 5, 4), floats(4, 3, 3, 2, seed=1), floats(3, seed=2)
    g = floats(4, 3, 3, 2, seed=3)

    def make(network: Any, inputs: Any) -> Any:
        plain = network.add_deconvolution_nd(inputs["x"], 3, (3, 2), w, b)
        plain.stride_nd, plain.pre_padding, plain.post_padding = (2, 3), (1, 0), (0, 1)
        groups = network.add_deconvolution_nd(inputs["x"], 6, (3, 2), g)
        groups.num_groups = 2
        same = network.add_deconvolution_nd(inputs["x"], 3, (3, 2), w)
        same.stride_nd, same.padding_mode = (2, 2), P.SAME_UPPER
        return {
            "plain": plain.get_output(0),
            "groups": groups.get_output(0),
            "same": same.get_output(0),
        }

    expected = {
        "plain": reference.deconv(x, w, b, (2, 3), (1, 0), (0, 1), 1),
        "groups": reference.deconv(x, g, None, (1, 1), (0, 0), (0, 0), 2),
        # 11 rows of which 10 are kept, and 8 columns of 8
        "same": reference.deconv(x, w, None, (2, 2), (0, 0), (1, 0), 1),
    }
    check(make, {"x": x}, {k: single(v) for k, v in expected.items()}, rtol=1e-4, atol=1e-5)


def test_pooling() -> None:
    x = floats(2, 3, 7, 8)
    cases = {
        "max": ("MAX", (2, 3), (2, 2), (0, 0), (0, 0), False),
        "padded": ("MAX", (3, 3), (2, 2), (1, 1), (1, 0), False),
        "mean": ("AVERAGE", (3, 2), (2, 1), (1, 1), (1, 1), False),
        "up": ("MAX", (2, 2), (2, 3), (0, 0), (0, 0), True),
        "meanup": ("AVERAGE", (2, 2), (2, 3), (0, 0), (0, 0), True),
    }

    def add(network: Any, tensor: Any, case: Any) -> Any:
        kind, window, stride, pre, post, up = case
        layer = network.add_pooling_nd(tensor, getattr(trt.PoolingType, kind), window)
        layer.stride_nd, layer.pre_padding, layer.post_padding = stride, pre, post
        layer.padding_mode = P.EXPLICIT_ROUND_UP if up else P.EXPLICIT_ROUND_DOWN
        return layer

    def make(network: Any, inputs: Any) -> Any:
        made = {k: add(network, inputs["x"], c).get_output(0) for k, c in cases.items()}
        counted = add(network, inputs["x"], cases["mean"])
        assert counted.average_count_excludes_padding
        counted.average_count_excludes_padding = False
        blend = add(network, inputs["x"], ("MAX_AVERAGE_BLEND", *cases["mean"][1:]))
        blend.blend_factor = 0.25
        same = add(network, inputs["x"], cases["max"])
        same.padding_mode = P.SAME_LOWER
        made["counted"], made["blend"] = counted.get_output(0), blend.get_output(0)
        return {**made, "same": same.get_output(0)}

    def ref(case: Any, exclude: bool = True) -> Any:
        kind, window, stride, pre, post, up = case
        name = "max" if kind == "MAX" else "mean"
        return reference.pool(x, window, stride, pre, post, name, exclude, up)

    pads = [reference.same_padding(7, 2, 2, False), reference.same_padding(8, 3, 2, False)]
    expected = {k: ref(c) for k, c in cases.items()}
    expected["counted"] = ref(cases["mean"], exclude=False)
    expected["blend"] = 0.75 * ref(("MAX", *cases["mean"][1:])) + 0.25 * ref(cases["mean"])
    pre, post = zip(*pads, strict=True)
    expected["same"] = reference.pool(x, (2, 3), (2, 2), pre, post, "max", True, False)
    check(make, {"x": x}, {k: single(v) for k, v in expected.items()})


def test_padding_and_lrn() -> None:
    x = floats(2, 5, 4, 6)

    def make(network: Any, inputs: Any) -> Any:
        cut = network.add_padding_nd(inputs["x"], (1, -1), (0, 2))
        assert tuple(cut.pre_padding_nd) == (1, -1)
        lrn = network.add_lrn(inputs["x"], 3, 0.5, 0.75, 2.0)
        assert (lrn.window_size, lrn.alpha, lrn.beta, lrn.k) == (3, 0.5, 0.75, 2.0)
        return {"cut": cut.get_output(0), "lrn": lrn.get_output(0)}

    square = np.pad(x.astype(np.float64) ** 2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = square[:, :-2] + square[:, 1:-1] + square[:, 2:]
    expected = {
        "cut": np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)))[..., 1:],
        "lrn": single(x / (2.0 + 0.5 / 3 * sums) ** 0.75),
    }
    check(make, {"x": x}, expected)


def test_layers_of_releases_before_10() -> None:
    x, w, b = floats(2, 3, 6, 6), floats(4, 3, 3, 3, seed=1), floats(4, seed=2)
    m = floats(5, 4 * 2 * 2, seed=3)

    def make(network: Any, inputs: Any) -> Any:
        with pytest.warns(DeprecationWarning):
            conv = network.add_convolution(inputs["x"], 4, trt.DimsHW(3, 3), w, b)
            conv.stride, conv.padding = (2, 2), (1, 1)
            pool = network.add_pooling(conv.get_output(0), trt.PoolingType.MAX, (2, 2))
            pad = network.add_padding(pool.get_output(0), (0, 0), (0, 0))
            full = network.add_fully_connected(pad.get_output(0), 5, m)
        assert conv.stride.h == 2 and conv.kernel_size == (3, 3) and pool.window_size.w == 2
        return {"pool": pool.get_output(0), "full": full.get_output(0)}

    made = reference.conv(x, w, b, (2, 2), (1, 1), (1, 1), (1, 1), 1)
    pooled = reference.pool(made, (2, 2), (1, 1), (0, 0), (0, 0), "max", True, False)
    full = (pooled.reshape(2, -1) @ m.T.astype(np.float64)).reshape(2, 5, 1, 1)
    expected = {"pool": single(pooled), "full": single(full)}
    check(make, {"x": x}, expected, rtol=1e-4, atol=1e-4)


def test_what_is_refused() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (1, 3, 8, 8))
    w = floats(4, 3, 3, 3)
    assert network.add_convolution_nd(x, 0, (3, 3), w) is None
    assert network.add_pooling_nd(x, trt.PoolingType.MAX, (3,)) is None
    assert network.add_padding_nd(x, (1, 1, 1), (1, 1, 1)) is None
    assert network.add_lrn(x, 4, 1, 1, 1) is None
    assert len(log.errors) == 4
    with pytest.raises(TypeError):
        network.add_convolution_nd(x, 4, (3, 3), [1.0, 2.0])
    wrong = network.add_convolution_nd(x, 5, (3, 3), w)
    network.mark_output(wrong.get_output(0))
    assert plan_of(network) is None and "108 weights" in log.errors[-1]
    wrong.num_output_maps = 4
    assert plan_of(network) is not None
