"""Models of old opsets: what runs exactly, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.errors import (
    ModelError,
    UnsupportedOpError,
)
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate
from tests.frontend.onnx_models import X, Y, info, load, model, node, ops


def test_old_new_and_missing_opsets() -> None:
    nodes = [node("Relu", ["x"], ["y"], "n")]
    assert ops(load(model(nodes, [X], [Y], opset=6))) == ["Same"]
    for opset in (0, 29):
        with pytest.raises(UnsupportedOpError, match=f"opset {opset}"):
            load(model(nodes, [X], [Y], opset=opset))
    proto = model(nodes, [X], [Y])
    del proto.opset_import[:]
    with pytest.raises(ModelError, match="no opset"):
        load(proto)


def test_old_broadcasts_are_aligned_at_their_axis() -> None:
    proto = model(
        [node("Mul", ["x", "c"], ["y"], broadcast=1, axis=1)],
        [info("x", [2, 3, 4]), info("c", [3])],
        [info("y", [2, 3, 4])],
        opset=6,
    )
    graph = import_model(proto)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    c = np.float32([1, 10, 100])
    result = evaluate(graph, {"x": x, "c": c})["y"]
    np.testing.assert_array_equal(result, x * c.reshape(3, 1))
    proto.graph.node[0].attribute[0].i = 3
    assert proto.graph.node[0].attribute[0].name == "axis"
    with pytest.raises(UnsupportedOpError, match="axis 3 does not fit"):
        import_model(proto)


def test_training_mode_of_old_opsets_is_refused() -> None:
    for flag, accepted in ((1, True), (0, False)):
        dropout = node("Dropout", ["x"], ["y"], is_test=flag)
        proto = model([dropout], [X], [Y], opset=6)
        if accepted:
            assert import_model(proto).outputs[0][1].shape == (2, 3)
        else:
            with pytest.raises(UnsupportedOpError, match="too old"):
                import_model(proto)
