"""Which nests of a loop kernel may run at the same time, in one launch."""

from __future__ import annotations

from braze.core.dims import Dim
from braze.expr.bounds import index_range
from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel, LoopNest, Store
from braze.expr.scalar import Expr

MOST_TOGETHER = 8  # a program decides between them


def groups(kernel: LoopKernel) -> list[list[int]]:
    """The numbers of the nests in runs of which none sees what another one does, such as the parts
    of a concatenation: they read no output, and write different places."""
    found: list[list[int]] = []
    for number, nest in enumerate(kernel.nests):
        last = found[-1] if found else []
        joins = 0 < len(last) < MOST_TOGETHER and _is_free(kernel, nest)
        if joins and all(_apart(kernel.nests[k], nest) for k in last):
            last.append(number)
        else:
            found.append([number])
    return found


def nest_roots(nest: LoopNest) -> list[Expr]:
    """Every expression of a nest."""
    roots = [r.expr for r in nest.reduces]
    for s in nest.stores:
        roots += [*s.index, s.expr]
    return roots


def _is_free(kernel: LoopKernel, nest: LoopNest) -> bool:
    """Whether a nest reads inputs alone."""
    if nest.serial or any(s.mode != "set" for s in nest.stores):
        return False
    loads = [e for root in nest_roots(nest) for e in leaves(root, "load")]
    return all(e.slot < len(kernel.inputs) for e in loads)


def _apart(one: LoopNest, other: LoopNest) -> bool:
    """Whether no element is written by both. The first may be of any kind otherwise: nothing reads
    what it writes, and what it reads was there before."""
    if one.serial or any(s.mode != "set" for s in one.stores):
        return False
    return all(
        a.slot != b.slot or _differ(one, a, other, b) for a in one.stores for b in other.stores
    )


def _differ(one: LoopNest, a: Store, other: LoopNest, b: Store) -> bool:
    """Whether an index of two stores has ranges that do not meet."""
    extents = [dict(enumerate((*n.outer, *n.inner))) for n in (one, other)]
    for x, y in zip(a.index, b.index, strict=True):
        (low, high), (other_low, other_high) = (
            index_range(x, extents[0]),
            index_range(y, extents[1]),
        )
        if _below(high, other_low) or _below(other_high, low):
            return True
    return False


def _below(x: Dim | None, y: Dim | None) -> bool:
    return isinstance(x, int) and isinstance(y, int) and x < y
