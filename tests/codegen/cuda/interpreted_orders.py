"""Selections and suppressions of small sizes, in Triton's interpreter, against the numpy reference.

Run by test_interpreted.py, as interpreted.py is.
"""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.cuda.triton.select import select_source
from braze.codegen.cuda.triton.suppress import suppress_source
from braze.codegen.cuda.triton.tile import Tile
from braze.codegen.reference.run import run_kernel
from braze.core.dims import Dim, evaluate, sym
from braze.core.dtypes import F32, I32, I64, U64, DType
from braze.expr.loops import TensorSpec
from braze.expr.scalar import hole
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import SelectSpec
from tests.codegen.anchors.harness import suppression
from tests.codegen.cuda.interpreter import run

N = sym("n")


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", [F32, I32, U64], ids=str)
@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((3, 40), 1, 7), ((2, N, 3), 1, 5), ((70,), 0, 70)]
)
def test_selections(
    shape: tuple[Dim, ...], axis: int, count: int, dtype: DType, largest: bool
) -> None:
    spec = SelectSpec(shape, axis, count, largest)
    output = TensorSpec(I64, spec.out_shape)
    kernel = AnchorKernel(spec, (TensorSpec(dtype, shape),), output, hole(0, I64))
    env = {"n": 33}
    x = np.random.default_rng(1).integers(0, 9, [evaluate(d, env) for d in shape])
    x = x.astype(dtype.numpy)  # with many equal elements
    if dtype is F32:
        x.reshape(-1)[::5] = np.nan
    (got,), _ = run([select_source(kernel, Tile(16, 32, 16, 4, 1))], [x], [output], env)
    np.testing.assert_array_equal(got, run_kernel(kernel, [x], env)[0])


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize(
    ("sizes", "threshold"),
    [((2, 3, 37, 6), True), ((1, 2, 16, 16), False), ((1, 1, 5, 2), True), ((0, 2, 4, 4), False),
     ((1, 2, 0, 0), True), ((2, 1, 9, 0), False)],
)  # fmt: skip
def test_suppressions(sizes: tuple[int, ...], threshold: bool, centered: bool) -> None:
    """Scores with many ties, NaN and -inf; boxes without an area, turned round and with NaN."""
    kernel = suppression(*(sym(n) for n in "bcnk"), threshold=threshold, centered=centered)
    env = dict(zip("bcnk", sizes, strict=True))
    b, c, n, _ = sizes
    rng = np.random.default_rng(n)
    boxes, scores = rng.random((b, n, 4)), rng.integers(0, 5, (b, n, c + 1)) / 4
    boxes[:, ::7, 2:], boxes[:, 3::11, 1] = boxes[:, ::7, :2], np.nan
    scores[:, ::5], scores[:, 1::6] = np.nan, -np.inf
    for limit in (0.2, -1.0, 0.0):
        inputs = [boxes, scores, np.array([limit]), *[np.array([0.3])] * threshold]
        inputs = [x.astype(np.float32) for x in inputs]
        source = suppress_source(kernel, Tile(16, 1, 1, 4, 1))
        (got,), _ = run([source], inputs, [kernel.output], env)
        np.testing.assert_array_equal(got, run_kernel(kernel, inputs, env)[0])
