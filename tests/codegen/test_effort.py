"""What each optimization level offers: one table, and levels that differ as their names say."""

from __future__ import annotations

import pytest

from braze.codegen.cpu.backend import CpuBackend
from braze.codegen.cpu.target import ISAS, CpuTarget
from braze.core.config import EFFORTS
from braze.core.dtypes import F32
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, load
from braze.fusion.kernel import Kernel, Tactic
from tests.codegen.anchors.harness import attention, conv, matmul

ANCHORS = {
    "product": matmul((), 256, 512, 768),
    "small product": matmul((), 3, 5, 7),
    "convolution": conv(1, 30, 30, (64, 64), (3, 3)),
    "depthwise": conv(1, 14, 14, (64, 64), (3, 3), groups=64),
    "attention": attention((1, 4, 64, 64, 32, 32)),
}


def transpose() -> LoopKernel:
    here = axis(0), axis(1)
    nest = LoopNest((64, 64), (), (), (Store(0, here, load(0, here[::-1], F32)),))
    spec = TensorSpec(F32, (64, 64))
    return LoopKernel((spec,), (spec,), (nest,))


def offered(kernel: Kernel, level: int, isa: str = "avx512") -> tuple[Tactic, ...]:
    return CpuBackend(CpuTarget(isa, 2)).tactics(kernel, EFFORTS[level])


def tile(tactic: Tactic) -> int:
    """Registers' worth of sums."""
    names = ("width", "vectors") if tactic.template == "depthwise" else ("rows", "vectors")
    return int(tactic[names[0]]) * int(tactic[names[1]])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ANCHORS)
def test_level_1_takes_one_small_tile(name: str, isa: str) -> None:
    for level in (0, 1):
        (tactic,) = offered(ANCHORS[name], level, isa)
        assert tile(tactic) <= 8 and tactic.template != "winograd"


def test_level_2_takes_what_the_cost_model_likes() -> None:
    large = [name for name in ANCHORS if name != "small product"]
    for name in large:
        (estimated,) = offered(ANCHORS[name], 2)
        (simple,) = offered(ANCHORS[name], 1)
        assert estimated != simple
    assert offered(ANCHORS["convolution"], 2)[0].template == "winograd"
    assert tile(offered(ANCHORS["product"], 2)[0]) > 8


def test_loops_that_transpose_have_a_template_of_their_own_from_level_2_on() -> None:
    templates = [offered(transpose(), level)[0].template for level in range(6)]
    assert templates == ["loops", "loops", *["tiles"] * 4]


@pytest.mark.parametrize("name", [*ANCHORS, "transpose"])
def test_higher_levels_offer_more(name: str) -> None:
    kernel = transpose() if name == "transpose" else ANCHORS[name]
    counts = [len(offered(kernel, level)) for level in range(6)]
    assert counts[:3] == [1, 1, 1] and counts == sorted(counts)
    assert offered(kernel, 3)[0] == offered(kernel, 2)[0]  # the estimate is what is tried first


def test_only_levels_that_measure_offer_a_choice() -> None:
    for effort in EFFORTS:
        assert effort.measure == (effort.tactics > 1) == (effort.loop_slack > 1)
        assert effort.estimate or not effort.measure
