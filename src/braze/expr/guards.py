"""Under which condition each load of an expression is needed.

`select(c, load(x, i - 1), 0)` may step outside x where c is false: there the load is not made.
A load used without a select around it is needed always. The condition of a load is kept as a set
of alternatives (one per way it is used), each a set of (condition, wanted truth) pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

from braze.core.dtypes import BOOL
from braze.expr.fold import reachable
from braze.expr.scalar import Expr, binary, const, unary

Literal = tuple[Expr, bool]
Alternatives = frozenset[frozenset[Literal]]
ALWAYS: Alternatives = frozenset({frozenset()})
_MAX_ALTERNATIVES = 16


def load_guards(roots: Sequence[Expr]) -> dict[Expr, Expr | None]:
    """Per distinct load reachable from `roots`: its condition (bool Expr), None for always."""
    need: dict[Expr, Alternatives] = {}
    for root in roots:
        need[root] = ALWAYS
    for e in reversed(topological(roots)):
        here = need[e]
        for position, child in enumerate(e.args):
            add = here
            if e.op == "select" and position > 0:
                literal = (e.args[0], position == 1)
                add = frozenset(alternative | {literal} for alternative in here)
            need[child] = _absorb(need.get(child, frozenset()) | add)
    loads = {e: g for e, g in need.items() if e.op == "load"}
    _break_cycles(loads)
    return {e: _as_expr(g) for e, g in loads.items()}


def _break_cycles(loads: dict[Expr, Alternatives]) -> None:
    """Drop conditions that can only be told by making the very load that they guard.

    In `select(select(a, x, y) < y, select(a, x, y), x)` the load of x is needed where `a` holds or
    the comparison does not, and the comparison reads x.
    """
    inside: dict[Expr, frozenset[Expr]] = {}

    def reads(condition: Expr) -> frozenset[Expr]:
        if condition not in inside:
            found = (e for e in reachable(condition) if e.op == "load")
            inside[condition] = frozenset(found)
        return inside[condition]

    def leads_to(condition: Expr, load: Expr) -> bool:
        """Whether `condition` reads `load`, or a load whose own condition does."""
        seen: set[Expr] = set()
        stack = list(reads(condition))
        while stack:
            e = stack.pop()
            if e is load or e == load:
                return True
            if e not in seen:
                seen.add(e)
                stack.extend(x for a in loads[e] for c, _ in a for x in reads(c))
        return False

    for load, alternatives in loads.items():
        kept = frozenset(
            frozenset((c, w) for c, w in a if not leads_to(c, load)) for a in alternatives
        )
        if kept != alternatives:
            loads[load] = _absorb(kept)


def topological(roots: Sequence[Expr]) -> list[Expr]:
    """All distinct subexpressions, arguments before users."""
    order: dict[Expr, None] = {}
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        e, expanded = stack.pop()
        if e in order:
            continue
        if expanded:
            order[e] = None
        else:
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(e.args) if a not in order)
    return list(order)


def _absorb(alternatives: Alternatives) -> Alternatives:
    """Drop alternatives that another one implies; keep what all have in common of too many."""
    kept = frozenset(a for a in alternatives if not any(b < a for b in alternatives))
    if len(kept) <= _MAX_ALTERNATIVES:
        return kept
    return frozenset({frozenset.intersection(*kept)})


def _as_expr(alternatives: Alternatives) -> Expr | None:
    if frozenset() in alternatives:
        return None
    total: Expr | None = None
    for literals in sorted(alternatives, key=_order):
        term: Expr | None = None
        for condition, wanted in sorted(literals, key=lambda p: (p[0].key, p[1])):
            piece = condition if wanted else unary("not", condition)
            term = piece if term is None else binary("and", term, piece)
        assert term is not None
        total = term if total is None else binary("or", total, term)
    return total if total is not None else const(True, BOOL)


def _order(literals: frozenset[Literal]) -> tuple[tuple[bytes, bool], ...]:
    return tuple(sorted((c.key, w) for c, w in literals))


def depends_on_data(e: Expr) -> bool:
    """True when the value depends on loaded elements or reductions, not only on axes and sizes, or
    is as unchecked as if it did."""
    return any(x.op in ("load", "hole", "red", "given") for x in reachable(e))
