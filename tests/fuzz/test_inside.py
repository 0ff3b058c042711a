"""Control flow around the nodes of a case."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.fuzz.case import Case, Step, Tensor
from tests.fuzz.checks import check
from tests.fuzz.inside import KINDS, inside
from tests.fuzz.ways import Variant

CASE = Case(
    (
        Step("MatMul", ("x", "w"), ("a",)),
        Step("Softmax", ("a",), ("b",)),
        Step("ReduceSum", ("b", "axis"), ("c",), {"keepdims": 0}),
    ),
    {"x": Tensor("float32", ("n", 3, 4))},
    ("a", "c"),
    {"w": Tensor("float32", (4, 5), seed=2), "axis": Tensor("int64", (1,), values=(0,))},
    {"n": (1, 2, 3)},
)
TYPES = dict.fromkeys(CASE.outputs, onnx.TensorProto.FLOAT)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_inside_computes_the_same(kind: str) -> None:
    for number in range(4):
        outcome = check(CASE, number, (Variant(1, "reference", inside=kind),))
        assert (outcome.status, outcome.reason) == ("right", "")


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime says."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: list[np.ndarray] = session.run(None, feed)
    return found


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "map"])
def test_onnx_runtime_agrees(kind: str) -> None:
    """Each model is valid, and its flow passes on what it should. (ONNX Runtime writes SequenceMap
    out as a loop, for which it wants element types that these models leave to be found.)
    """
    feed = CASE.feed(CASE.env(1))
    want = run(CASE.model(), feed)
    for number in range(3):
        made, more = inside(CASE.model(), kind, number, TYPES)
        assert {i.name for i in made.graph.input} == {"x", *more}
        flow = {n.op_type for n in made.graph.node} & {"If", "Loop", "Scan", "SequenceMap"}
        assert flow or kind == "box"
        for got, array in zip(run(made, {**feed, **more}), want, strict=True):
            np.testing.assert_allclose(got, array, rtol=1e-5)  # sums of five in another order


def test_what_an_opset_lacks_becomes_a_loop() -> None:
    old = CASE.model()
    old.opset_import[0].version = 9
    made, _ = inside(old, "map", 0, TYPES)
    assert [n.op_type for n in made.graph.node].count("Loop") == 1
