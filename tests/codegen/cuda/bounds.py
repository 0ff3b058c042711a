"""How far a kernel's result may lie from the reference: what its roundings explain, and no more.

Operands are the same numbers on both sides, sums are float32 on both, and each side rounds its
result once. So they differ by one unit of the output's type where the two sums lie on either side
of a boundary, and by how the sums differ: a partial sum of k products of normal values has the size
sqrt(k), each addition rounds it, and the roundings add up like a random walk to k 2**-24 / sqrt(2).
Tensor cores cut off instead of rounding and keep few bits more than float32 has, which costs some
times as much: 8 times are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.core.dims import evaluate
from braze.core.dtypes import BF16, F16, F32, DType
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import AttentionSpec, ConvSpec, MatmulSpec

Array = np.ndarray[Any, Any]
DIGITS: Final = {F16: 11, BF16: 8}
ADDITION: Final = 8 * 2.0**-24
# float32 operands: three passes of TF32 leave out the product of the rests, 2**-22 of each product
SINGLE: Final = 1e-4
SMALLEST: Final = 2.0**-24  # a unit of float16 below its normal numbers
LARGEST: Final = 5.0  # of the normal values that a sum is multiplied by, or that are averaged


@dataclass(frozen=True)
class Bound:
    """|got - want| <= absolute + relative |want|."""

    relative: float
    absolute: float

    def check(
        self, got: Array, want: Array, message: str = "", rounded: Array | None = None
    ) -> None:
        """rounded: what is rounded on the way to `want`, element by element: half a unit more."""
        got, want = got.astype("f8"), want.astype("f8")
        if rounded is not None:
            half = self.relative / 2 * np.abs(rounded.astype("f8"))
            with np.errstate(invalid="ignore"):
                off = got - want
                nearer = np.where(np.abs(off) <= half, want, got - half * np.sign(off))
            # infinities and NaN stay what they are
            got = np.where(np.isfinite(off) & np.isfinite(half), nearer, got)
        np.testing.assert_allclose(
            got, want, rtol=self.relative, atol=self.absolute, err_msg=message
        )


def bound(
    dtype: DType, depth: int, *, factor: float = 1.0, inner: float = 0.0, roundings: int = 1
) -> Bound:
    """For results of this type, each a sum of `depth` products of normal values.

    factor: the largest number that multiplies the sum afterwards. inner: of values that are rounded
    to `dtype` on the way and then summed, the largest sum of their sizes: each may be off by a
    unit. roundings: of one value after another to `dtype`.
    """
    if dtype is F32:
        return Bound(SINGLE, SINGLE)
    unit = 2.0 ** (1 - DIGITS[dtype])
    return Bound(unit * roundings, depth * ADDITION * factor + unit * inner + SMALLEST)


def kernel_bound(
    kernel: AnchorKernel, env: Mapping[str, int], *, inner: float = 0.0, roundings: int = 1
) -> Bound:
    """Of a kernel of tests.codegen.anchors on its random inputs, at these sizes."""
    spec, factor = kernel.spec, LARGEST
    if isinstance(spec, AttentionSpec):
        depth = evaluate(spec.head_dim, env) + evaluate(spec.kv_len, env)
        inner, factor = inner + LARGEST, 1.0  # the weights of the average are rounded
    elif isinstance(spec, ConvSpec):
        depth = spec.in_channels // spec.groups * math.prod(spec.kernel)
    else:
        assert isinstance(spec, MatmulSpec)
        depth = evaluate(spec.k, env)
    return bound(kernel.output.dtype, depth, factor=factor, inner=inner, roundings=roundings)
