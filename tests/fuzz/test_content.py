"""Content at the edges of types: what is strewn, what it allows, and which must be errors."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from braze.frontend.onnx.importer import import_network
from tests.fuzz import checks
from tests.fuzz.bounds import RUNS_TO_CONVICT
from tests.fuzz.case import Case, Fill, Step, Tensor, stored
from tests.fuzz.catalog import ALL_FAMILIES
from tests.fuzz.checks import check
from tests.fuzz.content import KINDS, strewn
from tests.fuzz.edges import number
from tests.fuzz.expected import Expected, expected
from tests.fuzz.graphs import FIRST_LATER, make
from tests.fuzz.ways import Variant

REFERENCE = Variant(1, "reference")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_numbers_of_a_float_type(dtype: str) -> None:
    kind = stored(dtype)
    for name in (n for k in KINDS.values() if k.leaves == "float" for n in k.strewn if n != "same"):
        value = np.asarray(number(name, kind), kind)
        assert np.isnan(value) == (name == "nan") and np.isinf(value) == name.endswith("inf")
        assert (value == 0) == (name in ("0", "-0"))
        assert np.signbit(value) == name.startswith("-")
    assert 0 < number("denormal", kind) < number("normal", kind)


def test_integers_of_any_width_reach_their_ends() -> None:
    for dtype in ("int8", "uint8", "int64", "uint64"):
        limits = np.iinfo(dtype)
        assert number("min", np.dtype(dtype)) == limits.min
        assert number("max", np.dtype(dtype)) == limits.max
        assert number("-1", np.dtype(dtype)) == max(-1, limits.min)
    t = Tensor("int64", (9,), Fill("integers", -9, 9, ("max",), 0.0))
    assert (t.data({}) == np.iinfo("int64").max).sum() == 1


def test_one_element_or_whole_rows_are_strewn() -> None:
    one = Tensor("float32", (40, 50), Fill(strewn=("inf",), share=0.0)).data({})
    assert np.isinf(one).sum() == 1
    rows = Tensor("float32", (40, 50), Fill(strewn=("-inf",), share=0.3, rows=True)).data({})
    masked = np.isinf(rows).all(-1)
    assert 3 < masked.sum() < 30 and not np.isinf(rows[~masked]).any()
    same = Tensor("float32", (40, 50), Fill(strewn=("same",), share=0.5, rows=True)).data({})
    assert 8 < (same == same[:, :1]).all(-1).sum() < 32
    assert Tensor("float32", (), Fill(strewn=("inf",), rows=True)).data({}).shape == ()


def test_content_meets_every_kind_and_every_family() -> None:
    """Two numbers in five have content, of nearly all kinds, and it reaches nearly all families."""
    mades = [make(n) for first in (0, FIRST_LATER) for n in range(first, first + 250)]
    kinds = Counter(m.content for m in mades if m.content)
    assert sum(kinds.values()) > 0.3 * len(mades)
    assert len(kinds) > 0.8 * len(KINDS) and set(kinds) <= set(KINDS)
    assert len(set().union(*(m.reached for m in mades))) > 0.9 * len(ALL_FAMILIES)
    outside = [m.case for m in mades if m.content == "indexes"]
    assert all(c.outside in c.leaves() for c in outside)


# ------------------------------------------------------------------ what is allowed


def want_of(case: Case, seed: int = 0) -> Expected:
    graph = import_network(case.model(), shapes=case.shapes()).graph
    (want,) = expected(graph, case.feed({}), 16, seed, edges=True).values()
    return want


def pair(first: str, second: str, values: tuple[float, ...], dtype: str = "float32") -> Case:
    steps = (Step(first, ("x", "k"), ("a",)), Step(second, ("a", "k"), ("y",)))
    constants = {"k": Tensor(dtype, (), values=(4.0,))}
    return Case(steps, {"x": Tensor(dtype, (len(values),), values=values)}, ("y",), constants)


def test_what_overflows_in_float32_stays_infinite() -> None:
    """3e38 * 4 / 4 is infinite, whatever a kernel does; float64 alone would say 3e38."""
    want = want_of(pair("Mul", "Div", (3e38, 1.0)))
    assert want.error(np.float32([np.inf, 1]))[0] < 1
    assert want.error(np.float32([3e38, 1]))[0] == np.inf


def test_a_scale_behind_a_product_may_be_in_its_terms_while_squares_overflow() -> None:
    """2 * max * 0.5 is infinite or max, whose square has no place in float32: NaN or 0, or 1."""
    steps = (Step("MatMul", ("x", "w"), ("a",)), Step("Mul", ("a", "half"), ("b",)),
             Step("LpNormalization", ("b",), ("y",)))  # fmt: skip
    x = {"x": Tensor("float32", (1, 1), values=(2.0,))}
    half = {"half": Tensor("float32", (), values=(0.5,))}
    for weight, rights in ((float(np.finfo(np.float32).max), (np.nan, 0.0, 1.0)), (1e9, (1.0,))):
        w = Tensor("float32", (1, 1), values=(weight,))
        case = Case(steps, x, ("y",), half | {"w": w})
        graph = import_network(case.model()).graph
        want = expected(graph, case.feed({}), RUNS_TO_CONVICT[1], edges=True)["y"]
        for result in (np.nan, 0.0, 1.0):
            assert (want.error(np.float32([[result]]))[0] < 1) == (result in rights)


def test_what_overflows_in_float16_may_be_kept_in_more_bits() -> None:
    want = want_of(pair("Mul", "Div", (6e4, 1.0), "float16"))
    for right in (np.inf, 6e4):
        assert want.error(np.float16([right, 1]))[0] < 1
    assert want.error(np.float16([5e4, 1]))[0] > 1
    assert want.error(np.float16([-np.inf, 1]))[0] == np.inf


def test_the_order_of_a_sum_decides_what_overflows() -> None:
    """max + max - max is infinite or max; never negative infinity."""
    top = float(np.finfo(np.float32).max)
    case = Case((Step("ReduceSum", ("x", "axes"), ("y",), {"keepdims": 0}),),
                {"x": Tensor("float32", (2, 3), values=(top, top, -top, 1, 2, 3))}, ("y",),
                {"axes": Tensor("int64", (1,), values=(1,))})  # fmt: skip
    want = want_of(case)
    for right in (np.inf, top):
        assert want.error(np.float32([right, 6]))[0] <= 1
    assert want.error(np.float32([np.inf, 7]))[0] > 1
    assert want.error(np.float32([1.0, 6]))[0] > 1


def test_a_huge_number_does_not_excuse_its_neighbours() -> None:
    x = Tensor("float32", (2, 3), values=(1e9, 1, 1, 1, 1, 1))
    steps = (Step("ReduceSum", ("x", "axes"), ("y",), {"keepdims": 0}),)
    want = want_of(Case(steps, {"x": x}, ("y",), {"axes": Tensor("int64", (1,), values=(1,))}))
    assert want.error(np.float32([1e9, 3]))[0] < 1
    assert want.error(np.float32([1e9, 3.0001]))[0] > 1


def test_weights_beside_the_image_are_left_out_or_not_a_number() -> None:
    """An infinite first tap: it meets a pad at the first output alone."""
    steps = (Step("Conv", ("x", "w"), ("y",), {"pads": (1, 1)}),)
    constants = {"w": Tensor("float32", (1, 1, 3), values=(np.inf, 1, 1))}
    x = Tensor("float32", (1, 1, 3), values=(1, 2, 3))
    want = want_of(Case(steps, {"x": x}, ("y",), constants))
    for first in (3, np.nan):
        assert want.error(np.float32([[[first, np.inf, np.inf]]]))[0] < 1
    assert want.error(np.float32([[[4, np.inf, np.inf]]]))[0] > 1
    assert want.error(np.float32([[[3, np.nan, np.inf]]]))[0] == np.inf


def test_denormals_are_zero_or_themselves() -> None:
    case = Case((Step("Sign", ("x",), ("y",)),),
                {"x": Tensor("float32", (2,), values=(1e-40, 1.0))}, ("y",))  # fmt: skip
    want = want_of(case)
    assert want.error(np.float32([0, 1]))[0] < 1 and want.error(np.float32([1, 1]))[0] < 1
    assert want.error(np.float32([0, 0]))[0] > 1


# ------------------------------------------------------------------ indexes out of range


def gather(index: int, constant: bool) -> Case:
    leaf = {"i": Tensor("int64", (2,), Fill("integers", 0, 3, (str(index),), 0.0))}
    inputs = {"x": Tensor("float32", (4, 3)), **({} if constant else leaf)}
    steps = (Step("Gather", ("x", "i"), ("y",)),)
    return Case(steps, inputs, ("y",), leaf if constant else {}, outside="i")


@pytest.mark.parametrize("constant", [False, True])
def test_an_index_out_of_range_is_an_error_and_the_next_run_is_right(constant: bool) -> None:
    case = gather(4, constant)
    for way in (REFERENCE, Variant(0), Variant(2)):
        outcome = check(case, ways=(way,))
        assert outcome.status == "right" and outcome.refused_data
        assert bool(outcome.compared) == (not constant)
    assert check(gather(3, constant), ways=(REFERENCE,)).status == "wrong"  # it is in range


def test_an_answer_for_an_index_out_of_range_is_wrong() -> None:
    with mock.patch.object(checks, "_refuses", return_value=False):
        outcome = check(gather(4, False), ways=(REFERENCE,))
    assert outcome.status == "wrong" and "the reference has an error" in outcome.reason


def test_a_case_that_lost_its_wrong_index_wants_no_error() -> None:
    case = gather(4, False)
    step: Any = Step("Relu", ("x",), ("z",))
    assert replace(case, steps=(step,), outputs=("z",)).trimmed().outside == ""


def test_what_is_taken_off_a_size_is_no_data() -> None:
    """One less than a size is where a slice ends; the largest number less is no shape."""
    shape = Step("Shape", ("x",), ("s",))
    case = Case(
        (shape, Step("Sub", ("s", "one"), ("e",)), Step("Slice", ("x", "zero", "e"), ("y",))),
        {"x": Tensor("int64", (9,), seed=1)}, ("y",),
        {"one": Tensor("int64", (1,), values=(1,)), "zero": Tensor("int64", (1,), values=(0,))},
    )  # fmt: skip
    plain = replace(case, steps=(Step("Sub", ("x", "one"), ("y",)),))
    kinds = [strewn(c, {"y": (9,)}, random.Random(k)) for c in (case, plain) for k in range(20)]
    assert not any("one" in k.leaves for k in kinds[:20])
    assert any("one" in k.leaves for k in kinds[20:])


def test_what_a_constant_counts_is_no_data() -> None:
    """Scores decide how many boxes there are, and constant ones what the next op was made for."""
    scores = Tensor("float32", (1, 1, 4), values=(0.9, 0.8, 0.7, 0.6))
    case = Case(
        (Step("NonMaxSuppression", ("b", "p"), ("y",)),),
        {"b": Tensor("float32", (1, 4, 4), seed=1)}, ("y",), {"p": scores},
    )  # fmt: skip
    given = Case(case.steps, {**case.inputs, "p": scores}, ("y",))
    kinds = [strewn(c, {"y": (4, 3)}, random.Random(k)) for c in (case, given) for k in range(20)]
    assert not any("p" in k.leaves for k in kinds[:20])
    assert any("p" in k.leaves for k in kinds[20:])
