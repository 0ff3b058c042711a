"""Floats of several types where ONNX wants one: they are widened, and the import says where."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

import braze
from braze.core.errors import ModelError
from braze.frontend.onnx.importer import check_model

X = np.array([[1.5, -2, 1 / 3]], np.float16)
W = np.array([[0.1, 1e-6, 3]], np.float32)


def network(body: str, y: str = "float", w: str = "float", opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : {opset}]>
g (float16[1,3] x, {w}[1,3] w, bool[1,3] c) => ({y}[1,M] y) {{ {body} }}""")


def run(model: onnx.ModelProto, **feed: Any) -> np.ndarray:
    given = {"x": X, "w": W, "c": X > 0, **feed}
    used = {i.name: given[i.name] for i in model.graph.input}
    return braze.build(model, optimization_level=1)(used)["y"]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("y = Add(x, w)", X.astype("f4") + W),
        ("y = Mul(w, x)", X.astype("f4") * W),
        ("y = Where(c, x, w)", np.where(X > 0, X.astype("f4"), W)),
        ("y = Concat<axis = 1>(x, w, x)", np.concatenate([X.astype("f4"), W, X.astype("f4")], 1)),
    ],
    ids=["first is narrow", "second is narrow", "of two of three", "variadic"],
)
def test_narrow_ones_are_widened(body: str, want: np.ndarray) -> None:
    got = run(network(body))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want)  # one operation of float32


def test_doubles_stay_doubles() -> None:
    got = run(network("y = Sub(w, x)", "double", "double"), w=W.astype("f8"))
    np.testing.assert_array_equal(got, W.astype("f8") - X.astype("f8"))


def test_outputs_have_the_types_that_are_declared() -> None:
    """What follows is computed in float32, and rounded once."""
    got = run(network("a = Add(x, w) y = Mul(a, x)", "float16"))
    wide = X.astype("f4")
    np.testing.assert_array_equal(got, ((wide + W) * wide).astype("f2"))


def test_the_import_says_what_was_cast() -> None:
    notes = [f.reason for f in check_model(network("y = Add(x, w)")) if f.reason]
    assert notes == ["node 'Add_0' (Add): its inputs mix types; cast to float32: 'x' from float16"]
    assert all(f.supported for f in check_model(network("y = Add(x, w)")))


def test_each_kind_of_operand_is_named_with_the_type_it_is_cast_to() -> None:
    """Scale and shift of a batch norm may have another type than its mean and variance."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3] x, float16[3] s, float[3] b, float[3] m, double[3] v) => (float[1,3] y) {
  y = BatchNormalization(x, s, b, m, v) }""")
    findings = check_model(model)
    assert [f.reason for f in findings if f.reason] == [
        "node 'BatchNormalization_0' (BatchNormalization): its inputs mix types; "
        "cast to float32: 's' from float16; cast to float64: 'm' from float32"
    ]
    assert all(f.supported for f in findings)
    x, s, b, m, v = np.float16([[1.5, -2, 0.25], [2, 0.5, 4], [1, 0, -1], [0, 1, 2], [1, 4, 0.25]])
    feed = {"x": x[None].astype("f4"), "s": s, "b": b.astype("f4"), "m": m.astype("f4"),
            "v": v.astype("f8")}  # fmt: skip
    want = s.astype("f8") * (x.astype("f8") - m) / np.sqrt(v.astype("f8") + 1e-5) + b
    got = braze.build(model, optimization_level=1)(feed)["y"]
    np.testing.assert_allclose(got, want[None], rtol=1e-6)  # a few roundings of float32


@pytest.mark.parametrize(
    ("body", "y", "w", "why"),
    [
        ("y = Add(x, w)", "float", "int32", "input 1 is int32 but must be float16"),
        ("y = Where(c, x, w)", "float", "int32", "input 2 is int32"),
        # nothing is mixed: a wrong declaration is an error of the model
        ("y = Neg(w)", "float16", "float", "is declared float16 but is computed as float32"),
    ],
)
def test_near_misses_are_refused(body: str, y: str, w: str, why: str) -> None:
    with pytest.raises((ModelError, braze.DTypeError), match=why):
        braze.build(network(body, y, w))
