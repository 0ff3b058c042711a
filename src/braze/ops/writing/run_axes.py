"""Axes that only the run knows: shapes whose products stay what they are, whatever the axes be.

An axis that may be picked is split in two, one of which has its size and the other one element. So
an op over axes that are fixed does the work of one over axes that are data.
"""

from __future__ import annotations

from collections.abc import Sequence

from braze.core import dims
from braze.core.dims import Dim, Shape, dmin
from braze.ir.builder import GraphBuilder
from braze.ops.writing.run_contents import is_zero


def picked(g: GraphBuilder, axes: Sequence[Dim], rank: int, where: str) -> list[Dim]:
    """For every axis of a tensor, 1 where `axes` (of any sign) names it and 0 where not.

    A guard makes sure that each names another axis that there is.
    """
    found: list[Dim] = []
    for i in range(rank):
        hits: Dim = 0
        for a in axes:
            hits = hits + is_zero((a - i) * (a - i + rank))
        found.append(g.name_size(dmin(hits, 1), 0, 1, f"{where}_has_{i}"))
    total: Dim = 0
    for m in found:
        total = total + m
    what = f"{where}: different axes of the tensor must be named, as many as axes are given"
    g.guard(total, len(axes), what)
    return found


def spread(axes: Sequence[Dim], values: Sequence[Dim], default: Sequence[Dim]) -> tuple[Dim, ...]:
    """For every axis of a tensor the value that is given for it, or the default."""
    out: list[Dim] = []
    for i, rest in enumerate(default):
        size = rest
        for a, v in zip(axes, values, strict=True):
            size = size + is_zero((a - i) * (a - i + len(default))) * (v - rest)
        out.append(size)
    return tuple(out)


def split_shape(g: GraphBuilder, shape: Shape, mask: Sequence[Dim], where: str) -> Shape:
    """Of every axis two sizes: its own where it is not picked, then its own where it is."""
    out: list[Dim] = []
    for i, (d, m) in enumerate(zip(shape, mask, strict=True)):
        out.append(g.name_size(d + m * (1 - d), 0, d if d != 0 else 1, f"{where}_kept_{i}"))
        out.append(g.name_size(1 + m * (d - 1), 0, d if d != 0 else 1, f"{where}_picked_{i}"))
    return tuple(out)


def without(
    g: GraphBuilder, shape: Shape, mask: Sequence[Dim], count: int, where: str
) -> tuple[Dim, ...]:
    """The sizes of the axes that are not picked, of which there are `count`."""
    out: list[Dim] = []
    for j in range(count):
        size: Dim = 0
        before: Dim = 0
        for d, m in zip(shape, mask, strict=True):
            size = size + d * (1 - m) * is_zero(before - j)
            before = before + 1 - m
        out.append(g.name_size(size, 0, None, f"{where}_{j}"))
    return tuple(out)


def with_ones(g: GraphBuilder, shape: Shape, axes: Sequence[Dim], where: str) -> tuple[Dim, ...]:
    """`shape` with an axis of one element wherever `axes`, counted in the result, says."""
    mask = picked(g, axes, len(shape) + len(axes), where)
    out: list[Dim] = []
    before: Dim = 0
    for p, m in enumerate(mask):
        size: Dim = m
        for i, d in enumerate(shape):
            size = size + d * (1 - m) * is_zero(before - i)
        before = before + 1 - m
        out.append(g.name_size(size, 0, None, f"{where}_{p}"))
    return tuple(out)


def around(g: GraphBuilder, shape: Shape, axis: Dim, where: str) -> tuple[Dim, Dim, Dim]:
    """Elements in front of an axis, of it, and behind it; their product is that of `shape`."""
    mask = picked(g, (axis,), len(shape), where)
    front: list[Dim] = []
    own: list[Dim] = []
    behind: list[Dim] = []
    passed: Dim = 0  # 1 behind the axis
    for d, m in zip(shape, mask, strict=True):
        passed = passed + m
        front.append(1 + (1 - passed) * (d - 1))
        own.append(1 + m * (d - 1))
        behind.append(1 + (passed - m) * (d - 1))
    a, b, c = (
        g.name_size(dims.product(x), 0, None, f"{where}_{name}")
        for x, name in ((front, "front"), (own, "axis"), (behind, "behind"))
    )
    return a, b, c
