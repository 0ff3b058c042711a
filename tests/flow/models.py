"""Models with control flow in ONNX's text form, and what they must compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import braze
from braze.frontend.onnx.importer import import_model
from braze.ir.graph import Graph, bodies_of
from braze.ir.text import parse_graph, print_graph
from braze.ops.evaluator import evaluate
from braze.runtime.engine import Engine

Arrays = Mapping[str, Any]
HEAD = '<ir_version: 9, opset_import: ["" : 18]>\n'
# a few float32 operations in another order
RTOL, ATOL = 1e-5, 1e-6
TARGETS = (("cpu", 2), ("cpu", 0), ("reference", 2))  # that `check` builds for, and at which level


def model(text: str, checked: bool = True) -> onnx.ModelProto:
    """The model of `name (inputs) => (outputs) { nodes }`."""
    parsed = onnx.parser.parse_model(HEAD + text)
    if checked:
        onnx.checker.check_model(parsed)
    return parsed


def expected(m: onnx.ModelProto, feed: Arrays) -> dict[str, np.ndarray]:
    """What onnx's own evaluator computes."""
    arrays = {k: np.asarray(v) for k, v in feed.items()}
    results = ReferenceEvaluator(m).run(None, arrays)
    return dict(zip((o.name for o in m.graph.output), results, strict=True))


def op_classes(graph: Graph) -> dict[str, type[Any]]:
    """The classes of the ops of a graph and its bodies, as the parser wants them."""
    found = {}
    for node in graph.nodes:
        found[type(node.op).__name__] = type(node.op)
        for body in bodies_of(node):
            found.update(op_classes(body))
    return found


def check(
    m: onnx.ModelProto, *feeds: Arrays, want: Callable[..., Arrays] | None = None, **options: Any
) -> list[Engine]:
    """Compare the imported graph and engines of all targets with onnx's evaluator, feed by feed.

    want: what is right, from the inputs by name, where that evaluator does not know it.
    """
    options = {"threads": 2, **options}
    graph = import_model(m, shapes=options.get("shapes"), values=options.get("values"))
    again = parse_graph(print_graph(graph), op_classes(graph), graph.weights)
    assert print_graph(again) == print_graph(graph)
    engines = [
        braze.build(m, target=target, optimization_level=level, **options)
        for target, level in TARGETS
    ]
    for feed in feeds:
        arrays = {k: np.asarray(v) for k, v in feed.items()}
        wanted = expected(m, arrays) if want is None else want(**arrays)
        for results in (evaluate(graph, arrays), *(engine(arrays) for engine in engines)):
            for name, array in wanted.items():
                got = results[name]
                assert (got.dtype, got.shape) == (array.dtype, np.shape(array)), name
                np.testing.assert_allclose(got, array, RTOL, ATOL, err_msg=name)
    return engines
