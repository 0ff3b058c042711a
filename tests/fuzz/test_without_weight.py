"""Values of weight 0 that are infinite or NaN: met or left out, and no other result is allowed."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dtypes import F32
from braze.frontend.onnx.importer import import_network
from braze.ir.graph import Node, TensorType, Value
from braze.ops.product.attention import FusedAttention
from braze.ops.product.matmul import MatMul
from tests.fuzz.case import Case, Step, Tensor
from tests.fuzz.expected import expected
from tests.fuzz.left_open import unseen
from tests.fuzz.test_found import right


def _value(*shape: int) -> Value:
    return Value("v", TensorType(F32, shape))


def test_a_hidden_value_may_be_left_out_and_a_seen_one_may_not() -> None:
    """Query 0 of causal attention sees key 0 alone, and query 1 both; key 1's value is NaN."""
    q, k, v, out = (_value(1, 1, 2, 2) for _ in range(4))
    values = {u: np.ones((1, 1, 2, 2)) for u in (q, k, v)}
    values[v][0, 0, 1, 0] = np.nan
    op = FusedAttention(1.0, causal=True)
    values[out] = op.reference(values[q], values[k], values[v])[0]
    assert np.isnan(values[out])[0, 0].tolist() == [[True, False], [True, False]]
    drawn = unseen(Node(op, (q, k, v), (out,)), values, False)[out]
    assert np.isnan(drawn)[0, 0].tolist() == [[False, False], [True, False]]
    assert drawn[0, 0, 0, 0] == 1.0


def test_products_of_other_graphs_leave_nothing_out() -> None:
    """Zero times NaN is NaN in a product that no softmax is in front of."""
    a, b, out = _value(1, 2), _value(2, 1), _value(1, 1)
    values = {a: np.array([[1.0, 0.0]]), b: np.array([[1.0], [np.nan]]), out: np.array([[np.nan]])}
    node = Node(MatMul(), (a, b), (out,))
    assert unseen(node, values, False) == {}
    assert unseen(node, values, True)[out].tolist() == [[1.0]]


@pytest.mark.parametrize(("mode", "open_at"), [("linear", [2]), ("cubic", [1, 2, 4])])
@pytest.mark.parametrize("width", [7, 13])
def test_an_axis_that_the_run_keeps_may_be_resampled(
    mode: str, open_at: list[int], width: int
) -> None:
    """Where one of a place's taps is infinite and has no weight there is NaN or a number; another
    size is resampled by all, and one that the build knows to be kept by none."""
    steps = (Step("Concat", ("front", "width"), ("s",), {"axis": 0}),
             Step("Resize", ("x", "", "", "s"), ("y",), {"mode": mode}))  # fmt: skip
    row = (1, 2, 3, np.inf, 5, 6, 7)
    inputs = {"x": Tensor("float32", (1, 1, 1, 7), values=row),
              "width": Tensor("int64", (1,), values=(width,))}  # fmt: skip
    constants = {"front": Tensor("int64", (3,), values=(1, 1, 2))}
    case = Case(steps, inputs, ("y",), constants)
    right(case)
    want = expected(import_network(case.model()).graph, case.feed({}), runs=20, edges=True)["y"]
    unsure = (~want.sure).any(axis=2).ravel()
    assert np.flatnonzero(unsure).tolist() == (open_at if width == 7 else [])
