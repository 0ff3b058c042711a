"""Run a graph through what `Op.lower` returns instead of `Op.reference`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from braze.codegen.reference.anchors import ANCHORS
from braze.codegen.reference.run import run_kernel
from braze.core.dims import evaluate, symbols
from braze.core.dtypes import F32, I64
from braze.expr.fold import rewrite
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import Expr, axis, const, hole, load, select
from braze.fusion.kernel import AnchorKernel
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, Node, TensorType, Value
from braze.ops.lowering import Anchor, Decompose, Nest, Pointwise, View

Array = np.ndarray[Any, Any]


def pointwise_kernel(lowering: Pointwise, inputs: list[TensorType], out: TensorType) -> LoopKernel:
    """The loop kernel of a Pointwise: holes become broadcast loads."""

    def fill(e: Expr) -> Expr | None:
        if e.op != "hole":
            return None
        t = inputs[int(str(e.attr))]
        first = out.rank - t.rank
        index = tuple(
            const(0, I64) if d == 1 and out.shape[first + i] != 1 else axis(first + i)
            for i, d in enumerate(t.shape)
        )
        return load(int(str(e.attr)), index, t.dtype)

    at = tuple(axis(i) for i in range(out.rank))
    nest = LoopNest(out.shape, (), (), (Store(0, at, rewrite(lowering.expr, fill)),))
    specs = tuple(TensorSpec(t.dtype, t.shape) for t in inputs)
    return LoopKernel(specs, (TensorSpec(out.dtype, out.shape),), (nest,))


def view_kernel(lowering: View, source: TensorType, out: TensorType) -> LoopKernel:
    """The loop kernel of a View."""
    at = tuple(axis(i) for i in range(out.rank))
    element = load(0, lowering.index, source.dtype)
    if lowering.inside is not None:
        assert lowering.fill is not None
        element = select(lowering.inside, element, lowering.fill)
    nest = LoopNest(out.shape, (), (), (Store(0, at, element),))
    specs = (TensorSpec(source.dtype, source.shape),)
    return LoopKernel(specs, (TensorSpec(out.dtype, out.shape),), (nest,))


def run_lowered(
    graph: Graph, inputs: Mapping[str, Array], env: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """Outputs of `graph` (arrays as they stand in memory), every node through its lowering."""
    values: dict[Value, Array] = {v: inputs[v.name] for v in graph.inputs}
    values.update({v: graph.weights.get(k) for v, k in graph.constants.items()})
    known = dict(env or {})
    _give_sizes(graph, values, known)
    for node in graph.nodes:
        results = _run_node(node, values, known)
        values.update(zip(node.outputs, results, strict=True))
        _give_sizes(graph, values, known)
    return {name: values[v] for name, v in graph.outputs}


def _give_sizes(graph: Graph, values: Mapping[Value, Array], env: dict[str, int]) -> None:
    """The sizes that the run gives, as far as they can be told."""
    for s in graph.sizes:
        if s.value in values:
            env[s.symbol] = int(values[s.value].reshape(-1)[s.element])
        elif s.value is None and symbols(s.size) <= env.keys():
            env[s.symbol] = evaluate(s.size, env)


def _run_anchor(
    lowering: Anchor,
    inputs: list[TensorType],
    out: TensorType,
    arrays: list[Array],
    env: Mapping[str, int],
) -> list[Array]:
    """The fallback nest and, for float32, the spec itself: both must say the same.

    A kind without a row in the reference means its nest.
    """
    told = out.dtype is F32 and type(lowering.spec) in ANCHORS
    if isinstance(lowering.fallback, LoopKernel) and not told:
        return run_kernel(lowering.fallback, arrays, env)
    kernel = AnchorKernel(
        lowering.spec,
        tuple(TensorSpec(t.dtype, t.shape) for t in inputs),
        TensorSpec(out.dtype, lowering.spec.out_shape),
        hole(0, F32),
    )
    (result,) = run_kernel(kernel, arrays, env)
    results = [result.reshape([evaluate(d, env) for d in out.shape])]
    if isinstance(lowering.fallback, LoopKernel):
        other = run_kernel(lowering.fallback, arrays, env)
        # sums of float32 products in another order
        np.testing.assert_allclose(results[0], other[0], rtol=1e-4, atol=1e-4)
    return results


def _run_node(node: Node, values: dict[Value, Array], env: Mapping[str, int]) -> list[Array]:
    types = [None if v is None else v.type for v in node.inputs]
    present = [v for v in node.inputs if v is not None]
    lowering = node.op.lower(types, [v.type for v in node.outputs])
    arrays = [values[v] for v in present]
    if isinstance(lowering, Anchor) and node.output.dtype is not F32:
        lowering = lowering.fallback if isinstance(lowering.fallback, Decompose) else lowering
    if isinstance(lowering, Anchor):
        return _run_anchor(lowering, [v.type for v in present], node.output.type, arrays, env)
    if isinstance(lowering, Nest):
        return run_kernel(lowering.kernel, arrays, env)
    if isinstance(lowering, Pointwise):
        kernel = pointwise_kernel(lowering, [v.type for v in present], node.output.type)
        return run_kernel(kernel, arrays, env)
    if isinstance(lowering, View):
        return run_kernel(view_kernel(lowering, present[0].type, node.output.type), arrays, env)
    assert isinstance(lowering, Decompose), lowering
    g = GraphBuilder()
    stand_ins = [None if v is None else g.input(f"x{i}", v.type) for i, v in enumerate(node.inputs)]
    outputs = lowering.build(g, *stand_ins)
    sub = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    feeds = {s.name: values[v] for s, v in zip(stand_ins, node.inputs, strict=True) if s and v}
    results = run_lowered(sub, feeds, env)
    return [results[f"y{i}"] for i in range(len(outputs))]
