"""Networks whose sizes depend on data: results, memory and outputs at the size the run finds.

Expected values are those of the numpy meaning of the same graph, and of numpy itself.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.core.errors import BrazeError
from braze.engine.steps import Sizes
from braze.frontend.onnx.importer import import_model
from braze.ir.text import parse_graph, print_graph
from braze.ops.evaluator import evaluate

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(7)
WEIGHT = RNG.standard_normal((5, 8)).astype(np.float32)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], opset: int = 17, **weights: Any):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), op.lower(), **attributes)


def picking(batch: Any = 6) -> onnx.ModelProto:
    """NonZero and Compress, and ops on what they find."""
    return model(
        [
            node("NonZero", "x", "where"),
            node("Transpose", "where", "rows", perm=[1, 0]),
            node("GatherND", "x rows", "found"),
            node("Exp", "found", "e"),
            node("Compress", "t c", "kept", axis=0),
            node("MatMul", "kept w", "product"),
            node("Relu", "product", "r"),
            node("Shape", "r", "shape"),
            node("ReduceSum", "r", "total", keepdims=0),
        ],
        [("x", F, [3, 4]), ("c", B, [batch]), ("t", F, [batch, 5])],
        [("where", INT), ("e", F), ("r", F), ("shape", INT), ("total", F)],
        w=WEIGHT,
    )


def picking_feed(share: float, batch: int = 6) -> dict[str, np.ndarray]:
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    return {
        "x": x * (RNG.random((3, 4)) < share),
        "c": RNG.random(batch) < share,
        "t": RNG.standard_normal((batch, 5)).astype(np.float32),
    }


def picked(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    x, kept = feed["x"], feed["t"][feed["c"]]
    r = np.maximum(kept.astype(np.float64) @ WEIGHT, 0)
    return {
        "where": np.stack(np.nonzero(x)),
        "e": np.exp(x[np.nonzero(x)]),
        "r": r,
        "shape": np.array(r.shape),
        "total": r.sum(),
    }


def compare(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, expected in want.items():
        assert got[name].shape == expected.shape, name
        # float32 sums of at most 48 terms of size one
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("level", [0, 2, 3])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_sizes_change_from_run_to_run(target: str, level: int) -> None:
    engine = braze.build(picking(), target=target, optimization_level=level, threads=2)
    for share in (0.5, 0, 1, 0.2, 0.9, 0):
        feed = picking_feed(share)
        compare(engine(feed), picked(feed))


def test_the_reference_meaning_binds_sizes() -> None:
    graph = import_model(picking())
    feed = picking_feed(0.5)
    compare(evaluate(graph, feed), picked(feed))


def test_dynamic_inputs_and_several_profiles() -> None:
    shapes = [
        {"c": ((0,), (4,), (8,)), "t": ((0, 5), (4, 5), (8, 5))},
        {"c": ((9,), (20,), (64,)), "t": ((9, 5), (20, 5), (64, 5))},
    ]
    engine = braze.build(picking("n"), shapes=shapes, optimization_level=2)
    for batch in (0, 1, 8, 9, 64, 3):
        for share in (0, 0.5, 1):
            feed = picking_feed(share, batch)
            compare(engine(feed), picked(feed))


def test_two_contexts_in_threads() -> None:
    engine = braze.build(picking(), threads=1, optimization_level=1)
    feeds = [picking_feed(share) for share in RNG.random(60)]
    wrong: list[str] = []

    def work(part: list[dict[str, np.ndarray]]) -> None:
        try:
            for feed in part:
                compare(engine(feed), picked(feed))
        except (AssertionError, BrazeError) as e:
            wrong.append(str(e))

    threads = [threading.Thread(target=work, args=(feeds[i::2],)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_saved_and_loaded(tmp_path: Any) -> None:
    engine = braze.build(picking(), optimization_level=2)
    engine.save(tmp_path / "e.engine")
    feed = picking_feed(0.4)
    compare(braze.load(tmp_path / "e.engine")(feed), picked(feed))


def test_text_form_keeps_sizes() -> None:
    graph = import_model(picking())
    text = print_graph(graph)
    again = parse_graph(text, {type(n.op).__name__: type(n.op) for n in graph.nodes}, graph.weights)
    assert print_graph(again) == text
    assert len(again.sizes) == 2


def test_what_is_not_used_is_not_computed() -> None:
    """A NonZero that no output needs leaves no size behind."""
    nodes = [node("NonZero", "x", "where"), node("Relu", "x", "y")]
    graph = import_model(model(nodes, [("x", F, [3])], [("y", F)]))
    assert not graph.sizes
    assert [n.op.name for n in graph.nodes] == ["Relu"]


def test_gpu_engines_wait_for_sizes() -> None:
    plan = braze.compile(picking(), target="cuda:sm_90", optimization_level=2)
    sizes = [s for s in plan.steps if isinstance(s, Sizes)]
    assert sum(len(s.known) for s in sizes) == 2 and not plan.is_straight


def test_places_in_a_tensor_of_any_size() -> None:
    """The product of three sizes without a limit is more than int64 holds; no tensor is."""
    nodes = [node("NonZero", "x", "where")]
    engine = braze.build(model(nodes, [("x", F, ["a", "b", "c"])], [("where", INT)]))
    x = (RNG.random((3, 4, 5)) < 0.4).astype(np.float32)
    compare(engine({"x": x}), {"where": np.stack(np.nonzero(x))})
