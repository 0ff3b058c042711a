"""Products of the small matrices of Winograd's algorithm with squares of vectors.

Their rows and columns come in pairs that differ in signs alone (points x and -x of the underlying
interpolation): what such a pair has in common is computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from braze.codegen.cpu.conv.winograd.matrices import Matrix
from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.product.dot import multiply_add
from braze.codegen.cpu.product.register_tile import splat

Row = tuple[float, ...]


def transform(
    fn: KernelFunction, matrix: Matrix, lines: Sequence[Sequence[ir.Value]]
) -> list[list[ir.Value]]:
    """matrix @ lines @ matrix^T, for a square of vectors."""
    turned = [product(fn, matrix, column) for column in zip(*lines, strict=True)]
    return [product(fn, matrix, line) for line in zip(*turned, strict=True)]


def product(fn: KernelFunction, matrix: Matrix, values: Sequence[ir.Value]) -> list[ir.Value]:
    """matrix @ values: as many vectors as the matrix has rows."""
    b = fn.builder
    matrix, values = _joined(fn, matrix, values)
    done: list[ir.Value] = []
    while len(done) < len(matrix):
        row, *later = matrix[len(done) :]
        halves = _halves(row, later[0]) if later else None
        if halves is None:
            done.append(_combine(fn, row, values))
        else:
            even, odd = (_combine(fn, half, values) for half in halves)
            done += [b.fadd(even, odd), b.fsub(even, odd)]
    return done


def _joined(
    fn: KernelFunction, matrix: Matrix, values: Sequence[ir.Value]
) -> tuple[Matrix, list[ir.Value]]:
    """The same product with sums and differences in place of pairs of values that the rows take
    with equal or opposite factors."""
    columns, values = list(zip(*matrix, strict=True)), list(values)
    for i in range(len(columns) - 1):
        pairs = set(zip(columns[i], columns[i + 1], strict=True)) - {(0, 0)}
        if {x == y for x, y in pairs} == {True, False} and all(abs(x) == abs(y) for x, y in pairs):
            left, right = columns[i : i + 2]
            one, other = values[i : i + 2]
            columns[i] = tuple(x if x == y else 0.0 for x, y in zip(left, right, strict=True))
            columns[i + 1] = tuple(0.0 if x == y else x for x, y in zip(left, right, strict=True))
            values[i : i + 2] = fn.builder.fadd(one, other), fn.builder.fsub(one, other)
    return tuple(zip(*columns, strict=True)), values


def _halves(row: Row, other: Row) -> tuple[Row, Row] | None:
    """What two rows have in common and in which they are opposite, if each column is in one."""
    pairs = list(zip(row, other, strict=True))
    if any(abs(x) != abs(y) for x, y in pairs):
        return None
    even = tuple(x if x == y else 0.0 for x, y in pairs)
    odd = tuple(0.0 if x == y else x for x, y in pairs)
    return (even, odd) if any(even) and any(odd) else None


def _combine(fn: KernelFunction, factors: Row, values: Sequence[ir.Value]) -> ir.Value:
    """The sum of factors times values, terms of factor 1 first."""
    terms = [(f, v) for f, v in zip(factors, values, strict=True) if f]
    terms.sort(key=lambda term: term[0] != 1)
    factor, total = terms[0]
    if factor != 1:
        total = fn.builder.fmul(total, splat(total.type, factor))
    for factor, value in terms[1:]:
        if factor == 1:
            total = fn.builder.fadd(total, value)
        elif factor == -1:
            total = fn.builder.fsub(total, value)
        else:
            total = multiply_add(fn, value, splat(value.type, factor), total)
    return total
