"""Tensors without elements, as inputs and as constants: every op works as onnx's evaluator does.

Nothing here is large, so results are compared exactly: they are empty, zeros, or neutral elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import braze
from braze.core.errors import ShapeError
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate
from tests.ops.one_node import one_node

Array = np.ndarray[Any, Any]
Case = tuple[str, list[Array], dict[str, Any]]


def z(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def ints(*shape: int) -> Array:
    return np.zeros(shape, np.int64)


# op, inputs, attributes: run with all inputs given, and with each subset listed as constants
CASES: list[Case] = [
    ("Gather", [z(3, 4), ints(0)], {"axis": 0}),
    ("Gather", [z(0, 4), ints(0)], {"axis": 0}),
    ("GatherElements", [z(3, 4), ints(0, 4)], {"axis": 0}),
    ("GatherND", [z(3, 4), ints(0, 2)], {}),
    ("MatMul", [z(2, 0), z(0, 3)], {}),
    ("MatMul", [z(0, 4), z(4, 3)], {}),
    ("MatMul", [z(2, 4), z(4, 0)], {}),
    ("MatMul", [z(2, 3, 0), z(0, 3)], {}),
    ("MatMul", [z(0), z(0)], {}),
    ("Gemm", [z(2, 0), z(0, 3), np.ones(3, np.float32)], {}),
    ("Conv", [z(1, 0, 5), z(2, 0, 3)], {}),
    ("Conv", [z(1, 3, 5), z(0, 3, 3)], {}),
    ("Conv", [z(0, 3, 5), z(2, 3, 3)], {}),
    ("Conv", [z(1, 0, 5, 5), z(2, 0, 3, 3)], {}),
    ("Conv", [z(1, 3, 5, 5), z(0, 3, 3, 3)], {}),
    ("Conv", [z(0, 3, 5, 5), z(2, 3, 3, 3)], {}),
    ("ConvTranspose", [z(1, 0, 5), z(0, 2, 3)], {}),
    ("Concat", [z(0, 3), z(0, 3)], {"axis": 0}),
    ("Concat", [z(0, 3), z(2, 3)], {"axis": 0}),
    ("Add", [z(0, 3), z(1, 3)], {}),
    ("Add", [z(1, 3), z(0, 1)], {}),
    ("ScatterElements", [z(3, 4), ints(0, 4), z(0, 4)], {"axis": 0}),
    ("ScatterElements", [z(0, 4), ints(0, 4), z(0, 4)], {"axis": 0}),
    ("ScatterND", [z(3, 4), ints(0, 1), z(0, 4)], {}),
    ("Where", [np.zeros((0, 3), bool), z(3), z(1, 3)], {}),
    ("LayerNormalization", [z(0, 4), z(4), z(4)], {}),
    ("InstanceNormalization", [z(2, 0, 4), z(0), z(0)], {}),
    ("ReduceSum", [z(0, 3)], {}),
    ("ReduceProd", [z(2, 0)], {}),
    ("Softmax", [z(3, 0)], {}),
    ("Transpose", [z(0, 3)], {}),
    ("Flatten", [z(2, 0, 3)], {}),
    ("MaxPool", [z(0, 3, 5, 5)], {"kernel_shape": [2, 2]}),
    ("AveragePool", [z(1, 0, 5, 5)], {"kernel_shape": [2, 2]}),
    ("DepthToSpace", [z(0, 4, 2, 2)], {"blocksize": 2}),
    ("Shape", [z(0, 3)], {}),
    ("Cast", [z(0, 3)], {"to": onnx.TensorProto.INT64}),
]


def subsets(count: int) -> list[tuple[int, ...]]:
    """No constants, each input alone a constant, all but the first."""
    singles = [(i,) for i in range(count)] if count > 1 else []
    return list(dict.fromkeys([(), *singles, tuple(range(1, count))]))


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}{[x.shape for x in c[1]]}")
def test_tensors_without_elements(case: Case, level: int) -> None:
    op, inputs, attributes = case
    for constant in subsets(len(inputs)):
        model = one_node(op, inputs, opset=17, constant=constant, attributes=attributes)
        feeds = {f"x{i}": x for i, x in enumerate(inputs) if i not in constant}
        (want,) = ReferenceEvaluator(model).run(None, feeds)
        got = braze.build(model, optimization_level=level, threads=1)(feeds)["y0"]
        assert got.shape == np.shape(want), constant
        np.testing.assert_array_equal(got, want, err_msg=f"constants {constant}")


# What would be made of elements that there are none of: op, sizes, inputs behind x, attributes
MADE_OF_NONE: list[tuple[str, tuple[int, ...], list[Array], dict[str, Any]]] = [
    *[
        ("Pad", (2, 0), [np.array([0, 1, 0, 1])], {"mode": mode})
        for mode in ("edge", "reflect", "wrap")
    ],
    *[
        ("Resize", (1, 2, 0, 3), [z(0), z(0), np.array([1, 2, 4, 3])], {"mode": mode})
        for mode in ("nearest", "linear", "cubic")
    ],
    ("ArgMax", (2, 0), [], {"axis": 1}),
    ("ArgMin", (0, 2), [], {"axis": 0, "keepdims": 0}),
]


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(("op", "sizes", "more", "given"), MADE_OF_NONE)
def test_what_would_be_made_of_nothing_is_refused(
    op: str, sizes: tuple[int, ...], more: list[Array], given: dict[str, Any], target: str
) -> None:
    """Pads and images of empty axes were read from beside the tensor, and extremes were at 0."""
    constant = range(1, 1 + len(more))
    model = one_node(
        op, [z(*sizes), *more], constant=constant, opset=20, dynamic=True, attributes=given
    )
    engine = braze.build(model, target=target, optimization_level=1)
    with pytest.raises(ShapeError, match=op):
        engine({"x0": z(*sizes)})
    (y,) = engine({"x0": np.ones([max(n, 1) for n in sizes], np.float32)}).values()
    np.testing.assert_array_equal(y, np.ones_like(y) if y.dtype == np.float32 else 0)


@pytest.mark.parametrize("op", ["Pad", "Resize", "ArgMax"])
def test_what_would_be_made_of_nothing_is_refused_by_a_build(op: str) -> None:
    _, sizes, more, given = next(c for c in MADE_OF_NONE if c[0] == op)
    constant = range(1, 1 + len(more))
    with pytest.raises(ShapeError, match=op):
        braze.build(one_node(op, [z(*sizes), *more], opset=20, constant=constant, attributes=given))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_what_needs_no_elements_has_none(target: str) -> None:
    """Beside an image of no pixels everything is zero; Hardmax of an empty axis is empty."""
    grid = np.zeros((1, 2, 3, 2), np.float32)
    sampled = one_node(
        "GridSample", [z(1, 2, 0, 5), grid], constant=[1], opset=20, dynamic=True, attributes={}
    )
    hard = one_node("Hardmax", [z(2, 0)], opset=20, dynamic=True, attributes={"axis": 1})
    for model, feed, want in (
        (sampled, {"x0": z(1, 2, 0, 5)}, z(1, 2, 2, 3)),
        (hard, {"x0": z(2, 0)}, z(2, 0)),
    ):
        (y,) = braze.build(model, target=target, optimization_level=1)(feed).values()
        np.testing.assert_array_equal(y, want)
        (exact,) = evaluate(import_model(model), feed).values()
        np.testing.assert_array_equal(exact, want)
