"""Integer inputs that decide sizes, fed in the run; expected values are those of onnx.reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import braze
from braze.core.errors import BrazeError
from tests.e2e.test_data_sizes import INT, F, model, node

RNG = np.random.default_rng(11)
X = RNG.standard_normal((4, 6)).astype(np.float32)
CUBE = RNG.standard_normal((2, 3, 4)).astype(np.float32)
PICTURE = RNG.standard_normal((1, 2, 4, 5)).astype(np.float32)
LARGEST = 2**63 - 1


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def check(op: str, data: np.ndarray, runs: list[list[Any]], level: int = 2, **attributes: Any):
    """Engines of `op` with one data input and integer inputs, run for each of `runs`."""
    arrays = [[np.asarray(a, np.int64) for a in run] for run in runs]
    names = [f"s{i}" for i in range(len(runs[0]))]
    inputs = [("x", F, data.shape)]
    inputs += [(n, INT, a.shape) for n, a in zip(names, arrays[0], strict=True)]
    order = ["x", "", "", *names] if op == "Resize" else ["x", *names]
    nodes = [node(op, "", "y", **attributes), node("Abs", "y", "z")]
    nodes[0].input.extend(order)
    net = model(nodes, inputs, [("y", F), ("z", F)], 18)
    reference = ReferenceEvaluator(net)
    engines = [braze.build(net, threads=1, target=t, optimization_level=level)
               for t, level in (("cpu", level), ("cpu", 0), ("reference", 2))]  # fmt: skip
    for run in arrays:
        feed = {"x": data, **dict(zip(names, run, strict=True))}
        want = reference.run(None, feed)
        for engine in engines:
            for got, expected in zip(engine(feed).values(), want, strict=True):
                assert got.shape == expected.shape, run
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_reshape() -> None:
    targets = [(2, 3, 4), (-1, 2, 2), (0, -1, 3), (1, 0, 4), (24, 1, 1), (4, 3, -1)]
    check("Reshape", X, [[t] for t in targets], level=3)


def test_expand_and_tile() -> None:
    check("Expand", X[:1], [[t] for t in [(2, 3, 6), (1, 1, 1), (5, 2, 1), (0, 1, 1)]])
    check("Tile", X, [[t] for t in [(2, 3), (1, 1), (0, 1), (3, 0)]])


SLICES = [
    ((0, 0), (4, 6)), ((1, -2), (3, 100)), ((-3, 2), (-1, -1)), ((0, 5), (0, 2)),
    ((-100, 1), (LARGEST, 5)), ((3, 3), (-LARGEST, -LARGEST)), ((9, 9), (10, 10)),
]  # fmt: skip


def test_slice() -> None:
    check("Slice", X, [list(s) for s in SLICES], level=3)


def test_slice_with_axes_and_steps() -> None:
    runs = [
        [(1, -1), (6, -100), (1, 0), (2, -1)],
        [(0, 5), (4, 0), (0, -1), (1, -2)],
        [(3, 3), (0, 3), (-2, 1), (-1, 5)],
        [(-1, 2), (-LARGEST, 2), (1, 0), (-3, 1)],
    ]
    check("Slice", X, [list(r) for r in runs])


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad(mode: str) -> None:
    pads = [(0, 0, 0, 0), (1, 2, 0, 3), (3, 5, 3, 5)]
    check("Pad", X, [[p] for p in pads], mode=mode)


def test_pads_that_remove() -> None:
    net = model([node("Pad", "x s", "y")], [("x", F, X.shape), ("s", INT, [4])], [("y", F)], 18)
    engine = braze.build(net, optimization_level=2)
    for a, b, c, d in [(-1, 2, 1, -1), (0, -3, 0, -3), (-2, 0, -2, 0)]:
        wide = np.pad(X, ((5, 5), (5, 5)))
        want = wide[5 - a : 9 + c, 5 - b : 11 + d]
        np.testing.assert_array_equal(engine({"x": X, "s": ints(a, b, c, d)})["y"], want)


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp"])
def test_reduce_over_axes_of_the_run(op: str, keep: int) -> None:
    runs = [[a] for a in [(0, 1), (-1, 0), (1, 2), (2, 0)]]
    check(op, CUBE, runs, level=3 if op == "ReduceMean" else 1 + keep, keepdims=keep)


def test_other_axes_of_the_run() -> None:
    check("CumSum", CUBE, [[a] for a in (0, 1, 2, -1, -3)])
    check("Unsqueeze", CUBE, [[a] for a in [(0, 1), (-1, 0), (1, 2), (4, 0)]])
    check("Squeeze", CUBE[:, :1].reshape(2, 1, 4, 1), [[(a,)] for a in (1, 3, -1, -3)], level=3)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode: str) -> None:
    sizes = [(1, 2, 8, 10), (1, 2, 3, 3), (1, 2, 7, 11), (1, 2, 1, 1)]
    check("Resize", PICTURE, [[s] for s in sizes], level=3 if mode == "linear" else 2, mode=mode)


def refuses(op: str, data: np.ndarray, values: Any, match: str, **attributes: Any) -> None:
    given = np.asarray(values, np.int64)
    nodes = [node(op, "x s", "y", **attributes)]
    net = model(nodes, [("x", F, data.shape), ("s", INT, given.shape)], [("y", F)], 18)
    engine = braze.build(net, optimization_level=2)
    with pytest.raises(BrazeError, match=match):
        engine({"x": data, "s": given})


def test_what_does_not_fit_is_an_error_of_the_run() -> None:
    refuses("Reshape", X, (5, 5), "element count")
    refuses("Reshape", X, (-1, -1), "Reshape")
    refuses("Reshape", X, (5, -1), "element count")
    refuses("Expand", X, (3, 6), "Expand")
    refuses("Tile", X, (-1, 2), "outside")
    refuses("Pad", X, (-5, 0, 0, 0), "outside")
    refuses("ReduceSum", X, (2,), "axes")
    refuses("ReduceSum", X, (1, -1), "axes")


def test_sizes_that_are_partly_known() -> None:
    """Concat of an input's size and of data: only the data is read in the run."""
    nodes = [
        node("Shape", "x", "all"),
        node("Gather", "all zero", "rows"),
        node("Concat", "rows s", "target", axis=0),
        node("Reshape", "x target", "y"),
        node("Relu", "y", "z"),
    ]
    zero = np.array([0], np.int64)
    net = model(nodes, [("x", F, ["n", 12]), ("s", INT, [2])], [("z", F)], zero=zero)
    engine = braze.build(net, shapes={"x": ((0, 12), (4, 12), (9, 12))}, optimization_level=2)
    for rows, rest in [(4, (3, 4)), (9, (2, -1)), (1, (-1, 12)), (2, (6, 2))]:
        x = RNG.standard_normal((rows, 12)).astype(np.float32)
        want = np.maximum(x, 0).reshape(rows, *rest)
        np.testing.assert_array_equal(engine({"x": x, "s": ints(*rest)})["z"], want)
