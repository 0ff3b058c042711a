"""Conversions between integers and float32 in the epilogues of quantized products, to the same bits
as the general ones.

A card converts at a fraction of the rate at which it adds. An integer of at most 22 bits is added
to the bits of 1.5 * 2**23, whose last bit counts one, and that number taken away again; a float is
rounded to a whole number by adding it, which also leaves the integer in the last bits. The quotient
by a scale that is known is the product with its inverse in two parts. That could be off by a last
place, so each of the few quotients at which the code changes is looked at beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from braze.codegen.cuda.triton.arith import TritonArith
from braze.codegen.cuda.triton.source import Val
from braze.core.dtypes import F32, I8, I32, U8
from braze.expr.fold import reachable
from braze.expr.scalar import Expr
from braze.ops.quant.linear import integer_range, saturated

WHOLE: Final = 1.5 * 2.0**23
WHOLE_BITS: Final = 0x4B400000
EXACT_SUM: Final = 1 << 22  # largest size of an integer that converts so
BYTE: Final = 1 << 14  # largest product of two of them
BYTES: Final = (I8, U8)
SCALES: Final = (2.0**-60, 2.0**60)  # whose inverses and products are far from the ends of float32
NEARBY: Final = 5  # floats on either side of where a code changes
Form = Callable[[TritonArith, Val], Val]


def byte_forms(roots: Sequence[Expr], depth: int | None) -> dict[Expr, tuple[Form, Expr]]:
    """Of the nodes below `roots`, those with such a form, and its operand.

    depth: products of bytes in the sum that the hole is; None where it is none of known depth.
    """
    small = depth is not None and depth * BYTE <= EXACT_SUM
    found: dict[Expr, tuple[Form, Expr]] = {}
    for e in reachable(*roots):
        if e.op != "cast":
            continue
        (x,) = e.args
        if e.dtype is F32 and (x.dtype in BYTES or (small and x.op == "hole" and x.dtype is I32)):
            found[e] = _widened, x
        elif e.dtype in BYTES and x.dtype is F32:
            form = _quantized(e)
            if form is not None:
                found[e] = form
    return found


def _widened(a: TritonArith, x: Val) -> Val:
    wide = a.convert(x, "int32")
    return a.sub(a.from_bits(a.add(wide, a.const(wide, WHOLE_BITS))), a.of(WHOLE, "float32"))


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
    parts: tuple[float, float] | None = None
    scale = 1.0
    if inner.op == "div" and inner.args[1].op == "const":
        scale = float(np.float32(inner.args[1].value))
        parts = inverse(scale, low, high)
        inner = inner.args[0] if parts is not None else inner
        scale = scale if parts is not None else 1.0
    ends = float(np.float32(low * scale)), float(np.float32(high * scale))

    def form(a: TritonArith, x: Val) -> Val:
        # of two operands, one of them NaN, these give the other
        kept = a.put(f"tl.maximum({x}, {a.const(x, ends[0])})", x.type)
        kept = a.put(f"tl.minimum({kept}, {a.const(x, ends[1])})", x.type)
        if parts is not None:
            rest = a.mul(kept, a.const(x, parts[1]))
            kept = a.fma(kept, a.const(x, parts[0]), rest)
        return a.convert(a.bits(a.add(kept, a.const(x, WHOLE))), e.dtype.name)

    return form, inner


@lru_cache(maxsize=4096)
def inverse(scale: float, low: int, high: int) -> tuple[float, float] | None:
    """Two float32 whose sum is 1 / scale, so that x * first + (x * second), each rounded once,
    rounds to the same whole number as x / scale for all x whose quotients are from low to high;
    None where there is an x for which it does not."""
    if not SCALES[0] <= scale <= SCALES[1]:
        return None
    first = np.float32(1 / scale)
    second = np.float32((1 - float(first) * scale) / scale)
    halves = np.arange(low - 1, high + 1) + 0.5
    x = np.float32(halves * scale)[:, None]
    bits = x.view(np.int32) + np.arange(-NEARBY, NEARBY + 1, dtype=np.int32)
    near = bits.view(np.float32)
    want = np.rint(near / np.float32(scale))
    # the product of two float32 is exact here, and the sum so near that its rounding decides
    total = near.astype(np.float64) * float(first) + (near * second).astype(np.float64)
    same = [np.rint(_single(total, by)) == want for by in (-1, 0, 1)]
    return (float(first), float(second)) if np.all(same) else None


def _single(x: NDArray[np.float64], by: int) -> NDArray[Any]:
    """float64 numbers, moved by so many last places, as float32."""
    return (x.view(np.int64) + by).view(np.float64).astype(np.float32)
