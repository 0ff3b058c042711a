"""RNN, GRU and LSTM nodes: engines and the reference against float64, and against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import braze
from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from braze.ops.evaluator import evaluate
from tests.recurrent.cases import TOLERANCES, Case, draw

Array = np.ndarray[Any, Any]


def exact(case: Case) -> dict[str, Array]:
    """The outputs in float64 arithmetic."""
    return evaluate(import_network(case.model()).graph, case.feed(), float64=True)


def compare(got: dict[str, Array], want: dict[str, Array], dtype: str) -> None:
    """Every output within the tolerance of its type."""
    for name, value in want.items():
        assert got[name].shape == value.shape
        tolerance = TOLERANCES[dtype]
        np.testing.assert_allclose(
            got[name].astype("f8"), value.astype("f8"), rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("number", range(40))
def test_engines_are_right(number: int) -> None:
    case = draw(number)
    want = exact(case)
    # what a number draws does not follow from its being odd
    engine = braze.build(case.model(), optimization_level=number % 2, threads=2)
    compare(engine(case.feed()), want, case.dtype)
    reference = braze.build(case.model(), target="reference", optimization_level=1)
    compare(reference(case.feed()), want, case.dtype)


@pytest.mark.parametrize("number", range(100, 150))
def test_float64_is_onnxruntimes(number: int) -> None:
    """Rows without a step are left out: ONNX Runtime gives zeros as their last state."""
    case = draw(number, steps=4, dtype="float32")
    lens = case.inputs[4] if len(case.inputs) > 4 else None
    if case.attributes["layout"] or (lens is not None and not lens.all()):
        pytest.skip("layout 1 and empty rows are not ONNX Runtime's")
    session = onnxruntime.InferenceSession(
        case.model(opset=21).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    got = dict(zip(exact(case), session.run(None, case.feed()), strict=True))
    compare(got, exact(case), "float32")


@pytest.mark.parametrize("number", range(200, 216))
def test_dynamic_sizes(number: int) -> None:
    """One engine for all lengths from 0 up and all batches: the bits of a static one, which is
    built for one of the lengths in turn."""
    case = draw(number, steps=6, dtype="float32")
    if len(case.inputs) > 4 and case.inputs[4] is not None:
        case = Case(case.op, (*case.inputs[:4], None, *case.inputs[5:]), case.attributes,
                    case.constant, case.outputs, case.dtype)  # fmt: skip
    layout = case.attributes["layout"]
    feed, profile = case.feed(), {}
    if len(case.constant) < 2:
        pytest.skip("weights of unknown size")
    for name, a in feed.items():
        batch_axis = layout if name == "x0" else 1
        batch_axis = 0 if layout else batch_axis
        low, high = list(a.shape), list(a.shape)
        low[batch_axis], high[batch_axis] = 1, 9
        if name == "x0":
            low[layout], high[layout] = 0, 9
        profile[name] = (tuple(low), a.shape, tuple(high))
    engine = braze.build(case.model(dynamic=True), shapes=profile, optimization_level=1)
    for length in (0, 1, 6, 9):
        cut = dict(feed)
        x = np.concatenate([feed["x0"]] * 2, axis=layout)
        cut["x0"] = np.take(x, range(length), axis=layout)
        inputs = (cut["x0"], *case.inputs[1:])
        static = Case(case.op, inputs, case.attributes, case.constant, case.outputs, case.dtype)
        compare(engine(cut), exact(static), "float32")
        if length == (1, 6, 9)[number % 3]:
            want = braze.build(static.model(), optimization_level=1)(cut)
            for name, value in engine(cut).items():
                np.testing.assert_array_equal(value, want[name])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"direction": "sideways"}, "direction 'sideways'"),
        ({"hidden_size": 4}, "hidden_size is 4"),
        ({"activations": ["Tanh", "Tanh"]}, "2 activations"),
        ({"activations": ["Sine"]}, "activation 'Sine'"),
        ({"activations": ["ScaledTanh"]}, "no default parameters"),
    ],
)
def test_refusals(attributes: dict[str, Any], message: str) -> None:
    x = np.zeros((2, 3, 4), np.float32)
    weights = np.zeros((1, 5, 4), np.float32), np.zeros((1, 5, 5), np.float32)
    case = Case("RNN", (x, *weights), attributes, frozenset({1, 2}), 1, "float32")
    with pytest.raises(BrazeError, match=message):
        import_network(case.model())
