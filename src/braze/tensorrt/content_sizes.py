"""Sizes that follow from the contents of inputs, found on the host before a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, substitute
from braze.core.errors import ShapeError
from braze.engine.plan import AxisSource, ElementSource, Plan
from braze.engine.steps import KnownSize, Launch, Sizes
from braze.runtime.report import size_dims
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.tensor_table import TensorTable

Shape = tuple[int, ...]
Contents = Mapping[str, Sequence[int]]
_CAST: Final = " [Cast]"  # how the name of a step ends that does nothing else
_READ: Final = (DataType.INT32, DataType.INT64)


class ContentSizes:
    """What a plan does with elements of inputs that it reads as sizes.

    read: the inputs whose elements are read as they are; what is computed of them by kernels is not
    followed. Numbers may be of any size here, so nothing overflows.
    """

    def __init__(self, plan: Plan, table: TensorTable) -> None:
        self._plan, self._inputs = plan, table.inputs
        kinds = {t.name: t.dtype for t in table.inputs if not t.fixed}
        found = {b.buffer: b.name for b in plan.inputs if kinds.get(b.name) in _READ}
        for step in plan.steps:
            if isinstance(step, Launch) and step.name.endswith(_CAST) and len(step.buffers) == 2:
                source, target = (ref.buffer for ref in step.buffers)
                if source in found:
                    found.setdefault(target, found[source])
        self._holds = found
        sources = {s.source.buffer for s in plan.symbols if isinstance(s.source, ElementSource)}
        self.read = tuple(dict.fromkeys(found[b] for b in sources if b in found))
        self._dims: list[Dim] = size_dims(plan) if self.read else []

    def known(self, shapes: Mapping[str, Shape], contents: Contents) -> dict[str, int]:
        """The symbols of sizes that shapes and contents of inputs give."""
        env: dict[str, int] = {}
        for symbol in self._plan.symbols:
            if isinstance(symbol.source, AxisSource):
                size = shapes[self._inputs[symbol.source.input].name][symbol.source.axis]
                if size >= 0:
                    env[symbol.name] = size
        for step in self._plan.steps if self.read else ():
            if isinstance(step, Sizes):
                given = {
                    self._plan.symbols[k.symbol].name: self._value(k, contents, env)
                    for k in step.known
                }
                env.update({name: size for name, size in given.items() if size is not None})
        return env

    def _value(self, known: KnownSize, contents: Contents, env: Mapping[str, int]) -> int | None:
        source = self._plan.symbols[known.symbol].source
        if isinstance(source, ElementSource):
            content = contents.get(self._holds.get(source.buffer, ""), ())
            return content[source.element] if source.element < len(content) else None
        size = substitute(self._dims[known.size], env)
        return size if isinstance(size, int) else None

    def most(self, profile: int, env: Mapping[str, int]) -> dict[str, int]:
        """The same with all other sizes at the most that a profile allows, where it says one."""
        if not self._plan.profiles:
            return dict(env)
        ranges = self._plan.profiles[profile].ranges
        highs = {s.name: r[2] for s, r in zip(self._plan.symbols, ranges, strict=True)}
        return {**{name: high for name, high in highs.items() if high < MAX_SIZE}, **env}

    def check(self, env: Mapping[str, int]) -> None:
        """Raise ShapeError where sizes differ that the plan takes for equal."""
        for guard in self._plan.guards if self.read else ():
            a, b = (substitute(self._dims[i], env) for i in (guard.lhs, guard.rhs))
            if isinstance(a, int) and isinstance(b, int) and a != b:
                raise ShapeError(f"{guard.what}, but they are {a} and {b} for the content set now")


def sizes_of(dims: Sequence[Dim], env: Mapping[str, int]) -> Shape:
    """A shape by the symbols that are known; -1 where they are not enough, or make no size."""
    found = (substitute(d, env) for d in dims)
    return tuple(d if isinstance(d, int) and d >= 0 else -1 for d in found)
