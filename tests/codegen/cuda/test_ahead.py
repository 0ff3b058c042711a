"""Products of few rows ask for their weights before they wait; short launches let them start."""

from __future__ import annotations

import pytest

from braze.codegen.cuda.triton.ahead import fetches_ahead
from braze.codegen.cuda.triton.attention import attention_source
from braze.codegen.cuda.triton.matmul import matmul_source
from braze.codegen.cuda.triton.nests import nest_sources
from braze.codegen.cuda.triton.source import RELEASE, WAIT, is_short
from braze.codegen.cuda.triton.tile import Tile
from braze.core.dims import sym
from braze.core.dtypes import F16
from braze.fusion.kernel import AnchorKernel
from tests.codegen.anchors import harness
from tests.codegen.cuda.typed import typed
from tests.codegen.loops.kernels import cases

pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
M = sym("m")
FEW = typed(harness.matmul((1,), 1, 1024, 512, kind="residual"), F16)


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_weights_are_asked_for_first(turned: bool, split: int) -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    kernel = typed(harness.matmul((), 2, 1024, 512, turned=turned, kind="bias"), F16)
    assert fetches_ahead(kernel)
    source = matmul_source(kernel, Tile(16, 32, 64, 2, 4, split=split))
    lines = [line.strip() for line in source.text.splitlines()]
    assert lines.count(WAIT) == 1 and lines[lines.index(WAIT) + 1] == RELEASE
    before = "\n".join(lines[: lines.index(WAIT)])
    assert "fetch_ahead(" in before and "tl.load" not in before and "tl.store" not in before
    ptx = compile_source(source, 90).asm["ptx"]
    assert 0 < ptx.index("prefetch.global.L2") < ptx.index("griddepcontrol.wait")
    assert "prefetch" not in compile_source(source, 80).asm["ptx"]


@pytest.mark.parametrize(
    "kernel",
    [
        typed(harness.matmul((), 17, 1024, 512), F16),
        typed(harness.matmul((17,), 1, 1024, 512), F16),
        typed(harness.matmul((), M, 1024, 512), F16),
        typed(harness.matmul((), 1, 256, 128), F16),
        typed(harness.matmul((), 1, 1024, 512, constant=False), F16),
        typed(harness.matmul((2,), 1, 1024, 512, shared=False), F16),
        typed(harness.conv(1, 8, 8, (512, 1024), (1, 1)), F16),
    ],
    ids=["rows", "batches", "unknown", "small", "data", "several", "convolution"],
)
def test_others_wait_first(kernel: AnchorKernel) -> None:
    assert fetches_ahead(FEW) and not fetches_ahead(kernel)


def test_short_launches_release_at_once() -> None:
    assert is_short(132, 1 << 15) and is_short(1, 1)
    assert not is_short(133, 1) and not is_short(1, (1 << 15) + 1)
    assert not is_short(M, 1) and not is_short(1, M)
    (case,) = [c for c in cases() if c.name == "softmax-static"]
    (short,) = nest_sources(case.kernel, 4, 64, 4)
    lines = [line.strip() for line in short.text.splitlines()]
    assert lines[lines.index(WAIT) + 1] == RELEASE and lines.count(RELEASE) == 1
    few, many = (typed(harness.attention((1, 8, rows, 500, 64, 64)), F16) for rows in (4, 500))
    for kernel, at_once in ((few, True), (many, False)):
        lines = [
            x.strip() for x in attention_source(kernel, Tile(16, 64, 0, 4, 2)).text.splitlines()
        ]
        assert (lines[lines.index(WAIT) + 1] == RELEASE) is at_once
