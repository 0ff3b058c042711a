"""RotaryEmbedding of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.contributed.peer import compare, node_model
from tests.pairs import pairwise


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f4")


def tables(half: int) -> list[Any]:
    angles = np.arange(12)[:, None] / 3.0 ** np.arange(half)
    return [np.cos(angles).astype("f4"), np.sin(angles).astype("f4")]


# (shape of the input, columns of the tables, attributes)
FORMS: list[tuple[tuple[int, ...], int, dict[str, Any]]] = [
    ((2, 3, 16), 4, {}), ((2, 3, 16), 4, {"num_heads": 2}),
    ((2, 3, 16), 2, {"num_heads": 2, "rotary_embedding_dim": 4}),
    ((2, 4, 3, 8), 4, {}), ((2, 4, 3, 8), 3, {"num_heads": 4, "rotary_embedding_dim": 6}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "dtype", "interleaved", "positions"),
    pairwise(FORMS, ["float32", "float16", "bfloat16"], [0, 1], [[5], [[0, 1, 2], [9, 4, 11]]]),
)
def test_rotary(
    form: tuple[tuple[int, ...], int, dict[str, Any]], positions: Any, interleaved: int, dtype: str
) -> None:
    shape, half, attributes = form
    inputs = [numbers(*shape), np.array(positions, "i8"), *tables(half)]
    rows = len(shape) - 2
    names = {0: (0, rows), 1: (0, 1)} if len(inputs[1].shape) == 2 else {0: (0, rows)}
    compare("RotaryEmbedding", inputs, dtype, constant=[2, 3], symbols=names,
            interleaved=interleaved, tolerance=2, **attributes)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "half", "attributes", "why"),
    [
        ((2, 3, 15), 4, {}, "does not divide into heads"),
        ((2, 3, 16), 4, {"scale": 2.0}, "a scale other than 1"),
        ((2, 3, 16), 4, {"is_packed_batching": 1}, "without padding"),
        ((2, 3, 16), 2, {"rotary_embedding_dim": 4}, "needs num_heads"),
        ((2, 2, 3, 6), 4, {}, "columns of cos_cache 'x2', one a pair, must be 3, not 4"),
        ((2, 2, 3, 8), 3, {}, "columns of cos_cache 'x2', one a pair, must be 4, not 3"),
    ],
)
def test_what_does_not_fit_is_refused(
    shape: tuple[int, ...], half: int, attributes: dict[str, Any], why: str
) -> None:
    inputs = [numbers(*shape), np.array([0], "i8"), *tables(half)]
    with pytest.raises(BrazeError, match=why):
        import_network(node_model("RotaryEmbedding", inputs, **attributes))
