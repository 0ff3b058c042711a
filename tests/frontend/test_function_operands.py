"""Shapes that ops of function bodies do not take are said of the op, not of a node of its body."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import braze
from braze.core.errors import ShapeError
from tests.frontend.test_operand_shapes import Array, one, refusal, run

R = np.random.default_rng(2)
LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
SCORES, LABELS = R.standard_normal((3, 5)).astype(np.float32), np.array([0, 4, 2])
ROWS = R.standard_normal((2, 3, 6, 8)).astype(np.float32)  # 3 heads of size 8


def normal(*shape: int) -> Array:
    return R.standard_normal(shape).astype(np.float32)


def loss(op: str, weight: Array, dynamic: str = "") -> onnx.ModelProto:
    given = {"x": SCORES, "l": LABELS}
    return one(op, given, {"w": weight}, "x l w", opset=13, dynamic=dynamic)


@pytest.mark.parametrize("op", LOSSES)
@pytest.mark.parametrize("shape", [(4,), (6,), (1,), (), (5, 1)])
def test_weights_of_losses(op: str, shape: tuple[int, ...]) -> None:
    text = refusal(loss(op, np.ones(shape, np.float32)))
    assert f"node 'here' ({op}): " in text and "weight 'w'" in text and "one a class" in text


@pytest.mark.parametrize("op", LOSSES)
def test_weights_of_losses_in_the_run(op: str) -> None:
    weight = np.arange(1, 6).astype(np.float32)
    wanted = run(loss(op, weight), x=SCORES, l=LABELS)
    engine = braze.build(loss(op, weight, "x"), target="reference", optimization_level=0)
    np.testing.assert_allclose(engine({"x": SCORES, "l": LABELS})["y"], wanted, 1e-6)
    for classes in (6, 7):
        with pytest.raises(ShapeError, match=f"'here' .{op}.: elements of weight 'w', one a class"):
            engine({"x": np.resize(SCORES, (3, classes)), "l": LABELS})


def rotary(x: Array, columns: tuple[int, int], dynamic: str = "", **more: int) -> onnx.ModelProto:
    given = {"x": x, "c": normal(9, columns[0]), "s": normal(9, columns[1])}
    ids = np.arange(12).reshape(2, 6) % 9
    return one(
        "RotaryEmbedding", given, {"p": ids}, "x c s p", opset=23, dynamic=dynamic, **more
    )


PACKED = ROWS.transpose(0, 2, 1, 3).reshape(2, 6, 24)


@pytest.mark.parametrize(("x", "heads"), [(ROWS, {}), (PACKED, {"num_heads": 3})])
@pytest.mark.parametrize("dim", [0, 4])
def test_tables_of_rotary_embeddings(x: Array, heads: dict[str, int], dim: int) -> None:
    more = {**heads, "rotary_embedding_dim": dim}
    half = (dim or 8) // 2
    feeds = {"x": x, "c": normal(9, half), "s": normal(9, half)}
    wanted = run(rotary(x, (half, half), **more), **feeds)
    engine = braze.build(
        rotary(x, (half, half), "xcs", **more), target="reference", optimization_level=0
    )
    np.testing.assert_allclose(engine(feeds)["y"], wanted, 1e-5, 1e-6)
    for columns in ((1, 1), (half - 1, half), (half, half + 1), (half + 1, half + 1)):
        text = refusal(rotary(x, columns, **more))
        assert "node 'here' (RotaryEmbedding): columns of " in text and "Mul" not in text
        bad = {"x": x, "c": normal(9, columns[0]), "s": normal(9, columns[1])}
        with pytest.raises(ShapeError, match=r"'here' .RotaryEmbedding.: columns of "):
            engine(bad)
