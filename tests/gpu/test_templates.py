"""Loop nests and anchors on the GPU, at sizes that leave partial tiles, against numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.driver import find_card
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.target import CudaTarget
from braze.codegen.cuda.triton.nests import nest_sources
from braze.codegen.reference.run import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import Dim, sym
from braze.core.dtypes import BF16, F16, F32, DType
from braze.fusion.kernel import AnchorKernel, Tactic
from tests.codegen.anchors import harness
from tests.codegen.anchors.windows import PADDED, Window, depthwise
from tests.codegen.cuda.bounds import kernel_bound
from tests.codegen.cuda.families import reduces
from tests.codegen.cuda.typed import typed
from tests.codegen.loops.kernels import Case, cases
from tests.gpu.launching import Array, run

M, N, B, Q, S = (sym(n) for n in "mnbqs")


@pytest.mark.parametrize(("rows", "columns"), [(4, 16), (1, 128), (64, 4)])
@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_nests(case: Case, rows: int, columns: int) -> None:
    launches = nest_sources(case.kernel, rows, columns, 4)
    got, status = run(launches, case.inputs, case.kernel.outputs, case.env)
    assert status == 0
    for g, w in zip(got, run_kernel(case.kernel, case.inputs, case.env), strict=True):
        np.testing.assert_allclose(g.astype("f8"), w.astype("f8"), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("case", [c for c in cases() if reduces(c)], ids=lambda c: c.name)
@pytest.mark.parametrize("rows_first", [0, 1])
def test_a_warp_reduces_a_row(case: Case, rows_first: int) -> None:
    launches = nest_sources(case.kernel, 4, 128, 4, 4, rows_first)
    got, status = run(launches, case.inputs, case.kernel.outputs, case.env)
    assert status == 0
    for g, w in zip(got, run_kernel(case.kernel, case.inputs, case.env), strict=True):
        np.testing.assert_allclose(g.astype("f8"), w.astype("f8"), rtol=2e-6, atol=1e-6)


def spread(tactics: Sequence[Tactic]) -> list[Tactic]:
    """Of many tactics the first, half a dozen of the others, and one of every split."""
    found = list(tactics[:: max(1, len(tactics) // 6)])
    of_split = {dict(t.parameters).get("split", 1): t for t in reversed(tactics)}
    return list(dict.fromkeys((*found, *of_split.values())))


def every_tactic(kernel: AnchorKernel, inputs: Sequence[Array], env: dict[str, int]) -> None:
    """Tactics of the highest level are right, and each gives the same bits twice."""
    card = find_card()
    assert card is not None
    backend = CudaBackend(CudaTarget(card.capability, 1))
    (want,) = run_kernel(kernel, inputs, env)
    bound = kernel_bound(kernel, env)
    tactics = backend.tactics(kernel, EFFORTS[5])
    assert tactics
    for tactic in spread(tactics):
        sources = backend.sources(kernel, tactic)
        arrays = list(inputs)
        for slot, packing in sources[0].packings:
            arrays[slot] = pack_constant(arrays[slot], packing)
        first, second = (run(sources, arrays, [kernel.output], env) for _ in range(2))
        assert first[1] == 0, tactic
        np.testing.assert_array_equal(first[0][0], second[0][0], err_msg=str(tactic))
        bound.check(first[0][0], want, str(tactic))


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize("kind", harness.EPILOGUES)
@pytest.mark.parametrize("rows", [M, 200])
def test_products(rows: Dim, kind: str, dtype: DType) -> None:
    if kind == "exp" and dtype is not F32:
        pytest.skip("the results of this epilogue leave the range of 16-bit floats")
    kernel = typed(harness.matmul((), rows, 160, 330, kind=kind), dtype)
    env = {"m": 77}
    every_tactic(kernel, harness.random_inputs(kernel, env), env)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize(
    ("turned", "columns", "depth", "kind"),
    [(False, 45, 331, "residual"), (True, 1003, 2048, "bias"), (False, 512, 5632, "relu")],
)
def test_products_of_one_row(
    turned: bool, columns: int, depth: int, kind: str, dtype: DType
) -> None:
    kernel = typed(harness.matmul((1,), 1, columns, depth, turned=turned, kind=kind), dtype)
    every_tactic(kernel, harness.random_inputs(kernel, {}), {})


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_convolutions_of_one_pixel(dtype: DType) -> None:
    kernel = typed(harness.conv(1, 1, 1, (200, 48), (1, 1), kind="relu"), dtype)
    every_tactic(kernel, harness.random_inputs(kernel, {}), {})


@pytest.mark.parametrize(("shared", "turned"), [(False, True), (True, False)])
def test_batches_of_products(shared: bool, turned: bool) -> None:
    kernel = harness.matmul((2, 3), M, 40, 65, shared=shared, turned=turned, kind="residual")
    env = {"m": 19}
    every_tactic(kernel, harness.random_inputs(kernel, env), env)


@pytest.mark.parametrize(("images", "kind"), [(N, "bias"), (N, "middle"), (2, "residual")], ids=str)
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize(
    "window",
    [
        Window((3, 10), (3, 3), strides=(2, 1), pads=(1, 0, 1, 2)),
        Window((80, 24), (1, 3), 2, dilations=(1, 2), pads=(0, 1, 0, 1)),
        Window((64, 170), (1, 1), strides=(2, 2)),
        PADDED,
        Window((100, 48), (3, 2), dilations=(2, 1), pads=(2, 0, 2, 1)),
    ],
    ids=str,
)
def test_convolutions(window: Window, kind: str, dtype: DType, images: Dim) -> None:
    kernel = typed(window.conv(images, 19, 21, kind), dtype)
    env = {"n": 2}
    every_tactic(kernel, harness.random_inputs(kernel, env), env)


@pytest.mark.parametrize("images", [N, 2])
@pytest.mark.parametrize(
    ("dtype", "kind"), [(F32, "middle"), (F16, "residual"), (BF16, "bias")], ids=str
)
@pytest.mark.parametrize(
    "window",
    [
        depthwise(40, (3, 3), pads=(1, 1, 1, 1)),
        depthwise(96, (7, 7), pads=(3, 3, 3, 3)),
        depthwise(33, (3, 5), strides=(2, 2), dilations=(1, 2), pads=(1, 0, 0, 3)),
    ],
    ids=str,
)
def test_depthwise_windows(window: Window, kind: str, dtype: DType, images: Dim) -> None:
    kernel = typed(window.conv(images, 19, 21, kind), dtype)
    env = {"n": 2}
    every_tactic(kernel, harness.random_inputs(kernel, env), env)


@pytest.mark.parametrize("images", [N, 2])
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize(
    ("channels", "groups", "taps", "strides", "pads"),
    [
        ((4, 4), 4, (3, 3, 3), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
        ((17, 17), 17, (3, 3, 3), (2, 3, 2), (1, 0, 1, 1, 0, 1)),
        ((3, 4), 1, (2, 2, 2), (1, 1, 1), (0, 1, 0, 1, 0, 1)),
        ((6, 40), 2, (3, 1, 3), (1, 2, 1), (1, 0, 1, 1, 0, 1)),
    ],
)
def test_windows_over_three_axes(
    channels: tuple[int, int], groups: int, taps: tuple[int, ...], strides: tuple[int, ...],
    pads: tuple[int, ...], dtype: DType, images: Dim,
) -> None:  # fmt: skip
    """Their indices are small numbers of several parts, which compilers make 16 bits of."""
    kernel = typed(
        harness.conv3d(images, (8, 9, 5), channels, taps, strides, pads, groups, "relu"), dtype
    )
    env = {"n": 2}
    every_tactic(kernel, harness.random_inputs(kernel, env), env)


@pytest.mark.parametrize(
    ("dtype", "kind"), [(F32, "relu"), (F16, "residual"), (BF16, "relu")], ids=str
)
@pytest.mark.parametrize(
    "window",
    [
        Window((3, 40), (7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
        Window((4, 40), (3, 2), strides=(2, 2), pads=(0, 1, 1, 0)),
        Window((3, 40), (4, 4), strides=(4, 4)),
        Window((3, 40), (16, 16), strides=(16, 16)),
    ],
    ids=str,
)
def test_stems(window: Window, kind: str, dtype: DType) -> None:
    kernel = typed(window.conv(2, 48, 65, kind), dtype)
    every_tactic(kernel, harness.random_inputs(kernel, {}), {})


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "keys", "full"])
@pytest.mark.parametrize(
    "sizes",
    [(1, 2, 6, 10, 8, 8), (2, 3, 170, 330, 20, 12), (B, 2, Q, S, 64, 64), (1, 1, 9, 4, 8, 8)],
)
def test_attention(
    sizes: tuple[Dim, Dim, Dim, Dim, int, int], mask: str, causal: bool, dtype: DType
) -> None:
    kernel = typed(harness.attention(sizes, causal=causal, mask=mask), dtype)
    env = {"b": 2, "q": 50, "s": 210}
    every_tactic(kernel, harness.random_inputs(kernel, env), env)
