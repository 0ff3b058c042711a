"""Makers of elementwise steps: each takes the sketch and a value and returns the new value, or
raises Unfit when the op does not fit that value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tests.fuzz.case import Fill
from tests.fuzz.sketch import Ref, Sketch, default_fill, static

Maker = Callable[[Sketch, Ref], Ref]
FLOATS = ("float32", "float16", "bfloat16", "float64")
NUMBERS = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
AWAY = Fill("away", 0.5, 2.0)


# ------------------------------------------------------------------ operands


def operand(s: Sketch, x: Ref, fill: Fill | None = None, dtype: str | None = None) -> Ref:
    """A second operand of the shape of `x` or one that broadcasts to it: an earlier value, a
    constant, or a new input."""
    name = dtype or x.dtype.name
    same = [v for v in s.made if v.shape == x.shape and v.dtype.name == name]
    if same and fill is None and s.r.random() < 0.35:
        return s.r.choice(same)
    shape = broadcast_shape(s, x)
    if all(isinstance(d, int) for d in shape) and s.r.random() < 0.6:
        return s.constant(name, [d for d in shape if isinstance(d, int)], fill)
    return s.input(name, shape, fill, made=False)


def symbol_or_size(s: Sketch, x: Ref, axis: int) -> int | str:
    """How axis `axis` of a value can be spelled for a new input."""
    d = x.shape[axis]
    if static(d):
        return int(d)
    s.need(str(d) in s.sizes)
    return str(d)


def full_shape(s: Sketch, x: Ref) -> tuple[int | str, ...]:
    """The shape of `x` for a new input."""
    return tuple(symbol_or_size(s, x, k) for k in range(x.rank))


def broadcast_shape(s: Sketch, x: Ref) -> tuple[int | str, ...]:
    """A shape that broadcasts to that of `x`: full, some axes 1, or fewer axes."""
    kind = s.r.choice(["full", "full", "ones", "ones", "tail", "scalar", "last"])
    if kind == "scalar" or x.rank == 0:
        return ()
    if kind == "last":
        return (1,) * (x.rank - 1) + (symbol_or_size(s, x, x.rank - 1),)
    first = s.r.randrange(x.rank) if kind == "tail" else 0
    keep = 1.0 if kind == "full" else 0.5
    return tuple(
        symbol_or_size(s, x, k) if s.r.random() < keep else 1 for k in range(first, x.rank)
    )


def floating(s: Sketch, x: Ref) -> None:
    """Raise Unfit unless `x` is floating point."""
    s.need(x.dtype.is_float)


# ------------------------------------------------------------------ one operand


def _unary(
    op: str, s: Sketch, x: Ref, kinds: Sequence[str] = FLOATS, low: float = -1e9,
    high: float = 1e9, least: float = -1.0,
) -> Ref:  # fmt: skip
    s.need(x.dtype.name in kinds)
    if not (x.low >= low and x.high <= high and x.least >= least) and s.r.random() < 0.5:
        x = s.add1("Sigmoid", x)
        if low >= 1:
            x = s.add1("Add", x, s.scalar(x.dtype.name, 1.25))
    s.need(x.low >= low and x.high <= high and x.least >= least)
    return s.add1(op, x)


def unary(op: str, kinds: Sequence[str] = FLOATS, **domain: float) -> Maker:
    """An op of one operand, for values inside its domain, or brought there by a Sigmoid."""
    return partial(_unary, op, kinds=kinds, **domain)


def _activation(op: str, s: Sketch, x: Ref, **choices: Sequence[object]) -> Ref:
    floating(s, x)
    s.need(op != "Shrink" or x.dtype.name != "bfloat16")  # ONNX has no Shrink of that type
    return s.add1(op, x, **{k: s.r.choice(v) for k, v in choices.items() if s.r.random() < 0.7})


def activation(op: str, **choices: Sequence[object]) -> Maker:
    """An activation with attributes chosen from lists, or left at their defaults."""
    return partial(_activation, op, **choices)


def clip(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.kind != "b")
    name = x.dtype.name
    low, high = s.scalar(name, 1), s.scalar(name, s.r.choice([1, 3, 6]))
    if x.dtype.is_signed and s.r.random() < 0.5:
        low = s.scalar(name, s.r.choice([-1, 0]))
    kind = s.r.choice(["both", "low", "high", "none"])
    return s.add1("Clip", x, low if kind in ("both", "low") else None,
                  high if kind in ("both", "high") else None)  # fmt: skip


def cast(s: Sketch, x: Ref) -> Ref:
    s.need(abs(x.low) < 100 and abs(x.high) < 100)
    kinds = ["float32", "float32", "float64", "float16", "bfloat16", "int64", "int32", "bool"]
    if x.low >= 0:
        kinds += ["uint8", "uint32"]
    kinds += ["int8", "int16"]
    to = s.r.choice([k for k in kinds if k != x.dtype.name])
    return s.add1("Cast", x, to=_onnx(to))


def cast_like(s: Sketch, x: Ref) -> Ref:
    s.need(abs(x.low) < 100 and abs(x.high) < 100)
    to = s.r.choice([k for k in ("float32", "int32", "float64", "float16") if k != x.dtype.name])
    return s.add1("CastLike", x, s.scalar(to, 1))


def bit_cast(s: Sketch, x: Ref) -> Ref:
    """Bits as integers and, behind an `and` that keeps them finite, nothing further."""
    pairs = {"float32": "int32", "float64": "int64", "float16": "int16", "int32": "uint32"}
    # the bits of a rounded result are anybody's, so only inputs are looked at this way
    s.need(x.dtype.name in pairs and x.name in s.inputs)
    return s.add1("BitCast", x, to=_onnx(pairs[x.dtype.name]))


def _onnx(name: str) -> int:
    from braze.core.dtypes import from_name

    return from_name(name).onnx


def dropout(s: Sketch, x: Ref) -> Ref:
    floating(s, x)
    return s.add("Dropout", x, outputs=s.r.choice([1, 2]))[0]


def identity(s: Sketch, x: Ref) -> Ref:
    return s.add1("Identity", x)


def prelu(s: Sketch, x: Ref) -> Ref:
    floating(s, x)
    return s.add1("PRelu", x, operand(s, x, Fill("uniform", 0.1, 0.9)))


# ------------------------------------------------------------------ two and more operands


def _swapped(s: Sketch, x: Ref, y: Ref) -> tuple[Ref, Ref]:
    return (y, x) if s.r.random() < 0.35 else (x, y)


def _binary(op: str, s: Sketch, x: Ref, kinds: Sequence[str] = NUMBERS) -> Ref:
    s.need(x.dtype.name in kinds)
    return s.add1(op, *_swapped(s, x, operand(s, x)))


def binary(op: str, kinds: Sequence[str] = NUMBERS) -> Maker:
    """An op of two operands that broadcast."""
    return partial(_binary, op, kinds=kinds)


def divide(s: Sketch, x: Ref) -> Ref:
    """x / k with k away from zero (integers: never zero)."""
    s.need(x.dtype.name in NUMBERS)
    fill = AWAY if x.dtype.is_float else Fill("integers", 1, 5)
    return s.add1("Div", x, operand(s, x, fill))


def modulo(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name in NUMBERS and x.dtype.name != "bfloat16")
    if x.dtype.is_float:
        return s.add1("Mod", x, operand(s, x, AWAY), fmod=1)
    return s.add1("Mod", x, operand(s, x, Fill("integers", 1, 5)), fmod=s.r.choice([0, 1]))


def power(s: Sketch, x: Ref) -> Ref:
    floating(s, x)
    exponents = [2.0, 3.0, 1.0, 0.0] + ([0.5, -1.5, -0.5] if x.low > 0.05 else [])
    if x.low > 0.05 and s.r.random() < 0.4:
        return s.add1("Pow", x, operand(s, x))
    return s.add1("Pow", x, s.scalar(x.dtype.name, s.r.choice(exponents)))


def several(op: str) -> Maker:
    """Sum, Max, Min and Mean of one to four operands."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.dtype.name in (FLOATS if op in ("Sum", "Mean") else NUMBERS))
        more = [operand(s, x) for _ in range(s.r.randint(0, 3))]
        at = s.r.randint(0, len(more))
        return s.add1(op, *more[:at], x, *more[at:])

    return make


def logic(op: str) -> Maker:
    """And, Or, Xor of booleans."""
    return partial(_binary, op, kinds=("bool",))


def bitwise(op: str) -> Maker:
    """Bit operations on integers."""
    return partial(_binary, op, kinds=tuple(k for k in NUMBERS if "int" in k))


def bit_shift(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name.startswith("uint"))
    shift = operand(s, x, Fill("integers", 0, 7))
    return s.add1("BitShift", x, shift, direction=s.r.choice(["LEFT", "RIGHT"]))


def compare(op: str) -> Maker:
    """Comparisons; also of the value with itself."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.dtype.kind != "b" or op == "Equal")
        other = x if s.r.random() < 0.1 else operand(s, x)
        return s.add1(op, *_swapped(s, x, other))

    return make


def test_value(op: str) -> Maker:
    """IsNaN and IsInf."""

    def make(s: Sketch, x: Ref) -> Ref:
        floating(s, x)
        return s.add1(op, x)

    return make


def where(s: Sketch, x: Ref) -> Ref:
    """The value as condition, or as one of the branches behind a computed or given condition."""
    if x.dtype.kind == "b":
        a = s.input(s.r.choice(["float32", "int64"]), full_shape(s, x), made=False)
        return s.add1("Where", x, *_swapped(s, a, operand(s, a)))
    if s.r.random() < 0.5:
        condition = operand(s, x, default_fill("bool"), "bool")
    else:
        condition = s.add1("Less", x, operand(s, x)) if x.dtype.kind != "b" else x
    return s.add1("Where", condition, *_swapped(s, x, operand(s, x)))


def limited_twice(s: Sketch, x: Ref) -> Ref:
    """A limit that NaN passes, and one by a comparison, which NaN may become, often of one number:
    compilers take the two for the same."""
    floating(s, x)
    number = s.r.choice([0.0, 0.0, 0.5, -1.5])
    limit = s.constant(x.dtype.name, (), values=[number])
    other = limit if s.r.random() < 0.7 else s.constant(x.dtype.name, (), values=[number + 0.25])
    ops = ["Max", "Min", "Where"] + ["Relu"] * (number == 0)
    op = s.r.choice(ops)
    if op == "Where":
        y = s.add1("Where", s.add1("Less", x, limit), *_swapped(s, x, limit))
    else:
        y = s.add1(op, x) if op == "Relu" else s.add1(op, *_swapped(s, x, limit))
    comparison = s.r.choice(["Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
    s.need(s.opset >= 12)
    condition = s.add1(comparison, *_swapped(s, y, other))
    return s.add1("Where", condition, *_swapped(s, y, other))


def same_twice(s: Sketch, x: Ref) -> Ref:
    """One value as both operands."""
    s.need(x.dtype.name in NUMBERS)
    return s.add1(s.r.choice(["Add", "Mul", "Sub", "Max"]), x, x)


def constant_step(s: Sketch, x: Ref) -> Ref:
    """A Constant node, added to the value."""
    from tests.fuzz.case import Tensor

    floating(s, x)
    values = tuple(np.linspace(-1, 1, 1).tolist())
    literal = Tensor(x.dtype.name, (1,), values=values)
    made = s.add1("Constant", value=literal)
    return s.add1("Add", x, made)
