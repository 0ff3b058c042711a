"""Windows: inner loops of a few known points, written out, with a fast form away from the border.

Written out, the bounds checks of points that are always inside are decided at compile time. What
is left depends on the row only: rows where every check holds run a form without checks.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from braze.codegen.cpu.loops.normal_form import Form, replace_axes
from braze.codegen.cpu.loops.schedule import Schedule
from braze.core.dtypes import BOOL, I64
from braze.expr.fold import rewrite
from braze.expr.guards import topological
from braze.expr.scalar import Expr, binary, const
from braze.expr.simplify import simplify

# inner points that are written out rather than looped over
_MOST_POINTS = 16
_MOST_CHECKS = 40


@dataclass(frozen=True)
class Window:
    """points: the expression of every reduction at every inner point; inside: a condition on the
    row under which `interior` has the same values (None: no checks are left)."""

    points: tuple[tuple[Expr, ...], ...]
    inside: Expr | None
    interior: tuple[tuple[Expr, ...], ...]


def find_window(form: Form, schedule: Schedule) -> Window | None:
    """The nest's reductions written out, or None when it is not a small window."""
    nest = form.nest
    in_lanes = schedule.vector is not None and schedule.vector >= len(nest.outer)
    if not nest.inner or in_lanes or any(s.over != "outer" for s in nest.stores):
        return None
    sizes = [n for n in nest.inner if isinstance(n, int)]
    if len(sizes) != len(nest.inner) or not 0 < math.prod(sizes) <= _MOST_POINTS:
        return None
    points = []
    for point in itertools.product(*(range(n) for n in sizes)):
        values = {len(nest.outer) + k: const(v, I64) for k, v in enumerate(point)}
        points.append(
            tuple(simplify(replace_axes(r.expr, values), form.extents) for r in nest.reduces)
        )
    checks = _row_checks(form, schedule, points)
    if not checks:
        return Window(tuple(points), None, ())
    inside = checks[0]
    for c in checks[1:]:
        inside = binary("and", inside, c)
    chosen = set(checks)
    interior = tuple(
        tuple(simplify(_assume(e, chosen), form.extents) for e in exprs) for exprs in points
    )
    return Window(tuple(points), simplify(inside, form.extents), interior)


def _row_checks(form: Form, schedule: Schedule, points: list[tuple[Expr, ...]]) -> list[Expr]:
    """Distinct conditions of selects that depend on nothing but the row."""
    rows = {k for k in range(len(form.nest.outer)) if k != schedule.vector}
    found: dict[Expr, None] = {}
    for e in topological([e for exprs in points for e in exprs]):
        if e.op == "select" and _axes_only(e.args[0], rows):
            found[e.args[0]] = None
    return list(found) if len(found) <= _MOST_CHECKS else []


def _axes_only(e: Expr, axes: set[int]) -> bool:
    for x in topological([e]):
        if x.op in ("load", "hole", "red") or (x.op == "axis" and x.number not in axes):
            return False
    return True


def _assume(e: Expr, true: set[Expr]) -> Expr:
    return rewrite(e, lambda x: const(True, BOOL) if x in true else None)
