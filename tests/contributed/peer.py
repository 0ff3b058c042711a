"""One node of another domain through onnxruntime and through braze: by reference ops, by lowering
and as an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from braze.api import build
from braze.frontend.onnx.importer import import_network
from braze.ops.evaluator import evaluate
from tests.fuzz.case import DOMAINS
from tests.ops.lowering import run_lowered

ort = pytest.importorskip("onnxruntime")

Array = np.ndarray[Any, Any]
HALVES = ("float16", "bfloat16")

# Of numbers around 1. float32: sums of hundreds of products in another order and exponentials of
# another library. Half types: two roundings (2**-9 and 2**-6 of the number), as the peer computes
# in float32 and rounds each op's result once.
TOLERANCES = {"float32": 2e-5, "float64": 1e-6, "float16": 2**-8, "bfloat16": 2**-5}


def node_model(
    op: str,
    inputs: Sequence[Array | None],
    *,
    constant: Sequence[int] = (),
    symbols: Mapping[int, Sequence[int]] | None = None,
    outputs: int | Sequence[bool] = 1,
    domain: str = "com.microsoft",
    opset: int = 20,
    **attributes: Any,
) -> onnx.ModelProto:
    """Inputs x0, x1, ..., of which `constant` are initializers; outputs y0, y1, ..., or those that
    are wanted. symbols: axes of inputs that have names instead of sizes, one name for each size."""
    wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
    names = ["" if a is None else f"x{i}" for i, a in enumerate(inputs)]
    results = [f"y{i}" if w else "" for i, w in enumerate(wanted)]
    given, held = [], []
    for i, a in enumerate(inputs):
        if a is None:
            continue
        if i in constant:
            held.append(numpy_helper.from_array(a, names[i]))
            continue
        axes = (symbols or {}).get(i, ())
        shape = [f"size{d}" if k in axes else d for k, d in enumerate(a.shape)]
        kind = helper.np_dtype_to_tensor_dtype(a.dtype)
        given.append(helper.make_tensor_value_info(names[i], kind, shape))
    node = helper.make_node(op, names, results, "node", domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "g", given, [onnx.ValueInfoProto(name=r) for r in results if r], held
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, DOMAINS.get(domain, 1)))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds_of(inputs: Sequence[Array | None], constant: Sequence[int] = ()) -> dict[str, Array]:
    """What a model of `node_model` is run with."""
    return {f"x{i}": a for i, a in enumerate(inputs) if a is not None and i not in constant}


def run_peer(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """onnxruntime's outputs, unoptimised."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(y) for y in session.run(None, dict(feeds))]


def run_braze(
    model: onnx.ModelProto,
    feeds: Mapping[str, Array],
    shapes: Mapping[str, Any] | None = None,
    engine: bool = True,
) -> dict[str, list[Array]]:
    """Outputs by the numpy meaning, by the lowering in numpy, and of a CPU engine."""
    imported = import_network(model, shapes=shapes)
    graph = imported.graph
    env = _sizes(graph, feeds)
    found = {"reference": evaluate(graph, feeds), "lowering": run_lowered(graph, feeds, env)}
    results = {k: [v[name] for name, _ in graph.outputs] for k, v in found.items()}
    if engine:
        context = build(model, shapes=shapes, optimization_level=1).create_context()
        outputs = context.run(dict(feeds))
        results["engine"] = [outputs[name] for name, _ in graph.outputs]
    return results


def _sizes(graph: Any, feeds: Mapping[str, Array]) -> dict[str, int]:
    env: dict[str, int] = {}
    for v in graph.inputs:
        for d, size in zip(v.shape, feeds[v.name].shape, strict=True):
            if not isinstance(d, int) and str(d).isidentifier():
                env[str(d)] = size
    return env


def rounded(a: Array | None, dtype: str) -> Array | None:
    """Floating-point arrays rounded to `dtype`, all others as they are."""
    if a is None or a.dtype not in (np.float32, np.float64):
        return a
    return a.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def widened(a: Array | None) -> Array | None:
    """Half types as float32."""
    return a.astype(np.float32) if a is not None and a.dtype.name in HALVES else a


def compare(
    op: str,
    inputs: Sequence[Array | None],
    dtype: str = "float32",
    *,
    constant: Sequence[int] = (),
    symbols: Mapping[int, Sequence[int]] | None = None,
    outputs: int | Sequence[bool] = 1,
    want: Sequence[Array | None] | None = None,
    tolerance: float = 1.0,
    engine: bool = True,
    **attributes: Any,
) -> dict[str, list[Array]]:
    """All ways of braze give what onnxruntime gives in float32 for the same (rounded) inputs.

    want: what to expect instead of onnxruntime's outputs, None for those that are its. tolerance:
    a factor for numbers larger than 1.
    """
    given = [rounded(a, dtype) for a in inputs]
    model = node_model(
        op, given, constant=constant, symbols=symbols, outputs=outputs, **attributes
    )  # fmt: skip
    feeds = feeds_of(given, constant)
    if want is None or any(w is None for w in want):
        wide = [widened(a) for a in given]
        plain = node_model(op, wide, constant=constant, outputs=outputs, **attributes)
        peer = run_peer(plain, feeds_of(wide, constant))
        given_want = want or [None] * len(peer)
        want = [p if w is None else w for p, w in zip(peer, given_want, strict=True)]
    shapes = _ranges(feeds, symbols) if symbols else None
    results = run_braze(model, feeds, shapes, engine)
    limit = TOLERANCES[dtype] * tolerance
    for way, got in results.items():
        assert len(got) == len(want), way
        for i, (y, w) in enumerate(zip(got, want, strict=True)):
            assert w is not None
            assert y.shape == w.shape, (way, i, y.shape, w.shape)
            if w.dtype.kind == "f" or w.dtype.name in HALVES:
                exact = y.astype(np.float64), w.astype(np.float64)
                np.testing.assert_allclose(*exact, limit, limit, err_msg=f"{op} {way} {i}")
            else:
                np.testing.assert_array_equal(y, w, err_msg=f"{op} {way} {i}")
    return results


def _ranges(feeds: Mapping[str, Array], symbols: Mapping[int, Sequence[int]]) -> dict[str, Any]:
    """A profile of each dynamic input: from as small as may be to twice its size."""
    shapes: dict[str, Any] = {}
    for name, a in feeds.items():
        axes = symbols.get(int(name[1:]), ())
        low = tuple(min(1, d) if k in axes else d for k, d in enumerate(a.shape))
        high = tuple(2 * d if k in axes else d for k, d in enumerate(a.shape))
        shapes[name] = (low, a.shape, high) if axes else a.shape
    return shapes

