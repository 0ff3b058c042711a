"""Symbolic sizes: integers, named symbols, and the arithmetic shapes need.

A `DimExpr` is a polynomial with integer coefficients over atoms. An atom is a symbol or one of
floordiv, mod, max, min of other dims. Polynomials are kept canonical on construction, so two
equal sizes compare equal and hash alike. Bounds never live on a symbol: they come with the
question (`core.bounds`), because one engine has several profiles.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Union

from braze.core.errors import ShapeError

Dim = Union[int, "DimExpr"]
Shape = tuple[Dim, ...]
Interval = tuple[int, int]
# what may be added to a size and what it may be multiplied by, so that no size makes it wrap
MOST_ADDED = 2**62
MOST_FACTOR = 2**32


@dataclass(frozen=True, slots=True)
class Atom:
    """An indivisible factor: kind "sym" (args = its name) or floordiv/mod/max/min of dims.

    Its text orders the factors of a product and `repr` the terms of a sum. Both are asked for
    often and nest deeply, so they are kept.
    """

    kind: str
    args: tuple[object, ...]
    text: str = field(init=False, compare=False)
    _repr: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self._text())
        object.__setattr__(self, "_repr", f"Atom(kind={self.kind!r}, args={self.args!r})")

    def __repr__(self) -> str:
        return self._repr

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def operands(self) -> tuple[Dim, Dim]:
        """Both operands of an atom that is no symbol."""
        a, b = self.args
        assert isinstance(a, (int, DimExpr)) and isinstance(b, (int, DimExpr)), self.args
        return a, b

    def __str__(self) -> str:
        return self.text

    def _text(self) -> str:
        if self.kind == "sym":
            return str(self.args[0])
        a, b = self.args
        if self.kind == "floordiv":
            return f"(({a})//({b}))"
        if self.kind == "mod":
            return f"(({a})%({b}))"
        return f"{self.kind}({a}, {b})"


Monomial = tuple[Atom, ...]
_TEXT = attrgetter("text")


class DimExpr:
    """A canonical polynomial over atoms; immutable and hashable. Build with `sym` and operators."""

    __slots__ = ("_hash", "terms")
    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DimExpr) and self.terms == other.terms

    def __add__(self, other: Dim) -> Dim:
        return _make(_merge(_terms(self), _terms(other), 1))

    def __sub__(self, other: Dim) -> Dim:
        return _make(_merge(_terms(self), _terms(other), -1))

    def __rsub__(self, other: Dim) -> Dim:
        return _make(_merge(_terms(other), _terms(self), -1))

    def __neg__(self) -> Dim:
        return self * -1

    def __mul__(self, other: Dim) -> Dim:
        out: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in _terms(other).items():
                key = tuple(sorted(m1 + m2, key=_TEXT))
                out[key] = out.get(key, 0) + c1 * c2
        return _make(out)

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __str__(self) -> str:
        parts = []
        for monomial, coef in self.terms:
            factors = [str(coef)] if coef != 1 or not monomial else []
            parts.append("*".join(factors + [str(a) for a in monomial]))
        return " + ".join(parts)

    __repr__ = __str__


def _terms(d: Dim) -> dict[Monomial, int]:
    if isinstance(d, DimExpr):
        return dict(d.terms)
    return {(): int(d)} if d else {}


def _merge(a: dict[Monomial, int], b: dict[Monomial, int], sign: int) -> dict[Monomial, int]:
    out = dict(a)
    for m, c in b.items():
        out[m] = out.get(m, 0) + sign * c
    return out


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    return DimExpr(tuple(sorted(kept.items(), key=lambda t: (-len(t[0]), str(t[0])))))


def _atom(kind: str, *args: object) -> Dim:
    return DimExpr((((Atom(kind, args),), 1),))


def sym(name: str) -> DimExpr:
    """The symbol called `name`; the same name is the same symbol."""
    return DimExpr((((Atom("sym", (name,)),), 1),))


def exact_div(a: Dim, b: Dim) -> Dim | None:
    """a / b when b divides a for every value of the symbols (polynomial division), else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    if b == 0:
        return None
    rest, quotient = _terms(a), dict[Monomial, int]()
    lead, lead_coef = b.terms[0] if isinstance(b, DimExpr) else ((), int(b))
    for _ in range(64):
        rest = {m: c for m, c in rest.items() if c}
        if not rest:
            return _make(quotient)
        top = min(rest, key=lambda m: (-len(m), str(m)))
        factor = _remove(top, lead)
        if factor is None or rest[top] % lead_coef:
            return None
        coef = rest[top] // lead_coef
        quotient[factor] = quotient.get(factor, 0) + coef
        step = _make({factor: coef})
        rest = _merge(rest, _terms(step * b), -1)
    return None


def _remove(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(monomial)
    for a in divisor:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b), simplified where the division is exact or part of it is."""
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise ShapeError("a shape expression divides by zero; check the model's sizes")
        return a // b
    exact = exact_div(a, b)
    if exact is not None:
        return exact
    if isinstance(a, DimExpr) and isinstance(b, int) and b > 0:
        inner = _positive_quotient(a)
        if inner is not None:  # floor(floor(x / c) / b) = floor(x / (c * b))
            return floordiv(inner[0], inner[1] * b)
        whole = {m: c // b for m, c in a.terms if c % b == 0}
        part = {m: c for m, c in a.terms if c % b}
        if whole and part:
            return _make(whole) + floordiv(_make(part), b)
    return _atom("floordiv", a, b)


def _positive_quotient(a: DimExpr) -> tuple[Dim, int] | None:
    """(x, c) when `a` is exactly floor(x / c) with a positive integer c."""
    if len(a.terms) != 1 or a.terms[0][1] != 1 or len(a.terms[0][0]) != 1:
        return None
    atom = a.terms[0][0][0]
    if atom.kind != "floordiv" or not isinstance(atom.args[1], int) or atom.args[1] < 1:
        return None
    return atom.operands[0], atom.args[1]


def ceildiv(a: Dim, b: Dim) -> Dim:
    """ceil(a / b) for positive b."""
    return floordiv(a + b - 1, b)


def mod(a: Dim, b: Dim) -> Dim:
    """a - b * floor(a / b), like Python's %."""
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise ShapeError("a shape expression divides by zero; check the model's sizes")
        return a % b
    if exact_div(a, b) is not None:
        return 0
    return _atom("mod", a, b)


def dmax(a: Dim, b: Dim) -> Dim:
    """The larger of two sizes."""
    return _extreme("max", a, b, max)


def dmin(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes."""
    return _extreme("min", a, b, min)


def _extreme(kind: str, a: Dim, b: Dim, pick: Callable[[int, int], int]) -> Dim:
    if a == b:
        return a
    diff = a - b
    if isinstance(diff, int):
        return a if pick(diff, 0) == diff else b
    first, second = sorted((a, b), key=str)
    return _atom(kind, first, second)


def extremes(kind: str, d: Dim) -> tuple[Dim, Dim] | None:
    """Both sizes of which `d` is the larger (kind "max") or the smaller ("min"), else None."""
    if isinstance(d, int) or len(d.terms) != 1 or d.terms[0][1] != 1 or len(d.terms[0][0]) != 1:
        return None
    atom = d.terms[0][0][0]
    return atom.operands if atom.kind == kind else None


def product(dims: Iterable[Dim]) -> Dim:
    """The product of sizes; 1 for none."""
    out: Dim = 1
    for d in dims:
        out = out * d
    return out


def symbols(d: Dim) -> set[str]:
    """Names of all symbols in `d`."""
    if isinstance(d, int):
        return set()
    out: set[str] = set()
    for monomial, _ in d.terms:
        for atom in monomial:
            if atom.kind == "sym":
                out.add(str(atom.args[0]))
            else:
                for arg in atom.operands:
                    out |= symbols(arg)
    return out


def _walk(d: Dim, leaf: Callable[[str], Dim]) -> Dim:
    if isinstance(d, int):
        return d
    total: Dim = 0
    for monomial, coef in d.terms:
        term: Dim = coef
        for atom in monomial:
            if atom.kind == "sym":
                value = leaf(str(atom.args[0]))
            else:
                a, b = (_walk(x, leaf) for x in atom.operands)
                value = DIM_OPS[atom.kind](a, b)
            term = term * value
        total = total + term
    return total


def substitute(d: Dim, env: Mapping[str, Dim]) -> Dim:
    """Replace symbols by dims; symbols not in `env` stay."""
    return _walk(d, lambda name: env.get(name, sym(name)))


def evaluate(d: Dim, env: Mapping[str, int]) -> int:
    """The value of `d` with every symbol given; raises ShapeError naming a missing symbol."""
    value = substitute(d, env)
    if not isinstance(value, int):
        raise ShapeError(f"size {d} needs a value for {', '.join(sorted(symbols(value)))}")
    return value


DIM_OPS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floordiv": floordiv,
    "mod": mod,
    "max": dmax,
    "min": dmin,
}


def parse_dim(text: str) -> Dim:
    """The dim that `str(dim)` printed; raises ShapeError for anything else."""
    try:
        return _from_ast(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError) as e:
        raise ShapeError(f"{text!r} is not a size expression") from e


def _from_ast(node: ast.expr) -> Dim:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return sym(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _from_ast(node.operand) * -1
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in ("max", "min") and len(node.args) == 2:
            return DIM_OPS[name](_from_ast(node.args[0]), _from_ast(node.args[1]))
    if isinstance(node, ast.BinOp):
        a, b = _from_ast(node.left), _from_ast(node.right)
        if isinstance(node.op, ast.Add):
            return a + b
        if isinstance(node.op, ast.Sub):
            return a - b
        if isinstance(node.op, ast.Mult):
            return a * b
        if isinstance(node.op, ast.FloorDiv):
            return floordiv(a, b)
        if isinstance(node.op, ast.Mod):
            return mod(a, b)
    raise ValueError(ast.dump(node))


def may_wrap(d: Dim) -> bool:
    """Whether it may leave the range of int64 for some sizes: then it is no size, and kernels
    compute it."""
    if isinstance(d, int):
        return not -(2**63) <= d < 2**63
    return any(abs(c) > (MOST_FACTOR if m else MOST_ADDED) for m, c in d.terms)


def is_static(shape: Iterable[Dim]) -> bool:
    """True when no size holds a symbol."""
    return all(isinstance(d, int) for d in shape)


def number(d: Dim) -> int:
    """The size as a plain number, for numpy. Raises ShapeError when it is symbolic."""
    if isinstance(d, DimExpr):
        raise ShapeError(f"size {d} is dynamic where a fixed number is needed; make it static")
    return int(d)


def static(shape: Iterable[Dim]) -> tuple[int, ...]:
    """`number` of each size."""
    return tuple(number(d) for d in shape)


def static_size(shape: Iterable[int]) -> int:
    """Number of elements of a static shape."""
    return math.prod(shape)
