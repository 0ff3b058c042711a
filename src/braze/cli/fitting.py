"""Sizes of a run for a model built for any sizes, where those guessed are none that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from braze.cli.shapes import Shape
from braze.core.config import MAX_SIZE
from braze.core.dims import evaluate, symbols
from braze.core.errors import BrazeError, ShapeError
from braze.engine.plan import Plan
from braze.runtime.report import size_dims

# one number for many sizes: a window or k asks for a size above it, a reshape for a multiple
_SIZES: Final = (
    *range(2, 11), 12, 16, 24, 32, 48, 64, 96, 120, 128, 192, 240, 256, 384, 512, 640, 768, 1024,
    2048, 4096, 1 << 13, 1 << 14, 1 << 15, 1 << 16,
)  # fmt: skip
_MOST_ELEMENTS: Final = 1 << 24  # of an input: a run of it is to take no minutes


def fitting(
    plan: Plan,
    shapes: Mapping[str, Shape],
    told: frozenset[str],
    check: Callable[[Mapping[str, Shape]], object],
) -> Mapping[str, Shape]:
    """`shapes` where `check` lets them pass, else the first others of sizes that nothing bounds.

    told: inputs whose shapes are given, and stay. Raises what `check` raises of `shapes`, with
    advice where sizes could be given.
    """
    try:
        check(shapes)
        return shapes
    except ShapeError as e:
        found = next((s for s in _others(plan, shapes, told) if _passes(check, s)), None)
        if found is not None:
            return found
        if not _open(plan, told):
            raise
        form = ",".join(
            f"{b.name}:{'x'.join(map(str, shapes[b.name]))}" for b in plan.inputs if b.shape
        )
        raise ShapeError(
            f"{e}; the sizes were guessed: give those that the model takes as --shapes={form}"
        ) from e


def _passes(check: Callable[[Mapping[str, Shape]], object], shapes: Mapping[str, Shape]) -> bool:
    try:
        check(shapes)
    except BrazeError:
        return False
    return True


def _others(
    plan: Plan, shapes: Mapping[str, Shape], told: frozenset[str]
) -> Iterator[Mapping[str, Shape]]:
    """Shapes with other sizes: of one axis, or of all; small ones first, and batches last."""
    dims, names = size_dims(plan), _open(plan, told)
    env = {s.name: r[1] for s, r in zip(plan.symbols, plan.profiles[0].ranges, strict=True)}
    for b in plan.inputs:  # sizes that are told hold for other inputs with an axis of that name
        env |= {str(dims[i]): n for i, n in zip(b.shape, shapes[b.name], strict=False)}
    batches = {str(dims[b.shape[0]]) for b in plan.inputs if b.shape}
    inner = [n for n in names if n not in batches]
    groups = [*([n] for n in inner), inner, *([n] for n in names if n in batches), names]
    for size in _SIZES:
        for group in groups:
            sizes = env | dict.fromkeys(group, size)
            others = {
                b.name: tuple(evaluate(dims[i], sizes) for i in b.shape)
                for b in plan.inputs
                if b.name not in told
            }
            if all(math.prod(s) <= _MOST_ELEMENTS for s in others.values()):
                yield {**shapes, **others}


def _open(plan: Plan, told: frozenset[str]) -> list[str]:
    """Symbols that no profile bounds, of inputs whose shapes are not told."""
    if not plan.profiles:
        return []
    dims = size_dims(plan)
    axes = {name: {s for i in b.shape for s in symbols(dims[i])}
            for b in plan.inputs for name in [b.name]}  # fmt: skip
    known = {s for name in told & axes.keys() for s in axes[name]}
    used = {s for of in axes.values() for s in of} - known
    ranges = zip(plan.symbols, plan.profiles[0].ranges, strict=True)
    return [s.name for s, r in ranges if s.name in used and (r[0], r[2]) == (0, MAX_SIZE)]
