"""Normalisations of com.microsoft against onnxruntime, or numpy where it has them for GPUs only."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.contributed.peer import compare, node_model, rounded, widened
from tests.pairs import pairwise

DTYPES = ["float32", "float16", "bfloat16"]


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f4")


@pytest.mark.parametrize(
    ("dtype", "skip", "op", "bias", "outputs"),
    pairwise(
        DTYPES,
        [(2, 3, 8), (1, 3, 8), (3, 8)],
        ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"],
        [False, True],
        [[True], [True, False, False, True]],
    ),
)
def test_skip_norms(
    op: str, skip: tuple[int, ...], bias: bool, outputs: list[bool], dtype: str
) -> None:
    simple = "Simplified" in op
    inputs: list[Any] = [numbers(2, 3, 8), numbers(*skip, seed=1), numbers(8, seed=2) + 1]
    if not simple:
        inputs.append(numbers(8, seed=3) if skip == (2, 3, 8) else None)
    if bias:
        inputs.append(numbers(8, seed=4))
    if inputs[-1] is None:
        inputs.pop()
    names = {0: (0, 1), 1: (0, 1)} if skip == (2, 3, 8) else None
    compare(op, inputs, dtype, outputs=outputs, symbols=names, tolerance=4, epsilon=1e-5)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_statistics_of_skip_norms(op: str) -> None:
    """By the formula: onnxruntime leaves them out on processors."""
    x, skip, gamma = numbers(2, 3, 8), numbers(2, 3, 8, seed=1), numbers(8, seed=2)
    h = (x + skip).astype("f8")
    mean = h.mean(-1, keepdims=True) if op == "SkipLayerNormalization" else np.zeros((2, 3, 1))
    inverse = 1 / np.sqrt(((h - mean) ** 2).mean(-1, keepdims=True) + 1e-3)
    want = [(h - mean) * inverse * gamma, mean, inverse, h]
    compare(op, [x, skip, gamma], outputs=4, epsilon=1e-3, want=[w.astype("f4") for w in want])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("outputs", [1, 2])
def test_simplified_layer_norm(axis: int, outputs: int, dtype: str) -> None:
    shape = (8,) if axis == -1 else (3, 8)
    compare("SimplifiedLayerNormalization", [numbers(2, 3, 8), numbers(*shape, seed=1)],
            dtype if outputs == 1 else "float32", domain="", outputs=outputs, axis=axis,
            epsilon=1e-5, tolerance=4)  # fmt: skip


@pytest.mark.parametrize("opset", [9, 16])
def test_layer_norm_before_it_was_in_onnx(opset: int) -> None:
    inputs = [numbers(2, 3, 8), numbers(8, seed=1), numbers(8, seed=2)]
    compare("LayerNormalization", inputs, domain="", opset=opset, axis=-1, epsilon=1e-5)


@pytest.mark.parametrize(
    ("places", "segments", "mask"),
    pairwise([None, (2, 5), (1, 5)], [False, True], [False, True]),
)
def test_embed_layer_norm(segments: bool, mask: bool, places: tuple[int, ...] | None) -> None:
    r = np.random.default_rng(5)
    inputs: list[Any] = [
        r.integers(0, 11, (2, 5)).astype("i4"),
        r.integers(0, 2, (2, 5)).astype("i4") if segments else None,
        numbers(11, 8), numbers(7, 8, seed=1), numbers(2, 8, seed=2) if segments else None,
        numbers(8, seed=3), numbers(8, seed=4),
        np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4") if mask else None,
        r.integers(0, 7, places).astype("i4") if places else None,
    ]  # fmt: skip
    while inputs[-1] is None:
        inputs.pop()
    compare("EmbedLayerNormalization", inputs, constant=[2, 3, 5, 6], outputs=3, tolerance=4,
            epsilon=1e-5, mask_index_type=1)  # fmt: skip


# what is added and a bias; GroupNorm has neither, SkipGroupNorm the bias with what is added alone
ADDED = [(None, False), *itertools.product(["same", "row", "4-D row"], [False, True])]


@pytest.mark.parametrize(
    ("added", "dtype", "last", "activation"), pairwise(ADDED, DTYPES, [0, 1], [0, 1])
)
def test_group_norms(
    last: int, activation: int, added: tuple[str | None, bool], dtype: str
) -> None:
    """By the formula: onnxruntime has them for GPUs only."""
    skip, bias = added
    shape = (2, 3, 4, 6) if last else (2, 6, 3, 4)
    row = (2, 1, 1, 6) if last else (2, 6, 1, 1)
    x = numbers(*shape)
    more = None
    if skip is not None:
        more = numbers(*{"same": shape, "row": (2, 6), "4-D row": row}[skip], seed=3)
    b = numbers(6, seed=4) if bias else None
    wide = [widened(rounded(a, dtype)) for a in (x, more, b)]
    h = wide[0].astype("f8")
    if more is not None:
        h = h + wide[1].reshape(row if skip == "row" else wide[1].shape)
    if bias:
        h = h + wide[2].reshape((6,) if last else (6, 1, 1))
    gamma, beta = numbers(6, seed=1) + 1, numbers(6, seed=2)
    first = np.moveaxis(h, -1, 1) if last else h
    groups = first.reshape(2, 3, -1)
    y = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    y = y.reshape(first.shape) * gamma.reshape(6, 1, 1) + beta.reshape(6, 1, 1)
    y = y / (1 + np.exp(-y)) if activation else y
    want = [np.moveaxis(y, 1, -1) if last else y, *([h] if skip else [])]
    inputs = [rounded(x, dtype), gamma, beta]
    if skip:
        inputs += [rounded(more, dtype), rounded(b, dtype)][: 1 + bias]
    compare("SkipGroupNorm" if skip else "GroupNorm", inputs, "float32",
            outputs=len(want), want=want, groups=3, epsilon=1e-5, activation=activation,
            channels_last=last, tolerance={"float32": 4.0}.get(dtype, 2000.0))  # fmt: skip


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "why"),
    [
        ("SkipLayerNormalization", [numbers(2, 3), numbers(2, 4), numbers(3)], {}, "sizes 3 and 4"),
        ("SkipLayerNormalization", [numbers(3), numbers(2, 3), numbers(3)], {}, "skip has rank 2"),
        ("GroupNorm", [numbers(2, 3, 4, 6), numbers(6), numbers(6)],
         {"groups": 4, "activation": 0}, "do not divide into 4 groups"),
        ("GroupNorm", [numbers(2, 3, 6), numbers(6), numbers(6)],
         {"groups": 3, "activation": 0}, "rank 3"),
        ("GroupNorm", [numbers(2, 3, 4, 6), numbers(6), numbers(6)],
         {"groups": 3, "activation": 2}, "activation=2"),
        ("EmbedLayerNormalization", [np.zeros((2, 5), "i4"), None, numbers(11, 8), numbers(4, 8),
                                     None, numbers(8), numbers(8)], {}, "size 4 is less than 5"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    op: str, inputs: list[Any], attributes: dict[str, Any], why: str
) -> None:
    with pytest.raises(BrazeError, match=why):
        import_network(node_model(op, inputs, **attributes))
