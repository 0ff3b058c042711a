"""Products and convolutions of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.contributed.peer import compare, feeds_of, node_model, rounded, run_peer, widened
from tests.pairs import pairwise

DTYPES = ["float32", "float16", "bfloat16"]
CONV_ACTIVATIONS: list[dict[str, Any]] = [
    {}, {"activation": "Relu"}, {"activation": "Tanh"}, {"activation": "Sigmoid"},
    {"activation": "LeakyRelu", "activation_params": [0.3]},
    {"activation": "Clip", "activation_params": [-0.25, 0.5]},
    {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
]  # fmt: skip
GEMM_ACTIVATIONS: list[dict[str, Any]] = [
    {"activation": "Relu"}, {"activation": "Sigmoid"}, {"activation": "Tanh"},
    {"activation": "Softplus"}, {"activation": "Softsign"},
    {"activation": "LeakyRelu", "activation_alpha": 0.2},
    {"activation": "Elu", "activation_alpha": 0.7},
    {"activation": "Celu", "activation_alpha": 0.7},
    {"activation": "ThresholdedRelu", "activation_alpha": 0.4},
    {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    {"activation": "Selu", "activation_alpha": 1.5, "activation_gamma": 1.1},
]  # fmt: skip


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f4")


@pytest.mark.parametrize(
    ("attributes", "bias", "residual"),
    pairwise(CONV_ACTIVATIONS, [False, True], [False, True]),
)
def test_fused_conv(bias: bool, residual: bool, attributes: dict[str, Any]) -> None:
    x, w = numbers(2, 4, 6, 5), numbers(6, 2, 3, 3, seed=1) / 3
    b = numbers(6, seed=2) if bias else None
    z = numbers(2, 6, 6, 5, seed=3) if residual else None
    inputs = [x, w, b, z] if residual else [x, w, b]
    where = {"pads": [1, 1, 1, 1], "group": 2, "kernel_shape": [3, 3]}
    compare("FusedConv", inputs, constant=[1], symbols={0: (0,)} if not residual else None,
            **where, **attributes)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_channels_last_conv(op: str, dtype: str) -> None:
    """Against Conv between Transposes: onnxruntime has no kernel of these for float32."""
    x, w, b = (rounded(a, dtype) for a in (numbers(2, 7, 6, 4), numbers(6, 4, 3, 3, seed=1) / 3,
                                           numbers(6, seed=2)))  # fmt: skip
    given = [widened(a) for a in (np.moveaxis(x, -1, 1), w, b)]
    plain = node_model("Conv", given, domain="", strides=[2, 1], pads=[1, 0, 1, 2])
    (y,) = run_peer(plain, feeds_of(given))
    fused = {"activation": "Relu"} if op == "NhwcFusedConv" else {}
    want = np.moveaxis(np.maximum(y, 0) if fused else y, 1, -1)
    compare(op, [x, w, b], dtype, constant=[1, 2], want=[want], tolerance=2, strides=[2, 1],
            pads=[1, 0, 1, 2], **fused)  # fmt: skip


@pytest.mark.parametrize("channels", [4, 3])
@pytest.mark.parametrize("attributes", [{}, {"kernel_shape": [3, 3]}, {"group": 1}])
def test_weights_of_the_optimizer_have_channels_last(
    channels: int, attributes: dict[str, Any]
) -> None:
    """[M, kernel, C], against the text of the op; of 3 channels and a kernel of 3 both fit."""
    x, w = numbers(2, 7, 6, channels), numbers(5, channels, 3, 3, seed=1) / 3
    given = [np.moveaxis(x, -1, 1), w]
    plain = node_model("Conv", given, domain="", pads=[1] * 4)
    want = np.moveaxis(run_peer(plain, feeds_of(given))[0], 1, -1)
    compare("NhwcConv", [x, np.moveaxis(w, 1, -1)], constant=[1], want=[want], tolerance=2,
            pads=[1] * 4, **attributes)  # fmt: skip


@pytest.mark.parametrize("attributes", GEMM_ACTIVATIONS)
def test_fused_gemm_activations(attributes: dict[str, Any]) -> None:
    compare("FusedGemm", [numbers(5, 7), numbers(7, 4, seed=1), numbers(4, seed=2)], **attributes)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_gemm(trans: tuple[int, int], dtype: str) -> None:
    a, b = numbers(*((7, 5) if trans[0] else (5, 7))), numbers(*((4, 7) if trans[1] else (7, 4)))
    compare("FusedGemm", [a, b, numbers(5, 1, seed=2)], dtype, constant=[1], transA=trans[0],
            transB=trans[1], alpha=0.5, beta=2.0, activation="Relu", tolerance=2)  # fmt: skip


# (shape of A, of B, attributes)
PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((3, 4), (4, 5), {}), ((3, 4), (4, 5), {"alpha": -0.5}), ((4, 3), (4, 5), {"transA": 1}),
    ((3, 4), (5, 4), {"transB": 1}), ((2, 3, 4), (2, 5, 4), {"transB": 1, "alpha": 0.125}),
    ((2, 3, 4, 6), (2, 3, 6, 5), {}), ((2, 4, 3), (4, 5), {"transA": 1}),
    ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}), ((2, 3, 4), (4, 2, 5), {"transBatchB": 1}),
    ((4, 2, 3), (2, 4, 5), {"transBatchA": 1, "transA": 1}),
    ((3, 2, 6, 4), (2, 6, 4, 5), {"transBatchA": 1}),
    ((2, 6, 3, 4), (5, 2, 6, 4), {"transBatchB": 1, "transB": 1}),
    ((4,), (4, 5), {}), ((3, 4), (4,), {"alpha": 2.0}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("a", "b", "attributes"), PRODUCTS)
def test_fused_matmul(
    a: tuple[int, ...], b: tuple[int, ...], attributes: dict[str, Any], dtype: str
) -> None:
    compare("FusedMatMul", [numbers(*a), numbers(*b, seed=1)], dtype, tolerance=2, **attributes)


def test_products_of_dynamic_sizes() -> None:
    a, b = numbers(2, 3, 4), numbers(2, 5, 4, seed=1)
    compare("FusedMatMul", [a, b], symbols={0: (1,), 1: (1,)}, transB=1, alpha=0.5)
    compare("TransposeMatMul", [a, b], transB=1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_add_and_bias_split_gelu(dtype: str) -> None:
    """Against numpy: onnxruntime has them for GPUs only."""
    x, bias, skip = numbers(2, 3, 8), numbers(8, seed=1), numbers(2, 3, 8, seed=2)
    r = [widened(rounded(a, dtype)) for a in (x, bias, skip)]
    compare("BiasAdd", [x, bias, skip], dtype, want=[r[0] + r[1] + r[2]])
    h = r[0] + r[1]
    given = [np.ascontiguousarray(h[..., 4:])]
    (gelu,) = run_peer(node_model("Gelu", given), feeds_of(given))
    compare("BiasSplitGelu", [x, bias], dtype, want=[h[..., :4] * gelu], symbols={0: (0, 1)})


@pytest.mark.parametrize(
    ("mode", "padding", "align"),
    pairwise(["bilinear", "nearest", "bicubic"], ["zeros", "border", "reflection"], [0, 1]),
)
def test_grid_sample(mode: str, padding: str, align: int) -> None:
    x, grid = numbers(2, 3, 5, 6), numbers(2, 4, 3, 2, seed=1) * 1.3
    compare("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=align,
            tolerance=4)  # fmt: skip


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "why"),
    [
        ("FusedConv", [numbers(1, 2, 4, 4), numbers(2, 2, 3, 3)], {"activation": "Gelu"}, "'Gelu'"),
        ("FusedMatMul", [numbers(3, 4), numbers(5, 4)], {}, "sizes 4 and 5"),
        ("BiasSplitGelu", [numbers(2, 3, 5), numbers(5)], {}, "must be fixed and even"),
        ("BiasAdd", [numbers(2, 3, 5), numbers(4), numbers(2, 3, 5)], {}, "vector of 5"),
        ("NhwcConv", [numbers(1, 4, 4, 3), numbers(2, 2, 3, 5)], {}, "needs 2 input channels"),
        ("FusedGemm", [numbers(3, 4), numbers(4, 5)], {"activation": "Erf"}, "'Erf' is not one"),
    ],
)
def test_what_does_not_fit_is_refused(
    op: str, inputs: list[Any], attributes: dict[str, Any], why: str
) -> None:
    with pytest.raises(BrazeError, match=why):
        import_network(node_model(op, inputs, **attributes))
