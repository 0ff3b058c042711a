"""QAttention and QEmbedLayerNormalization against onnxruntime: exact sums, then float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contributed.peer import compare
from tests.contributed.test_quantized import codes, f, small_codes

Array = np.ndarray[Any, Any]
BATCH, LENGTH, HIDDEN, HEADS = 2, 5, 12, 3


def given(x_type: str, w_type: str, per_column: bool) -> list[Array | None]:
    """Codes, weights, bias, scales, no mask, zero points."""
    rng = np.random.default_rng(4)
    scale = rng.uniform(0.004, 0.008, 3 * HIDDEN).astype(np.float32) if per_column else f(0.006)
    return [
        codes((BATCH, LENGTH, HIDDEN), x_type), small_codes((HIDDEN, 3 * HIDDEN), w_type, 1),
        rng.normal(0, 0.5, 3 * HIDDEN).astype(np.float32), f(0.01), scale, None,
        codes((), x_type, 2),
        np.zeros(3 * HIDDEN, w_type) if per_column else small_codes((), w_type, 3),
    ]  # fmt: skip


@pytest.mark.parametrize(("x_type", "w_type"), [("uint8", "uint8"), ("uint8", "int8")])
@pytest.mark.parametrize("per_column", [False, True])
def test_attention(x_type: str, w_type: str, per_column: bool) -> None:
    inputs = given(x_type, w_type, per_column)
    compare("QAttention", inputs, constant=(1, 2, 3, 4, 6, 7), num_heads=HEADS)
    compare("QAttention", inputs, constant=(1, 2, 3, 4, 6, 7), num_heads=HEADS, unidirectional=1,
            engine=False)  # fmt: skip


@pytest.mark.parametrize("mask", [
    np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]), np.array([3, 5]),
], ids=["of keys", "lengths"])  # fmt: skip
def test_masks(mask: Array) -> None:
    inputs = given("uint8", "int8", False)
    inputs[5] = mask.astype(np.int32)
    compare("QAttention", inputs, constant=(1, 2, 3, 4, 6, 7), num_heads=HEADS)


def test_past_keys_and_values() -> None:
    inputs = given("uint8", "int8", False)
    past = np.random.default_rng(7).normal(0, 1, (2, BATCH, HEADS, 4, HIDDEN // HEADS))
    compare("QAttention", [*inputs, past.astype(np.float32)], constant=(1, 2, 3, 4, 6, 7),
            num_heads=HEADS, unidirectional=1, outputs=2)  # fmt: skip


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_embeddings(segments: bool, masked: bool) -> None:
    rng = np.random.default_rng(6)
    ids = rng.integers(0, 9, (2, 4)).astype(np.int32)
    kinds = rng.integers(0, 2, (2, 4)).astype(np.int32) if segments else None
    table = small_codes((2, 16), "uint8", 2) if segments else None
    mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32) if masked else None
    parts = [codes((9, 16), "uint8"), codes((6, 16), "uint8", 1), table, codes((16,), "uint8", 3),
             codes((16,), "uint8", 4)]  # fmt: skip
    scales = [f(0.02), f(0.01), f(0.03) if segments else None, f(0.015), f(0.005)]
    zeros = [codes((), "uint8", 5 + i) if a is not None else None for i, a in enumerate(parts)]
    held = [i for i, a in enumerate([ids, kinds, *parts]) if a is not None and i > 1]
    compare("QEmbedLayerNormalization", [ids, kinds, *parts, mask, *scales, *zeros], constant=held,
            outputs=2)  # fmt: skip
