"""Pools with their channels last, as loop nests that go along the channels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from braze.core.dims import Dim, static
from braze.core.dtypes import DType
from braze.expr.loops import LoopKernel, TensorSpec
from braze.fusion.kernel import AnchorKernel
from braze.ir.graph import TensorType
from braze.ops.lowering import ConvSpec, Nest, Operand, PooledSpec
from braze.ops.pool.pool import AveragePool, MaxPool, Pool
from tests.codegen.anchors import harness

FIELDS = ((3, 2), (2, 1), (1, 1), (1, 0, 1, 1))


def pool(dtype: DType, n: Dim, channels: int, mean: bool = False) -> LoopKernel:
    """A pool of pictures of 9 x 7."""
    op: Pool = MaxPool(*FIELDS, layout="NHWC")
    if mean:
        op = AveragePool(*FIELDS, layout="NHWC")
    x = TensorType(dtype, (n, 9, 7, channels))
    out = TensorType(dtype, (n, 5, 7, channels))
    low = op.lower([x], [out])
    assert isinstance(low, Nest)
    return low.kernel


def drawn(dtype: DType, n: int, channels: int) -> np.ndarray:
    """Numbers of either sign; among floats a NaN."""
    values = np.random.default_rng(0).standard_normal((n, 9, 7, channels)) * 40
    x = values.astype(dtype.numpy)
    if dtype.is_float:
        x[0, 3, 3, 1] = np.nan
    return x


def picture(batch: int, high: int, wide: int, columns: int, window: int = 7) -> AnchorKernel:
    """The convolution of pictures whose channels lie apart that networks begin with."""
    pads = (window // 2,) * 4
    kernel = harness.conv(
        batch, high, wide, (3, columns), (window, window), strides=(2, 2), pads=pads
    )
    apart = Operand(0, (3 * high * wide, wide, 1, high * wide))
    data = TensorSpec(kernel.inputs[0].dtype, (batch, 3, high, wide))
    return replace(kernel, spec=replace(kernel.spec, data=apart), inputs=(data, *kernel.inputs[1:]))


def behind(kernel: AnchorKernel) -> AnchorKernel:
    """A convolution with a pool of 3 x 3 by steps of 2 behind it."""
    conv, out = kernel.spec, kernel.output.shape
    assert isinstance(conv, ConvSpec)
    spatial = tuple((d - 1) // 2 + 1 for d in static(out[1:-1]))
    spec = PooledSpec(conv, (3, 3), (2, 2), (1, 1), spatial)
    inputs = tuple(replace(t, shape=spec.out_shape) if t.shape == out else t for t in kernel.inputs)
    output = replace(kernel.output, shape=spec.out_shape)
    return replace(kernel, spec=spec, inputs=inputs, output=output)
