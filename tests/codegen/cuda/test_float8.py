"""Products of 8-bit floats on GPUs: who takes them, quotients by known scales, cubins.

interpreted.py has the results of Triton's templates, tests/gpu/test_float8.py those on a card.
"""

from __future__ import annotations

import numpy as np
import pytest

from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.gluon.layout import GluonTile, gluon_tactic, gluon_tile
from braze.codegen.cuda.gluon.product import gluon_source, job_of
from braze.codegen.cuda.target import CudaTarget
from braze.codegen.cuda.triton.bytes import between_codes, inverse
from braze.core.config import EFFORTS
from braze.core.dtypes import F8E4M3FN, F8E4M3FNUZ, F8E5M2, F16, DType
from braze.fusion.kernel import AnchorKernel
from tests.codegen.anchors import harness
from tests.codegen.cuda.bytes import float8
from tests.codegen.cuda.typed import typed
from tests.pairs import pairwise

PRODUCT = harness.matmul((), 4096, 768, 768)


def backend(capability: str) -> CudaBackend:
    return CudaBackend(CudaTarget(capability, 1))


@pytest.mark.parametrize("capability", ["sm_80", "sm_86", "sm_89", "sm_90"])
def test_which_cards_take_them(capability: str) -> None:
    for element in (F8E4M3FN, F8E5M2):
        kernel = float8(PRODUCT, element=element)
        refusal = backend(capability).supports(kernel.spec, kernel.inputs, kernel.constant)
        assert (refusal is None) == (capability in ("sm_89", "sm_90"))
        tactics = backend(capability).tactics(kernel, EFFORTS[3])
        templates = {t.template for t in tactics}
        expected = {"sm_89": {"matmul"}, "sm_90": {"matmul", "gluon"}}
        assert templates == expected.get(capability, set())


def test_near_misses() -> None:
    def refusal(kernel: AnchorKernel) -> str | None:
        return backend("sm_90").supports(kernel.spec, kernel.inputs, kernel.constant)

    assert refusal(float8(PRODUCT, element=F8E4M3FNUZ)) is not None
    assert refusal(float8(harness.conv(1, 8, 8, (64, 64), (1, 1)))) is not None
    assert refusal(float8(PRODUCT)) is None


def test_quotients_fall_between_the_same_codes() -> None:
    rng, found = np.random.default_rng(0), 0
    for scale in (*rng.uniform(1e-3, 1, 60).astype(np.float32), np.float32(0.25)):
        parts = inverse(float(scale), between_codes())
        if parts is None:
            continue
        found += 1
        size = np.exp2(rng.uniform(-12, 9, 20000)) * rng.choice([-1, 1], 20000)
        x = (size * scale).astype(np.float32)
        x = np.concatenate([x, np.array(between_codes(), np.float32) * scale])
        first, second = (np.float32(p) for p in parts)
        got = x.astype("f8") * float(first) + (x * second).astype("f8")
        kind = F8E4M3FN.numpy
        codes = got.astype(np.float32).astype(kind).view(np.uint8)
        np.testing.assert_array_equal(codes, (x / scale).astype(kind).view(np.uint8), str(scale))
    assert found > 30


@pytest.mark.parametrize(
    ("kind", "tile", "element"),
    pairwise(
        ["sums", "codes", "halves"],
        [GluonTile(64, 128, 4, 3, 0), GluonTile(64, 64, 4, 8, 2), GluonTile(64, 192, 4, 6, 2)],
        [F8E4M3FN, F8E5M2],
    ),
)
def test_forms_compile(kind: str, tile: GluonTile, element: DType) -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
    kernel = float8(harness.matmul((), 200, 160, 336), kind, element)
    ptx = compile_source(gluon_source(kernel, tile), 90).asm["ptx"]
    name = "e4m3" if element is F8E4M3FN else "e5m2"
    assert f".f32.{name}.{name}" in ptx
    assert ("cvt.rn.satfinite.e4m3x2.f32" in ptx) == (kind == "codes")


def test_templates_of_triton_compile() -> None:
    from braze.codegen.cuda.triton.cubin import compile_cubin

    pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
    kernel = float8(harness.matmul((), 70, 72, 144), "codes")
    for capability in (89, 90):
        target = backend(f"sm_{capability}")
        tactic = next(t for t in target.tactics(kernel, EFFORTS[2]) if t.template == "matmul")
        for source in target.sources(kernel, tactic):
            assert compile_cubin(source, capability).code


@pytest.mark.parametrize(
    ("depth", "lift", "expected"), [(768, 1, 1), (768, 2, 2), (768, 4, 2), (640, 2, 1), (768, 0, 6)]
)
def test_sums_go_on_in_float32(depth: int, lift: int, expected: int) -> None:
    """After a number of steps that divides all of them."""
    plain, tile = harness.matmul((), 64, 64, depth), GluonTile(64, 64, 4, 4, 0, lift=lift)
    assert job_of(float8(plain), tile).lift == expected
    assert job_of(typed(plain, F16), tile).lift == 0
    assert gluon_tile(gluon_tactic(tile)) == tile
