"""`Op.permuted`: op(T(x)) is the Transpose of op'(x), for every op that says so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from braze.core.dtypes import F32, from_numpy
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.base import Op
from braze.ops.move.concat_split import Split
from braze.ops.move.shape import Expand, Reshape, Tile
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.norm.batch_norm import BatchNorm
from braze.ops.norm.channel_norm import GroupNorm, InstanceNorm
from braze.ops.norm.local_norm import LpNormalize, Lrn
from braze.ops.norm.normalization import LayerNorm, RmsNorm
from braze.ops.pointwise.activation import Relu
from braze.ops.pool.pool import AveragePool, MaxPool
from braze.ops.product.conv import Conv
from braze.ops.reduce.reduce import ArgReduce, Reduce
from braze.ops.reduce.scan import Cumulative
from braze.ops.reduce.softmax import Hardmax, Softmax
from braze.ops.sample.resize import Resize

SHAPE = (2, 4, 3, 6)  # of T(x), which the op reads
OPS = [
    *(Reduce("sum", a, k) for a in ((1,), (0, 3), (0, 1, 2, 3)) for k in (True, False)),
    *(ArgReduce("max", a, k) for a in (0, 2) for k in (True, False)),
    Softmax(1), Softmax(3, log=True), Hardmax(2), LpNormalize(1, 2), Cumulative("sum", 2),
    Slice((1, 0, 0, 1), (1, 4, 2, 2), (1, 1, 1, 3)), Tile((1, 2, 1, 3)), Expand((5, *SHAPE)),
    Pad("constant", (0, 1, 0, 2), (1, 0, 0, 3), 7.0), Pad("reflect", (0, 1, 0, 2), (1, 0, 0, 3)),
    Split(1, (1, 3)), Resize("linear", (2, 4, 6, 3), (1.0, 1.0, 2.0, 0.5)),
    Reshape((2, 4, 18)), Reshape((8, 18)), Reshape((2, 4, 1, 3, 6)), Reshape((2, 2, 2, 3, 6)),
    LayerNorm(3, 1e-3), LayerNorm(2, 1e-3), RmsNorm(3, 1e-3),
    MaxPool((2, 2), (1, 1), (1, 1), (0, 0, 0, 0)),
    AveragePool((2, 2), (1, 1), (1, 1), (0, 0, 0, 0)),
    Conv((1, 1), (1, 1), (0, 0, 0, 0)), Lrn(3, 1e-2, 0.5, 1.0), GroupNorm(2, 1e-3),
    InstanceNorm(1e-3), BatchNorm(1e-3),
]  # fmt: skip


def others(op: Op) -> list[np.ndarray]:
    """The operands after the first."""
    rng = np.random.default_rng(1)
    if isinstance(op, Conv):
        return [rng.standard_normal((5, 4, 1, 1)).astype(np.float32)]
    if isinstance(op, BatchNorm):
        return [rng.uniform(1, 2, 4).astype(np.float32) for _ in range(4)]
    if isinstance(op, (GroupNorm, InstanceNorm)):
        return [rng.uniform(1, 2, 4).astype(np.float32) for _ in range(2)]
    if isinstance(op, LayerNorm):
        return [np.full(SHAPE[op.axis :], 1.5, np.float32)] * 2
    return [np.full(SHAPE[op.axis :], 1.5, np.float32)] if isinstance(op, RmsNorm) else []


def outputs(op: Op, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Results in the types that are inferred, so that both agree with each other too."""
    g = GraphBuilder()
    types = [TensorType(from_numpy(a.dtype), a.shape) for a in arrays]
    inferred = op.infer(types, g)
    results = [np.asarray(r) for r in op.reference(*arrays)]
    for t, r in zip(inferred, results, strict=True):
        assert t == TensorType(from_numpy(r.dtype), r.shape)
    return results


@pytest.mark.parametrize("op", OPS, ids=str)
def test_the_permuted_op_gives_the_transposed_result(op: Op) -> None:
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    want = outputs(op, [x, *others(op)])
    applied = 0
    for perm in itertools.permutations(range(4)):
        found = op.permuted(perm, TensorType(F32, SHAPE), len(want))
        if found is None:
            continue
        applied += 1
        moved, result = found
        source = np.ascontiguousarray(x.transpose(np.argsort(perm)))
        got = outputs(moved, [source, *others(op)])
        for a, b in zip(got, want, strict=True):
            # a sum runs over the same numbers in another order
            np.testing.assert_allclose(a.transpose(result), b, rtol=2e-6, atol=2e-6)
    # the identity is always among them where there is any; layouts know one permutation
    assert applied >= 1


def test_near_misses() -> None:
    t = TensorType(F32, SHAPE)
    nchw_of_nhwc, other = (0, 3, 1, 2), (0, 1, 3, 2)
    pool = MaxPool((2, 2), (1, 1), (1, 1), (0, 0, 0, 0))
    assert pool.permuted(nchw_of_nhwc, t, 1) is not None
    assert pool.permuted(other, t, 1) is None
    assert pool.permuted(nchw_of_nhwc, t, 2) is None  # its indices count in NCHW order
    assert (
        MaxPool((2, 2), (1, 1), (1, 1), (0, 0, 0, 0), layout="NHWC").permuted(nchw_of_nhwc, t, 1)
        is None
    )
    assert LayerNorm(2, 1e-3).permuted(other, t, 1) is None
    assert LayerNorm(3, 1e-3, statistics=True).permuted((1, 0, 2, 3), t, 3) is None
    assert Reshape((8, 18)).permuted((0, 2, 1, 3), t, 1) is None
    assert Relu().permuted(other, t, 1) is None  # elementwise ops are found by their lowering
