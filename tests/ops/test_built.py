"""The same ops through engines of dynamic shape: one build, runs at several sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
from braze.core.errors import BrazeError, ExecutionError
from braze.ops.evaluator import evaluate
from tests.ops.harness import expected, import_node, ints, ramp
from tests.ops.lowering import run_lowered
from tests.ops.one_node import one_node

Array = np.ndarray[Any, Any]


SAME = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
CASES: list[tuple[str, list[Any], set[int], dict[str, Any]]] = [
    ("Conv", [(2, 4, 9, 8), (6, 4, 3, 3), (6,)], {1, 2}, SAME),
    ("Conv", [(2, 4, 9, 8), (4, 1, 3, 3)], {1}, {"group": 4, "pads": [1, 1, 1, 1]}),
    ("Conv", [(2, 4, 9), (6, 2, 3)], {1}, {"group": 2, "dilations": [2]}),
    ("Conv", [(1, 2, 4, 5, 4), (3, 2, 2, 3, 2)], {1}, {"pads": [1, 1, 0, 0, 1, 1]}),
    ("ConvTranspose", [(2, 4, 5, 4), (4, 3, 2, 2)], {1}, {"strides": [2, 2]}),
    ("ConvTranspose", [(2, 4, 5, 4), (4, 3, 3, 2)], {1}, {"strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ("MaxPool", [(2, 3, 9, 8)], set(), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", [(2, 3, 9, 8)], set(), {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0]}),
    ("GlobalAveragePool", [(2, 3, 9, 8)], set(), {}),
    ("Resize", [(1, 3, 6, 5), None, np.array([1, 1, 2, 2], np.float32)], {2}, {"mode": "nearest"}),
    ("Resize", [(1, 3, 6, 5), None, np.array([1, 1, 2, 1.5], np.float32)], {2}, {"mode": "linear"}),
    ("Resize", [(1, 3, 6, 5), None, None, ints(1, 3, 9, 7)], {3}, {"mode": "cubic"}),
    ("MatMul", [(2, 3, 4, 5), (5, 6)], set(), {}),
    ("MatMul", [(2, 3, 4, 5), (2, 3, 5, 6)], set(), {}),
    ("Transpose", [(2, 3, 4, 5)], set(), {"perm": [0, 2, 3, 1]}),
    ("Slice", [(6, 7), ints(-3, 5), ints(100, -100), ints(0, 1), ints(1, -2)], {1, 2, 3, 4}, {}),
    ("Pad", [(3, 4), ints(1, 2, 0, 3)], {1}, {"mode": "constant"}),
    ("Pad", [(3, 4), ints(1, 2, 0, 1)], {1}, {"mode": "reflect"}),
    ("Concat", [(3, 4), (3, 4)], set(), {"axis": 1}),
    ("Tile", [(3, 4), ints(2, 3)], {1}, {}),
    ("Gather", [(6, 4), np.array([[0, -1], [2, 1]])], {1}, {"axis": 0}),
    ("Einsum", [(2, 3, 4), (2, 5, 4)], set(), {"equation": "bij,bkj->bik"}),
    ("Attention", [(2, 4, 6, 8), (2, 4, 6, 8), (2, 4, 6, 8)], set(), {"is_causal": 1}),
    ("SpaceToDepth", [(2, 3, 4, 6)], set(), {"blocksize": 2}),
]


@pytest.mark.parametrize(
    ("op", "inputs", "constant", "attrs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_one_engine_for_many_sizes(
    op: str, inputs: list[Any], constant: set[int], attrs: dict[str, Any]
) -> None:
    opset = 23 if op == "Attention" else 21
    first = [ramp(*a) if isinstance(a, tuple) else a for a in inputs]
    free = [i for i, a in enumerate(first) if a is not None and i not in constant]
    fixed = {1, 3} if op == "Attention" else {1}  # heads and head size, or channels
    if op in ("MatMul", "Einsum", "Concat", "Tile", "Pad", "Slice", "Transpose", "SpaceToDepth"):
        fixed = set()

    def sizes(shape: tuple[int, ...], batch: int, rest: int) -> tuple[int, ...]:
        return tuple(
            d if k in fixed else d * batch if k == 0 and len(shape) > 2 else d * rest
            for k, d in enumerate(shape)
        )

    shapes = {
        f"x{i}": (first[i].shape, sizes(first[i].shape, 1, 2), sizes(first[i].shape, 3, 4))
        for i in free
    }
    model = one_node(op, first, opset=opset, constant=constant, dynamic=True, attributes=attrs)
    engine = braze.build(model, threads=2, shapes=shapes, optimization_level=1)
    for batch, rest in ((1, 1), (1, 2), (2, 1), (3, 3)):
        arrays = list(first)
        for i in free:
            arrays[i] = ramp(*sizes(first[i].shape, batch, rest))
        want = expected(op, arrays, opset, 1, attrs)[0]
        got = engine({f"x{i}": arrays[i] for i in free})["y0"]
        assert got.shape == want.shape
        # float32 sums in another order
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize(("op", "bad"), [("Gather", 6), ("Gather", -7), ("GatherElements", 6)])
def test_an_index_outside_raises_and_the_engine_lives_on(op: str, bad: int) -> None:
    good = ints(5, -6, 0)
    model = one_node(op, [ramp(6), good], opset=21, dynamic=True, attributes={"axis": 0})
    engine = braze.build(model, threads=2, shapes={"x0": (6,), "x1": (3,)}, optimization_level=1)
    with pytest.raises(ExecutionError):
        engine({"x0": ramp(6), "x1": ints(0, bad, 1)})
    np.testing.assert_array_equal(engine({"x0": ramp(6), "x1": good})["y0"], ramp(6)[[5, 0, 0]])


@pytest.mark.parametrize(
    ("op", "inputs", "constant", "attrs", "bad"),
    [
        ("Conv", [(1, 2, 6, 6), (3, 2, 3, 3)], {1}, {}, (1, 2, 1, 6)),
        ("MaxPool", [(1, 2, 6, 6)], set(), {"kernel_shape": [4, 4]}, (1, 2, 6, 2)),
        ("TopK", [(1, 2, 6, 6), ints(4)], {1}, {"axis": -1}, (1, 2, 6, 3)),
        ("Pad", [(1, 2, 6, 6), ints(0, 0, 0, 0, 0, 0, -3, 0)], {1}, {}, (1, 2, 2, 6)),
    ],
)
def test_sizes_that_leave_nothing_are_refused_at_run_time(
    op: str, inputs: list[Any], constant: set[int], attrs: dict[str, Any], bad: tuple[int, ...]
) -> None:
    arrays = [ramp(*a) if isinstance(a, tuple) else a for a in inputs]
    model = one_node(
        op, arrays, opset=21, constant=constant, dynamic=True,
        num_outputs=2 if op == "TopK" else 1, attributes=attrs,
    )  # fmt: skip
    shape = arrays[0].shape
    low = tuple(d if k == 1 else 1 for k, d in enumerate(shape))
    engine = braze.build(model, threads=2, shapes={"x0": (low, shape, shape)}, optimization_level=1)
    engine({"x0": arrays[0]})
    with pytest.raises(BrazeError, match=op):
        engine({"x0": ramp(*bad)})


@pytest.mark.parametrize(
    ("op", "inputs", "constant", "attrs", "shape"),
    [
        ("Conv", [(1, 3, 2, 5), (4, 3, 3, 3)], {1}, {}, (1, 4, 0, 3)),
        ("Conv", [(0, 3, 5, 5), (4, 3, 3, 3)], {1}, {}, (0, 4, 3, 3)),
        ("ConvTranspose", [(0, 4, 5, 4), (4, 3, 2, 2)], {1}, {"strides": [2, 2]}, (0, 3, 10, 8)),
        ("MaxPool", [(1, 3, 2, 5)], set(), {"kernel_shape": [3, 3]}, (1, 3, 0, 3)),
        ("MatMul", [(0, 3), (3, 4)], set(), {}, (0, 4)),
        ("MatMul", [(2, 0), (0, 3)], set(), {}, (2, 3)),
        ("Attention", [(1, 2, 3, 8), (1, 2, 0, 8), (1, 2, 0, 8)], set(), {}, (1, 2, 3, 8)),
        ("Concat", [(0, 3), (2, 3)], set(), {"axis": 0}, (2, 3)),
        ("Gather", [(3, 4), np.zeros(0, np.int64)], set(), {}, (0, 4)),
        ("Pad", [(0, 3), ints(1, 0, 0, 0)], {1}, {}, (1, 3)),
        ("Resize", [(0, 1, 4), None, None, ints(0, 1, 8)], {3}, {"mode": "linear"}, (0, 1, 8)),
        ("ScatterND", [(3, 2), np.zeros((0, 1), np.int64), (0, 2)], set(), {}, (3, 2)),
        ("Einsum", [(2, 0)], set(), {"equation": "ij->i"}, (2,)),
    ],
)
def test_tensors_without_elements(
    op: str, inputs: list[Any], constant: set[int], attrs: dict[str, Any], shape: tuple[int, ...]
) -> None:
    """Nothing in, nothing out; an empty sum is 0."""
    arrays = [ramp(*a) if isinstance(a, tuple) else a for a in inputs]
    made = import_node(op, arrays, opset=23, constant=sorted(constant), **attrs)
    want = evaluate(made.graph, made.feeds)["y0"]
    free = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constant}
    shapes = {name: a.shape for name, a in free.items()}
    model = one_node(op, arrays, opset=23, constant=constant, dynamic=True, attributes=attrs)
    got = braze.build(model, threads=2, shapes=shapes, optimization_level=1)(free)["y0"]
    assert got.shape == want.shape == shape
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(run_lowered(made.graph, made.feeds)["y0"], want)
