"""MatmulSpec in the form templates use: few batch axes, then one m, n and k."""

from __future__ import annotations

from dataclasses import dataclass, replace

from braze.core.dims import Dim, product
from braze.ops.lowering import MatmulSpec


@dataclass(frozen=True, slots=True)
class BatchAxis:
    """One batch axis: its size and what a step along it means for each operand (elements)."""

    size: Dim
    lhs: Dim
    rhs: Dim
    out: Dim


@dataclass(frozen=True, slots=True)
class Product:
    """Strides are (row, column) steps in elements: lhs (m, k), rhs (k, n), out (m, n)."""

    batch: tuple[BatchAxis, ...]
    m: Dim
    n: Dim
    k: Dim
    lhs: tuple[Dim, Dim]
    rhs: tuple[Dim, Dim]
    out: tuple[Dim, Dim]
    lhs_offset: Dim
    rhs_offset: Dim
    out_offset: Dim

    @property
    def batches(self) -> Dim:
        """Number of matrices."""
        return product(axis.size for axis in self.batch)


def from_spec(spec: MatmulSpec) -> Product:
    """The product of `spec`, with batch axes that only add rows merged into m.

    A constant right-hand side shared by the whole batch so becomes one tall product.
    """
    rank = len(spec.batch)
    axes = tuple(
        BatchAxis(size, spec.lhs.strides[i], spec.rhs.strides[i], spec.out.strides[i])
        for i, size in enumerate(spec.batch)
    )
    found = Product(
        tuple(axis for axis in axes if axis.size != 1),
        spec.m,
        spec.n,
        spec.k,
        (spec.lhs.strides[rank], spec.lhs.strides[rank + 1]),
        (spec.rhs.strides[rank], spec.rhs.strides[rank + 1]),
        (spec.out.strides[rank], spec.out.strides[rank + 1]),
        spec.lhs.offset,
        spec.rhs.offset,
        spec.out.offset,
    )
    while found.batch and _adds_rows(found):
        inner = found.batch[-1]
        single = found.m == 1
        found = replace(
            found,
            batch=found.batch[:-1],
            m=inner.size * found.m,
            lhs=(inner.lhs if single else found.lhs[0], found.lhs[1]),
            out=(inner.out if single else found.out[0], found.out[1]),
        )
    return found


def _adds_rows(p: Product) -> bool:
    """Whether the innermost batch axis continues m in both operands that have rows."""
    inner = p.batch[-1]
    if inner.rhs != 0:
        return False
    return p.m == 1 or (inner.lhs == p.lhs[0] * p.m and inner.out == p.out[0] * p.m)
