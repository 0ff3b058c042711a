"""The reference backend against the plainest formulas."""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.reference import run_kernel
from braze.core.dims import sym
from braze.core.dtypes import BF16, F32, I64
from braze.core.errors import ExecutionError
from braze.expr.loops import TensorSpec
from braze.expr.scalar import axis, binary, cast, const, hole, load
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import AttentionSpec, ConvSpec, MatmulSpec, Operand
from tests.codegen.loops.kernels import axes, floats, pointwise, scan, softmax, transpose

N = sym("n")


def test_softmax_and_transpose() -> None:
    x = floats(1, 4, 9)
    e = np.exp(x - x.max(1, keepdims=True))
    (got,) = run_kernel(softmax(N, 9), [x], {"n": 4})
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(run_kernel(transpose(9, N), [x], {"n": 4})[0], x.T)


def test_scans() -> None:
    x = floats(2, 3, 6)
    inclusive = np.cumsum(x, axis=1)
    np.testing.assert_allclose(run_kernel(scan("scan", 3, 6), [x], {})[0], inclusive, rtol=1e-6)
    (got,) = run_kernel(scan("scan_exclusive", 3, 6), [x], {})
    np.testing.assert_allclose(got[:, 1:], inclusive[:, :-1], rtol=1e-6)
    np.testing.assert_array_equal(got[:, 0], 0)


def test_large_nests_are_cut_into_chunks() -> None:
    x = floats(3, 40, 300, 300)
    kernel = pointwise(load(0, axes(0, 1, 2), F32), (40, 300, 300), [(F32, (40, 300, 300))])
    np.testing.assert_array_equal(run_kernel(kernel, [x], {})[0], x)


def test_matmul_with_strides_bias_and_residual() -> None:
    a, b, bias = floats(4, 2, 5, 3), floats(5, 4, 3), floats(6, 4)
    spec = MatmulSpec(
        (2,),
        N,
        4,
        3,
        Operand(0, (N * 3, 3, 1)),
        Operand(1, (0, 1, 3)),
        Operand(0, (N * 4, 4, 1)),
        F32,
    )
    epilogue = binary("max", binary("add", hole(0, F32), load(2, (axis(2),), F32)), const(0, F32))
    inputs = (TensorSpec(F32, (2, N, 3)), TensorSpec(F32, (4, 3)), TensorSpec(F32, (4,)))
    kernel = AnchorKernel(spec, inputs, TensorSpec(F32, (2, N, 4)), epilogue)
    (got,) = run_kernel(kernel, [a, b, bias], {"n": 5}, float64=True)
    np.testing.assert_allclose(got, np.maximum(a @ b.T + bias, 0), rtol=1e-5, atol=1e-6)


def test_convolution_against_loops() -> None:
    x, w = floats(7, 1, 6, 7, 4), floats(8, 6, 2, 3, 2)
    spec = ConvSpec(1, (6, 7), (4, 4), 4, 6, 2, (3, 2), (2, 2), (1, 1), (2, 1, 1, 1), F32)
    inputs = (TensorSpec(F32, (1, 6, 7, 4)), TensorSpec(F32, (6, 2, 3, 2)))
    kernel = AnchorKernel(spec, inputs, TensorSpec(F32, (1, 4, 4, 6)), hole(0, F32))
    (got,) = run_kernel(kernel, [x, w], {}, float64=True)
    padded = np.pad(x, [(0, 0), (2, 1), (1, 1), (0, 0)]).astype(np.float64)
    for i, j, k in np.ndindex(4, 4, 6):
        window = padded[0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2, 2 * (k // 3) : 2 * (k // 3) + 2]
        want = np.sum(window.transpose(2, 0, 1) * w[k])
        assert got[0, i, j, k] == pytest.approx(want, rel=1e-5, abs=1e-6)


def test_causal_attention() -> None:
    q, k, v = (floats(s, 1, 2, 3, 4) for s in (9, 10, 11))
    strides = (24, 12, 4, 1)
    operands = [Operand(s, strides) for s in (0, 1, 2)]
    spec = AttentionSpec(1, 2, 3, 3, 4, 4, 0.5, *operands, Operand(0, strides), F32, causal=True)
    shape = TensorSpec(F32, (1, 2, 3, 4))
    (got,) = run_kernel(AnchorKernel(spec, (shape,) * 3, shape, hole(0, F32)), [q, k, v], {})
    for h in range(2):
        np.testing.assert_allclose(got[0, h, 0], v[0, h, 0], rtol=1e-6)
        weight = np.exp(0.5 * q[0, h, 1] @ k[0, h, :2].T)
        np.testing.assert_allclose(got[0, h, 1], weight @ v[0, h, :2] / weight.sum(), rtol=1e-5)


def test_bfloat16_is_widened_and_rounded() -> None:
    bits = np.array([0x3F80, 0x4049, 0x7FC0], np.uint16).view(BF16.numpy)
    value = cast(binary("mul", cast(load(0, axes(0), BF16), F32), const(3.0, F32)), BF16)
    (got,) = run_kernel(pointwise(value, (3,), [(BF16, (3,))]), [bits], {})
    assert got.view(np.uint16).tolist() == [0x4040, 0x4117, 0x7FC0]


def test_loads_outside_are_errors_unless_unneeded() -> None:
    kernel = pointwise(load(0, (binary("add", axis(0), const(1, I64)),), F32), (3,), [(F32, (3,))])
    with pytest.raises(ExecutionError, match="out of range"):
        run_kernel(kernel, [floats(1, 3)], {})
