"""What cuBLASLt computes for a product, in numpy: its column-major matrices as strided views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from braze.codegen.cuda.libraries.epilogue import Split
from braze.codegen.cuda.libraries.product import Matrix, Product
from braze.codegen.reference.run import run_kernel
from braze.fusion.kernel import AnchorKernel
from braze.ops.pointwise.activation import Gelu

Array = np.ndarray[Any, Any]


def matrices(m: Matrix, tensors: Sequence[Array], batch: int) -> Array:
    """A view [batch, rows, columns] of an operand, as it is used."""
    flat = tensors[m.slot].reshape(-1)
    assert m.elements(batch) <= flat.size, (m, flat.size)
    item = flat.itemsize
    shape, strides = (batch, m.rows, m.columns), (m.step * item, item, m.lead * item)
    view = as_strided(flat[m.offset :], shape, strides)
    return view.transpose(0, 2, 1) if m.transposed else view


def run_product(product: Product, tensors: Sequence[Array]) -> None:
    """Write the output, which is the last of `tensors`; sums in float64 or int64."""
    left, right = (
        matrices(m, tensors, product.batch).astype("f8") for m in (product.left, product.right)
    )
    total = left @ right
    if product.residual is not None:
        total = total + matrices(product.residual, tensors, product.batch).astype("f8")
    if product.bias is not None:
        total = total + tensors[product.bias].reshape(-1).astype("f8")[: product.out.rows, None]
    if product.activation == "relu":
        total = np.maximum(total, 0)
    if product.activation == "gelu":
        total = Gelu("tanh").apply(total)
    out = matrices(product.out, tensors, product.batch)
    out[...] = total.astype(out.dtype)


def run_split(
    kernel: AnchorKernel, split: Split, product: Product, inputs: Sequence[Array]
) -> Array:
    """The output of a kernel that the library and a loop nest share."""
    shape = tuple(int(d) for d in kernel.output.shape if isinstance(d, int))
    out = np.full(shape, 77, kernel.output.dtype.numpy)
    run_product(product, [*inputs, out])
    if split.rest is None:
        return out
    (rest,) = run_kernel(split.rest, [*(inputs[s] for s in split.slots), out], {})
    return np.asarray(rest)
