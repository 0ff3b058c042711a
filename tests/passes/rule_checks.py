"""Shared by rule tests: build a graph, apply a rule, compare the meaning before and after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from braze.core.dtypes import F32, DType
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.passes.base import PassContext
from braze.passes.rewrite import Rule, apply_rules


class Net(GraphBuilder):
    """A GraphBuilder with short names for what patterns are made of."""

    def __init__(self) -> None:
        super().__init__(bounds={"n": (1, 4)})
        self.rng = np.random.default_rng(7)

    def tensor(self, name: str, *shape: object, dtype: DType = F32) -> Value:
        return self.input(name, TensorType(dtype, tuple(shape)))  # type: ignore[arg-type]

    def const(self, content: object, dtype: str = "float32") -> Value:
        return self.constant(np.asarray(content, dtype=dtype))

    def random(self, *shape: int, dtype: str = "float32") -> Value:
        return self.constant(self.rng.standard_normal(shape).astype(dtype))

    def op2(self, op: str, a: object, b: object) -> Value:
        """A Binary; plain numbers become float constants of the other operand's type."""
        like = a if isinstance(a, Value) else b
        assert isinstance(like, Value)
        x, y = (v if isinstance(v, Value) else self.const(v, like.dtype.name) for v in (a, b))
        return self.add1(Binary(op), x, y)

    def op1(self, op: str, a: Value) -> Value:
        return self.add1(Unary(op), a)


def ops(graph: Graph) -> list[str]:
    """Op names in order."""
    return [n.op.name for n in graph.nodes]


def refusals(ctx: PassContext) -> list[str]:
    """Recorded reasons."""
    return [d["reason"] for d in ctx.trace.decisions if d["kind"] == "refusal"]


def apply(
    g: Net,
    outputs: Sequence[Value],
    rules: Sequence[Rule],
    *,
    rtol: float,
    n: int = 2,
    scale: float = 1.0,
) -> tuple[Graph, PassContext]:
    """Apply `rules`, check that results agree to `rtol` (relative to the largest), return both.

    Results are compared in the graph's own types; symbols are bound to `n`.
    """
    graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    ctx = PassContext()
    after = apply_rules(graph, rules, ctx)
    verify(after, graph)
    rng = np.random.default_rng(3)
    feeds = {}
    for v in graph.inputs:
        shape = [d if isinstance(d, int) else n for d in v.shape]
        feeds[v.name] = (rng.standard_normal(shape) * scale).astype(v.dtype.numpy)
    want, got = evaluate(graph, feeds), evaluate(after, feeds)
    for name, w in want.items():
        assert got[name].dtype == w.dtype and got[name].shape == w.shape
        wide = w.astype(np.float64)
        top = np.abs(wide).max(initial=0.0)
        np.testing.assert_allclose(got[name].astype(np.float64), wide, rtol=0, atol=rtol * top)
    return after, ctx
