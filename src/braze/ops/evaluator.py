"""The oracle: run a graph node by node with the numpy meaning of each op.

Slow and plain on purpose. Every result is checked against the type that was inferred for it, so
a wrong `infer` shows here and not in generated code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, DimExpr, Shape, substitute
from braze.core.dtypes import F64, DType
from braze.core.elements import number_type, numbers, rounded, stored
from braze.core.errors import BindingError, BrazeError, DTypeError, ExecutionError, ShapeError
from braze.ir.graph import Graph, Node, Value
from braze.ir.run_sizes import in_run_order
from braze.ops.base import Array, Op
from braze.ops.flow.base import FlowOp


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    keep: Iterable[str] = (),
    float64: bool = False,
) -> dict[str, Array]:
    """Run `graph` on `inputs` (by input name); gives its outputs by their public names.

    keep: names of further values to return. bfloat16 arrays are those of ml_dtypes outside and
    float32 inside; every result is rounded to nearest even. float64=True widens every
    floating-point tensor to float64 and returns float64: the exact value to compare with.
    Raises BindingError, DTypeError or ShapeError for inputs that do not fit, ExecutionError when
    an op fails.
    """
    return _Run(graph, float64).evaluate(inputs, frozenset(keep))


class _Run:
    """One evaluation: the values computed so far and the symbols bound so far (env at first)."""

    def __init__(self, graph: Graph, float64: bool, env: Mapping[str, int] | None = None) -> None:
        self.graph = graph
        self.float64 = float64
        self.env: dict[str, int] = dict(env or {})
        self.values: dict[Value, Array] = {}
        self.nodes = in_run_order(graph)
        self.sources = {s.value for s in graph.sizes if s.value is not None}
        self.given: set[str] = set()  # symbols that the run gives

    def evaluate(self, inputs: Mapping[str, Array], keep: frozenset[str]) -> dict[str, Array]:
        self._bind_inputs(inputs)
        kept = self._nodes(keep)
        kept.update({name: self._leave(value) for name, value in self.graph.outputs})
        return kept

    # ------------------------------------------------------------------ bodies (ops/flow)

    def run(self, body: Graph, arrays: Sequence[Array]) -> list[Array]:
        """See braze.ops.flow.base.Bodies; the arrays hold numbers, as those inside do."""
        inner = _Run(body, self.float64, self.env)
        for v, array in zip(body.inputs, arrays, strict=True):
            inner._bind_symbols(v.shape, array.shape)
            inner.values[v] = array
        inner._nodes(frozenset())
        return [inner.values[v] for _, v in body.outputs]

    def size(self, d: Dim) -> int:
        """See braze.ops.flow.base.Bodies."""
        found = self._size(d)
        assert isinstance(found, int), f"size {d} is not known yet"
        return found

    def _nodes(self, keep: frozenset[str]) -> dict[str, Array]:
        """Compute all values; gives those to keep."""
        for value, key in self.graph.constants.items():
            self.values[value] = self._enter(self.graph.weights.get(key), value.dtype)
        self._check_guards()
        self._give_sizes()
        kept: dict[str, Array] = {}
        last_use = self._last_uses()
        for index, node in enumerate(self.nodes):
            self._step(node)
            if self.sources.intersection(node.outputs):
                self._give_sizes()
            for value in node.outputs:
                if value.name in keep:
                    kept[value.name] = self._leave(value)
            for used in node.inputs:
                if used is not None and last_use.get(used) == index:
                    self.values.pop(used, None)
        return kept

    def _last_uses(self) -> dict[Value, int]:
        last = {v: i for i, n in enumerate(self.nodes) for v in n.inputs if v is not None}
        return {v: i for v, i in last.items() if v not in self.graph.kept_values}

    def _check_guards(self) -> None:
        for guard in self.graph.guards:
            lhs, rhs = self._size(guard.lhs), self._size(guard.rhs)
            if isinstance(lhs, int) and isinstance(rhs, int) and lhs != rhs:
                raise ShapeError(
                    f"{guard.what}: sizes {guard.lhs} = {lhs} and {guard.rhs} = {rhs} differ; "
                    f"feed inputs whose shapes fit each other"
                )

    def _give_sizes(self) -> None:
        """Give the symbols of the run that can be told now their values."""
        before = len(self.env)
        for s in self.graph.sizes:
            if s.symbol in self.given:
                continue
            if s.value is None:
                size = self._size(s.size)
            elif s.value in self.values:
                size = int(self.values[s.value].reshape(-1)[s.element])
            else:
                continue
            if isinstance(size, int):
                high = MAX_SIZE if s.high is None else self._size(s.high)
                if not s.low <= size or (isinstance(high, int) and size > high):
                    raise ShapeError(
                        f"size {s.symbol} of this run is {size}, outside {s.low}..{high}; feed "
                        "other inputs"
                    )
                self.env[s.symbol] = size
                self.given.add(s.symbol)
        if len(self.env) > before:
            self._check_guards()

    # ------------------------------------------------------------------ borders

    def _bind_inputs(self, inputs: Mapping[str, Array]) -> None:
        names = {v.name for v in self.graph.inputs}
        if set(inputs) != names:
            raise BindingError(
                f"the graph has inputs {sorted(names)} but {sorted(inputs)} are given; "
                f"give each input once"
            )
        arrays = {v: np.asarray(inputs[v.name]) for v in self.graph.inputs}
        for v, a in arrays.items():
            if a.ndim != v.type.rank:
                raise ShapeError(f"input {v.name}: rank {a.ndim} is given for {v.type}")
            self._bind_symbols(v.shape, a.shape)
        for v, a in arrays.items():
            if tuple(self._size(d) for d in v.shape) != a.shape:
                raise ShapeError(f"input {v.name}: shape {a.shape} does not fit {v.type}")
            self.values[v] = self._enter(a, v.dtype)

    def _bind_symbols(self, shape: Shape, actual: tuple[int, ...]) -> None:
        """Give plain symbols without a value yet the size seen."""
        for d, size in zip(shape, actual, strict=True):
            name = _plain_symbol(d)
            if name is not None:
                self.env.setdefault(name, size)

    def _enter(self, array: Array, dtype: DType) -> Array:
        if array.dtype != dtype.numpy:
            raise DTypeError(f"an array of {array.dtype} is given for a tensor of {dtype}")
        inside = numbers(array, dtype)
        return inside.astype(np.float64) if self.float64 and dtype.is_float else inside

    def _leave(self, value: Value) -> Array:
        array = self.values[value]
        if self.float64 and value.dtype.is_float:
            return array
        return stored(array, value.dtype)

    # ------------------------------------------------------------------ nodes

    def _size(self, d: Dim) -> Dim:
        return substitute(d, self.env)

    def _step(self, node: Node) -> None:
        arrays = [None if v is None else self.values[v] for v in node.inputs]
        try:
            op = node.op.specialize(self.env)
            if self.float64:
                op = _in_float64(op)
            run = op.run(arrays, self) if isinstance(op, FlowOp) else op.reference(*arrays)
            results: Sequence[Array] = run
        except BrazeError as e:
            raise ExecutionError(f"{_where(node)}: {e}") from e
        except (ValueError, IndexError, TypeError, AssertionError, ArithmeticError) as e:
            raise ExecutionError(
                f"{_where(node)}: the reference failed with {type(e).__name__}: {e}"
            ) from e
        if len(results) != len(node.outputs):
            raise ExecutionError(
                f"{_where(node)}: {len(results)} results for {len(node.outputs)} outputs"
            )
        for value, array in zip(node.outputs, results, strict=True):
            self.values[value] = self._checked(node, value, np.asarray(array))

    def _checked(self, node: Node, value: Value, array: Array) -> Array:
        if value.type.rank == array.ndim:
            self._bind_symbols(value.shape, array.shape)
        expected = tuple(self._size(d) for d in value.shape)
        if expected != array.shape:
            raise ExecutionError(
                f"{_where(node)}: output {value.name} has shape {array.shape} but {value.type} "
                f"was inferred; report this as a bug"
            )
        if self.float64 and value.dtype.is_float:
            return array.astype(np.float64, copy=False)
        if number_type(value.dtype) != value.dtype.numpy:
            return rounded(array, value.dtype)
        if array.dtype != value.dtype.numpy:
            raise ExecutionError(
                f"{_where(node)}: output {value.name} has type {array.dtype} but {value.type} "
                f"was inferred; report this as a bug"
            )
        return array


def _plain_symbol(d: Dim) -> str | None:
    """The name when `d` is one symbol and nothing else."""
    if not isinstance(d, DimExpr) or len(d.terms) != 1:
        return None
    monomial, factor = d.terms[0]
    if factor != 1 or len(monomial) != 1 or monomial[0].kind != "sym":
        return None
    return str(monomial[0].args[0])


def _in_float64(op: Op) -> Op:
    """`op` with every floating-point element type among its fields replaced by float64."""
    changed: dict[str, Any] = {
        f.name: F64
        for f in fields(op)
        if isinstance(getattr(op, f.name), DType) and getattr(op, f.name).is_float
    }
    return replace(op, **changed) if changed else op


def _where(node: Node) -> str:
    origins = f" (from {', '.join(node.origins)})" if node.origins else ""
    return f"node {node.op.name} -> {', '.join(v.name for v in node.outputs)}{origins}"
