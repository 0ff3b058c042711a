"""Tactics check each other: what is rounding, what is wrong, and who is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.codegen.anchors import harness
from tests.tuning.test_select import Spy, kernels

from braze.codegen.reference.run import run_kernel
from braze.core.config import EFFORTS
from braze.core.dtypes import BF16, F16, F32, I8, I32, DType
from braze.core.trace import Trace
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, cast, const, hole
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Kernel, Tactic
from braze.tuning.agreement import EXACT, RARE, WIDEST, Bound, bound, computed, disagreeing
from braze.tuning.select import Launch, Tuner, fastest
from braze.tuning.timing_cache import TimingCache

Array = np.ndarray[Any, Any]
CLOSE = Bound(1e-3, 1, RARE)


def product(k: int, dtype: DType = F32) -> AnchorKernel:
    return harness.matmul((), 64, 48, k, dtype=dtype)


def numbers(count: int = 4000) -> Array:
    return np.random.default_rng(3).standard_normal(count).astype(np.float32)


def nobody() -> None:
    return None


def test_rounding_is_within_bounds_and_a_wrong_row_is_not() -> None:
    """Of real products: sums in other orders, factors of 11 bits, results of 11 and 8."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((64, 1152), (1152, 48)))
    right, wide = (a.astype(np.float64) @ b).astype(np.float32), (a[::-1, ::-1] @ b[::-1])[::-1]
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b)]
    for dtype, tf32, others in (
        (F32, False, [wide]), (F32, True, [wide, cut[0] @ cut[1]]),
        (F16, False, [wide, right.astype(np.float16) * np.float16(1)]),
        (BF16, False, [right.astype(BF16.numpy)]),
    ):  # fmt: skip
        limit = bound(product(1152, dtype), {}, tf32)
        made = [[right.astype(dtype.numpy)], *([o.astype(dtype.numpy)] for o in others)]
        assert disagreeing(made, limit, nobody) == []
        wrong = right.copy()
        wrong[17] = a[17, :1100] @ b[:1100]  # a row without its last terms
        assert disagreeing([*made, [wrong.astype(dtype.numpy)]], limit, nobody) == [len(made)]


def test_bounds_follow_types_and_terms() -> None:
    small, large = (bound(product(k), {}, False).relative for k in (16, 4096))
    assert small == 2.0**-13 and large == pytest.approx(8.5 * small)
    assert bound(product(16), {}, True).relative == 2.0**-5
    assert bound(product(16, F16), {}, True).relative == 2.0**-5
    assert bound(product(4096, F16), {}, False).relative == WIDEST
    kernel = product(16)
    assert bound(kernel, {}, False).one_of == RARE
    jumping = replace(kernel, epilogue=Expr("floor", (hole(0, F32),), F32))
    assert bound(jumping, {}, False).one_of < RARE
    exact = replace(
        harness.matmul((), 64, 48, 16, dtype=I8), epilogue=hole(0, I32),
        output=TensorSpec(I32, (64, 48)),
    )  # fmt: skip
    assert bound(exact, {}, False) == Bound(0.0, 0, EXACT)


def test_most_tactics_are_right_unless_the_truth_is_known() -> None:
    right, wrong = [numbers()], [numbers()[::-1]]
    assert disagreeing([right, wrong, right], CLOSE, nobody) == [1]
    assert disagreeing([wrong, right], CLOSE, nobody) == [1]  # one against one: the first
    assert disagreeing([wrong, right, wrong], CLOSE, lambda: right) == [0, 2]
    # a truth that nobody has is none: bounds or the numpy meaning are at fault
    assert disagreeing([right, right, wrong], CLOSE, lambda: [numbers() + 9]) == [2]


def test_the_truth_is_asked_for_only_where_results_differ() -> None:
    def fails() -> None:
        raise AssertionError("asked")

    assert disagreeing([[numbers()], [numbers()]], CLOSE, fails) == []


def test_what_is_no_number_agrees_with_itself_alone() -> None:
    nan = numbers()
    nan[5:900] = np.nan
    inf = np.where(np.isnan(nan), np.inf, nan)
    assert disagreeing([[nan], [nan.copy()]], CLOSE, nobody) == []
    assert disagreeing([[nan], [nan], [inf], [numbers()]], CLOSE, nobody) == [2, 3]
    assert disagreeing([[inf], [inf.copy()]], CLOSE, nobody) == []
    one = numbers()
    one[7] = 1e6
    assert disagreeing([[numbers()], [one]], CLOSE, nobody) == [1]
    many = np.resize(numbers(), 2 * RARE)
    one = many.copy()
    one[7] = 1e6  # one of so many
    assert disagreeing([[many], [one]], CLOSE, nobody) == []


def test_integers_are_off_by_a_step_at_most_and_no_results_agree() -> None:
    codes = np.arange(-100, 100).astype(np.int8)
    assert disagreeing([[codes], [codes + np.int8(1)]], CLOSE, nobody) == []
    assert disagreeing([[codes], [codes + np.int8(2)]], CLOSE, nobody) == [1]
    exact = Bound(0.0, 0, EXACT)
    assert disagreeing([[codes], [codes + np.int8(1)]], exact, nobody) == [1]
    many = np.resize(codes, 4 * RARE)
    one = many.copy()
    one[7] += 1  # in exact arithmetic one of so many is wrong too
    assert disagreeing([[many], [one]], exact, nobody) == [1]
    assert disagreeing([[], []], exact, nobody) == []


@pytest.mark.filterwarnings("error")
def test_results_without_an_element_agree() -> None:
    empty = np.zeros((2, 0), np.float32)
    assert disagreeing([[empty], [empty]], CLOSE, nobody) == []


def test_the_truth_is_the_numpy_meaning_where_it_is_affordable() -> None:
    kernel = product(16)
    inputs = [numbers(64 * 16).reshape(64, 16), numbers(16 * 48).reshape(16, 48)]
    found = computed(kernel, {}, lambda: inputs)
    assert found is not None
    np.testing.assert_array_equal(found[0], run_kernel(kernel, inputs, {})[0].reshape(-1))
    assert computed(harness.matmul((), 4096, 4096, 4096), {}, lambda: []) is None


def doubled(kernel: Kernel) -> Kernel:
    assert isinstance(kernel, AnchorKernel)
    twice = Expr("mul", (kernel.epilogue, const(2.0, F32)), F32)
    return replace(kernel, epilogue=twice)


@dataclass(frozen=True)
class Wrong(Spy):
    """Code of some of its tactics computes something else."""

    bad: Sequence[int] = ()

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        known = self.tactics(kernel, EFFORTS[3])
        is_bad = known.index(tactic) in self.bad
        return super().compile(doubled(kernel) if is_bad else kernel, tactic)


def tuned(spy: Spy, cache: TimingCache) -> tuple[Launch, list[dict[str, Any]]]:
    found = kernels(spy)
    tuner = Tuner(spy, EFFORTS[3], {}, cache, Trace())
    candidates = tuner.measure(tuner.candidates(found))
    (launch,) = tuner.launches(found, candidates, fastest(candidates))
    return launch, [d for d in tuner.trace.decisions if d["kind"] == "wrong"]


@pytest.mark.parametrize("bad", [(0,), (3,), (0, 1, 2)])
def test_a_wrong_tactic_is_refused_recorded_and_not_remembered(bad: tuple[int, ...]) -> None:
    """Also where most are: this kernel is small, and numpy says what is right."""
    spy, cache = Wrong(bad=bad), TimingCache({"other": 1.0})
    launch, said = tuned(spy, cache)
    tactics = spy.tactics(launch.lowered.kernel, EFFORTS[3])
    assert tactics.index(launch.tactic) not in bad
    assert [d["tactic"] for d in said] == [str(tactics[i]) for i in bad]
    assert len(cache) == 1 + len(tactics) - len(bad)


@pytest.mark.parametrize("bad", [0, 3])
def test_a_single_one_is_compared_with_one_that_was_right_before(bad: int) -> None:
    spy, cache = Wrong(bad=(bad,)), TimingCache({"other": 1.0})
    tuned(spy, cache)
    spy.compiled.clear()
    launch, said = tuned(spy, cache)  # its time is the only one that is not known
    assert len(spy.compiled) in (2, 3) and len(said) == 1 and len(cache) == 4
    assert str(launch.tactic) != said[0]["tactic"]


def test_good_tactics_agree() -> None:
    launch, said = tuned(Spy(), TimingCache())
    assert said == [] and launch.tactic.template == "gemm"


def test_a_cast_of_a_float_jumps() -> None:
    kernel = product(16)
    codes = cast(cast(hole(0, F32), I8), F32)
    assert bound(replace(kernel, epilogue=codes), {}, False).one_of < RARE
