"""Recurrent networks as frameworks write them, and as they are used: stacked, shared, streamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import braze
from braze.engine.steps import Loop
from tests.recurrent.cases import draw

Array = np.ndarray[Any, Any]
HIDDEN, SIZE = 40, 24


def weights(name: str, gates: int, directions: int, size: int, dtype: Any) -> list[Any]:
    """W, R and B of a cell as initializers."""
    rng, rows = np.random.default_rng(len(name)), gates * HIDDEN
    shapes = ((directions, rows, size), (directions, rows, HIDDEN), (directions, 2 * rows))
    return [
        numpy_helper.from_array((rng.uniform(-1, 1, s) * 0.2).astype(dtype), f"{name}.{part}")
        for part, s in zip("WRB", shapes, strict=True)
    ]


def model(nodes: list[Any], held: list[Any], inputs: Any, outputs: Any, kind: int) -> Any:
    """A network with open output shapes."""
    given = [helper.make_tensor_value_info(n, kind, shape) for n, shape in inputs]
    made = [helper.make_tensor_value_info(n, kind, [None] * rank) for n, rank in outputs]
    graph = helper.make_graph(nodes, "g", given, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def stacked() -> onnx.ModelProto:
    """Batch first, a bidirectional GRU under an LSTM: its steps and its last state are used."""
    ints = numpy_helper.from_array
    held = [
        *weights("gru", 3, 2, SIZE, "f4"), *weights("lstm", 4, 1, 2 * HIDDEN, "f4"),
        ints(np.array([0, 0, -1]), "flat"), ints(np.array([1]), "one"), ints(np.array([0]), "zero"),
    ]  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Transpose", ["x"], ["xt"], perm=[1, 0, 2]),
        node("GRU", ["xt", "gru.W", "gru.R", "gru.B"], ["a"], hidden_size=HIDDEN,
             direction="bidirectional", linear_before_reset=1),
        node("Transpose", ["a"], ["at"], perm=[0, 2, 1, 3]),
        node("Reshape", ["at", "flat"], ["b"]),
        node("LSTM", ["b", "lstm.W", "lstm.R", "lstm.B"], ["c", "h", "s"], hidden_size=HIDDEN),
        node("LSTM", ["b", "lstm.W", "lstm.R", "lstm.B", "", "h", "s"], ["d"], hidden_size=HIDDEN),
        node("Squeeze", ["c", "one"], ["c3"]),
        node("Squeeze", ["d", "one"], ["d3"]),
        node("Mul", ["c3", "d3"], ["e"]),
        node("Transpose", ["e"], ["y"], perm=[1, 0, 2]),
        node("Squeeze", ["h", "zero"], ["h2"]),
        node("Relu", ["h2"], ["z"]),
    ]  # fmt: skip
    return model(nodes, held, [("x", ["n", "t", SIZE])], [("y", 3), ("z", 2)], 1)


@pytest.mark.parametrize("level", [0, 1, 3])
def test_stacked_cells(level: int) -> None:
    """Views between cells, epilogues, and weights that two nodes share; against ONNX Runtime."""
    made = stacked()
    shapes = {"x": ((1, 1, SIZE), (2, 7, SIZE), (5, 9, SIZE))}
    engine = braze.build(made, shapes=shapes, optimization_level=level)
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for n, t in [(1, 1), (2, 7), (5, 9), (3, 2)]:
        x = np.random.default_rng(t).uniform(-1, 1, (n, t, SIZE)).astype(np.float32)
        want = session.run(["y", "z"], {"x": x})
        got = engine({"x": x})
        for name, value in zip("yz", want, strict=True):
            # two cells in a row, whose gates damp what sums in another order make
            np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("LSTM", 4)])
def test_a_stream_has_the_bits_of_one_long_run(op: str, gates: int, dtype: str) -> None:
    """Step by step, states out and in again."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    states = ["h", "c"][: gates - 2]
    held = weights("cell", gates, 1, SIZE, dtype)

    def network(steps: int) -> Any:
        node = helper.make_node(
            op, ["x", "cell.W", "cell.R", "cell.B", "", *states],
            ["y", *(f"{s}n" for s in states)], hidden_size=HIDDEN,
        )  # fmt: skip
        inputs = [("x", [steps, 1, SIZE]), *((s, [1, 1, HIDDEN]) for s in states)]
        return model([node], held, inputs, [("y", 4), *((f"{s}n", 3) for s in states)], kind)

    steps = 300
    x = np.random.default_rng(0).uniform(-1, 1, (steps, 1, SIZE)).astype(dtype)
    state = {s: np.zeros((1, 1, HIDDEN), dtype) for s in states}
    want = braze.build(network(steps), optimization_level=1, threads=2)({"x": x, **state})
    engine = braze.build(network(1), optimization_level=1, threads=2)
    for t in range(steps):
        out = engine({"x": x[t : t + 1], **state})
        np.testing.assert_array_equal(out["y"][0], want["y"][t])
        state = {s: out[f"{s}n"] for s in states}
    for s in states:
        np.testing.assert_array_equal(state[s], want[f"{s}n"])


def test_a_gpu_loops_over_the_steps() -> None:
    """A backend without a kernel for recurrences has one for what a step computes."""
    pytest.importorskip("triton")
    plan = braze.compile(
        draw(3, steps=4, dtype="float32").model(), target="cuda:sm_90", optimization_level=1
    )
    assert any(isinstance(step, Loop) for step in plan.steps)
