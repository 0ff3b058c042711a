"""Device functions of generated kernels: what reductions and scans combine by, and rounding."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def nothing():
    """Where launches do not overlap: no waiting for earlier ones, no release of later ones."""


@triton.jit
def to_tf32(x):
    """The nearest float of 11 bits. Tensor cores cut off what they do not multiply: all operands
    would be too small, and the layers of a network add that up."""
    return tl.inline_asm_elementwise(
        "cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def byte_to_float(x):
    """A signed byte as float32; gluon/header.py has it in fewer instructions."""
    return (x.to(tl.int32) + 0x4B400000).to(tl.float32, bitcast=True) - 12582912.0


@triton.jit
def near_quotient(x, y):
    """x / y to within some last places, for y of 1 and more; gluon/header.py has it in two."""
    return tl.fdiv(x, y)


@triton.jit
def max_s16(x, y):
    """The larger of each half of two words, signed."""
    return tl.inline_asm_elementwise(
        "max.s16x2 $0, $1, $2;", "=r,r,r", [x, y], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def max_u16(x, y):
    """Unsigned."""
    return tl.inline_asm_elementwise(
        "max.u16x2 $0, $1, $2;", "=r,r,r", [x, y], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def max_s16_by_parts(x, y):
    """The same where there is no instruction."""
    low = tl.maximum((x << 16) >> 16, (y << 16) >> 16)
    return (tl.maximum(x >> 16, y >> 16) << 16) | (low & 0xFFFF)


@triton.jit
def max_u16_by_parts(x, y):
    """Unsigned."""
    low = tl.maximum(x & 0xFFFF, y & 0xFFFF)
    return (tl.maximum((x >> 16) & 0xFFFF, (y >> 16) & 0xFFFF) << 16) | low


@triton.jit
def to_e4m3(x):
    """The code of the nearest float8_e4m3fn; what is out of range, also infinities, saturates."""
    return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


@triton.jit
def to_e4m3_by_bits(x):
    """The same where there is no instruction."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    up = size + 0x7FFFF + ((size >> 20) & 1)
    # below the least normal number a step is 2**-9
    small = (size.to(tl.float32, bitcast=True) * 512.0 + 12582912.0).to(tl.int32, bitcast=True)
    code = tl.where(size < 0x3C800000, small - 0x4B400000, (up >> 20) - 960)
    code = tl.where(size > 0x7F800000, 0x7F, tl.minimum(code, 0x7E))
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def from_e4m3(x):
    """The number of a code, in float16."""
    return x.to(tl.float8e4nv, bitcast=True).to(tl.float16)


@triton.jit
def from_e4m3_by_bits(x):
    """The same where there is no instruction: the bits stand for a number 2**8 times smaller."""
    bits = x.to(tl.uint16)
    size = ((bits & 0x7F) << 7).to(tl.float16, bitcast=True) * 256.0
    number = tl.where((bits & 0x7F) == 0x7F, float("nan"), size)
    return tl.where((bits & 0x80) == 0, number, -number).to(tl.float16)


@triton.jit
def from_e5m2(x):
    """The number of a code, whose bits are the first of a float16."""
    return (x.to(tl.uint16) << 8).to(tl.float16, bitcast=True)


@triton.jit
def add_of(x, y):
    return x + y


@triton.jit
def mul_of(x, y):
    return x * y


@triton.jit
def max_of(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def min_of(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def any_of(x, y):
    return x | y


@triton.jit
def all_of(x, y):
    return x & y


# (value, index) pairs: NaN beats every number; of equal values one index wins


@triton.jit
def _ahead(x, y, first, greater):
    """Whether value x comes before value y; `first` decides between equals."""
    x_nan, y_nan = x != x, y != y  # noqa: PLR0124
    equal = (x == y) | (x_nan & y_nan)
    return tl.where(equal, first, (x_nan | greater) & (y_nan == 0))


@triton.jit
def argmax_first(x, i, y, j):
    ahead = _ahead(x, y, i < j, x > y)
    return tl.where(ahead, x, y), tl.where(ahead, i, j)


@triton.jit
def argmax_last(x, i, y, j):
    ahead = _ahead(x, y, i > j, x > y)
    return tl.where(ahead, x, y), tl.where(ahead, i, j)


@triton.jit
def argmin_first(x, i, y, j):
    ahead = _ahead(x, y, i < j, x < y)
    return tl.where(ahead, x, y), tl.where(ahead, i, j)


@triton.jit
def argmin_last(x, i, y, j):
    ahead = _ahead(x, y, i > j, x < y)
    return tl.where(ahead, x, y), tl.where(ahead, i, j)
