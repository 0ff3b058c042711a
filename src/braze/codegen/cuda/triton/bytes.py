"""Conversions between 8-bit numbers, their sums and float32, to the same bits as the general ones.

A card converts bytes at a fraction of the rate at which it adds. A signed byte takes the place of
the last bits of 2**23, which count one each, and that number is taken away again; a float is
rounded to a whole number by adding 1.5 * 2**23, which leaves the integer in the last bits. The
quotient by a scale that is known is the product with its inverse in two parts. That could be off by
a last place, so each of the few quotients at which the code changes is looked at beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from braze.codegen.cuda.triton.arith import TritonArith
from braze.codegen.cuda.triton.source import Val
from braze.core.dtypes import F8E4M3FN, F32, I8, U8, U32
from braze.expr.fold import reachable
from braze.expr.scalar import Expr
from braze.ops.quant.linear import integer_range, saturated
from braze.ops.writing.minifloat import encode

WHOLE: Final = 1.5 * 2.0**23
BYTES: Final = (I8, U8)
SCALES: Final = (2.0**-60, 2.0**60)  # whose inverses and products are far from the ends of float32
_LARGEST: Final = 448.0  # of float8_e4m3fn
NEARBY: Final = 5  # floats on either side of where a code changes
Form = Callable[[TritonArith, Val], Val]


def byte_forms(roots: Sequence[Expr]) -> dict[Expr, tuple[Form, Expr]]:
    """Of the nodes below `roots`, those with such a form, and its operand."""
    found: dict[Expr, tuple[Form, Expr]] = {}
    for e in reachable(*roots):
        form = _form_of(e)
        if form is not None:
            found[e] = form
    return found


def _form_of(e: Expr) -> tuple[Form, Expr] | None:
    if e.op == "bitcast" and e.dtype is F8E4M3FN:
        return _float8(e)
    if e.op != "cast":
        return None
    (x,) = e.args
    if e.dtype is F32 and x.dtype is I8:
        return _widened, x
    return _quantized(e) if e.dtype in BYTES and x.dtype is F32 else None


def _widened(a: TritonArith, x: Val) -> Val:
    return a.put(f"byte_to_float({x})", "float32")


def _quantized(e: Expr) -> tuple[Form, Expr] | None:
    """The form of saturated(round(x / scale)), and x; NaN becomes the least code as there."""
    try:
        rounded = e.args[0].args[1].args[1]
    except IndexError:
        return None
    if rounded.op != "round" or saturated(rounded, e.dtype, 8) != e:
        return None
    low, high = integer_range(e.dtype, 8)
    (inner,) = rounded.args
    x, divide = _quotient(inner, tuple(n + 0.5 for n in range(low - 1, high + 1)))
    ends = _scaled_ends(inner, divide is not None, low, high)

    def form(a: TritonArith, x: Val) -> Val:
        # of two operands, one of them NaN, these give the other
        kept = a.put(f"tl.maximum({x}, {a.const(x, ends[0])})", x.type)
        kept = a.put(f"tl.minimum({kept}, {a.const(x, ends[1])})", x.type)
        kept = kept if divide is None else divide(a, kept)
        return a.convert(a.bits(a.add(kept, a.const(x, WHOLE))), e.dtype.name)

    return form, x


def _float8(e: Expr) -> tuple[Form, Expr] | None:
    """The form of a saturating conversion to float8_e4m3fn, perhaps of a quotient."""
    numbers = (b.args[0] for b in reachable(e) if b.op == "bitcast" and b.dtype is U32)
    inner = next((x for x in numbers if x.dtype is F32 and encode(x, e.dtype, True) == e), None)
    if inner is None:
        return None
    x, divide = _quotient(inner, between_codes())
    ends = _scaled_ends(inner, divide is not None, -_LARGEST, _LARGEST)

    def form(a: TritonArith, x: Val) -> Val:
        if divide is not None:  # infinities have no second part
            nan = "propagate_nan=NAN_OF_EITHER"
            x = a.put(f"tl.maximum({x}, {a.const(x, ends[0])}, {nan})", x.type)
            x = divide(a, a.put(f"tl.minimum({x}, {a.const(x, ends[1])}, {nan})", x.type))
        return a.put(f"to_e4m3({x})", "uint8")

    return form, x


def _quotient(e: Expr, halves: tuple[float, ...]) -> tuple[Expr, Form | None]:
    """x and the form of its division, where `e` is x / scale and the code of that is decided at
    `halves`; else `e` itself."""
    if e.op != "div" or e.args[1].op != "const":
        return e, None
    parts = inverse(float(np.float32(e.args[1].value)), halves)
    if parts is None:
        return e, None
    first, second = parts

    def divide(a: TritonArith, x: Val) -> Val:
        if second == 0:
            return a.mul(x, a.const(x, first))
        return a.fma(x, a.const(x, first), a.mul(x, a.const(x, second)))

    return e.args[0], divide


def _scaled_ends(e: Expr, divides: bool, low: float, high: float) -> tuple[float, float]:
    """The numbers whose quotients have the least and the largest code."""
    scale = float(np.float32(e.args[1].value)) if divides else 1.0
    return float(np.float32(low * scale)), float(np.float32(high * scale))


@lru_cache(maxsize=1)
def between_codes() -> tuple[float, ...]:
    """What lies between neighbours of float8_e4m3fn above zero; below it is the same."""
    known = np.arange(0x7F, dtype=np.uint8).view(F8E4M3FN.numpy).astype(np.float64)
    return tuple(((known[1:] + known[:-1]) / 2).tolist())


@lru_cache(maxsize=4096)
def inverse(scale: float, halves: tuple[float, ...]) -> tuple[float, float] | None:
    """Two float32 whose sum is 1 / scale, so that x * first + (x * second), each rounded once, lies
    on the same side of each of `halves` as x / scale, or on it; None where that is not so."""
    if not SCALES[0] <= scale <= SCALES[1]:
        return None
    first = np.float32(1 / scale)
    second = np.float32((1 - float(first) * scale) / scale)
    middle = np.array(halves)[:, None]
    x = np.float32(middle * scale)
    near = (x.view(np.int32) + np.arange(-NEARBY, NEARBY + 1, dtype=np.int32)).view(np.float32)
    want = np.sign(near / np.float32(scale) - middle)
    # the product of two float32 is exact here, and the sum so near that its rounding decides
    total = near.astype(np.float64) * float(first) + (near * second).astype(np.float64)
    same = [np.sign(_single(total, by) - middle) == want for by in (-1, 0, 1)]
    return (float(first), float(second)) if np.all(same) else None


def _single(x: NDArray[np.float64], by: int) -> NDArray[Any]:
    """float64 numbers, moved by so many last places, as float32."""
    return (x.view(np.int64) + by).view(np.float64).astype(np.float32)
