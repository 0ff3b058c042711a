"""What the input shapes of a run give: symbols, the profile, every size, and typed refusals.

The rules are those of the native runtime (native/src/shapes.cc), and so are the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from braze.core.dtypes import DType
from braze.core.errors import ProfileError, ShapeError
from braze.engine.plan import Plan, SizeOp

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


@dataclass(frozen=True, slots=True)
class Shapes:
    """profile: the index in use; sizes: the value of every entry of Plan.sizes."""

    profile: int
    sizes: tuple[int, ...]

    def shape(self, indexes: Sequence[int]) -> tuple[int, ...]:
        """The shape whose sizes stand at `indexes`."""
        return tuple(self.sizes[i] for i in indexes)


@dataclass(frozen=True, slots=True)
class _Symbol:
    value: int
    where: str  # the input axis it came from, for errors


def evaluate_shapes(plan: Plan, dims: Dims, profile: int | None) -> Shapes:
    """Sizes and profile for these input shapes; profile: an index, None for the smallest fit.

    Raises ShapeError and ProfileError.
    """
    symbols = _bind(plan, dims)
    index = _choose(plan, symbols, profile)
    shapes = Shapes(index, _sizes(plan, symbols))
    for i, axis, size, dim in _axes(plan, dims):
        if dim != shapes.sizes[size]:
            raise ShapeError(
                f"{_place(plan, i, axis, dim)} where the engine needs {shapes.sizes[size]}; "
                "pass that shape or build the engine for yours"
            )
    for guard in plan.guards:
        lhs, rhs = shapes.sizes[guard.lhs], shapes.sizes[guard.rhs]
        if lhs != rhs:
            raise ShapeError(
                f"for these input shapes {guard.what} does not hold ({lhs} and {rhs} must be "
                "equal); pass shapes for which it does"
            )
    return shapes


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


def _bind(plan: Plan, dims: Dims) -> dict[int, _Symbol]:
    symbols: dict[int, _Symbol] = {}
    for i, axis, size, dim in _axes(plan, dims):
        here = _Symbol(dim, _place(plan, i, axis, dim))
        if dim < 0:
            raise ShapeError(f"{here.where}; give it a size of 0 or more")
        op = plan.sizes[size]
        if op.op != "sym":
            continue
        first = symbols.setdefault(op.a, here)
        if first.value != dim:
            raise ShapeError(
                f"{here.where} but {first.where}, and both are the size "
                f"'{plan.symbols[op.a].name}': make them equal"
            )
    return symbols


def _outside(plan: Plan, profile: int, symbols: Mapping[int, _Symbol]) -> str | None:
    """Which size lies outside a profile, or None."""
    for s, (low, _, high) in enumerate(plan.profiles[profile].ranges):
        if s in symbols and not low <= symbols[s].value <= high:
            return f"{symbols[s].where}, outside {low}..{high}"
    return None


def _choose(plan: Plan, symbols: Mapping[int, _Symbol], wanted: int | None) -> int:
    tried = range(len(plan.profiles)) if wanted is None else (wanted,)
    reasons = {p: _outside(plan, p, symbols) for p in tried}
    fitting = [p for p in tried if reasons[p] is None]
    if fitting:
        return min(fitting, key=lambda p: (plan.profiles[p].arena_bytes, p))
    if len(tried) == 1:
        raise ProfileError(
            f"{reasons[tried[0]]} of profile {tried[0]}; pass a shape in range or build the "
            "engine with a profile that covers it"
        )
    listed = "".join(f"; profile {p}: {reason}" for p, reason in reasons.items())
    raise ProfileError(
        f"the shapes fit none of the {len(tried)} profiles{listed}; pass shapes in range or "
        "build the engine with a profile that covers them"
    )


def _sizes(plan: Plan, symbols: Mapping[int, _Symbol]) -> tuple[int, ...]:
    values: list[int] = []
    for i, size in enumerate(plan.sizes):
        value = _size(size, values, symbols)
        if value is None or value not in _INT64:
            raise ShapeError(
                f"for these input shapes, size {i} of the engine overflows or divides by zero; "
                "pass other shapes"
            )
        values.append(value)
    return tuple(values)


def _size(size: SizeOp, values: Sequence[int], symbols: Mapping[int, _Symbol]) -> int | None:
    if size.op == "const":
        return size.a
    if size.op == "sym":
        return symbols[size.a].value
    a, b = values[size.a], values[size.b]
    if size.op in ("floordiv", "mod") and b == 0:
        return None
    return _OPS[size.op](a, b)
