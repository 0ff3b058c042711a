"""DynamicQuantizeLSTM: its definition step by step in numpy, and ONNX Runtime where it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from braze.core.errors import BrazeError
from tests.pairs import pairwise

F = TensorProto.FLOAT
Array = np.ndarray[Any, Any]
SIZE, HIDDEN = 13, 8
# float32 gates over exact sums: a few roundings a step, and seven steps
TOLERANCE = 2e-6


def constants(directions: int, kind: str, columns: bool) -> dict[str, Array]:
    """Weights of 8 bits; columns: a scale and zero point for each column."""
    rng = np.random.default_rng(directions)
    scales = (directions, 4 * HIDDEN) if columns else (directions,)
    low, high = (0, 256) if kind == "uint8" else (-127, 128)

    def zeros() -> Array:
        return (rng.integers(100, 150, scales) * (kind == "uint8")).astype(kind)

    return {
        "W": rng.integers(low, high, (directions, SIZE, 4 * HIDDEN)).astype(kind),
        "R": rng.integers(low, high, (directions, HIDDEN, 4 * HIDDEN)).astype(kind),
        "B": rng.standard_normal((directions, 8 * HIDDEN)).astype(np.float32) * np.float32(0.1),
        "ws": (rng.random(scales) * 0.01 + 0.002).astype(np.float32),
        "wz": zeros(),
        "rs": (rng.random(scales) * 0.01 + 0.002).astype(np.float32),
        "rz": zeros(),
    }


def model(weights: dict[str, Array], states: bool, sizes: tuple[Any, Any], **attributes: Any):
    directions = weights["W"].shape[0]
    inputs = [helper.make_tensor_value_info("x", F, [*sizes, SIZE])]
    if states:
        shape = [directions, sizes[1], HIDDEN]
        inputs += [helper.make_tensor_value_info(name, F, shape) for name in ("h", "c")]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "W", "R", "B", "", *(("h", "c") if states else ("", "")), "", "ws", "wz", "rs", "rz"],
        ["y", "yh", "yc"], "cell", domain="com.microsoft", hidden_size=HIDDEN, **attributes,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info(n, F, None) for n in ("y", "yh", "yc")],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def product(x: Array, codes: Array, scale: Array, zero: Array) -> Array:
    """x, quantized by its range to 8 bits, times dequantized codes."""
    low, high = min(x.min(), 0), max(x.max(), 0)
    step = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1)
    offset = np.clip(np.rint((0 - low) / step), 0, 255)
    q = np.clip(np.rint(x / step) + offset, 0, 255) - offset
    return (q.astype(np.int64) @ (codes.astype(np.int64) - zero.astype(np.int64))) * (step * scale)


def expected(w: dict[str, Array], x: Array, h: Array, c: Array, reverse: tuple[bool, ...]):
    def sigma(v: Array) -> Array:
        return 1 / (1 + np.exp(-v))

    ys, hs, cs = [], [], []
    for d, back in enumerate(reverse):
        own = {k: v[d] for k, v in w.items()}
        steps, batch, _ = x.shape
        given = product(x.reshape(-1, SIZE), own["W"], own["ws"], own["wz"])
        given = (given + own["B"][: 4 * HIDDEN] + own["B"][4 * HIDDEN :]).reshape(steps, batch, -1)
        state, cell, rows = h[d], c[d], [None] * steps
        for t in reversed(range(steps)) if back else range(steps):
            gates = given[t] + product(state, own["R"], own["rs"], own["rz"])
            i, o, f, g = np.split(gates.astype(np.float32), 4, axis=1)
            cell = sigma(f) * cell + sigma(i) * np.tanh(g)
            state = rows[t] = sigma(o) * np.tanh(cell)
        ys.append(np.stack(rows))
        hs.append(state)
        cs.append(cell)
    return np.stack(ys, axis=1), np.stack(hs), np.stack(cs)


REVERSE = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


FORMS = [("uint8", False), ("int8", False), ("int8", True)]
WAYS = [("cpu", 0), ("cpu", 2), ("reference", 0), ("reference", 2)]


@pytest.mark.parametrize(
    ("way", "direction", "form"),
    pairwise(WAYS, list(REVERSE), FORMS),
)
def test_against_the_definition(
    form: tuple[str, bool], direction: str, way: tuple[str, int]
) -> None:
    kind, columns = form
    target, level = way
    reverse = REVERSE[direction]
    w = constants(len(reverse), kind, columns)
    rng = np.random.default_rng(5)
    feed = {"x": rng.standard_normal((7, 1, SIZE)).astype(np.float32)}
    states = direction != "forward"
    shape = (len(reverse), 1, HIDDEN)
    first = [(rng.standard_normal(shape) * 0.3 * states).astype(np.float32) for _ in "hc"]
    if states:
        feed |= dict(zip("hc", first, strict=True))
    want = expected(w, feed["x"], *first, reverse)
    sizes = ("t", "b") if columns else (7, 1)
    m = model(w, states, sizes, direction=direction)
    engine = braze.build(m, target=target, optimization_level=level)
    for got, right in zip(engine(feed).values(), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=0, atol=TOLERANCE)


def test_clip_and_activations_as_onnx_runtime_has_them() -> None:
    ort = pytest.importorskip("onnxruntime", reason="compared with ONNX Runtime")
    weights = constants(1, "int8", columns=False)
    for name in ("W", "R"):  # pairs of products fit in 16 bits, which it saturates at on AVX2
        weights[name] = weights[name] // 2
    m = model(
        weights, False, ("t", 1),
        clip=0.4, activations=["HardSigmoid", "Relu", "Tanh"],
        activation_alpha=[0.3], activation_beta=[0.4],
    )  # fmt: skip
    feed = {"x": np.random.default_rng(1).standard_normal((5, 1, SIZE)).astype(np.float32)}
    want = ort.InferenceSession(m.SerializeToString()).run(None, feed)
    for got, right in zip(braze.build(m, optimization_level=2)(feed).values(), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("attributes", "what"),
    [({"input_forget": 1}, "input_forget is not"), ({"direction": "up"}, "none of forward")],
)
def test_refused(attributes: dict[str, Any], what: str) -> None:
    m: onnx.ModelProto = model(constants(1, "int8", columns=False), False, (3, 1), **attributes)
    with pytest.raises(BrazeError, match=f"cell.*{what}"):
        braze.build(m)
