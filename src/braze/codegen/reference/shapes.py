"""The sizes of a run: symbols, the profile, every size, and typed refusals.

The rules are those of the native runtime (native/src/shapes.cc), and so are the messages.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from braze.core.dtypes import DType
from braze.core.errors import EngineFormatError, ProfileError, ShapeError
from braze.engine.plan import AxisSource, Plan, SizeOp
from braze.engine.validate import late_sizes

Dims = Sequence[tuple[int, ...]]  # one shape an input
_INT64: Final = range(-(1 << 63), 1 << 63)
_OPS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "max": max,
    "min": min,
}


class _No(enum.Enum):
    """Why a size has no value."""

    UNKNOWN = enum.auto()  # no step has made it known
    BAD = enum.auto()  # it overflows or divides by zero


class Shapes:
    """The values of Plan.sizes for given input shapes; late ones change as a run goes on."""

    def __init__(
        self,
        plan: Plan,
        dims: Dims,
        profile: int | None,
        contents: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """profile: an index, None for the smallest that fits; contents: of inputs whose content a
        profile bounds, by symbol.

        Raises ShapeError and ProfileError.
        """
        self.plan = plan
        self.dims = dims
        self._late = late_sizes(plan)
        self._values: list[int | _No] = [_No.UNKNOWN] * len(plan.sizes)
        self._symbols = _bind(plan, dims)
        self.profile = _choose(plan, {**self._symbols, **contents}, profile)
        self._evaluate(False)
        for i, axis, size, dim in _axes(plan, dims):
            if dim != self.at(size):
                raise ShapeError(
                    f"{_place(plan, i, axis, dim)} where the engine needs {self.at(size)}; "
                    "pass that shape or build the engine for yours"
                )
        self._check_guards(False)

    def at(self, size: int) -> int:
        """The value of a size; raises ShapeError for a bad one, EngineFormatError if unknown."""
        value = self._values[size]
        if isinstance(value, int):
            return value
        if value is _No.BAD:
            raise ShapeError(
                f"for these input shapes, size {size} of the engine overflows or divides by zero; "
                "pass other shapes"
            )
        raise EngineFormatError(
            f"size {size} of the engine is used before a step makes it known; "
            "build the engine again"
        )

    def shape(self, indexes: Sequence[int]) -> tuple[int, ...]:
        """The shape whose sizes stand at `indexes`."""
        return tuple(map(self.at, indexes))

    def known_shape(self, indexes: Sequence[int]) -> tuple[int, ...]:
        """The same with -1 for what is not known."""
        values = (self._values[i] for i in indexes)
        return tuple(v if isinstance(v, int) else -1 for v in values)

    def is_late(self, *sizes: int) -> bool:
        """Whether any of `sizes` is known only in the run."""
        return any(self._late[s] for s in sizes)

    def admits(self, contents: Mapping[int, int]) -> bool:
        """Whether these are in the ranges of the profile."""
        return _first_outside(self.plan, self.profile, contents) is None

    # ---- in a run -------------------------------------------------------------------------

    def forget_run(self) -> None:
        """Begin a run: what the last one made known is unknown again."""
        if any(self._late):
            given = {s for s, v in enumerate(self.plan.symbols) if isinstance(v.source, AxisSource)}
            self._symbols = {s: v for s, v in self._symbols.items() if s in given}
            self._evaluate(True)

    def assign(self, values: Mapping[int, int], forgotten: frozenset[int] = frozenset()) -> None:
        """Give symbols their values, all at once, and make others unknown.

        Raises ProfileError outside of the profile, ShapeError for a guard that does not hold.
        """
        for symbol in forgotten:
            self._symbols.pop(symbol, None)
        for symbol, value in values.items():
            low, _, high = self.plan.profiles[self.profile].ranges[symbol]
            if not low <= value <= high:
                raise _outside(self.plan, self.profile, symbol, value)
            self._symbols[symbol] = value
        self._evaluate(True)
        self._check_guards(True)

    def _evaluate(self, late: bool) -> None:
        for i, op in enumerate(self.plan.sizes):
            if self._late[i] == late:
                self._values[i] = self._value(op)
                if not late:
                    self.at(i)

    def _value(self, size: SizeOp) -> int | _No:
        if size.op == "const":
            return size.a
        if size.op == "sym":
            return self._symbols.get(size.a, _No.UNKNOWN)
        a, b = self._values[size.a], self._values[size.b]
        if _No.UNKNOWN in (a, b):
            return _No.UNKNOWN
        if not isinstance(a, int) or not isinstance(b, int):
            return _No.BAD
        if size.op in ("floordiv", "mod") and b == 0:
            return _No.BAD
        value = _OPS[size.op](a, b)
        return value if value in _INT64 else _No.BAD

    def _check_guards(self, late: bool) -> None:
        for guard in self.plan.guards:
            lhs, rhs = self._values[guard.lhs], self._values[guard.rhs]
            if self.is_late(guard.lhs, guard.rhs) != late or not isinstance(lhs, int):
                continue
            if isinstance(rhs, int) and lhs != rhs:
                raise ShapeError(
                    f"{guard.what}, but they are {lhs} and {rhs} here; pass other shapes, or build "
                    "for these shapes"
                )


def tensor_bytes(shape: Sequence[int], dtype: DType, name: str) -> int:
    """Bytes of a tensor; raises ShapeError for a negative size."""
    size = dtype.itemsize
    for dim in shape:
        if dim < 0:
            raise ShapeError(f"tensor {name!r} would have an axis of size {dim}")
        size *= dim
    if size not in _INT64:
        raise ShapeError(f"tensor {name!r} is too large for these input shapes")
    return size


def _axes(plan: Plan, dims: Dims) -> Iterator[tuple[int, int, int, int]]:
    """(input, axis, size index, dim) of every axis of every input."""
    for i, (binding, shape) in enumerate(zip(plan.inputs, dims, strict=True)):
        for axis, (size, dim) in enumerate(zip(binding.shape, shape, strict=True)):
            yield i, axis, size, dim


def _place(plan: Plan, index: int, axis: int, dim: int) -> str:
    return f"input '{plan.inputs[index].name}' axis {axis} has size {dim}"


def _of_symbol(plan: Plan, symbol: int, value: int) -> str:
    """The size that gave a symbol its value, for errors."""
    source = plan.symbols[symbol].source
    if isinstance(source, AxisSource):
        return _place(plan, source.input, source.axis, value)
    for b in plan.inputs:
        if symbol in b.content:
            return f"input '{b.name}' holds {value} at element {b.content.index(symbol)}"
    return f"size '{plan.symbols[symbol].name}' of this run is {value}"


def _bind(plan: Plan, dims: Dims) -> dict[int, int]:
    symbols: dict[int, int] = {}
    for i, axis, size, dim in _axes(plan, dims):
        here = _place(plan, i, axis, dim)
        if dim < 0:
            raise ShapeError(f"{here}; give it a size of 0 or more")
        op = plan.sizes[size]
        if op.op != "sym":
            continue
        source = plan.symbols[op.a].source
        assert isinstance(source, AxisSource)  # checked when the plan was read
        value = symbols[op.a] = dims[source.input][source.axis]
        if value >= 0 and value != dim:  # a negative one is refused at its own axis
            raise ShapeError(
                f"{here} but {_of_symbol(plan, op.a, value)}, and both are the size "
                f"'{plan.symbols[op.a].name}': make them equal"
            )
    return symbols


def _first_outside(plan: Plan, profile: int, symbols: Mapping[int, int]) -> int | None:
    """The first symbol that lies outside a profile, or None."""
    for s, (low, _, high) in enumerate(plan.profiles[profile].ranges):
        if s in symbols and not low <= symbols[s] <= high:
            return s
    return None


def _reason(plan: Plan, profile: int, symbol: int, value: int) -> str:
    low, _, high = plan.profiles[profile].ranges[symbol]
    return f"{_of_symbol(plan, symbol, value)}, outside {low}..{high}"


def _outside(plan: Plan, profile: int, symbol: int, value: int) -> ProfileError:
    what = "shape" if isinstance(plan.symbols[symbol].source, AxisSource) else "value"
    return ProfileError(
        f"{_reason(plan, profile, symbol, value)} of profile {profile}; pass a {what} in range or "
        "build the engine with a profile that covers it"
    )


def _choose(plan: Plan, symbols: Mapping[int, int], wanted: int | None) -> int:
    tried = range(len(plan.profiles)) if wanted is None else (wanted,)
    outside = {p: _first_outside(plan, p, symbols) for p in tried}
    fitting = [p for p in tried if outside[p] is None]
    if fitting:
        return min(fitting, key=lambda p: (plan.profiles[p].arena_bytes, p))
    reasons = {p: (s, symbols[s]) for p, s in outside.items() if s is not None}
    if len(tried) == 1:
        raise _outside(plan, tried[0], *reasons[tried[0]])
    listed = "".join(f"; profile {p}: {_reason(plan, p, *at)}" for p, at in reasons.items())
    raise ProfileError(
        f"the inputs fit none of the {len(tried)} profiles{listed}; pass others in range or "
        "build the engine with a profile that covers them"
    )
