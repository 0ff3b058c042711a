"""How float32 operands are multiplied, by the precision asked for."""

from __future__ import annotations

import pytest

from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.target import CudaTarget
from braze.core.config import BuildConfig
from braze.core.dtypes import BF16, F16, DType
from braze.fusion.kernel import AnchorKernel
from tests.codegen.anchors import harness
from tests.codegen.cuda.typed import typed

pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
BACKEND = CudaBackend(CudaTarget("sm_90", 1))
KERNELS = {
    "product": harness.matmul((), 64, 64, 64),
    "convolution": harness.conv(1, 9, 9, (64, 32), (3, 3)),
    "attention": harness.attention((1, 2, 64, 64, 32, 32)),
}


def precisions(kernel: AnchorKernel, precision: str, level: int) -> set[str]:
    effort = BuildConfig(precision=precision, optimization_level=level).effort
    tactics = BACKEND.tactics(kernel, effort)
    return {str(dict(t.parameters).get("precision", "ieee")) for t in tactics}


@pytest.mark.parametrize("level", [1, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_tf32_is_for_those_who_ask(name: str, level: int) -> None:
    assert precisions(KERNELS[name], "tf32", level) == {"tf32"}
    assert "tf32" not in precisions(KERNELS[name], "fp32", level)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_other_types_do_not_change(name: str, dtype: DType) -> None:
    kernel = typed(KERNELS[name], dtype)
    assert precisions(kernel, "tf32", 3) == precisions(kernel, "fp32", 3) == {"ieee"}


@pytest.mark.parametrize(("precision", "passes"), [("tf32", 1), ("fp32", 3)])
def test_code_rounds_in_one_pass_or_takes_three(precision: str, passes: int) -> None:
    effort = BuildConfig(precision=precision, optimization_level=2).effort
    kernel = harness.matmul((), 64, 64, 32)
    (tactic,) = BACKEND.tactics(kernel, effort)
    text = BACKEND.listing(kernel, tactic, "asm")
    assert ("tf32" in text) and (tactic["precision"] == ("tf32" if passes == 1 else "tf32x3"))


@pytest.mark.parametrize("name", KERNELS)
def test_operands_are_rounded_to_the_nearest(name: str) -> None:
    """Not cut off, as the hardware does it."""
    for precision in ("tf32", "fp32"):
        effort = BuildConfig(precision=precision, optimization_level=2).effort
        tactic = BACKEND.tactics(KERNELS[name], effort)[0]
        text = BACKEND.listing(KERNELS[name], tactic, "ir")
        assert ("to_tf32(" in text) is (precision == "tf32")
        if precision == "tf32":
            assert "cvt.rna.tf32.f32" in BACKEND.listing(KERNELS[name], tactic, "asm")
