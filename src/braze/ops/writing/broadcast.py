"""Numpy broadcasting of symbolic shapes."""

from __future__ import annotations

from collections.abc import Sequence

from braze.core.dims import Shape
from braze.core.errors import ShapeError
from braze.ops.base import InferContext


def broadcast_shapes(ctx: InferContext, shapes: Sequence[Shape], where: str) -> Shape:
    """The numpy broadcast of `shapes`; raises ShapeError naming `where` when they do not fit."""
    out: Shape = ()
    for shape in shapes:
        rank = max(len(out), len(shape))
        a = (1,) * (rank - len(out)) + out
        b = (1,) * (rank - len(shape)) + shape
        out = tuple(
            ctx.broadcast(x, y, f"{where} axis {i}")
            for i, (x, y) in enumerate(zip(a, b, strict=True))
        )
    return out


def broadcast_to(ctx: InferContext, shape: Shape, target: Shape, where: str) -> None:
    """Check that `shape` broadcasts one way to `target` (ONNX: unidirectional broadcasting)."""
    if len(shape) > len(target):
        raise ShapeError(
            f"{where}: an operand of rank {len(shape)} does not broadcast to rank {len(target)}"
        )
    tail = target[len(target) - len(shape) :]
    for i, (x, y) in enumerate(zip(shape, tail, strict=True)):
        if x != 1:
            ctx.unify(x, y, f"{where} operand axis {i}")


def normalize_axis(axis: int, rank: int, where: str) -> int:
    """`axis` counted from the front; raises ShapeError when it is outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{where}: axis {axis} is outside [-{rank}, {rank})")
    return axis % rank


def normalize_axes(axes: Sequence[int], rank: int, where: str) -> tuple[int, ...]:
    """Sorted distinct axes counted from the front; raises ShapeError for repeats."""
    found = sorted(normalize_axis(a, rank, where) for a in axes)
    if len(set(found)) != len(found):
        raise ShapeError(f"{where}: axes {tuple(axes)} name the same axis twice")
    return tuple(found)
