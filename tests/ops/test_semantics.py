"""What docs/semantics.md says of cases that ONNX leaves open, on every target that runs here."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import braze
from tests.ops.one_node import one_node

WAYS = [
    {"optimization_level": 0, "threads": 1},
    {"optimization_level": 2, "threads": 1},
    {"target": "cpu:x86-64", "optimization_level": 2, "threads": 1},
    {"target": "reference"},
]
pytestmark = pytest.mark.parametrize("way", WAYS, ids=lambda w: "-".join(map(str, w.values())))
Array = np.ndarray[Any, Any]


def run(
    way: dict[str, Any],
    op: str,
    feed: dict[str, Array],
    constants: dict[str, Array] | None = None,
    shapes: dict[str, Any] | None = None,
    to: int = 0,
    opset: int = 19,
    gives: int = 0,
    **attributes: Any,
) -> Array:
    """The output of one node; its inputs are those of `feed`, then `constants`."""
    constants = constants or {}
    kind = helper.np_dtype_to_tensor_dtype
    inputs = [
        helper.make_tensor_value_info(
            n, kind(a.dtype), [f"{n}{i}" for i in range(a.ndim)] if shapes else a.shape
        )
        for n, a in feed.items()
    ]
    if to:
        attributes["to"] = to
    first = next(iter(feed.values()))
    output = helper.make_tensor_value_info("y", to or gives or kind(first.dtype), None)
    names = [*feed, *([""] if op == "Resize" else []), *constants]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], "n", **attributes)],
        "g",
        inputs,
        [output],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    engine = braze.build(model, shapes=shapes, **way)
    got: Array = engine(feed)["y"]
    return got


@pytest.mark.parametrize("scale", [1.7, 0.6])
def test_resize_aligns_corners_of_the_scaled_size(way: dict[str, Any], scale: float) -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    scales = np.float32([1, 1, 1, scale])
    got = run(
        way, "Resize", {"x": x}, {"s": scales}, mode="linear",
        coordinate_transformation_mode="align_corners",
    )  # fmt: skip
    want = np.arange(int(4 * scale)) * 3 / (4 * float(scales[3]) - 1)
    np.testing.assert_allclose(got[0, 0, 0], want, rtol=1e-6)  # a few roundings of float32


FLOATS = np.float32([300, -300, 1e20, -1e20, np.nan, np.inf, -np.inf, 3.9, -3.9, 2.0**31, -1.5])


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"])
def test_a_cast_out_of_range_gives_the_least_number(way: dict[str, Any], dtype: str) -> None:
    limits = np.iinfo(dtype)
    got = run(way, "Cast", {"x": FLOATS}, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    want = []
    for f in FLOATS.tolist():
        inside = np.isfinite(f) and limits.min <= int(f) <= limits.max
        want.append(int(f) if inside else limits.min)
    assert got.tolist() == want


def test_casts_between_integers_keep_the_low_bits(way: dict[str, Any]) -> None:
    x = np.array([300, -300, 2**40, -1, 128, 255, 256])
    got = run(way, "Cast", {"x": x}, to=TensorProto.INT8)
    assert got.tolist() == [44, -44, 0, -1, -128, -1, 0]
    got = run(way, "Cast", {"x": np.float32([np.nan, 0, -0.0, 0.1])}, to=TensorProto.BOOL)
    assert got.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("mode", "pads", "want"),
    [
        ("edge", [-2, 3], [2, 3, 4, 5, 5, 5, 5]),
        ("constant", [3, -2], [0, 0, 0, 0, 1, 2, 3]),
        ("reflect", [-2, 3], [2, 3, 4, 5, 4, 3, 2]),
        ("reflect", [3, -2], [3, 2, 1, 0, 1, 2, 3]),
        ("wrap", [-2, 3], [2, 3, 4, 5, 0, 1, 2]),
        ("wrap", [3, -2], [3, 4, 5, 0, 1, 2, 3]),
        ("wrap", [-1, -1], [1, 2, 3, 4]),
        ("reflect", [0, 12], [0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 4, 3]),
    ],
)
def test_negative_pads(way: dict[str, Any], mode: str, pads: list[int], want: list[int]) -> None:
    x = np.arange(6, dtype=np.float32)
    assert run(way, "Pad", {"x": x}, {"p": np.array(pads)}, mode=mode).tolist() == want


@pytest.mark.parametrize("n", [0, 1, 4])
def test_reshape_of_no_elements(way: dict[str, Any], n: int) -> None:
    x = np.zeros((n, 6), np.float32)
    shapes = {"x": ((0, 6), (1, 6), (4, 6))}
    assert run(way, "Reshape", {"x": x}, {"s": np.array([0, -1])}, shapes).shape == (n, 6)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_integers_divided_by_zero_and_by_minus_one(way: dict[str, Any], dtype: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = np.array([1, -1, 0, high, low, low, -7], dtype)
    b = np.array([0, 0, 0, 0, 0, -1, 2], dtype)
    assert run(way, "Div", {"a": a, "b": b}).tolist() == [0, 0, 0, 0, 0, low, -3]
    assert run(way, "Mod", {"a": a, "b": b}).tolist() == [0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_infinite_weights_beside_the_image(way: dict[str, Any], op: str) -> None:
    """The first tap is infinite; the others are 1, so what is left out is known."""
    weight = np.ones((1, 1, 3), np.float32)
    weight[0, 0, 0 if op == "Conv" else 2] = np.inf
    x = np.float32([[[1, 2, 3]]])
    got = run(way, op, {"x": x}, {"w": weight}, pads=[1, 1])[0, 0]
    assert np.isnan(got[0]) or got[0] == 3
    assert (got[1:] == np.inf).all()


def model_of_opset(op: str, opset: int, **attributes: Any) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    names = ["x", "w"] if op == "Conv" else ["x"]
    weight = numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], "n", **attributes)],
        "g",
        [value("x", TensorProto.FLOAT, [1, 1, 2, 2])],
        [value("y", TensorProto.FLOAT, None)],
        [weight] if op == "Conv" else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


@pytest.mark.parametrize(
    ("op", "opset", "attributes", "runs"),
    [
        ("Relu", 6, {}, True),
        ("Relu", 5, {"consumed_inputs": [0]}, False),
        ("Conv", 1, {}, True),
        ("Reshape", 4, {"shape": [1, 1, 2, 2]}, False),
        ("Dropout", 6, {"is_test": 1}, True),
        ("Dropout", 6, {}, False),
    ],
)
def test_old_opsets_run_where_the_meaning_is_the_same(
    way: dict[str, Any], op: str, opset: int, attributes: dict[str, Any], runs: bool
) -> None:
    model = model_of_opset(op, opset, **attributes)
    x = np.float32([[[[1, 2], [3, 4]]]])
    if runs:
        assert np.array_equal(braze.build(model, **way)({"x": x})["y"], x)
        return
    with pytest.raises(braze.UnsupportedOpError, match="too old for this op"):
        braze.build(model, **way)


def test_level_1_computes_convolutions_directly(way: dict[str, Any]) -> None:
    """An infinity stays in the windows that see it; NaN is nowhere where no NaN went in."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 32, 12, 12)).astype(np.float32)
    w = (rng.standard_normal((32, 32, 3, 3)) * 0.05).astype(np.float32)
    x[0, 0, 5, 5] = np.inf
    y = run({**way, "optimization_level": 1}, "Conv", {"x": x}, {"w": w}, pads=[1, 1, 1, 1])
    sees = np.zeros((12, 12), bool)
    sees[4:7, 4:7] = True
    assert np.isfinite(y[..., ~sees]).all() and np.isinf(y[..., sees]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_denormals_are_zero_on_cpus(way: dict[str, Any], dtype: Any) -> None:
    """As operands and as results; the reference computes with them, and moves keep them."""
    small = float(ml_dtypes.finfo(dtype).smallest_normal)
    x = np.full((3, 5), small / 4, dtype)  # 15: whole vectors and a rest
    flat = np.zeros_like(x) if "reference" not in str(way) else x
    two, half = np.full_like(x, 2), np.full_like(x, 0.5)
    assert (x != 0).all()
    for op, other, want in (("Mul", two, flat * two), ("Add", x, flat + flat)):
        np.testing.assert_array_equal(run(way, op, {"a": x, "b": other}), want)
    under = run(way, "Mul", {"a": np.full_like(x, small), "b": half})
    np.testing.assert_array_equal(under, np.full_like(x, small / 2 if flat.any() else 0))
    equal = run(way, "Equal", {"a": x, "b": np.zeros_like(x)}, gives=TensorProto.BOOL)
    np.testing.assert_array_equal(equal, flat == 0)
    np.testing.assert_array_equal(run(way, "Transpose", {"a": x}), x.T)
    normal = np.full_like(x, small)
    np.testing.assert_array_equal(run(way, "Mul", {"a": normal, "b": two}), normal * two)


def test_denormals_of_float16_are_numbers(way: dict[str, Any]) -> None:
    x = np.arange(15, dtype=np.uint16).view(np.float16)
    want = (x.astype(np.float32) * 3).astype(np.float16)
    np.testing.assert_array_equal(run(way, "Mul", {"a": x, "b": np.full_like(x, 3)}), want)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_sequence_lengths(way: dict[str, Any], direction: str) -> None:
    """h' = x + h by weights of 1 and f(x) = x, so that states are sums of the steps taken."""
    steps, lens = 4, np.array([2, 0, -1, 4, 9], np.int32)
    x = np.arange(1, steps * lens.size + 1, dtype=np.float32).reshape(steps, lens.size, 1)
    one, first = np.ones((1, 1, 1), np.float32), np.full((1, lens.size, 1), 100, np.float32)
    feed = {"X": x, "L": lens, "H": first}
    nodes = [helper.make_node("RNN", ["X", "W", "R", "", "L", "H"], ["y", "h"], hidden_size=1,
                              activations=["Affine"], activation_alpha=[1.0],
                              activation_beta=[0.0], direction=direction)]  # fmt: skip
    info = helper.make_tensor_value_info
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        nodes, "g", [info(n, kind(a.dtype), a.shape) for n, a in feed.items()],
        [info(n, TensorProto.FLOAT, None) for n in "yh"],
        [numpy_helper.from_array(one, n) for n in "WR"],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    got = braze.build(model, **way)(feed)
    want = np.zeros((steps, 1, lens.size, 1), np.float32)
    last = first.copy()
    for b, taken in enumerate(np.clip(lens, 0, steps)):
        order = range(taken) if direction == "forward" else reversed(range(taken))
        for t in order:
            last[0, b] += x[t, b]
            want[t, 0, b] = last[0, b]
    np.testing.assert_array_equal(got["y"], want)
    np.testing.assert_array_equal(got["h"], last)


def test_slice_backwards_from_before_the_axis(way: dict[str, Any]) -> None:
    x = np.float32([1, 2, 3, 4])
    names = ("starts", "ends", "axes", "steps")
    for start, step, want in [(-9, -1, [1]), (-5, -2, [1]), (-4, -1, [1]), (9, -3, [4, 1])]:
        places = {k: np.array([v]) for k, v in zip(names, (start, -99, 0, step), strict=True)}
        assert run(way, "Slice", {"x": x}, places).tolist() == want


@pytest.mark.parametrize("aligned", [0, 1])
def test_cubic_samples_beyond_the_border(way: dict[str, Any], aligned: int) -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    grid = np.float32([[[[1.5, 0], [-1.5, 0], [40, 0], [0.25, 0]]]])
    attributes = {"mode": "cubic", "padding_mode": "border", "align_corners": aligned}
    got = run(way, "GridSample", {"x": x, "grid": grid}, opset=20, **attributes)
    assert got[0, 0, 0, :3].tolist() == [3, 0, 3]
    wanted = one_node("GridSample", [x, grid], opset=20, attributes=attributes)
    (want,) = ReferenceEvaluator(wanted).run(None, {"x0": x, "x1": grid})
    # products of the weights of 16 pixels below 4, rounded in float32
    np.testing.assert_allclose(got, want, rtol=0, atol=16 * 4 * 2**-23)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_samples_at_no_number(way: dict[str, Any], mode: str, padding: str) -> None:
    x = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    nan = np.nan
    wrong = np.float32([[nan, nan], [nan, 0.3], [0.3, nan], [0.3, -0.3]]).reshape(1, 1, 4, 2)
    right = np.where(np.isnan(wrong), np.float32(-1), wrong)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(mode == "linear")}
    got = run(way, "GridSample", {"x": x, "grid": wrong}, opset=20, **attributes)
    want = run(way, "GridSample", {"x": x, "grid": right}, opset=20, **attributes)
    np.testing.assert_array_equal(got, want)
    assert np.isfinite(got).all() and (got != 0).any()


def built(way: dict[str, Any], nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
    """An engine of a model whose weight "w", a float32 or bfloat16 of 64 x 64, may be an input."""
    info = helper.make_tensor_value_info
    random = np.random.default_rng(0).standard_normal((64, 64))
    kind = TensorProto.BFLOAT16 if inputs[0][1] == TensorProto.BFLOAT16 else TensorProto.FLOAT
    numbers = random.astype(helper.tensor_dtype_to_np_dtype(kind))
    weight = TensorProto(name="w", data_type=kind, dims=[64, 64], raw_data=numbers.tobytes())
    graph = helper.make_graph(
        nodes, "g", [info(*i) for i in inputs], [info(*o) for o in outputs], [weight]
    )
    opsets = [helper.make_opsetid("", 19)]
    return braze.build(helper.make_model(graph, opset_imports=opsets, ir_version=9), **way)


@pytest.mark.parametrize("declared", [[2, 4], ["p", "q"], None])
def test_a_loop_without_a_step(way: dict[str, Any], declared: list[int | str] | None) -> None:
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["c"], ["go on"]),
            helper.make_node("Identity", ["s"], ["carried"]),
            helper.make_node("Relu", ["s"], ["kept"]),
        ],
        "body",
        [info("i", 7, []), info("c", 9, []), info("s", 1, declared)],
        [info("go on", 9, []), info("carried", 1, declared), info("kept", 1, declared)],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["last", "y"], "loop", body=body)
    engine = built(way, [loop], [("n", 7, []), ("x", 1, ["a", 4])], [("y", 1, None)])
    feed = {"n": np.array(0), "x": np.ones((2, 4), np.float32)}
    assert engine(feed)["y"].shape == (0, 2, 4)
    assert engine(feed | {"n": np.array(3)})["y"].shape == (3, 2, 4)


def test_an_initializer_that_is_an_input_is_a_constant(way: dict[str, Any]) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs = [("x", 1, ["n", 64]), ("w", 1, [64, 64])]
    engine = built(way, [node], inputs, [("y", 1, None)])
    assert [i.name for i in engine.inputs] == ["x"]
    x, w = np.ones((2, 64), np.float32), np.zeros((64, 64), np.float32)
    with pytest.raises(braze.BindingError, match="'w'"):
        engine({"x": x, "w": w})
    # unless the build is told that it is to be fed
    engine = built({**way, "shapes": {"w": (64, 64)}}, [node], inputs, [("y", 1, None)])
    assert not engine({"x": x, "w": w})["y"].any()
    with pytest.raises(braze.BindingError, match="'w'"):
        engine({"x": x})


@pytest.mark.parametrize("rows", [3, "n"])
def test_a_cast_and_an_output_of_one_bfloat16_tensor(way: dict[str, Any], rows: int | str) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Tanh", ["a"], ["y"]),
        helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT),
    ]
    outputs = [("y", TensorProto.BFLOAT16, None), ("z", TensorProto.FLOAT, None)]
    engine = built(way, nodes, [("x", TensorProto.BFLOAT16, [rows, 64])], outputs)
    x = np.random.default_rng(1).standard_normal((3, 64)) / 8
    got = engine({"x": x.astype(ml_dtypes.bfloat16)})
    # the same number, before its rounding or behind it
    np.testing.assert_array_equal(got["z"].astype(ml_dtypes.bfloat16), got["y"])
