"""Matrix products on the register tile."""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_tactics
from braze.codegen.cpu.backend import CpuBackend
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dims import Dim, sym
from braze.core.dtypes import F32, F64, I32
from braze.fusion.kernel import AnchorKernel
from tests.codegen.anchors import harness
from tests.codegen.anchors.harness import EPILOGUES, check, host_isas, matmul, variants
from tests.pairs import pairwise

M, N, K, B = sym("m"), sym("n"), sym("k"), sym("b")


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize(
    "size",
    [(1, 1, 1), (1, 40, 7), (13, 1, 5), (12, 32, 16), (25, 33, 17), (5, 70, 1), (40, 17, 39)],
)
def test_static_packed_product(isa: str, size: tuple[int, int, int]) -> None:
    check(matmul((), *size), {}, isa, size[2])


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("kind", EPILOGUES)
def test_epilogue(isa: str, kind: str) -> None:
    check(matmul((2,), 7, 21, 9, kind=kind), {}, isa, 9, level=0)
    check(matmul((B,), M, 21, 9, kind=kind), {"b": 2, "m": 13}, isa, 9, level=0)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_right_operand_at_run_time(isa: str, turned: bool, shared: bool) -> None:
    for size in ((3, 19, 21), (33, 40, 18)):
        kernel = matmul((2, 2), *size, shared=shared, constant=False, turned=turned)
        check(kernel, {}, isa, size[2])


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("turned", [False, True])
def test_one_object_serves_all_sizes(isa: str, turned: bool) -> None:
    kernel = matmul((B,), M, N, K, shared=False, constant=False, turned=turned)
    compiled = list(variants(kernel, isa))
    for b, m, n, k in ((1, 1, 1, 1), (2, 5, 33, 20), (1, 30, 16, 7), (3, 12, 50, 0), (1, 4, 0, 3)):
        env = {"b": b, "m": m, "n": n, "k": k}
        inputs = harness.random_inputs(kernel, env)
        other = inputs[1].swapaxes(-1, -2) if turned else inputs[1]
        want = inputs[0].astype(np.float64) @ other
        for code in compiled:
            # sums of at most 20 products of normal values
            np.testing.assert_allclose(code(inputs, env, 2), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("isa", host_isas())
def test_packed_with_symbolic_rows_and_constant_batch(isa: str) -> None:
    check(matmul((), M, 45, 33), {"m": 29}, isa, 33)
    check(matmul((3,), M, 20, 8, shared=False), {"m": 5}, isa, 8)


@pytest.mark.parametrize("isa", host_isas())
def test_float64_is_summed_in_float64(isa: str) -> None:
    kernel = matmul((), 9, 19, 300, dtype=F64)
    inputs = harness.random_inputs(kernel, {})
    for code in variants(kernel, isa):
        # 300 float64 roundings; float32 sums would be off by 1e-5
        np.testing.assert_allclose(code(inputs, {}), inputs[0] @ inputs[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("isa", host_isas())
def test_equal_rows_have_equal_bits(isa: str) -> None:
    for rows in (1, 7, 30):
        kernel = matmul((), rows, 37, 65, kind="exp")
        inputs = harness.random_inputs(kernel, {})
        inputs[0][:] = inputs[0][0]
        for code in variants(kernel, isa):
            out = code(inputs, {}, 2)
            np.testing.assert_array_equal(out, np.broadcast_to(out[0], out.shape))


@pytest.mark.parametrize("isa", host_isas())
def test_special_values_pass_through(isa: str) -> None:
    kernel = matmul((), 3, 5, 4)
    inputs = harness.random_inputs(kernel, {})
    inputs[0][1, 2], inputs[1][0, 4], inputs[1][3, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = inputs[0] @ inputs[1]
    for code in variants(kernel, isa):
        # four products a sum
        np.testing.assert_allclose(code(inputs, {}), want, rtol=1e-5, atol=1e-6)


def test_integers_are_left_to_the_fallback() -> None:
    kernel = matmul((), 4, 4, 4, dtype=I32)
    assert anchor_tactics(kernel, CpuTarget("avx512", 1), EFFORTS[3]) == ()


def test_levels_limit_tactics() -> None:
    kernel = matmul((), 256, 3072, 768)
    counts = [len(anchor_tactics(kernel, CpuTarget("avx512", 2), effort)) for effort in EFFORTS]
    assert counts[0] == 1 and counts == sorted(counts) and counts[3] >= 2
    assert kernel.inputs[0].dtype is F32


@pytest.mark.parametrize(
    ("kernel", "pays"),
    [
        (matmul((), 128, 96, 768), True),
        (matmul((), 128, 96, 3072), True),  # rows copied block by block
        (matmul((), 128, 96, 768, constant=False), False),  # made by a kernel before: in cache
        (matmul((), M, 96, 768), False),
        (matmul((), 1, 96, 768), False),  # one tile would have to fetch a panel a panel
        (matmul((), 4000, 96, 768), False),  # hundreds of tiles wait for a panel once
    ],
)
def test_tiles_fetch_the_next_panel(kernel: AnchorKernel, pays: bool) -> None:
    backend = CpuBackend(CpuTarget("avx512", threads=2))
    for tactic in backend.tactics(kernel, EFFORTS[3]):
        assert ("llvm.prefetch" in backend.listing(kernel, tactic, "ir")) is pays, tactic


def test_copied_rows_fill_half_of_the_second_level() -> None:
    """Each block of them reads all of B: small blocks read it from memory again and again."""
    target, k = CpuTarget("avx512", threads=2), 3072  # a stride at which rows share cache sets
    tactics = anchor_tactics(matmul((), 197, 768, k), target, EFFORTS[3])
    copied = [t for t in tactics if t["a"] == "copy"]
    assert copied
    for t in copied:
        used = int(t["block"]) * int(t["rows"]) * k * 4
        assert t["order"] == "rows"
        assert target.l2_bytes / 4 < used <= target.l2_bytes / 2, t


@pytest.mark.parametrize(
    ("isa", "m", "batches"),
    pairwise(host_isas(), [1, 5, 29, M], [((), True), ((3,), True), ((2, B), False)]),
    ids=str,
)
def test_slices(isa: str, m: Dim, batches: tuple[tuple[Dim, ...], bool]) -> None:
    """Operands that are slices of tensors with longer rows, at places that no vector begins at."""
    batch, shared = batches
    kernel = matmul(batch, m, 21, 19, shared=shared, constant=shared, kind="residual")
    check(harness.inside(kernel, 3), {"m": 13, "b": 2}, isa, 19)
