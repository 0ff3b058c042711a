"""The place of a view is where its elements are; anchors read it there."""

from __future__ import annotations

import random

import numpy as np
import pytest

from braze.core.dims import evaluate, sym
from braze.core.dtypes import F32
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.base import Op
from braze.ops.lowering import Operand, View
from braze.ops.move.shape import Expand, Reshape, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.writing.strides import Place, placed, row_major, through

N = sym("n")


def view_of(op: Op, source: tuple[object, ...]) -> tuple[View, tuple[object, ...]]:
    """The lowering of `op` on a tensor of shape `source`, and the shape it gives."""
    x = TensorType(F32, source)  # type: ignore[arg-type]
    outs = op.infer([x], GraphBuilder())
    low = op.lower([x], list(outs))
    assert isinstance(low, View)
    return low, outs[0].shape


def random_op(r: random.Random, shape: tuple[int, ...]) -> Op:
    kind = r.choice(["slice", "transpose", "reshape", "units"])
    if kind == "slice":
        steps = tuple(r.choice([1, 1, 1, 2]) for _ in shape)
        starts = tuple(r.randrange(d) for d in shape)
        sizes = tuple(
            r.randint(1, -(-(d - s) // t)) for d, s, t in zip(shape, starts, steps, strict=True)
        )
        return Slice(starts, sizes, steps)
    if kind == "transpose":
        return Transpose(tuple(r.sample(range(len(shape)), len(shape))))
    if kind == "units" or len(shape) < 2:
        at = r.randint(0, len(shape))
        return Reshape((*shape[:at], 1, *shape[at:]))
    at = r.randrange(len(shape) - 1)
    return Reshape((*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))


@pytest.mark.parametrize("seed", range(200))
def test_elements_lie_where_the_place_says(seed: int) -> None:
    r = random.Random(seed)
    shape = tuple(r.choice([1, 2, 3, 4, 6]) for _ in range(r.randint(1, 4)))
    base = np.arange(int(np.prod(shape)), dtype=np.float32)
    array, at = base.reshape(shape), row_major(shape)
    for _ in range(r.randint(1, 4)):
        op = random_op(r, array.shape)
        view, _ = view_of(op, array.shape)
        inner = through(view, at, array.shape, op.reference(array)[0].shape)
        if inner is None:
            assert isinstance(op, Reshape)  # of rows that do not follow each other
            return
        (array,), at = op.reference(array), inner
        steps = [int(s) * base.itemsize for s in at.steps]  # type: ignore[call-overload]
        found = np.lib.stride_tricks.as_strided(base[at.offset :], array.shape, steps)  # type: ignore[misc]
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "op",
    [
        Slice((5, 0), (6, 4), (-1, 1)),
        Pad("constant", (1, 0), (0, 0)),
        Expand((3, 6, 4)),
    ],
)
def test_no_place(op: Op) -> None:
    """Backwards, outside of the tensor, or many times in the same place."""
    view, shape = view_of(op, (6, 4))
    assert through(view, row_major((6, 4)), (6, 4), shape) is None  # type: ignore[arg-type]


def test_rows_are_merged_only_where_they_follow_each_other() -> None:
    view, shape = view_of(Reshape((N * 3, 8)), (N, 3, 8))
    assert through(view, row_major((N, 3, 8)), (N, 3, 8), shape) == Place((8, 1))  # type: ignore[arg-type]
    wide = Place((48, 16, 1), 4)  # rows of 16
    assert through(view, wide, (N, 3, 8), shape) == Place((16, 1), 4)  # type: ignore[arg-type]
    view, shape = view_of(Reshape((N, 24)), (N, 3, 8))
    assert through(view, wide, (N, 3, 8), shape) is None  # type: ignore[arg-type]


def test_operands() -> None:
    at = Place((48, 16, 1), 4)
    shape = (N, 3, 8)
    rows = Operand(0, (24, 8, 1))
    assert placed(rows, shape, shape, at) == Operand(0, (48, 16, 1), 4)
    turned = Operand(0, (24, 1, 8))
    assert placed(turned, (N, 8, 3), shape, at) == Operand(0, (48, 1, 16), 4)
    repeated = Operand(0, (0, 24, 0, 8, 1))
    assert placed(repeated, (5, N, 2, 3, 8), shape, at) == Operand(0, (0, 48, 0, 16, 1), 4)


def test_operands_that_would_lose_their_rows() -> None:
    columns = Place((1, 6), 0)  # Transpose of [8, 6]
    assert placed(Operand(0, (8, 1)), (6, 8), (6, 8), columns) is None
    assert placed(Operand(0, (3, 1)), (6, 3), (6, 3), columns) == Operand(0, (1, 6))
    begins = Operand(0, (8, 1), 2)
    assert placed(begins, (6, 6), (6, 8), row_major((6, 8))) is None


def test_steps_of_symbolic_sizes() -> None:
    view, shape = view_of(Transpose((1, 0, 2)), (N, 5, 8))
    found = through(view, row_major((N, 5, 8)), (N, 5, 8), shape)  # type: ignore[arg-type]
    assert found == Place((8, 40, 1))
    view, shape = view_of(Slice((0, N - 1), (4, 1), (1, 1)), (4, N))
    found = through(view, row_major((4, N)), (4, N), shape)  # type: ignore[arg-type]
    assert found is not None and evaluate(found.offset, {"n": 7}) == 6
