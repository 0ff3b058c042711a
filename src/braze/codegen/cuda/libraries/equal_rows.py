"""Inputs for which a call of a library gives every row the same bits, if it keeps that promise.

Some algorithms split the sums of some tiles of the output and not of others; which they are, no
attribute tells, so that each is tried before it is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from braze.codegen.cuda.libraries.convolution import RESIDUAL, X
from braze.codegen.cuda.libraries.product import Matrix, Product
from braze.fusion.kernel import LibraryCode

Array = np.ndarray[Any, Any]


def equal_inputs(code: LibraryCode, arrays: Sequence[Array]) -> list[Array]:
    """`arrays` (the kernel's inputs) with every row of a product, or every entry of a convolution's
    batch, the same."""
    if code.library == "cublaslt":
        return equal_rows(Product.read(code.attributes), arrays)
    found = [np.array(a) for a in arrays]
    for number, slot, _ in code.attributes["tensors"]:
        if number in (X, RESIDUAL):
            entries = found[slot].reshape(code.attributes["batch"], -1)
            entries[1:] = entries[:1]
    return found


def input_slot(code: LibraryCode) -> int:
    """The slot whose rows, or entries, make those of the output."""
    if code.library == "cublaslt":
        return Product.read(code.attributes).right.slot
    return int(next(slot for number, slot, _ in code.attributes["tensors"] if number == X))


def outputs_agree(code: LibraryCode, out: Array) -> bool:
    """Whether the output for such inputs has the same bits in every row, or entry."""
    if code.library == "cublaslt":
        return rows_agree(Product.read(code.attributes), out)
    bits = out.reshape(-1).view(np.dtype(f"u{out.dtype.itemsize}"))
    entries = bits.reshape(code.attributes["batch"], -1)
    return bool((entries == entries[:1]).all())


def equal_rows(product: Product, arrays: Sequence[Array]) -> list[Array]:
    """`arrays` (the kernel's inputs) with every row of lhs and residual the first one of its
    matrix, and every matrix of the batch the first."""
    found = [np.array(a) for a in arrays]
    rows = _matrices(found, product.right, product.batch)
    rows[...] = np.array(rows[:1, :1])
    _repeat_first(_matrices(found, product.left, product.batch))
    if product.residual is not None:
        rows = _matrices(found, product.residual, product.batch)
        rows[...] = np.array(rows[:1, :1])
    return found


def rows_agree(product: Product, out: Array) -> bool:
    """Whether all rows of the output have the same bits."""
    bits = out.reshape(-1).view(np.dtype(f"u{out.dtype.itemsize}"))
    rows = _matrices([bits], product.out, product.batch, slot=0)
    return bool((rows == rows[:1, :1]).all())


def _repeat_first(matrices: Array) -> None:
    matrices[1:] = np.array(matrices[:1])


def _matrices(arrays: Sequence[Array], m: Matrix, batch: int, slot: int | None = None) -> Array:
    """A view [batch, columns, rows] of an operand; a transposed one is [batch, rows, columns]."""
    flat = arrays[m.slot if slot is None else slot].reshape(-1)
    step = m.step if batch > 1 else 0
    item = flat.itemsize
    shape, strides = (batch, m.columns, m.rows), (step * item, m.lead * item, item)
    if m.transposed:
        shape, strides = (batch, m.rows, m.columns), (strides[0], item, strides[1])
    return as_strided(flat[m.offset :], shape, strides)
