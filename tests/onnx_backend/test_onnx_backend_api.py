"""The backend interface itself: lazy builds, caching, input forms, refusals."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from braze import onnx_backend
from braze.core.errors import BindingError, UnsupportedOpError
from braze.frontend.onnx.importer import import_model
from braze.frontend.onnx.records import ModelRecord
from braze.ops.evaluator import evaluate
from tests.frontend.onnx_models import INT64, info, model


class CountingBackend(onnx_backend.BrazeBackend):
    """The reference backend; remembers what it compiled."""

    compiled: list[tuple[dict, dict]]

    @classmethod
    def fresh(cls) -> type[CountingBackend]:
        compiled: list[tuple[dict, dict]] = []

        def compile_reference(record: ModelRecord, shapes: Mapping, values: Mapping):
            graph = import_model(record, shapes=shapes, values=values)
            compiled.append((dict(shapes), dict(values)))
            return lambda arrays: evaluate(graph, arrays)

        body = {"compile_model": staticmethod(compile_reference), "compiled": compiled}
        return type("Counting", (cls,), body)


def reshape_model():
    node = helper.make_node("Reshape", ["x", "s"], ["y"])
    return model([node], [info("x", ["n", 4]), info("s", [2], INT64)], [info("y", None)])


def test_contents_are_fixed_only_where_a_build_asks_and_builds_are_kept() -> None:
    backend = CountingBackend.fresh()
    prepared = backend.prepare(reshape_model())
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for shape in ([4, 2], [8, 1], [4, 2], [-1, 8]):
        (y,) = prepared.run([x, np.array(shape)])
        np.testing.assert_array_equal(y, x.reshape(shape))
    assert [list(v) for _, v in backend.compiled] == [[]]  # one build: the run gives the shape
    (y,) = prepared.run([x[:1], np.array([4, 1])])
    assert y.shape == (4, 1)
    assert all("x" not in values for _, values in backend.compiled)


def test_inputs_by_position_by_name_and_single() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    proto = model([node], [info("x", [3])], [info("y", [3])])
    backend = CountingBackend.fresh()
    x = np.float32([1, -2, 3])
    for inputs in ([x], {"x": x}, x):
        np.testing.assert_array_equal(backend.run_model(proto, inputs)[0], -x)
    with pytest.raises(BindingError, match="1 inputs but 2"):
        backend.run_model(proto, [x, x])


def test_run_node_and_devices() -> None:
    backend = CountingBackend.fresh()
    node = helper.make_node("Sub", ["a", "b"], ["c"])
    a, b = np.float32([5, 6]), np.float32([1, 2])
    np.testing.assert_array_equal(backend.run_node(node, [a, b])[0], [4, 4])
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")


def test_bfloat16_arrays_come_and_go_as_ml_dtypes() -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    kind = TensorProto.BFLOAT16
    proto = model([node], [info("x", [2], kind)], [info("y", [2], kind)])
    x = np.array([1.5, -3.0], ml_dtypes.bfloat16)
    (y,) = CountingBackend.fresh().run_model(proto, [x])
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(np.float32), [3.0, -6.0])


def test_what_cannot_run_is_refused() -> None:
    text = info("x", [1], TensorProto.STRING)
    proto = model([helper.make_node("Identity", ["x"], ["y"])], [text], [info("y", [1])])
    with pytest.raises(UnsupportedOpError, match="STRING"):
        CountingBackend.fresh().prepare(proto)
    proto = model([helper.make_node("NoSuchOp", ["x"], ["y"])], [info("x", [1])], [info("y", [1])])
    with pytest.raises(UnsupportedOpError, match="NoSuchOp"):
        CountingBackend.fresh().run_model(proto, [np.zeros(1, np.float32)])
