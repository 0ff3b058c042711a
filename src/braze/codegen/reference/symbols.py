"""The size symbols that a kernel mentions: what the interpreter must be given at run time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from braze.core.dims import DimExpr, symbols
from braze.expr.fold import leaves
from braze.expr.scalar import Expr
from braze.fusion.kernel import Kernel


def kernel_symbols(kernel: Kernel) -> tuple[str, ...]:
    """Names of all symbols in shapes, specs, axes and expressions, sorted."""
    return tuple(sorted({name for size in _sizes(kernel) for name in symbols(size)}))


def _sizes(part: object) -> Iterator[DimExpr]:
    """Every symbolic size in a kernel or a part of one."""
    if isinstance(part, DimExpr):
        yield part
    elif isinstance(part, Expr):
        for leaf in leaves(part, "dim"):
            yield from _sizes(leaf.attr)
    elif isinstance(part, tuple):
        for p in part:
            yield from _sizes(p)
    elif is_dataclass(part):
        for f in fields(part):
            yield from _sizes(getattr(part, f.name))
