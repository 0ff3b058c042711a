"""Reductions, running sums, products and Einstein sums against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

import braze.tensorrt as trt
from tests.tensorrt.networks import check, floats, new_network, plan_of

R, M = trt.ReduceOperation, trt.MatrixOperation


def test_reductions() -> None:
    x = floats(3, 4, 5)
    functions = {R.SUM: np.sum, R.PROD: np.prod, R.MAX: np.max, R.MIN: np.min, R.AVG: np.mean}
    assert set(functions) | {R.NONE} == set(R)

    def make(network: Any, inputs: Any) -> Any:
        made = {}
        for op in functions:
            layer = network.add_reduce(inputs["x"], op, 0b110, False)
            kept = network.add_reduce(inputs["x"], op, 1 << 1, keep_dims=True)
            assert (layer.axes, kept.keep_dims, kept.op) == (6, True, op)
            made[op.name], made[f"{op.name}_kept"] = layer.get_output(0), kept.get_output(0)
        return made

    d = x.astype(np.float64)
    expected = {op.name: f(d, axis=(1, 2)) for op, f in functions.items()}
    expected |= {f"{op.name}_kept": f(d, axis=1, keepdims=True) for op, f in functions.items()}
    check(make, {"x": x}, {k: v.astype(np.float32) for k, v in expected.items()})


def test_running_sums() -> None:
    x = floats(2, 3, 4)

    def make(network: Any, inputs: Any) -> Any:
        axis = network.add_constant((), np.array([1], np.int32)).get_output(0)
        op, made = trt.CumulativeOperation.SUM, {}
        for exclusive in (False, True):
            for reverse in (False, True):
                layer = network.add_cumulative(inputs["x"], axis, op, exclusive, reverse)
                made[f"sum{exclusive:d}{reverse:d}"] = layer.get_output(0)
        return made

    sums = x.cumsum(1)
    back = x[:, ::-1].cumsum(1)[:, ::-1]
    expected = {"sum00": sums, "sum01": back, "sum10": sums - x, "sum11": back - x}
    check(make, {"x": x}, expected, atol=2e-6)


def test_products_of_matrices_and_vectors() -> None:
    x, y, v, w = floats(2, 3, 4), floats(2, 4, 5, seed=1), floats(2, 4, seed=2), floats(1, 4, 5)

    def make(network: Any, inputs: Any) -> Any:
        def add(a: Any, op0: Any, b: Any, op1: Any) -> Any:
            layer = network.add_matrix_multiply(a, op0, b, op1)
            assert (layer.op0, layer.op1) == (op0, op1)
            assert layer.transpose0 is (op0 is M.TRANSPOSE)
            if op1 is M.TRANSPOSE:  # as releases to 7 said it
                layer.transpose1 = False
                assert layer.op1 is M.NONE and not layer.transpose1
                layer.transpose1 = True
            return layer.get_output(0)

        weights = network.add_constant(w.shape, w).get_output(0)
        turned = network.add_constant((1, 5, 4), w.swapaxes(1, 2).copy()).get_output(0)
        return {
            "plain": add(inputs["x"], M.NONE, inputs["y"], M.NONE),
            "both": add(inputs["y"], M.TRANSPOSE, inputs["x"], M.TRANSPOSE),
            "weights": add(inputs["x"], M.NONE, weights, M.NONE),
            "turned": add(inputs["x"], M.NONE, turned, M.TRANSPOSE),
            "right": add(inputs["x"], M.NONE, inputs["v"], M.VECTOR),
            "left": add(inputs["v"], M.VECTOR, inputs["y"], M.NONE),
            "dot": add(inputs["v"], M.VECTOR, inputs["v"], M.VECTOR),
        }

    expected = {
        "plain": x @ y,
        "both": y.swapaxes(1, 2) @ x.swapaxes(1, 2),
        "weights": x @ w,
        "turned": x @ w,
        "right": (x @ v[..., None])[..., 0],
        "left": (v[:, None] @ y)[:, 0],
        "dot": (v * v).sum(1),
    }
    check(make, {"x": x, "y": y, "v": v}, expected, rtol=1e-4)


def test_einstein_sums() -> None:
    x, y = floats(2, 3, 4), floats(2, 4, 5, seed=1)

    def make(network: Any, inputs: Any) -> Any:
        product = network.add_einsum([inputs["x"], inputs["y"]], "bij,bjk->bki")
        turned = network.add_einsum([inputs["x"]], "bij->bji")
        assert product.equation == "bij,bjk->bki"
        return {"product": product.get_output(0), "turned": turned.get_output(0)}

    expected = {"product": np.einsum("bij,bjk->bki", x, y), "turned": x.swapaxes(1, 2)}
    check(make, {"x": x, "y": y}, expected, rtol=1e-4)


def test_what_is_refused() -> None:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3, 4))
    y = network.add_input("y", trt.float32, (4, 5))
    assert network.add_einsum([], "->") is None
    layers = (
        (network.add_reduce(x, R.SUM, 0, True), "no axes"),
        (network.add_reduce(x, R.SUM, 8, True), "0b1000"),
        (network.add_reduce(x, R.NONE, 1, True), "collectives"),
        (network.add_matrix_multiply(x, M.NONE, y, M.NONE), "3 and 2 axes"),
        (network.add_einsum([x, y], "bij,jk->bixk"), "layer"),
    )
    for layer, why in layers:
        network.mark_output(layer.get_output(0))
        assert plan_of(network) is None and layer.name in log.errors[-1], log.errors
        assert why in log.errors[-1] or why == "layer"
        network.unmark_output(layer.get_output(0))
        layer.set_input(0, x)
        network._layers.remove(layer)
