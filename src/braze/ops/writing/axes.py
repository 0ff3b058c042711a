"""Permutations of axes: what ops need to tell how they look behind a Transpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from braze.core.dims import Dim, Shape, exact_div, product
from braze.ops.base import Perm

T = TypeVar("T")


def inverse(perm: Sequence[int]) -> Perm:
    """The permutation that undoes `perm`."""
    return tuple(sorted(range(len(perm)), key=lambda i: perm[i]))


def permuted(items: Sequence[T], perm: Perm) -> tuple[T, ...]:
    """Per-axis data of Transpose(perm) of x as per-axis data of x: item i goes to axis perm[i]."""
    return tuple(items[i] for i in inverse(perm))


def channels_first(rank: int) -> Perm:
    """The Transpose of [N, *spatial, C] to [N, C, *spatial]."""
    return (0, rank - 1, *range(1, rank - 1))


def moves_only_unit_axes(shape: Shape, perm: Sequence[int]) -> bool:
    """Whether a Transpose of `shape` keeps the row-major order of elements."""
    moved = [p for p in perm if shape[p] != 1]
    return moved == sorted(moved)


def without(axes: Sequence[int], perm: Perm) -> Perm:
    """`perm` for what is left of a tensor that loses `axes` (of Transpose(perm) of x)."""
    kept = [p for i, p in enumerate(perm) if i not in axes]
    order = sorted(kept)
    return tuple(order.index(p) for p in kept)


def reshape_groups(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Split a Reshape from `a` to `b` into independent groups of neighbouring axes.

    Each group (axes of a, axes of b) has equal products; a unit axis is a group of its own with
    the other side empty. None when the sizes do not tell (symbols, or an empty tensor).
    """
    if any(d == 0 for d in (*a, *b)):
        return None
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        if i < len(a) and a[i] == 1:
            groups.append(([i], []))
            i += 1
            continue
        if j < len(b) and b[j] == 1:
            groups.append(([], [j]))
            j += 1
            continue
        if i == len(a) or j == len(b):
            return None
        left, right = [i], [j]
        i, j = i + 1, j + 1
        while (pa := product(a[k] for k in left)) != (pb := product(b[k] for k in right)):
            if i < len(a) and _is_part(pa, pb):
                left.append(i)
                i += 1
            elif j < len(b) and _is_part(pb, pa):
                right.append(j)
                j += 1
            else:
                return None
        groups.append((left, right))
    return groups


def _is_part(a: Dim, b: Dim) -> bool:
    """Whether a product of sizes that has reached `a` must grow to become `b`."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return exact_div(b, a) is not None


def behind_reshape(before: Shape, after: Shape, perm: Perm) -> Perm | None:
    """Axes of `after` in the order in which they lie without the Transpose before the Reshape.

    `before` is the shape of Transpose(perm) of x, which is reshaped to `after`. None where the
    Transpose tears a group of axes apart.
    """
    groups = reshape_groups(before, after)
    if groups is None:
        return None
    order: list[int] = []
    pending = {perm[left[0]]: (left, right) for left, right in groups if left}
    new_units = [right for left, right in groups if not left]
    source = 0
    while source < len(perm):
        if source not in pending:
            return None
        left, right = pending[source]
        if [perm[k] for k in left] != list(range(source, source + len(left))):
            return None
        order += right
        source += len(left)
    return tuple(_with_units(order, new_units))


def _with_units(order: list[int], units: list[list[int]]) -> list[int]:
    """Put new unit axes behind the axis they follow in the result (or first)."""
    out = list(order)
    for (unit,) in units:
        out.insert(out.index(unit - 1) + 1 if unit - 1 in out else 0, unit)
    return out
