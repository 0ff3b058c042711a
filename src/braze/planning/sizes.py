"""Dims -> the shape program of a plan: each distinct size is computed once at run time."""

from __future__ import annotations

from collections.abc import Sequence

from braze.core.dims import Atom, Dim
from braze.core.errors import ShapeError
from braze.engine.plan import SizeOp


class SizeTable:
    """Collects sizes; `index(dim)` is the position of its value in the finished program."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.symbols = tuple(symbols)
        self.ops: list[SizeOp] = []
        self._index_of: dict[SizeOp, int] = {}

    def index(self, size: Dim) -> int:
        """Position of `size`; appends the steps that compute it."""
        if isinstance(size, int):
            return self._step("const", size)
        total = -1
        for monomial, coef in size.terms:
            term = -1
            for atom in monomial:
                factor = self._atom(atom)
                term = factor if term < 0 else self._step("mul", term, factor)
            if term < 0:
                term = self._step("const", coef)
            elif coef != 1:
                term = self._step("mul", term, self._step("const", coef))
            total = term if total < 0 else self._step("add", total, term)
        return total

    def _atom(self, atom: Atom) -> int:
        if atom.kind == "sym":
            name = str(atom.args[0])
            if name not in self.symbols:
                raise ShapeError(
                    f"size symbol {name} is not the size of any input axis; "
                    "give the input's shape statically"
                )
            return self._step("sym", self.symbols.index(name))
        a, b = (self.index(x) for x in atom.operands)
        return self._step(atom.kind, a, b)

    def _step(self, op: str, a: int, b: int = 0) -> int:
        step = SizeOp(op, a, b)
        if step not in self._index_of:
            self._index_of[step] = len(self.ops)
            self.ops.append(step)
        return self._index_of[step]
