"""The one traversal of scalar expressions: every interpreter is a table plus a leaf function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from braze.expr.scalar import Expr

T = TypeVar("T")


def bottom_up(
    root: Expr,
    visit: Callable[[Expr, tuple[T, ...]], T],
    enters: Callable[[Expr], bool] = lambda _: True,
) -> T:
    """`visit(node, results of its args)` for each distinct subexpression once; the root's result.

    A node that is not entered is visited like a leaf, with no results. Iterative: expressions of
    fused kernels can be deeper than Python's stack.
    """
    done: dict[Expr, T] = {}
    stack = [root]
    while stack:
        e = stack[-1]
        if e in done:
            stack.pop()
            continue
        args = e.args if enters(e) else ()
        todo = [a for a in args if a not in done]
        if todo:
            stack.extend(todo)
            continue
        done[e] = visit(e, tuple(done[a] for a in args))
        stack.pop()
    return done[root]


def fold(root: Expr, table: Mapping[str, Callable[..., T]], leaf: Callable[[Expr], T]) -> T:
    """Evaluate bottom-up, each distinct subexpression once.

    table[op](expr, *folded_args) gives the value of an inner node; leaf(expr) that of a node
    without arguments.
    """
    return bottom_up(root, lambda e, args: table[e.op](e, *args) if args else leaf(e))


def rewrite(root: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up rewrite: `change(node with rewritten args)` returns a replacement or None."""

    def visit(e: Expr, args: tuple[Expr, ...]) -> Expr:
        same = all(x is y for x, y in zip(args, e.args, strict=True))
        new = e if same else Expr(e.op, args, e.dtype, e.attr)
        return change(new) or new

    return bottom_up(root, visit)


def reachable(*roots: Expr, into_loads: bool = True) -> Iterator[Expr]:
    """Distinct subexpressions, users before arguments, arguments from left to right.

    into_loads: also what only makes up the indexes of loads.
    """
    seen: set[Expr] = set()
    stack = list(reversed(roots))
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            yield e
            if into_loads or e.op != "load":
                stack.extend(reversed(e.args))


def leaves(root: Expr, op: str) -> tuple[Expr, ...]:
    """Distinct subexpressions whose op is `op`, in first-visit order."""
    return tuple(e for e in reachable(root) if e.op == op)
