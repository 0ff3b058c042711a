"""Attention and MultiHeadAttention of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.contributed.peer import compare, node_model
from tests.pairs import pairwise

B, S, P, H, D = 2, 3, 4, 2, 4  # batch, rows, cached rows, heads, head size
DTYPES = ["float32", "float16", "bfloat16"]


def numbers(*shape: int, seed: int = 0, size: float = 1.0) -> Any:
    return (np.random.default_rng(seed).uniform(-1, 1, shape) * size).astype("f4")


def raw_mask(*shape: int, seed: int = 9) -> Any:
    """Ones and zeros, with a one in each row."""
    mask = np.random.default_rng(seed).integers(0, 2, shape).astype("i4")
    mask[..., 0] = 1
    return mask


def mask_of(form: str | None, columns: int, ends: Any = (3, 2)) -> Any:
    """A mask of one of the documented forms."""
    return {
        None: None,
        "ends": np.array(ends, "i4"),
        "ends and starts": np.array([*ends, 0, 1], "i4"),
        "keys": raw_mask(B, columns),
        "rows": raw_mask(B, S, columns),
    }[form]


def trimmed(inputs: list[Any]) -> list[Any]:
    while inputs[-1] is None:
        inputs = inputs[:-1]
    return inputs


# a cache, a bias of scores; onnxruntime refuses both together
MORE = [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize(
    ("form", "more", "unidirectional"),
    pairwise([None, "ends", "ends and starts", "keys", "rows"], MORE, [0, 1]),
)
def test_attention(form: str | None, more: tuple[bool, bool], unidirectional: int) -> None:
    cached, biased = more
    columns = S + P * cached
    past = numbers(2, B, H, P, D, seed=3) if cached else None
    bias = numbers(1, H, S, columns, seed=4) if biased else None
    inputs = [numbers(B, S, 5), numbers(5, 3 * H * D, seed=1), numbers(3 * H * D, seed=2),
              mask_of(form, columns), past, bias]  # fmt: skip
    compare("Attention", trimmed(inputs), constant=[1, 2], outputs=2, num_heads=H,
            unidirectional=unidirectional, tolerance=4)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_of_half_types_and_other_sizes(dtype: str) -> None:
    """v wider than q and k; a scale; another filter; no bias."""
    inputs = [numbers(B, S, 5), numbers(5, 2 * 8 + 12, seed=1), None, raw_mask(B, S)]
    compare("Attention", inputs, dtype, constant=[1], num_heads=2, qkv_hidden_sizes=[8, 8, 12],
            scale=0.4, mask_filter_value=-500.0, tolerance=3)  # fmt: skip


def test_attention_of_dynamic_sizes() -> None:
    past = numbers(2, B, H, P, D, seed=3)
    inputs = [numbers(B, S, 5), numbers(5, 3 * H * D, seed=1), numbers(3 * H * D, seed=2),
              None, past]  # fmt: skip
    names = {0: (1,), 4: (3,)}
    compare("Attention", inputs, constant=[1, 2], symbols=names, outputs=2, num_heads=H,
            unidirectional=1, tolerance=4)  # fmt: skip


@pytest.mark.parametrize(
    ("form", "scores", "cached", "unidirectional", "bias"),
    pairwise(
        [None, "ends", "keys", "rows"], [None, (1, 1), (B, H)], [False, True], [0, 1], [False, True]
    ),
)
def test_multi_head_attention(
    form: str | None, cached: bool, unidirectional: int, bias: bool, scores: Any
) -> None:
    columns = S + P * cached
    wide = D if cached else 3  # of a value's head
    past = [numbers(B, H, P, D, seed=5), numbers(B, H, P, D, seed=6)] if cached else []
    inputs = [numbers(B, S, H * D), numbers(B, S, H * D, seed=1), numbers(B, S, H * wide, seed=2),
              numbers(2 * H * D + H * wide, seed=3) if bias else None, mask_of(form, columns),
              numbers(*scores, S, columns, seed=4) if scores else None, *past]  # fmt: skip
    compare("MultiHeadAttention", trimmed(inputs), outputs=3 if cached else 1, num_heads=H,
            unidirectional=unidirectional, tolerance=4)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", [None, "keys"])
def test_cross_attention(dtype: str, form: str | None) -> None:
    """Keys and values of another length, projected or from a cache that does not grow."""
    q, mask = numbers(B, S, H * D), mask_of(form, 6)
    k, v = numbers(B, 6, H * D, seed=1), numbers(B, 6, H * D, seed=2)
    names = {0: (1,), 1: (1,), 2: (1,)} if form is None else None
    compare("MultiHeadAttention", trimmed([q, k, v, None, mask]), dtype, symbols=names,
            num_heads=H, scale=0.3, tolerance=4)  # fmt: skip
    k, v = numbers(B, H, 6, D, seed=1), numbers(B, H, 6, D, seed=2)
    compare("MultiHeadAttention", trimmed([q, k, v, None, mask]), dtype, num_heads=H, tolerance=4)


def test_packed_heads_are_the_unpacked_ones() -> None:
    """onnxruntime packs for GPUs only."""
    parts = [numbers(B, S, H, D, seed=i) for i in range(3)]
    flat = [p.reshape(B, S, H * D) for p in parts]
    want = compare("MultiHeadAttention", flat, num_heads=H, tolerance=4)["reference"]
    packed = [np.stack(parts, axis=3)]
    compare("MultiHeadAttention", packed, num_heads=H, want=want)
    pair = [flat[0], np.stack(parts[1:], axis=3)]
    compare("MultiHeadAttention", pair, num_heads=H, want=want)


def test_a_square_mask_is_read_at_the_latest_rows() -> None:
    """[B, 1, M, M], which onnxruntime reads on GPUs only: the same as its rows as [B, S, keys]."""
    square = raw_mask(B, 1, 9, 9)
    rows = np.ascontiguousarray(square[:, 0, P : P + S, : P + S])
    past = numbers(2, B, H, P, D, seed=3)
    inputs = [numbers(B, S, 5), numbers(5, 3 * H * D, seed=1), numbers(3 * H * D, seed=2)]
    want = compare("Attention", [*inputs, rows, past], outputs=2, num_heads=H, tolerance=4)
    compare("Attention", [*inputs, square, past], outputs=2, num_heads=H, want=want["reference"])


_Q = [numbers(B, S, H * D)] * 3


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "why"),
    [
        ("MultiHeadAttention", _Q, {"num_heads": 3}, "does not divide into 3 heads"),
        ("MultiHeadAttention", _Q, {}, "num_heads is 0"),
        ("MultiHeadAttention", _Q[:2], {"num_heads": 2}, "key is given without value"),
        ("MultiHeadAttention", [*_Q, None, np.zeros(3 * B + 2, "i4")], {"num_heads": 2},
         "a mask of 8 numbers for a batch of 2"),
        ("MultiHeadAttention", [*_Q, None, None, None, numbers(B, H, P, D)], {"num_heads": 2},
         "together"),
        ("MultiHeadAttention", [*_Q, None, None, None, None, None, np.zeros(1, "i4")],
         {"num_heads": 2}, "past and present share"),
        ("MultiHeadAttention", [_Q[0], numbers(B, 5, H * D), numbers(B, 5, H * D)],
         {"num_heads": 2, "unidirectional": 1}, "3 queries for 5 keys"),
        ("Attention", [numbers(B, S, 5), numbers(5, 24)], {"num_heads": 2, "do_rotary": 1},
         "do_rotary"),
        ("Attention", [numbers(B, S, 5), numbers(5, 24)],
         {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 9]}, "do not hold q, k and v"),
        ("Attention", [numbers(B, S, 5), numbers(5, 24), None, numbers(B, S)], {"num_heads": 2},
         "must hold integers"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    op: str, inputs: list[Any], attributes: dict[str, Any], why: str
) -> None:
    with pytest.raises(BrazeError, match=why):
        import_network(node_model(op, inputs, **attributes))
