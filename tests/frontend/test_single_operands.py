"""Operands that are one number: of any rank, and with more or no elements refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.core.errors import BrazeError, ModelError, ShapeError
from braze.frontend.onnx.importer import import_model
from tests.frontend.onnx_models import info, model, node, tensor
from tests.frontend.test_operand_shapes import ANY, CODES, one, refusal, run

X = np.arange(10, dtype=np.float32).reshape(2, 5)
BOXES = np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], np.float32)
SCORES = np.array([[[0.25, 0.5]]], np.float32)
HALF, NONE, THREE = np.array(0.5, np.float32), np.array(0, np.float32), np.array(3, np.int64)
HERTZ = np.array([0.0, 4000.0], np.float32)


# op, what is given, constants with the number in question as "k", names of inputs, the operand
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str, str]] = [
    ("TopK", {"x": X}, {"k": np.array(2)}, "x k", "k"),
    ("CumSum", {"x": X}, {"k": np.array(1)}, "x k", "axis"),
    ("Trilu", {"x": X}, {"k": np.array(1)}, "x k", "k"),
    ("Range", {}, {"k": np.array(0), "b": THREE, "c": np.array(1)}, "k b c", "start"),
    ("Range", {}, {"a": np.array(0), "k": THREE, "c": np.array(1)}, "a k c", "limit"),
    ("Range", {}, {"a": np.array(0), "b": THREE, "k": np.array(1)}, "a b k", "delta"),
    ("OneHot", {"x": np.array([0, 1])}, {"k": THREE, "v": HERTZ}, "x k v", "depth"),
    ("Clip", {"x": X}, {"k": HALF}, "x k", "min"),
    ("Clip", {"x": X}, {"k": HALF}, "x - k", "max"),
    ("Pad", {"x": X}, {"p": np.array([0, 1, 0, 1]), "k": HALF}, "x p k", "constant_value"),
    ("Dropout", {"x": X}, {"k": HALF}, "x k", "ratio"),
    ("Dropout", {"x": X}, {"r": HALF, "k": np.array(False)}, "x r k", "training_mode"),
    (
        "NonMaxSuppression",
        {"b": BOXES, "s": SCORES},
        {"k": THREE},
        "b s k",
        "max_output_boxes_per_class",
    ),
    ("NonMaxSuppression", {"b": BOXES, "s": SCORES}, {"m": THREE, "k": HALF}, "b s m k", "iou"),
    ("NonMaxSuppression", {"b": BOXES, "s": SCORES}, {"m": THREE, "k": HALF}, "b s m - k", "score"),
    ("DFT", {"x": X.reshape(1, 10, 1)}, {"k": np.array(4)}, "x k", "dft_length"),
    ("DFT", {"x": X.reshape(1, 10, 1)}, {"k": np.array(1)}, "x - k", "axis"),
    ("STFT", {"x": X.reshape(1, 10, 1)}, {"k": np.array(2), "f": THREE}, "x k - f", "frame_step"),
    ("STFT", {"x": X.reshape(1, 10, 1)}, {"s": np.array(2), "k": THREE}, "x s - k", "frame_length"),
    (
        "MelWeightMatrix",
        {},
        {"k": THREE, "n": np.array(16), "r": np.array(8000), "a": HERTZ[0], "b": HERTZ[1]},
        "k n r a b",
        "num_mel_bins",
    ),
    (
        "MelWeightMatrix",
        {},
        {"m": THREE, "n": np.array(16), "r": np.array(8000), "a": HERTZ[0], "k": HERTZ[1]},
        "m n r a k",
        "upper_edge_hertz",
    ),
]


@pytest.mark.parametrize(("op", "given", "constants", "names", "what"), CASES)
def test_operands_of_one_number(
    op: str, given: dict[str, Any], constants: dict[str, Any], names: str, what: str
) -> None:
    number = np.asarray(constants["k"])
    wanted = run(one(op, given, constants, names), **given)
    for shape in ((1,), (1, 1)):
        proto = one(op, given, {**constants, "k": number.reshape(shape)}, names)
        np.testing.assert_array_equal(run(proto, **given), wanted)
    for bad in (np.stack([number, number]), number.reshape(1)[:0]):
        text = refusal(one(op, given, {**constants, "k": bad}, names))
        assert f"node 'here' ({op}): {what}" in text, text
        assert f"'k' has shape {list(bad.shape)} but must be one number" in text


@pytest.mark.parametrize("op", ["TopK", "CumSum", "Trilu"])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_number_of_open_size_is_counted_in_the_run(op: str, target: str) -> None:
    k = np.array([1])
    proto = one(op, {"x": X, "k": k}, {}, "x k", dynamic="xk")
    engine = braze.build(proto, target=target, optimization_level=0)
    wanted = run(one(op, {"x": X}, {"k": k}, "x k"), x=X)
    np.testing.assert_array_equal(engine({"x": X, "k": k})["y"], wanted)
    for bad in (np.array([1, 1]), np.array([], np.int64)):
        with pytest.raises(ShapeError, match=f"node 'here' .{op}.: .*'k' must be one number"):
            engine({"x": X, "k": bad})


@pytest.mark.parametrize("names", ["x k", "x - k"])
def test_bounds_of_open_size(names: str) -> None:
    proto = one("Clip", {"x": X, "k": X[0, :1]}, {}, names, dynamic="xk")
    engine = braze.build(proto, target="reference", optimization_level=0)
    assert engine({"x": X, "k": X[0, 3:4]})["y"].shape == X.shape
    with pytest.raises(ShapeError, match=r"'here' .Clip.: m.. 'k' must be one number"):
        engine({"x": X, "k": X[0]})


@pytest.mark.parametrize("zero", [0, 3])
def test_parameters_of_quantized_ops(zero: int) -> None:
    def add(shape: tuple[int, ...], which: str) -> onnx.ModelProto:
        constants = {"s": HALF, "z": np.array(zero, CODES)}
        constants["k"] = np.full(shape, constants[which])
        names = ["x", "s", "z", "x", "s", "z", "s", "z"]
        names[names.index(which)] = "k"
        given = {"x": X.astype(CODES)}
        return one("QLinearAdd", given, constants, " ".join(names), domain="com.microsoft")

    for which in "sz":
        for shape in ((), (1,), (1, 1)):
            assert run(add(shape, which), x=X.astype(CODES)).shape == X.shape
        for bad in ((2,), (5,), (0,)):
            text = refusal(add(bad, which))
            assert "'here' (QLinearAdd): " in text and "zero point 'k' has shape" in text


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize(("at", "what"), [(1, "x_scale"), (2, "x_zero_point"), (7, "y_zero_point")])
def test_parameters_of_quantized_convolutions(zero: int, at: int, what: str) -> None:
    names = ["x", "s", "z", "w", "s", "z", "s", "z"]
    x = np.ones((1, 2, 3, 3), CODES)
    constants = {"s": HALF, "z": np.array(zero, CODES), "w": np.ones((2, 2, 1, 1), CODES)}
    plain = run(one("QLinearConv", {"x": x}, constants, " ".join(names)), x=x)
    number = constants[names[at]]
    names[at] = "k"
    for shape in ((1,), (2,)):
        proto = one(
            "QLinearConv", {"x": x}, {**constants, "k": np.full(shape, number)}, " ".join(names)
        )
        if shape == (1,):
            np.testing.assert_array_equal(run(proto, x=x), plain)
        else:
            assert f"'here' (QLinearConv): {what} 'k' has shape [2]" in refusal(proto)


# ---- control flow ---------------------------------------------------------------------------


def loop(trip: np.ndarray, going: np.ndarray, given: bool) -> onnx.ModelProto:
    """A Loop that doubles x; given: what steers it is an input of the model."""
    x, i, more = info("a", [2]), info("i", [], 7), info("more", [], 9)
    again = onnx.ValueInfoProto(name="again")
    made = [node("Add", ["a", "a"], ["twice"]), node("Identity", ["more"], ["again"])]
    body = onnx.helper.make_graph(
        made, "body", [i, more, x], [again, onnx.ValueInfoProto(name="twice")]
    )
    steering = {"trip": trip, "going": going}
    kinds = {"trip": 7, "going": 9}
    inputs = [info(k, v.shape, kinds[k]) for k, v in steering.items()]
    return model(
        [node("Loop", ["trip", "going", "x"], ["y"], name="here", body=body)],
        [info("x", [2]), *(inputs if given else [])],
        [ANY],
        initializers=[] if given else [tensor(k, v) for k, v in steering.items()],
    )


@pytest.mark.parametrize("given", [False, True])
def test_what_steers_a_loop_is_one_number(given: bool) -> None:
    three, yes = np.array(3), np.array(True)
    for trip, going in ((three, yes), (three.reshape(1), yes.reshape(1))):
        feeds = {"x": X[0, 1:3], **({"trip": trip, "going": going} if given else {})}
        np.testing.assert_array_equal(run(loop(trip, going, given), **feeds), 8 * X[0, 1:3])
    for trip, going in ((np.array([3, 2]), yes), (three, np.array([True, True]))):
        with pytest.raises(BrazeError, match=r"node 'here' .Loop"):
            import_model(loop(trip, going, given))


@pytest.mark.parametrize("size", [0, 2])
def test_a_condition_is_one_bool(size: int) -> None:
    made = [node("Neg", ["x"], ["n"])]
    branch = onnx.helper.make_graph(made, "b", [], [onnx.ValueInfoProto(name="n")])
    proto = model(
        [node("If", ["p"], ["y"], name="here", then_branch=branch, else_branch=branch)],
        [info("x", [2]), info("p", [size], 9)],
        [ANY],
    )
    with pytest.raises(ModelError, match=r"node 'here' .If.: the condition must be one bool"):
        import_model(proto)
