"""What the documents leave open is drawn both ways, and nothing else is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from braze.core.dtypes import BOOL, F32, F64
from braze.frontend.onnx.importer import import_network
from braze.ir.graph import Node, TensorType, Value
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.deform_conv import DeformConv
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.reduce import Reduce
from tests.fuzz.bounds import Perturbed
from tests.fuzz.case import Case, Fill, Step, Tensor
from tests.fuzz.checks import _splits_largest, behind_products, check
from tests.fuzz.expected import MINUS, NAN, PLUS, _combine, expected, unsure
from tests.fuzz.left_open import moved_places
from tests.fuzz.overflow import drawn_sums
from tests.fuzz.test_found import right
from tests.fuzz.ways import Variant


def _value(*shape: int) -> Value:
    return Value("v", TensorType(F32, shape))


def test_a_rounded_place_far_from_the_corner_moves_a_sample_by_more_than_its_offset() -> None:
    """Rounding 15.3 moves it by more than any rounding of the offset 0.3 does."""
    offsets = Fill("uniform", -0.7, 0.7)
    inputs = {"x": Tensor("float32", (7, 3, 19, 17), seed=359),
              "o": Tensor("float32", (7, 8, 18, 16), offsets, 249491934)}  # fmt: skip
    weight = Tensor("float32", (3, 3, 2, 2), Fill("uniform", -0.577, 0.577), 490288974)
    steps = (Step("Trilu", ("x",), ("t",)), Step("DeformConv", ("t", "w", "o"), ("y",)))
    right(Case(steps, inputs, ("y",), {"w": weight}), Variant())


def test_places_that_a_float_tells_exactly_do_not_move() -> None:
    """Halves of pixels and infinities stay; a third moves by about a unit of the image's side."""
    op = DeformConv((1, 1), (1, 1), (0, 0, 0, 0), 1, 1)
    x, w, o = _value(1, 1, 30, 20), _value(1, 1, 1, 1), _value(1, 2, 1, 2)
    at = np.array([0.5, 1 / 3, np.inf, -3.0]).reshape(1, 2, 1, 2)
    node = Node(op, (x, w, o), (_value(1, 1, 1, 2),))
    moved = moved_places(node, {x: np.zeros((1, 1, 30, 20)), o: at}, np.random.default_rng(0))[o]
    same = moved == at
    assert same.reshape(-1).tolist() == [True, False, True, True]
    assert 0 < abs(float(moved.reshape(-1)[1]) - 1 / 3) <= 30 * 2.0**-24


def test_a_scale_of_attention_that_overflows_before_its_product_or_behind_it() -> None:
    """All scores of a query may be -inf then, which is 0 in one op (docs/semantics.md)."""
    q = np.array([[2.0, 1.0], [3.0, 0.5]], np.float32)
    inputs = {"x": Tensor("float32", (1, 2, 2), values=tuple(q.reshape(-1).tolist()))}
    steps = (
        Step("Mul", ("x", "s"), ("m",)),
        Step("Transpose", ("m",), ("t",), {"perm": (0, 2, 1)}),
        Step("MatMul", ("x", "t"), ("a",)),
        Step("Softmax", ("a",), ("p",)),
        Step("MatMul", ("p", "x"), ("y",)),
    )
    scale = Tensor("float32", (), values=(-3.0e38,))
    right(Case(steps, inputs, ("y",), {"s": scale}), Variant())


def test_scores_that_overflow_in_float32_alone_are_left_out_too() -> None:
    """In float64 they are finite, and one key has all the weight."""
    steps = (
        Step("Transpose", ("x",), ("t",), {"perm": (0, 2, 1)}),
        Step("MatMul", ("x", "t"), ("a",)),
        Step("Mul", ("a", "s"), ("m",)),
        Step("Softmax", ("m",), ("p",)),
        Step("MatMul", ("p", "x"), ("v",)),
        Step("MatMul", ("v", "w"), ("z",)),
        Step("LayerNormalization", ("z", "w"), ("y",)),
    )
    inputs = {"x": Tensor("float32", (4, 7, 1), Fill(low=1.1, high=3.0), 9)}
    constants = {"s": Tensor("float32", (), values=(-3.4e38,)),
                 "w": Tensor("float32", (1, 4), values=(0.3, 1.5, 1.3, 1.8))}  # fmt: skip
    right(Case(steps, inputs, ("y",), constants), Variant(2))


MAX = float(np.finfo(np.float32).max)


def _drawn(node: Node, values: dict[Value, np.ndarray], factor: float = 1.0) -> set[str]:
    """What 64 runs make of the one element of a sum."""
    found: set[float] = set()
    for seed in range(64):
        rng = np.random.default_rng(seed)
        drawn = drawn_sums(node, node.op, values, rng, factor)
        found.update(drawn.get(node.outputs[0], values[node.outputs[0]]).reshape(-1).tolist())
    return {str(x) for x in found}


def test_a_small_overflow_beside_a_huge_one_is_seen() -> None:
    """-inf stays where a fused multiply-add adds 1e30 * max to it: no rounded term is infinite."""
    a, b, out = _value(1, 3), _value(3, 1), _value(1, 1)
    values = {a: np.array([[1e30, 2.0, 2.0]]), b: np.array([[MAX], [-MAX], [-MAX]])}
    values[out] = values[a] @ values[b]
    assert {"inf", "-inf", "nan"} <= _drawn(Node(MatMul(), (a, b), (out,)), values)


def test_the_sum_of_a_mean_may_overflow() -> None:
    """max - max + max is max in that order alone; a mean of smaller numbers is sure."""
    x, out = _value(1, 3), _value(1, 1)
    node = Node(Reduce("mean", (1,), True), (x,), (out,))
    values = {x: np.array([[MAX, -MAX, MAX]]), out: np.array([[MAX / 3]])}
    assert "inf" in _drawn(node, values)
    small = {x: values[x] / 4, out: values[out] / 4}
    assert drawn_sums(node, node.op, small, np.random.default_rng(0), 1.0) == {}


def test_what_overflows_in_single_steps_leaves_a_truth_value_unsure() -> None:
    exact = np.array([True, False])
    found = _combine(BOOL, exact, [exact, exact], np.array([True, True]), False)
    assert found.sure.tolist() == [True, False]


def test_an_index_that_nothing_reads_may_be_out_of_range() -> None:
    """Only the size of what it moves is asked for."""
    steps = (Step("ReverseSequence", ("x", "n"), ("r",)), Step("Size", ("r",), ("y",)))
    inputs = {"x": Tensor("float32", (8, 3)), "n": Tensor("int64", (3,), values=(9, 1, 1))}
    right(Case(steps, inputs, ("y",), outside="n"), Variant(1, "reference"))


def test_an_index_that_a_constant_condition_leaves_out_may_be_out_of_range() -> None:
    steps = (Step("ReverseSequence", ("x", "n"), ("r",), {"time_axis": 1, "batch_axis": 0}),
             Step("Where", ("c", "r", "z"), ("y",)))  # fmt: skip
    wrong = Tensor("int64", (2,), Fill("integers", 1, 12, ("2147483647",), 0.0), 3)
    inputs = {"x": Tensor("float32", (2, 12)), "n": wrong}
    condition = {"z": Tensor("float32", (1,), seed=1), "c": Tensor("bool", (1,), values=(False,))}
    right(Case(steps, inputs, ("y",), condition, outside="n"))
    # a length of which there is one alone tells nothing
    alone = Tensor("int64", (2,), Fill("integers", 1, 1, ("2147483647",), 0.0), 3)
    told = Case(steps, {**inputs, "n": alone}, ("y",), condition, outside="n")
    assert check(told, ways=(Variant(1),)).status == "wrong"
    # and one that is read has to be refused
    condition["c"] = replace(condition["c"], values=(True,))
    read = check(Case(steps, inputs, ("y",), condition, outside="n"), ways=(Variant(1),))
    assert read.status == "right" and read.refused_data


def test_taps_beside_the_image_are_left_out_by_one_run() -> None:
    """An infinite weight that meets padding is NaN to the letter; kernels pass over it. What lies
    behind that, here a smallest over the batch, is one of both."""
    steps = (Step("Conv", ("x", "w"), ("c",), {"pads": (1, 1)}),
             Step("ReduceMin", ("c", "axes"), ("y",), {"keepdims": 0}))  # fmt: skip
    inputs = {"x": Tensor("float32", (6, 1, 5), Fill("uniform", 0.1, 0.9), 3)}
    weight = np.array([np.inf, 0.5, -np.inf], np.float32)
    constants = {"w": Tensor("float32", (1, 1, 3), values=tuple(weight.tolist())),
                 "axes": Tensor("int64", (1,), values=(0,))}  # fmt: skip
    case = Case(steps, inputs, ("y",), constants, opset=18)
    graph = import_network(case.model()).graph
    with np.errstate(all="ignore"):
        found = Perturbed(graph, None).evaluate(case.feed({}), frozenset())["y"]
    # infinities of both signs meet inside the image, and one of them beside its edges
    assert np.isneginf(found[0, 0]) and np.isnan(found[0, 1:-1]).all() and np.isposinf(found[0, -1])
    right(case)


def test_a_huge_factor_behind_a_convolution_may_be_in_its_weights() -> None:
    """Transformed weights of 1e38 overflow in sums that the direct convolution does not have."""
    weight = Tensor("float32", (8, 4, 3, 3), Fill("uniform", -0.47, 0.47), 322732938)
    steps = (Step("Conv", ("x", "w"), ("c",)), Step("Mul", ("c", "s"), ("y",)))
    constants = {"w": weight, "s": Tensor("float32", (1, 1, 1, 1), values=(MAX,))}
    right(Case(steps, {"x": Tensor("float32", (1, 4, 8, 8), seed=938187206)}, ("y",), constants))


def test_either_infinity_is_allowed_where_single_steps_are_nan_alone() -> None:
    """Not where they are finite, nor where float64 is NaN too."""
    exact = np.array([1.0, 1.0, np.nan])
    typed = np.array([np.nan, 1.0, np.nan])
    found = _combine(F32, exact, [exact, exact], typed, False)
    either = NAN | PLUS | MINUS
    assert [int(m) & either for m in found.may] == [either, 0, NAN]


def test_a_sum_may_overflow_behind_sums_that_could_have_and_did_not() -> None:
    """Three layers at the top of bfloat16: the first two stay finite, and in the last some sums
    pass the top of float32 on their way to less."""
    steps = (
        Step("Sub", ("c", "x"), ("d",)),
        Step("Conv", ("d", "v"), ("e",), {"auto_pad": "SAME_UPPER"}),
        Step("Conv", ("e", "w"), ("f",), {"pads": (0, 1, 1, 0, 1, 1)}),
        Step("ConvTranspose", ("f", "u"), ("y",)),
    )
    constants = {
        "c": Tensor("bfloat16", (1,), Fill(strewn=("-max",), share=0.6), 27380079),
        "v": Tensor("bfloat16", (4, 8, 1, 3, 3), Fill("uniform", -0.2357, 0.2357), 614045488),
        "w": Tensor("bfloat16", (2, 4, 1, 2, 3), Fill("uniform", -0.4082, 0.4082), 1044910489),
        "u": Tensor("bfloat16", (2, 8, 3, 3, 4), Fill("uniform", -1.0, 1.0), 889727758),
    }
    inputs = {"x": Tensor("bfloat16", (3, 8, 9, 1, 3), seed=479485610)}
    right(Case(steps, inputs, ("y",), constants), Variant(1, "reference"))


def test_a_factor_elsewhere_in_a_graph_need_not_be_in_a_sums_terms() -> None:
    """A sum at half of the top: with a factor of 8 in its terms it may overflow, and without it
    there are runs in which nothing does."""
    a, b, out = _value(1, 2), _value(2, 1), _value(1, 1)
    values = {a: np.array([[MAX / 4, MAX / 4]]), b: np.ones((2, 1)), out: np.array([[MAX / 2]])}
    node = Node(MatMul(), (a, b), (out,))
    assert _drawn(node, values) == {str(MAX / 2)}
    assert _drawn(node, values, 8.0) == {str(MAX / 2), "inf"}


def test_a_run_may_draw_nothing_of_a_sum_that_can_overflow() -> None:
    """The next sum may be the first that does."""
    a, b, out = _value(1, 3), _value(3, 1), _value(1, 1)
    values = {a: np.ones((1, 3)), b: np.array([[MAX], [MAX], [-MAX]]), out: np.array([[MAX]])}
    node = Node(MatMul(), (a, b), (out,))
    drawn = [drawn_sums(node, node.op, values, np.random.default_rng(s), 1.0) for s in range(64)]
    assert 10 < sum(not d for d in drawn) < 50


def test_the_mean_of_a_norm_is_rounded() -> None:
    """Of two elements the norm is nearly 1 and -1 whatever they are, but not what their mean is."""
    steps = (Step("Conv", ("x", "w"), ("c",)), Step("LayerNormalization", ("c", "s"), ("y",)))
    weight = Tensor("float32", (4, 6, 3, 1, 1), Fill("uniform", -0.4714, 0.4714), 917274493)
    inputs = {"x": Tensor("float32", (1, 6, 6, 7, 2), Fill("spread"), 287667731)}
    constants = {"w": weight, "s": Tensor("float32", (2,), seed=379353332)}
    right(Case(steps, inputs, ("y",), constants), Variant(2), Variant(2, "reference"))


def test_what_moves_huge_numbers_does_not_overflow() -> None:
    """All runs give what is read, in its place: no run draws anything."""
    x = Tensor("float32", (3, 2), Fill(strewn=("max",), share=0.9), 1)
    inputs = {"x": x, "n": Tensor("int64", (2,), values=(3, 2))}
    steps = (
        Step("Mul", ("x", "h"), ("m",)),
        Step("ReverseSequence", ("m", "n"), ("y",), {"batch_axis": 1, "time_axis": 0}),
    )
    case = Case(steps, inputs, ("m", "y"), {"h": Tensor("float32", (), values=(0.4,))})
    graph = import_network(case.model()).graph
    seeds = map(np.random.default_rng, range(9))
    found = [Perturbed(graph, rng).evaluate(case.feed({}), frozenset()) for rng in seeds]
    for run in found:
        assert np.isfinite(run["y"]).all()
        np.testing.assert_allclose(run["y"][:, 0], run["m"][::-1, 0], rtol=1e-6)


def test_the_order_of_factors_decides_what_overflows() -> None:
    """1e20 five times and 1e-20 five times are 1, and NaN where each kind is multiplied first; with
    a zero in place of one, 0 or NaN; near 1 nothing happens."""
    even = [[1e20, 1e-20] * 5, [1e20] * 5 + [0.0] + [1.0] * 4, [2.0, 0.5] * 5]
    op = Reduce("prod", (1,), False)
    node = Node(op, (_value(3, 10),), (_value(3),))
    given = {node.inputs[0]: np.array(even)}
    values = given | {node.outputs[0]: np.array([1.0, 0.0, 1.0])}
    rng = np.random.default_rng(0)
    drawn = np.array([drawn_sums(node, op, values, rng, 1.0)[node.outputs[0]] for _ in range(60)])
    assert np.isnan(drawn[:, :2]).any(0).all() and np.isinf(drawn[:, :2]).any(0).all()
    assert (drawn[:, 0] == 1.0).any() and (drawn[:, 1] == 0.0).any()
    assert (drawn[:, 2] == 1.0).all()


def test_the_largest_number_is_infinite_in_parts_of_a_gpu_alone() -> None:
    weight = {"w": Tensor("float32", (2, 2), Fill(strewn=("-max",), share=0.6), 3)}
    steps = (
        Step("MatMul", ("x", "w"), ("y",)), Step("Hardmax", ("y",), ("h",)),
        Step("Add", ("x", "w"), ("z",)),
    )  # fmt: skip
    case = Case(steps, {"x": Tensor("float32", (2, 2))}, ("y", "h", "z"), weight)
    assert behind_products(import_network(case.model()).graph) == (["y"], ["h"])
    assert _splits_largest(case, Variant(2, "cuda:sm_90"))
    assert not _splits_largest(case, Variant(2, "cpu"))
    plain = replace(case, constants={"w": Tensor("float32", (2, 2))})
    assert not _splits_largest(plain, Variant(2, "cuda"))
    want = expected(import_network(plain.model()).graph, plain.feed({}))["y"]
    odd, off = np.full((2, 2), np.nan, np.float32), (want.exact + 1).astype(np.float32)
    assert want.error(odd)[0] == np.inf and want.of_any_kind().error(odd)[0] == 0
    assert want.error(off)[0] > 1 and want.of_any_kind().error(off)[0] > 1
    assert unsure(F32, want.exact).error(odd)[0] == unsure(F32, want.exact).error(off)[0] == 0


def test_a_factor_behind_a_sum_may_be_in_its_bias_too() -> None:
    """5 * 1e38 overflows as a bias of its own, so with a sum that overflows the other way it is
    NaN; terms that do not overflow by the factor stay as they are."""
    op = Binary("add")
    node = Node(op, (_value(3), _value(3)), (_value(3),))
    terms = [np.array([-np.inf, 1.0, 1.0]), np.array([5.0, -5.0, 0.25])]
    given = dict(zip(node.inputs, terms, strict=True)) | {node.outputs[0]: terms[0] + terms[1]}

    def drawn(factor: float) -> list[tuple[float, ...]]:
        rng = np.random.default_rng(0)
        runs = [drawn_sums(node, op, given, rng, factor)[node.outputs[0]] for _ in range(40)]
        return sorted({tuple(np.nan_to_num(r, nan=7.0).tolist()) for r in runs})

    low = float(np.finfo(np.float64).min)
    assert drawn(1e38) == [(low, -4.0, 1.25), (7.0, low, 1.25)]
    assert drawn(1.0) == [(low, -4.0, 1.25)]


def test_terms_of_float64_have_room_where_those_of_float32_have_none() -> None:
    op, double = Binary("add"), Value("v", TensorType(F64, (1,)))
    node = Node(op, (double, Value("w", double.type)), (Value("y", double.type),))
    values = (np.array([x]) for x in (1e200, 1.0, 1e200))
    given = dict(zip((*node.inputs, *node.outputs), values, strict=True))
    rng = np.random.default_rng(0)
    runs = [drawn_sums(node, op, given, rng, 8.0)[node.outputs[0]] for _ in range(20)]
    assert all(run == 1e200 for run in runs)


def test_a_state_that_leaves_its_range_may_be_anything() -> None:
    """Weights of 4 make the state of a relu cell 4 times as large in each step: 1e85 in float64."""
    steps = (
        Step("RNN", ("x", "w", "r"), ("", "h"), {"hidden_size": 2, "activations": ("Relu",)}),
    )

    def may_be_nan(weight: float) -> bool:
        inputs = {"x": Tensor("float32", (150, 1, 1), Fill(low=1.0, high=2.0), 1)}
        constants = {"w": Tensor("float32", (1, 2, 1), values=(1.0, 1.0)),
                     "r": Tensor("float32", (1, 2, 2), values=(weight,) * 4)}  # fmt: skip
        case = Case(steps, inputs, ("h",), constants, opset=14)
        want = expected(import_network(case.model()).graph, case.feed({}), 200)["h"]
        return want.error(np.full(want.exact.shape, np.nan, np.float32))[0] == 0

    assert may_be_nan(2.0)
    assert not may_be_nan(0.2)


def test_a_gate_of_huge_weights_may_overflow_in_one_order() -> None:
    """1.9 and -1.1 of the largest number sum up to a finite one, or to infinity less infinity."""
    steps = (Step("LSTM", ("x", "w", "r", "", "", "h"), ("", "y"), {"hidden_size": 2}),)
    largest = 3.4028234663852886e38

    def may_be_nan(weight: float) -> bool:
        constants = {"w": Tensor("float32", (1, 8, 1), values=(0.5,) * 8),
                     "r": Tensor("float32", (1, 8, 2), values=(weight,) * 16),
                     "h": Tensor("float32", (1, 1, 2), values=(1.9, -1.1))}  # fmt: skip
        case = Case(steps, {"x": Tensor("float32", (1, 1, 1), seed=1)}, ("y",), constants, opset=14)
        want = expected(import_network(case.model()).graph, case.feed({}), 200)["y"]
        return want.error(np.full(want.exact.shape, np.nan, np.float32))[0] == 0

    assert may_be_nan(largest)
    assert not may_be_nan(1e6)


def test_what_one_less_a_gate_near_one_keeps_of_the_state_is_rounded() -> None:
    """A coupled gate of 1 - 2**-26 forgets a state of 60 but for 1e-6, or wholly."""
    steps = (Step("LSTM", ("x", "w", "r", "b", "", "h", "c"), ("", "", "y"),
                  {"input_forget": 1, "activations": ("Sigmoid", "Relu", "Relu")}),)  # fmt: skip
    gate = 26 * math.log(2)
    constants = {
        "w": Tensor("float32", (1, 4, 1), values=(0.0,) * 4),
        "r": Tensor("float32", (1, 4, 1), values=(0.0,) * 4),
        "b": Tensor("float32", (1, 8), values=(gate, 0.0, 0.0, 1e-5, *(0.0,) * 4)),
        "h": Tensor("float32", (1, 1, 1), values=(0.0,)),
        "c": Tensor("float32", (1, 1, 1), values=(60.0,)),
    }
    case = Case(steps, {"x": Tensor("float32", (1, 1, 1), seed=1)}, ("y",), constants, opset=14)
    right(case)
    want = expected(import_network(case.model()).graph, case.feed({}))["y"]
    assert want.error((want.exact + 1e-6).astype(np.float32))[0] < 1
    assert want.error((want.exact + 1e-3).astype(np.float32))[0] > 1


def test_infinite_numbers_meet_infinite_weights_beside_the_image() -> None:
    """-inf times -inf is inf where the weight's other tap, beside the image, is left out."""
    steps = (Step("Conv", ("x", "w"), ("y",), {"pads": (1, 0)}),)
    inputs = {"x": Tensor("float32", (1, 1, 4), values=(-math.inf, -math.inf, 1.0, 2.0))}
    constants = {"w": Tensor("float32", (1, 1, 2), values=(-math.inf, -math.inf))}
    case = Case(steps, inputs, ("y",), constants, opset=17)
    right(case)
    want = expected(import_network(case.model()).graph, case.feed({}), 50, edges=True)["y"]
    assert want.may is not None
    assert want.may[0, 0].tolist() == [NAN | PLUS, PLUS, NAN, MINUS]


def test_roundings_may_decide_a_size() -> None:
    """Boxes that hardly meet are kept or not, and with them their rows."""
    steps = (Step("Mul", ("x", "s"), ("b",)), Step("NonMaxSuppression", ("b", "p", "n"), ("y",)))
    near, far = ((0.0, 0.0, 1.0, 1.0, at, 0.0, at + 1, 1.0) for at in (1.0, 2.0))
    inputs = {"x": Tensor("float32", (1, 2, 4), values=near),
              "p": Tensor("float32", (1, 1, 2), values=(0.7, 0.6))}  # fmt: skip
    constants = {"s": Tensor("float32", (), values=(0.3,)),
                 "n": Tensor("int64", (1,), values=(2,))}  # fmt: skip
    case = Case(steps, inputs, ("y",), constants, opset=17)
    right(case)
    graph = import_network(case.model()).graph
    want = expected(graph, case.feed({}), 50)["y"]
    assert want.error(np.zeros((1, 3), np.int64))[0] == 0
    assert want.error(np.zeros((1, 4), np.int64))[0] > 1  # all other axes are as they were
    assert want.error(np.zeros(3, np.int64))[0] > 1
    inputs["x"] = Tensor("float32", (1, 2, 4), values=far)
    want = expected(graph, case.feed({}), 50)["y"]
    assert want.error(np.zeros((7, 3), np.int64))[0] > 1
