"""MatMul, Gemm, Gather, GatherElements, GatherND."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.errors import DTypeError, ExecutionError, ShapeError
from braze.ops.evaluator import evaluate
from braze.ops.lowering import Anchor, MatmulSpec
from braze.ops.move.shape import Reshape
from braze.ops.move.slice_pad import Slice
from tests.ops.harness import check, import_node, ints, ramp
from tests.ops.lowering import run_lowered


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((3, 4), (2, 4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((3, 0), (0, 2)),  # an empty inner size gives zeros
        ((2, 0, 3), (3, 2)),
        ((2, 3, 4), (1, 4, 5)),
    ],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = ramp(*a), ramp(*b)
    check("MatMul", [x, y], [np.asarray(np.matmul(x, y))])
    made = import_node("MatMul", [x, y], opset=13)
    node = made.graph.nodes[0]
    low = node.op.lower([v.type for v in node.inputs], [node.output.type])
    assert isinstance(low, Anchor) and isinstance(low.spec, MatmulSpec)
    np.testing.assert_allclose(_run_spec(low.spec, x, y), np.matmul(x, y).ravel(), rtol=1e-4)


def _run_spec(spec: MatmulSpec, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The product as the operand strides of an anchor say."""
    size = int(np.prod((*spec.batch, spec.m, spec.n)))
    out = np.full(size, np.nan, np.float32)
    for at in np.ndindex(*spec.batch, spec.m, spec.n):
        *batch, i, j = at
        total = 0.0
        for k in range(spec.k):
            p = sum(s * v for s, v in zip(spec.lhs.strides, (*batch, i, k), strict=True))
            q = sum(s * v for s, v in zip(spec.rhs.strides, (*batch, k, j), strict=True))
            total += float(x.ravel()[p]) * float(y.ravel()[q])
        out[sum(s * v for s, v in zip(spec.out.strides, at, strict=True))] = total
    return out


def test_matmul_types() -> None:
    x, y = ramp(3, 4, dtype="float16"), ramp(4, 2, dtype="float16")
    want = (x.astype("f4") @ y.astype("f4")).astype("f2")
    check("MatMul", [x, y], [want], rtol=2e-3)  # one unit in the last place of float16
    a, b = ramp(3, 4, dtype="int32"), ramp(4, 2, dtype="int32")
    check("MatMul", [a, b], [a @ b])
    with pytest.raises(DTypeError):
        import_node("MatMul", [x, y.astype("f4")], opset=13)
    with pytest.raises(ShapeError):
        import_node("MatMul", [x, y[:3]], opset=13)


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (0.5, 2.0), (1.5, 0.0)])
@pytest.mark.parametrize("c", [(), (5,), (3, 1), (3, 5), None])
def test_gemm(trans: tuple[int, int], alpha: float, beta: float, c: tuple[int, ...] | None) -> None:
    a, b = ramp(3, 4), ramp(4, 5)
    inputs = [a.T.copy() if trans[0] else a, b.T.copy() if trans[1] else b]
    want = alpha * (a @ b)
    if c is not None:
        inputs.append(ramp(*c))
        want = want + beta * inputs[2]
    attributes = {"transA": trans[0], "transB": trans[1], "alpha": alpha, "beta": beta}
    check("Gemm", inputs, [want.astype("f4")], opset=13, **attributes)


def test_gemm_rejects_a_bias_that_would_grow_the_result() -> None:
    with pytest.raises(ShapeError):
        import_node("Gemm", [ramp(1, 4), ramp(4, 5), ramp(3, 5)], opset=13)


def test_gather() -> None:
    x = np.array([1, 2, 3, 4, 5], np.float32)
    check("Gather", [x, ints(-1, -3, 0)], [x[[4, 2, 0]]])
    check("Gather", [ramp(3, 4), ints(0, -1)], axis=0)
    check("Gather", [ramp(2, 3, 4), np.array([[0, 2], [1, -1]])], axis=1)
    check("Gather", [ramp(2, 3, 4), np.array(1, np.int32)], axis=-1)


def test_gather_with_one_known_index_is_a_view() -> None:
    x = ramp(3, 4, 5)
    for index in (np.array(2), np.array(-1), ints(1), np.array([[0]])):
        made = import_node("Gather", [x, index], opset=13, constant=[1], axis=1)
        assert {type(n.op) for n in made.graph.nodes} <= {Slice, Reshape}
        check("Gather", [x, index], [np.take(x, index, axis=1)], constant=[1], axis=1)


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
@pytest.mark.parametrize("bad", [3, -4])
def test_index_out_of_range_raises(op: str, bad: int) -> None:
    made = import_node(op, [ramp(3), ints(0, bad).reshape(2, 1) if op == "GatherND" else ints(bad)],
                       opset=13)  # fmt: skip
    with pytest.raises(ExecutionError):
        evaluate(made.graph, made.feeds)
    with pytest.raises(ExecutionError):
        run_lowered(made.graph, made.feeds)


def test_gather_elements() -> None:
    x = ramp(3, 4)
    check("GatherElements", [x, np.array([[1, -2, 0, 0]])], axis=0)
    want = [np.array([[x[0, 1], x[0, -2]], [x[1, 0], x[1, 0]]])]
    check("GatherElements", [x, np.array([[1, -2], [0, 0]])], want, axis=1)
    with pytest.raises(ShapeError):
        import_node("GatherElements", [x, np.zeros((4, 1), np.int64)], opset=13, axis=1)


@pytest.mark.parametrize(
    ("shape", "indices", "batch"),
    [
        ((3, 4), [[0, 1], [2, -1]], 0),
        ((3, 4), [[1], [0]], 0),
        ((2, 3, 4), [[1], [0]], 1),
        ((2, 3, 4), [[[1], [2]], [[0], [0]]], 1),
        ((2, 2, 4), [[[1], [2]], [[0], [0]]], 2),
    ],
)
def test_gather_nd(shape: tuple[int, ...], indices: list[object], batch: int) -> None:
    check("GatherND", [ramp(*shape), np.array(indices, np.int64)], batch_dims=batch)


def test_gather_nd_batch_mismatch() -> None:
    with pytest.raises(ShapeError):
        import_node("GatherND", [ramp(3, 4), np.zeros((2, 1), np.int64)], opset=13, batch_dims=1)
