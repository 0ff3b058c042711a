"""Indexes that are constants or made of sizes are checked as those in data are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import braze
from braze.core.errors import BrazeError, ModelError, ShapeError
from tests.ops.one_node import one_node
from tests.pairs import pairwise

Array = np.ndarray[Any, Any]
WAYS = [(level, target) for level in (0, 1, 3) for target in ("cpu", "reference")]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
# op, its attributes, and the operands behind the data by name; INDEX is what is varied
INDEX = "index"
OPS: dict[str, tuple[str, dict[str, Any], list[Any], tuple[int, ...]]] = {
    "Gather": ("Gather", {"axis": 0}, [INDEX], (1,)),
    "Gather scalar": ("Gather", {"axis": 0}, [INDEX], ()),
    "GatherElements": ("GatherElements", {"axis": 0}, [INDEX], (1, 1)),
    "GatherND": ("GatherND", {}, [INDEX], (1, 1)),
    "ScatterElements": ("ScatterElements", {"axis": 0}, [INDEX, np.full((1, 1), 9, "f4")], (1, 1)),
    "ScatterND": ("ScatterND", {}, [INDEX, np.full((1, 3), 9, "f4")], (1, 1)),
}
FAR = (2, -3, 10**6, -(10**9), 2**31 - 1)


def built(op: str, index: int, dtype: str, way: tuple[int, str]) -> Any:
    """An engine of the op with a constant index."""
    name, attributes, operands, shape = OPS[op]
    array = np.full(shape, index, dtype)
    held = [array if o is INDEX else o for o in operands]
    constant = range(1, len(held) + 1)
    model = one_node(name, [X, *held], opset=18, constant=constant, attributes=attributes)
    return braze.build(model, optimization_level=way[0], target=way[1])


@pytest.mark.parametrize(("op", "index", "way"), pairwise(list(OPS), FAR, WAYS))
def test_a_constant_index_out_of_range_raises(op: str, index: int, way: tuple[int, str]) -> None:
    with pytest.raises(BrazeError, match=r"range|outside"):
        built(op, index, "int64", way)({"x0": X})


@pytest.mark.parametrize(("op", "way"), pairwise(list(OPS), WAYS))
def test_a_constant_index_in_range_is_right(op: str, way: tuple[int, str]) -> None:
    for index in (0, 1) if way[0] % 2 else (-1, -2):
        want = built(op, index, "int64", (0, "reference"))({"x0": X})["y0"]
        got = built(op, index, "int64", way)({"x0": X})["y0"]
        np.testing.assert_array_equal(got, want, f"{index}")


TABLE = ",".join(map(str, range(8)))
POSITIONS = (
    '<ir_version: 9, opset_import: ["" : 17]> g (float[1,L] x) => (float[1,L] y) '
    f"<float[8] table = {{{TABLE}}}, int64[1] one = {{1}}> {{"
    "n = Shape<start=1,end=2>(x) p = Sub(n, one) e = Gather<axis=0>(table, p) y = Add(x, e) }"
)
LAST = (
    '<ir_version: 9, opset_import: ["" : 17]> g (float[2,L] x) => (float[2,1] y) '
    "<int64[1] i = {7}> { y = Gather<axis=1>(x, i) }"
)


@pytest.mark.parametrize(("level", "target"), WAYS)
def test_an_index_made_of_sizes(level: int, target: str) -> None:
    shapes = {"x": ((1, 1), (1, 5), (1, 5_000_000))}
    model = parser.parse_model(POSITIONS)
    engine = braze.build(model, optimization_level=level, target=target, shapes=shapes)
    for n in (1, 5, 8):
        got = engine({"x": np.zeros((1, n), np.float32)})["y"]
        assert (got == n - 1).all()
    for n in (9, 3_000_000):
        with pytest.raises(BrazeError, match="range"):
            engine({"x": np.zeros((1, n), np.float32)})


@pytest.mark.parametrize(("level", "target"), WAYS)
def test_a_constant_index_into_an_axis_of_the_run(level: int, target: str) -> None:
    model = parser.parse_model(LAST)
    shapes = {"x": ((2, 1), (2, 4), (2, 9))}
    engine = braze.build(model, optimization_level=level, target=target, shapes=shapes)
    x = np.arange(18, dtype=np.float32).reshape(2, 9)
    assert np.array_equal(engine({"x": x})["y"], x[:, 7:8])
    with pytest.raises(BrazeError, match="range"):
        engine({"x": x[:, :4].copy()})


def test_other_ops_with_places_of_constants() -> None:
    reverse = {"batch_axis": 1, "time_axis": 0}
    boxes = np.array([[0, 0, 2, 2]], np.float32)
    picture, scores = np.ones((2, 1, 4, 4), np.float32), np.ones((1, 3), np.float32)
    cases: list[tuple[str, list[Array], dict[str, Any]]] = [
        ("ReverseSequence", [np.ones((3, 2), np.float32), np.array([9, 1])], reverse),
        ("RoiAlign", [picture, boxes, np.array([5])], {"sampling_ratio": 1}),
        ("NegativeLogLikelihoodLoss", [scores, np.array([7])], {"reduction": "none"}),
    ]
    for op, operands, attributes in cases:
        held = range(1, len(operands))
        model = one_node(op, operands, opset=18, constant=held, attributes=attributes)
        for level, target in WAYS:
            with pytest.raises(BrazeError):
                braze.build(model, optimization_level=level, target=target)({"x0": operands[0]})


@pytest.mark.parametrize(("level", "target"), WAYS)
def test_content_given_at_build_time(level: int, target: str) -> None:
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[2,3] x, int64[1] i) => (float[1,3] y)'
    model = parser.parse_model(text + " { y = Gather<axis=0>(x, i) }")
    values = {"i": np.array([2])}
    with pytest.raises(BrazeError, match=r"range|outside"):
        braze.build(model, optimization_level=level, target=target, values=values)(
            {"x": X, "i": values["i"]}
        )


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_sizes_made_of_numbers_that_are_none_are_refused(number: float) -> None:
    one, wrong = np.float32(1), np.float32(number)
    given = [np.asarray(v) for v in (np.float32(0), wrong, one)]
    model = one_node("Range", given, opset=18, constant=(0, 1, 2), attributes={})
    with pytest.raises(ModelError, match="number of steps"):
        braze.build(model)
    scales = np.array([1, 1, number, 1], np.float32)
    picture = np.ones((1, 1, 2, 2), np.float32)
    model = one_node("Resize", [picture, None, scales], opset=18, constant=(2,), attributes={})
    with pytest.raises(ShapeError, match="must be positive"):
        braze.build(model)


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
@pytest.mark.parametrize("added", [False, True])
def test_an_index_into_a_constant_of_one_element_is_checked(op: str, added: bool) -> None:
    """The element was put in place of the load, and the check went with it."""
    kept = "g = Add(t, t)" if added else "g = Identity(t)"
    shape = "2,1" if op == "GatherND" else "2"
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
        agraph (int64[{shape}] i) => (float[2] y) <float[1] c = {{2.5}}> {{
            t = {op}(c, i)
            {kept}
            y = Neg(g)
        }}"""
    model = parser.parse_model(text)
    for level, target in WAYS:
        engine = braze.build(model, optimization_level=level, target=target)
        inside = np.array([0, -1]).reshape([int(d) for d in shape.split(",")])
        np.testing.assert_array_equal(engine({"i": inside})["y"], -2.5 * (1 + added))
        for index in FAR:
            with pytest.raises(BrazeError, match=r"range|outside"):
                engine({"i": np.full_like(inside, index)})
