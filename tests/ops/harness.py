"""Import one ONNX node and run it three ways: reference, lowered, and onnx.reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from braze.core.dims import sym
from braze.core.dtypes import from_numpy
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.base import OnnxNode
from braze.ops.catalog import IMPORTERS
from braze.ops.evaluator import evaluate
from tests.ops.lowering import run_lowered
from tests.ops.one_node import one_node

Array = np.ndarray[Any, Any]


@dataclass
class Imported:
    """A one-node graph and the feeds that fit it."""

    graph: Graph
    feeds: dict[str, Array]
    env: dict[str, int]
    outputs: tuple[Value, ...]


def import_node(
    op: str,
    inputs: Sequence[Array | None],
    *,
    opset: int,
    constant: Sequence[int] = (),
    dynamic: bool = False,
    num_outputs: int = 1,
    domain: str = "",
    **attributes: Any,
) -> Imported:
    """Build the graph of one node. `constant`: inputs the graph knows; `dynamic`: the others get
    one symbol per axis (bounds 1 .. 64)."""
    g = GraphBuilder()
    values: list[Value | None] = []
    feeds: dict[str, Array] = {}
    env: dict[str, int] = {}
    for i, a in enumerate(inputs):
        if a is None:
            values.append(None)
        elif i in constant:
            values.append(g.constant(a, f"c{i}"))
        else:
            shape: tuple[Any, ...] = a.shape
            if dynamic:
                shape = tuple(sym(f"s{i}_{k}") for k in range(a.ndim))
                env |= {f"s{i}_{k}": d for k, d in enumerate(a.shape)}
                g.bounds |= {f"s{i}_{k}": (1, 64) for k in range(a.ndim)}
            values.append(g.input(f"x{i}", TensorType(from_numpy(a.dtype), shape)))
            feeds[f"x{i}"] = a
    node = OnnxNode(op, domain, "n", opset, tuple(values), attributes, num_outputs)
    outputs = IMPORTERS[domain, op](node, g)
    graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    return Imported(graph, feeds, env, outputs)


def expected(
    op: str,
    inputs: Sequence[Array | None],
    opset: int,
    num_outputs: int,
    attributes: dict[str, Any],
) -> list[Array]:
    """The outputs of onnx.reference."""
    model = one_node(op, inputs, opset=opset, num_outputs=num_outputs, attributes=attributes)
    feed = {f"x{i}": a for i, a in enumerate(inputs) if a is not None}
    return [np.asarray(r) for r in ReferenceEvaluator(model).run(None, feed)]


def check(
    op: str,
    inputs: Sequence[Array | None],
    want: Sequence[Array] | None = None,
    *,
    opset: int = 21,
    constant: Sequence[int] = (),
    dynamic: bool = False,
    num_outputs: int = 1,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    domain: str = "",
    **attributes: Any,
) -> list[Array]:
    """Reference and lowering both equal `want` (default: onnx.reference); returns the outputs.

    rtol and atol allow for sums of float32 products in another order; integers must be equal.
    Ops of other domains than "" need `want`.
    """
    made = import_node(
        op, inputs, opset=opset, constant=constant, dynamic=dynamic, num_outputs=num_outputs,
        domain=domain, **attributes,
    )  # fmt: skip
    if want is None:
        want = expected(op, inputs, opset, num_outputs, attributes)
    got = evaluate(made.graph, made.feeds)
    low = run_lowered(made.graph, made.feeds, made.env)
    results = []
    for i, w in enumerate(want):
        for what, y in (("reference", got[f"y{i}"]), ("lowering", low[f"y{i}"])):
            assert y.shape == w.shape, (op, what, y.shape, w.shape)
            assert y.dtype == w.dtype, (op, what, y.dtype, w.dtype)
            if from_numpy(w.dtype).is_float:
                wide = (a.astype(np.float64) for a in (y, w))
                np.testing.assert_allclose(*wide, rtol=rtol, atol=atol, err_msg=f"{op} {what}")
            else:
                np.testing.assert_array_equal(y, w, err_msg=f"{op} {what}")
        results.append(got[f"y{i}"])
    return results


def ramp(*shape: int, dtype: str = "float32") -> Array:
    """Distinct values that are not monotonic in any axis."""
    count = int(np.prod(shape))
    values = (np.arange(count) * 7919 % 4001) / 500 - 4
    return values.reshape(shape).astype(dtype)


def ints(*values: int) -> Array:
    """An int64 vector."""
    return np.array(values, np.int64)
