"""Sums in the order that anchors promise, and operands read by their strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from braze.core.dims import evaluate as evaluate_dim
from braze.ops.lowering import Operand

Array = np.ndarray[Any, Any]
Env = Mapping[str, int]


def view(array: Array, operand: Operand, shape: Sequence[int], env: Env) -> Array:
    """`array` (contiguous) as the operand's strides and offset read it."""
    flat = array.reshape(-1)[evaluate_dim(operand.offset, env) :]
    strides = [evaluate_dim(s, env) for s in operand.strides]
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    assert 0 in shape or 0 <= last < flat.size, (operand, shape, array.shape)
    return np.lib.stride_tricks.as_strided(
        flat, shape, [s * flat.itemsize for s in strides], writeable=True
    )


class BlockedSum:
    """A sum in the order that anchors promise: blocks of `block` terms, ascending in both.

    Terms come one by one, so that an element has the same bits whatever it is computed beside (a
    library's product chooses another order for another number of rows).
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, block: int) -> None:
        self._total = np.zeros(shape, dtype)
        self._part = np.zeros(shape, dtype)
        self._block = block
        self._count = 0

    def add(self, a: Array, b: Array) -> None:
        """Add the products a * b."""
        self._part += a * b
        self._count += 1
        if self._count % self._block == 0:
            self._total += self._part
            self._part[...] = 0

    def result(self) -> Array:
        """The sum of all terms so far."""
        return self._total + self._part


def blocked_product(lhs: Array, rhs: Array, block: int) -> Array:
    """lhs [.., m, k] @ rhs [.., k, n] with k in blocks of `block` terms."""
    batch = np.broadcast_shapes(lhs.shape[:-2], rhs.shape[:-2])
    total = BlockedSum((*batch, lhs.shape[-2], rhs.shape[-1]), lhs.dtype, block)
    columns, rows = np.moveaxis(lhs, -1, 0).copy(), np.moveaxis(rhs, -2, 0).copy()
    for column, row in zip(columns, rows, strict=True):
        total.add(column[..., None], row[..., None, :])
    return total.result()
