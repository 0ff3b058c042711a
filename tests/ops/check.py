"""Run one op (or one ONNX node) by reference and by lowering, with static and symbolic shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from braze.core.dims import Dim, sym
from braze.core.dtypes import BF16, DType, from_numpy
from braze.core.elements import numbers, stored
from braze.frontend.onnx.importer import import_model
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType
from braze.ops.base import Op
from braze.ops.evaluator import evaluate
from tests.ops.lowering import run_lowered
from tests.ops.one_node import one_node

Array = np.ndarray[Any, Any]


def bf16(values: Any) -> Array:
    """`values` rounded to bfloat16."""
    return stored(np.asarray(values, np.float64), BF16)


def as_float(array: Array, dtype: DType) -> Array:
    """Stored elements as numbers."""
    return numbers(array, dtype)


def graph_of(
    op: Op, arrays: Sequence[Array | None], symbolic: bool, dtypes: Mapping[int, DType]
) -> tuple[Graph, dict[str, Array], dict[str, int]]:
    """A graph of one node, the feeds, and the values of its symbols (one a size)."""
    g = GraphBuilder()
    feeds: dict[str, Array] = {}
    env: dict[str, int] = {}
    values = []
    for i, a in enumerate(arrays):
        if a is None:
            values.append(None)
            continue
        shape: list[Dim] = []
        for size in a.shape:
            # sizes 0 and 1 stay literal: a symbol there would change what broadcasts
            shape.append(sym(f"n{size}") if symbolic and size > 1 else size)
            env[f"n{size}"] = size
        dtype = dtypes.get(i, from_numpy(a.dtype))
        values.append(g.input(f"in{i}", TensorType(dtype, tuple(shape))))
        feeds[f"in{i}"] = a
    outputs = g.add(op, *values)
    return g.finish([(f"out{i}", v) for i, v in enumerate(outputs)]), feeds, env


def run_op(
    op: Op,
    *arrays: Array | None,
    dtypes: Mapping[int, DType] | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-6,
    symbolic: bool = True,
) -> tuple[Array, ...]:
    """Outputs of `op` by its reference, after checking that its lowering agrees with them.

    The default tolerance is a few float32 roundings: the two differ in order and formula only.
    """
    results: tuple[Array, ...] = ()
    for use_symbols in (False, True) if symbolic else (False,):
        graph, feeds, env = graph_of(op, arrays, use_symbols, dtypes or {})
        by_reference = evaluate(graph, feeds)
        by_lowering = run_lowered(graph, feeds, env)
        for name, value in graph.outputs:
            np.testing.assert_allclose(
                as_float(by_lowering[name], value.dtype),
                as_float(by_reference[name], value.dtype),
                rtol=rtol,
                atol=atol,
                err_msg=f"{op}: lowering and reference differ",
            )
            assert by_lowering[name].dtype == by_reference[name].dtype
        results = tuple(by_reference[name] for name, _ in graph.outputs)
    return results


def run1(op: Op, *arrays: Array | None, **options: Any) -> Array:
    """`run_op` for an op with one output."""
    (result,) = run_op(op, *arrays, **options)
    return result


def run_node(
    op_type: str,
    inputs: Mapping[str, Array],
    opset: int,
    constants: Mapping[str, Array] | None = None,
    num_outputs: int = 1,
    lowering: tuple[float, float] = (1e-5, 1e-6),
    **attributes: Any,
) -> tuple[Array, ...]:
    """Outputs of one ONNX node through import, evaluator and (checked) lowering.

    Inputs whose name begins with _ are left out. lowering: (rtol, atol) between the two, which
    sum in different orders.
    """
    given = [None if name.startswith("_") else a for name, a in inputs.items()]
    held = list((constants or {}).values())
    model = one_node(
        op_type,
        [*given, *held],
        opset=opset,
        constant=range(len(given), len(given) + len(held)),
        num_outputs=num_outputs,
        attributes=attributes,
    )
    graph = import_model(model)
    feeds = {f"x{i}": a for i, a in enumerate(given) if a is not None}
    by_reference = evaluate(graph, feeds)
    by_lowering = run_lowered(graph, feeds)
    rtol, atol = lowering
    for name, _ in graph.outputs:
        np.testing.assert_allclose(
            by_lowering[name], by_reference[name], rtol=rtol, atol=atol, err_msg=op_type
        )
    return tuple(by_reference[f"y{i}"] for i in range(num_outputs))
