"""LeNet from a `.wts` file, layer by layer, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import braze.tensorrt as trt
from braze.weights import load_wts, save_wts
from tests.tensorrt.engines import Log, load

Array = np.ndarray[Any, Any]
SHAPES = {
    "conv1.weight": (6, 1, 5, 5), "conv1.bias": (6,), "conv2.weight": (16, 6, 5, 5),
    "conv2.bias": (16,), "fc1.weight": (120, 400), "fc1.bias": (120,), "fc2.weight": (84, 120),
    "fc2.bias": (84,), "fc3.weight": (10, 84), "fc3.bias": (10,),
}  # fmt: skip


def weights() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        n: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]) or 1)).astype(np.float32)
        for n, s in SHAPES.items()
    }


def build(w: dict[str, Array], log: Log) -> Any:
    """The network of the classic C++ examples, whose weights come flat from the file."""
    builder = trt.Builder(log)
    network = builder.create_network(0)
    x = network.add_input("data", trt.float32, (1, 1, 32, 32))
    for name, maps in (("conv1", 6), ("conv2", 16)):
        conv = network.add_convolution_nd(
            x, maps, trt.DimsHW(5, 5), w[f"{name}.weight"], w[f"{name}.bias"]
        )
        conv.name, conv.stride_nd = name, trt.DimsHW(1, 1)
        relu = network.add_activation(conv.get_output(0), trt.ActivationType.RELU)
        pool = network.add_pooling_nd(relu.get_output(0), trt.PoolingType.AVERAGE, (2, 2))
        pool.stride_nd = (2, 2)
        x = pool.get_output(0)
    flat = network.add_shuffle(x)
    flat.reshape_dims = (1, 400)
    x = flat.get_output(0)
    for i, (name, size) in enumerate((("fc1", 120), ("fc2", 84), ("fc3", 10))):
        matrix = network.add_constant((size, x.shape[1]), w[f"{name}.weight"])
        product = network.add_matrix_multiply(
            x, trt.MatrixOperation.NONE, matrix.get_output(0), trt.MatrixOperation.TRANSPOSE
        )
        bias = network.add_constant((1, size), w[f"{name}.bias"])
        added = network.add_elementwise(
            product.get_output(0), bias.get_output(0), trt.ElementWiseOperation.SUM
        )
        x = added.get_output(0)
        if i < 2:
            x = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    soft = network.add_softmax(x)
    soft.axes = 1 << 1
    soft.get_output(0).name = "prob"
    network.mark_output(soft.get_output(0))
    config = builder.create_builder_config()
    config.builder_optimization_level = 1
    return builder.build_serialized_network(network, config)


def reference(w: dict[str, Array], x: Array) -> Array:
    h = x.astype(np.float64)
    for name in ("conv1", "conv2"):
        windows = sliding_window_view(h, (5, 5), axis=(2, 3))
        h = np.einsum("nchwij,ocij->nohw", windows, w[f"{name}.weight"])
        h = np.maximum(h + w[f"{name}.bias"][None, :, None, None], 0)
        n, c, height, width = h.shape
        h = h.reshape(n, c, height // 2, 2, width // 2, 2).mean((3, 5))
    h = h.reshape(1, 400)
    for i, name in enumerate(("fc1", "fc2", "fc3")):
        h = h @ w[f"{name}.weight"].T.astype(np.float64) + w[f"{name}.bias"]
        h = np.maximum(h, 0) if i < 2 else h
    e: Array = np.exp(h - h.max())
    return e / e.sum()


def test_lenet_from_a_weights_file(tmp_path: Path) -> None:
    save_wts(tmp_path / "lenet5.wts", weights())
    log = Log()
    plan = build(load_wts(tmp_path / "lenet5.wts"), log)
    assert log.errors == []
    x = np.random.default_rng(1).random((1, 1, 32, 32)).astype(np.float32)
    y = np.zeros((1, 10), np.float32)
    context = load(plan).create_execution_context()
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    # five layers of float32 sums of up to 400 products, of numbers of the order of 1
    np.testing.assert_allclose(y, reference(weights(), x), rtol=1e-4, atol=1e-6)
