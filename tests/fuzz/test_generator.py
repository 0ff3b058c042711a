"""The generator itself: it knows the whole catalog, finds what is wrong, and makes it small."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from braze.core.dtypes import F32, I64
from braze.frontend.onnx.importer import import_network
from braze.ops.catalog import IMPORTERS
from braze.ops.lowering import Anchor, Nest, Pointwise, View
from braze.runtime import context
from tests.fuzz.case import DOMAINS, Case, Fill, Step, Tensor, source
from tests.fuzz.catalog import ANCHORS, FAMILIES, GENERATED, LATER, NOT_GENERATED
from tests.fuzz.checks import Outcome, check
from tests.fuzz.coverage import Coverage, record
from tests.fuzz.epilogues import FORMS
from tests.fuzz.expected import Expected, expected
from tests.fuzz.extremes import EXTREMES
from tests.fuzz.forcing import guarded_outputs, other_targets
from tests.fuzz.graphs import FIRST_LATER, make, pair_circuit
from tests.fuzz.shrink import as_test, manner, smallest
from tests.fuzz.transforms import transform_loss
from tests.fuzz.ways import Variant, variants


def test_every_entry_of_the_catalog_is_generated_or_listed() -> None:
    names = {f"{domain}.{name}" if domain else name for domain, name in IMPORTERS}
    assert {d for d, _ in IMPORTERS} <= {"", "braze", *DOMAINS}
    assert names - GENERATED - set(NOT_GENERATED) == set()
    assert set(NOT_GENERATED) & GENERATED == set()
    assert set(NOT_GENERATED) <= names


def test_a_number_is_always_the_same_case() -> None:
    for number in (0, 3, 11, 30):
        assert make(number).case == make(number).case


@pytest.mark.parametrize("first", [2001419, 2002578, 0])
def test_a_case_has_outputs_and_reads_what_it_has(first: int) -> None:
    """Two cases had none, or read an input that was taken back with the anchor it was made for."""
    for number in range(first, first + 40):
        case = make(number).case
        known = {*case.inputs, *case.constants}
        for step in case.steps:
            assert set(step.inputs) - {""} <= known
            known |= set(step.outputs)
        assert case.outputs
        assert set(case.outputs) <= known


@pytest.mark.parametrize("number", [3400737, 58900155, 63900577])
def test_a_case_has_the_types_that_onnx_allows(number: int) -> None:
    """Scatter and Shrink of bfloat16 were drawn, which no opset has; Identity's newest one has."""
    case = make(number).case
    assert import_network(case.model(), shapes=case.shapes()).graph.outputs


def test_cases_with_infinities_have_steps_like_others() -> None:
    """Their samples were not finite, so every step was refused."""
    special = [make(n).case for n in range(5, 700, 23) if n % 8 != 7]
    fed = [a for c in special for a in c.feed(c.env(1)).values() if a.dtype.kind == "f"]
    assert sum(not np.isfinite(a).all() for a in fed) > len(fed) / 2
    assert sum(len(c.steps) for c in special) > 8 * len(special)


def test_one_way_a_case_takes_every_way_in_time() -> None:
    case = small_case(Step("Relu", ("x",), ("y",)))
    ways = [variants(case, n, 1) for n in range(2000)]
    assert ways == [variants(case, n, 1) for n in range(2000)]
    assert {len(w) for w in ways} == {1}
    levels = Counter((w.level, w.target.split(":")[0], w.turn is not None) for (w,) in ways)
    assert {(0, "cpu", False), (1, "cpu", False), (2, "cpu", False), (3, "cpu", False),
            (5, "cpu", True), (4, "cpu", False), (5, "cpu", False),
            *((k, "reference", False) for k in range(3))} == set(levels)  # fmt: skip
    assert {w.target for (w,) in ways} == {"cpu", *other_targets()}
    assert levels[5, "cpu", True] > 400
    dynamic = replace(case, sizes={"n": (1, 2, 3)})
    assert any(w.fixed for n in range(100) for w in variants(dynamic, n, 1))


def test_every_pair_of_families_comes_once_in_the_circuit() -> None:
    circuit = pair_circuit()
    pairs = Counter(itertools.pairwise(circuit))
    assert len(pairs) == len(FAMILIES) ** 2
    assert set(pairs.values()) == {1}


def test_three_hundred_numbers_cover_ops_and_extremes() -> None:
    """Making a case is cheap, so what the CI run covers can be claimed here: nearly all pairs of
    families, anchors with epilogues, and ops; the rest comes with higher numbers."""
    mades = [make(n) for n in range(300)]
    pairs = set().union(*(m.pairs() for m in mades))
    epilogues = {e for m in mades for e in m.epilogues}
    ops = set().union(*(m.ops() for m in mades))
    assert len(pairs) > 0.85 * len(FAMILIES) ** 2
    assert len(epilogues) > 0.85 * len([1 for a in ANCHORS for f in FORMS if _possible(a, f)])
    plain = {name for domain, name in IMPORTERS if not domain} - set(NOT_GENERATED)
    plain -= {label for f in LATER.values() for label in f.makers}
    assert len(ops & plain) > 0.9 * len(plain)
    assert {m.kind for m in mades if ":" in m.kind} == {f"extreme: {e}" for e in EXTREMES}


def test_later_numbers_cover_later_families() -> None:
    """And earlier numbers none, so that they stay the graphs they were."""
    names = {f"{domain}.{name}" if domain else name for domain, name in IMPORTERS}
    later = names & {label for f in LATER.values() for label in f.makers}
    mades = [make(FIRST_LATER + n) for n in range(300)]
    assert len(later & set().union(*(m.ops() for m in mades))) > 0.9 * len(later)
    assert not later & set().union(*(make(n).ops() for n in range(40)))


def _possible(anchor: str, form: str) -> bool:
    return "axis" not in form or int(form[-1]) < ANCHORS[anchor][1]


@pytest.mark.parametrize("lowering", ["pointwise", "view", "nest", "anchor"])
def test_families_lower_to_what_they_say(lowering: str) -> None:
    """At least one case in which a member of each family lowers to its kind."""
    kinds = {"pointwise": Pointwise, "view": View, "nest": Nest, "anchor": Anchor}
    seen: Counter[str] = Counter()
    for number in range(40):
        made = make(number)
        graph = import_network(made.case.model(), shapes=made.case.shapes()).graph
        for n in graph.nodes:
            low = n.op.lower([v and v.type for v in n.inputs], [v.type for v in n.outputs])
            for name, kind in kinds.items():
                seen[name] += isinstance(low, kind)
    assert seen[lowering] > 20


# ------------------------------------------------------------------ the bounds


def small_case(*steps: Step, **constants: Tensor) -> Case:
    return Case(steps, {"x": Tensor("float32", (4, 6))}, (steps[-1].outputs[0],), constants)


def expectation(case: Case) -> Expected:
    graph = import_network(case.model(), shapes=case.shapes()).graph
    (want,) = expected(graph, case.feed({})).values()
    return want


def test_a_bound_is_as_tight_as_the_arithmetic() -> None:
    """A sum is known to a few roundoffs; behind a cancellation of 1000 to 1 it is a thousand times
    less well known; an integer is known exactly."""
    tight = expectation(small_case(Step("Add", ("x", "k"), ("y",)),
                                   k=Tensor("float32", (6,), Fill("uniform", 1, 2))))  # fmt: skip
    assert float(tight.bound().max()) < 2e-5
    loose = expectation(
        small_case(
            Step("Add", ("x", "k"), ("a",)),
            Step("Sub", ("a", "k"), ("y",)),
            k=Tensor("float32", (1,), values=(1000.0,)),
        )
    )
    ratio = float(loose.bound().mean() / tight.bound().mean())
    assert 100 < ratio < 10_000
    assert expectation(small_case(Step("Shape", ("x",), ("y",)))).bound().max() == 0


def test_a_scan_is_known_less_well_than_a_sum() -> None:
    """It is one chain of additions; a sum runs in blocks, whatever its length."""
    x = {"x": Tensor("float32", (1, 6000), Fill("uniform", 0, 1))}
    axes = Tensor("int64", (1,), values=(1,))
    total, scan = (
        expectation(replace(small_case(Step(op, ("x", "a"), ("y",)), a=axes), inputs=x))
        for op in ("ReduceSum", "CumSum")
    )
    ratio = scan.spread[0, -1] / total.spread.max()
    assert 1.5 < ratio < 20  # 4.6, as far as a few runs tell


def test_what_is_flushed_inside_an_op_is_scaled_by_it() -> None:
    """x tanh(softplus(x)) at -90: the second factor is flushed to zero, and 90 times that is lost;
    a product of float16 is rounded to a multiple of the smallest number and no further off."""
    x = {"x": Tensor("float32", (2,), values=(-88.5, -88.0))}
    want = expectation(replace(small_case(Step("Mish", ("x",), ("y",))), inputs=x))
    assert want.error(np.zeros(2, np.float32))[0] < 1
    assert want.error(np.full(2, -3e-35, np.float32))[0] > 1
    half = {"x": Tensor("float16", (2,), values=(1e-3, 1e-3))}
    steps = (Step("Mul", ("x", "x"), ("y",)),)
    assert expectation(Case(steps, half, ("y",))).error(np.zeros(2, np.float16))[0] > 0.5


@pytest.mark.parametrize(("score", "may"), [(-88.0, True), (-80.0, False)])
def test_a_weight_of_attention_is_flushed_before_it_meets_its_value(
    score: float, may: bool
) -> None:
    """100 times exp(-88) may be lost, and 100 times exp(-80) not; nor may it be in a column of
    zeros."""
    inputs = {
        "q": Tensor("float32", (1, 1, 1, 1), values=(1.0,)),
        "k": Tensor("float32", (1, 1, 2, 1), values=(0.0, score)),
        "v": Tensor("float32", (1, 1, 2, 2), values=(0.0, 0.0, 100.0, 0.0)),
    }
    step = Step("Attention", ("q", "k", "v"), ("y",), {"scale": 1.0})
    want = expectation(Case((step,), inputs, ("y",), opset=24))
    got = want.exact.astype(np.float32)
    got[..., 0] = 0
    assert (want.error(got)[0] < 1) == may
    assert want.error(want.exact.astype(np.float32) + np.float32([0, 1e-36]))[0] > 1


@pytest.mark.parametrize(
    ("step", "lost"),
    [(Step("ReduceL2", ("x",), ("y",)), 3e-20),
     (Step("LpPool", ("x",), ("y",), {"p": 3, "kernel_shape": (2,)}), 3e-14)],
)  # fmt: skip
def test_powers_are_flushed_while_their_root_is_not_small(step: Step, lost: float) -> None:
    """The cube of 3e-14 is 0 in float32: its root cannot be known; that of 1e-10 can."""
    for size, factor in ((lost, 0.0), (lost * 1e5, 0.99)):
        x = {"x": Tensor("float32", (1, 1, 2), values=(size, size))}
        want = expectation(replace(small_case(step), inputs=x))
        error = want.error((factor * want.exact).astype(np.float32))[0]
        assert (error < 1) == (factor == 0)


@pytest.mark.parametrize("op", ["ReduceLogSumExp", "LogSoftmax"])
def test_the_logarithm_of_a_sum_near_one_is_known_to_a_roundoff_of_one(op: str) -> None:
    """exp(0) + exp(-14): the larger term is 0, which no roundoff of its own can disturb."""
    x = {"x": Tensor("float32", (1, 2), values=(0.0, -14.0))}
    want = expectation(replace(small_case(Step(op, ("x",), ("y",))), inputs=x))
    got = want.exact + np.log1p(np.exp(-14.0)) - np.log(np.float64(np.float32(1 + np.exp(-14.0))))
    assert want.error(got.astype(np.float32))[0] < 1
    assert want.error((want.exact + 1e-5).astype(np.float32))[0] > 1


def test_a_determinant_that_cancels_is_known_to_its_terms() -> None:
    """Rows that are multiples: no small change of them gives what the roundings inside give."""
    rows = (1.1, 2.3, 3.7, 2.2, 4.6, 7.4, 3.3, 6.9, 11.1)
    x = {"x": Tensor("float32", (3, 3), values=rows)}
    want = expectation(replace(small_case(Step("Det", ("x",), ("y",))), inputs=x))
    assert want.error(np.float32(3e-6))[0] < 1
    assert want.error(np.float32(3e-3))[0] > 1


def test_one_wrong_element_among_many_is_seen() -> None:
    want = np.random.default_rng(0).standard_normal((300, 300))
    e = Expected(F32, want, np.abs(want) * 1e-7, np.ones(want.shape, bool))
    got = want.astype(np.float32)
    assert e.error(got)[0] < 1
    got[17, 45] += 1e-3
    error, place = e.error(got)
    assert error > 10
    assert "[17, 45]" in place


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_a_number_must_be_where_it_belongs(value: float) -> None:
    want = np.array([1.0, value, 3.0])
    e = Expected(F32, want, np.zeros(3), np.ones(3, bool))
    assert e.error(want.astype(np.float32))[0] < 1
    assert e.error(np.array([1.0, 2.0, 3.0], np.float32))[0] == np.inf
    assert e.error(np.array([value, value, 3.0], np.float32))[0] == np.inf


def test_integers_are_equal_or_unsure() -> None:
    want = np.array([1, 2, 3])
    e = Expected(I64, want, np.zeros(3), np.array([True, True, False]))
    assert e.error(np.array([1, 2, 9]))[0] == 0
    assert e.error(np.array([1, 3, 3]))[0] == np.inf
    assert e.error(np.array([1, 2]))[0] == np.inf


def test_ties_of_rounded_values_are_unsure() -> None:
    """floor(x / k * k) is x or x - 1 as rounding will have it; floor of an input is not unsure."""
    k = Tensor("float32", (6,), Fill("uniform", 3, 7))
    x = {"x": Tensor("float32", (4, 6), Fill("integers", 1, 50))}
    rounded = small_case(Step("Div", ("x", "k"), ("a",)), Step("Mul", ("a", "k"), ("b",)),
                         Step("Floor", ("b",), ("c",)), Step("Cast", ("c",), ("y",), {"to": 7}),
                         k=k)  # fmt: skip
    assert not expectation(replace(rounded, inputs=x)).sure.all()
    exact = small_case(Step("Floor", ("x",), ("a",)), Step("Cast", ("a",), ("y",), {"to": 7}))
    assert expectation(replace(exact, inputs=x)).sure.all()


def test_what_saturates_ties() -> None:
    """Sigmoids far out are all 1 in float32: which of them is the largest is unsure."""
    x = {"x": Tensor("float32", (1, 4), values=(30, 20, 40, 25))}
    case = small_case(Step("Sigmoid", ("x",), ("a",)), Step("ArgMax", ("a",), ("y",), {"axis": 1}))
    assert not expectation(replace(case, inputs=x)).sure.any()


def test_two_rounded_results_may_be_equal_where_exact_ones_are_not() -> None:
    """float16 has few numbers: a rounded sum meets an input that the exact sum only comes near."""
    inputs = {"x": Tensor("float16", (40, 60)), "z": Tensor("float16", (40, 60), seed=1)}
    steps = (Step("Mul", ("x", "k"), ("a",)), Step("Equal", ("a", "z"), ("y",)))
    case = Case(steps, inputs, ("y",), {"k": Tensor("float16", (60,), seed=2)})
    want = expectation(case)
    assert not want.exact.any()
    assert 0 < (~want.sure).sum() < 100


# ------------------------------------------------------------------ shrinking and printing


def test_a_failure_becomes_small() -> None:
    """Of a whole random graph only the step that 'fails' is left, and what it needs."""
    made = next(m for m in map(make, range(60)) if {"Softmax", "Conv"} <= m.ops())

    def fails(case: Case) -> bool:
        return any(s.op == "Softmax" for s in case.steps)

    small = smallest(made.case, fails, 20.0)
    assert [s.op for s in small.steps] == ["Softmax"]
    assert len(small.inputs) + len(small.constants) == 1


def test_failures_are_alike_by_their_text_without_names_and_numbers() -> None:
    """A refused Shrink was made small to a Conv without a weight, which is refused as well."""
    refused = "ModelError: node 'v1_0' (Shrink), opset 24: input 0 is bfloat16 [findings.py:88 f]"
    assert manner(refused) == manner(refused.replace("v1_0", "v9_2").replace("24", "13"))
    assert manner(refused) != manner(refused.replace("Shrink", "Conv"))
    assert manner("output y is 3 times") == manner("output z is inf times")


def test_a_case_prints_as_the_python_that_makes_it() -> None:
    scope = {"Case": Case, "Tensor": Tensor, "Step": Step, "Fill": Fill}
    for number in range(24):
        case = make(number).case
        again = eval(source(case), scope)
        assert again == case
        assert again.model() == case.model()


def test_a_printed_test_is_python() -> None:
    outcome = Outcome("wrong", "output y is far away", Variant(3, turn=2))
    text = as_test(make(3).case, 3, outcome)
    compile(text, "test", "exec")
    assert "Variant(level=3, turn=2)" in text


def test_an_untyped_error_is_a_failure_and_a_refusal_is_none() -> None:
    refused = small_case(Step("com.microsoft.SparseAttention", ("x", "x"), ("y",)))
    outcome = check(refused, ways=(Variant(),))
    assert outcome.status == "refused"
    assert "export dense attention" in outcome.reason
    broken = replace(small_case(Step("Relu", ("x",), ("y",))), sizes={"n": ()})
    assert check(broken, ways=(Variant(),)).status == "wrong"


def test_bytes_beside_an_output_are_watched() -> None:
    with guarded_outputs() as strayed:
        array, _ = context.empty_output("y", (3,), np.dtype(np.float32), 12)
        array[:] = 1
        assert strayed() == []
        behind = np.frombuffer(array.base, np.uint8)  # type: ignore[arg-type]
        behind[np.flatnonzero(behind == 0xA5)[-1]] = 0
        assert strayed() == ["y"]


def test_outputs_of_a_checked_run_are_guarded() -> None:
    with mock.patch.object(context, "empty_output", side_effect=AssertionError("not guarded")):
        case = small_case(Step("Relu", ("x",), ("y",)))
        assert check(case, ways=(Variant(),)).status == "right"


def test_coverage_counts_and_reports() -> None:
    coverage = Coverage()
    for number in range(12):
        made = make(number)
        coverage.add(record(number, made, Outcome(), 0.1))
    coverage.add(record(12, make(12), Outcome("wrong", "output y", Variant()), 0.1))
    text = coverage.report()
    assert "13 graphs: 12 right, 1 wrong" in text
    assert "not covered" in text
    assert "WRONG 12" in text


def loss_of(window: int, channels: int, strides: int = 1, corner: float = 1.0) -> Any:
    """What the transforms of a convolution may lose, or None; `corner` scales pixel (0, 0)."""
    kernel, step = (window, window), (strides, strides)
    steps = (Step("Conv", ("x", "w"), ("y",), {"strides": step, "pads": (1, 1, 1, 1)}),)
    inputs = {"x": Tensor("float32", (1, channels, 9, 9), seed=1)}
    case = Case(steps, inputs, ("y",), {"w": Tensor("float32", (32, channels, *kernel), seed=2)})
    (node,) = import_network(case.model()).graph.nodes
    rng = np.random.default_rng(0)
    given = {v: rng.standard_normal(v.shape) for v in node.inputs if v is not None}
    next(iter(given.values()))[:, :, 0, 0] *= corner
    return transform_loss(node, given, 2.0**-24)


def test_only_convolutions_that_a_kernel_transforms_have_its_loss() -> None:
    loss = loss_of(3, 16)
    assert loss.shape == (1, 32, 9, 9) and (loss > 0).all()
    assert loss.max() < 1e-3  # outputs are about 12 and a wrong tap is off by about 1
    far = loss_of(3, 16, corner=1e9)  # in a tile that holds windows without it, sums are direct
    assert (far[:, :, 2:, 2:] <= loss[:, :, 2:, 2:]).all()
    assert (far[:, :, :2, :2] > loss.max()).all()
    assert loss_of(3, 8) is None and loss_of(3, 16, strides=2) is None and loss_of(5, 16) is None
