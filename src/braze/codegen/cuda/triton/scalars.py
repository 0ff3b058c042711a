"""Triton source of every scalar operation: a table {op: function(arith, expr, *values)}.

The twin of braze.codegen.cpu.llvm.scalars. Register types: int1 for bool, float32 for float16 and
bfloat16 (rounded after each operation, as the reference does), the element's own type otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from braze.codegen.cuda.triton.arith import TritonArith, is_float
from braze.codegen.cuda.triton.source import Val
from braze.core.dtypes import BF16, BOOL, F16, DType
from braze.expr.decompose import DOUBLE, FUNCTIONS, SINGLE
from braze.expr.decompose_pairs import PAIRS
from braze.expr.limits import limit
from braze.expr.scalar import Expr


def register_type(dtype: DType) -> str:
    """Triton type that holds one value of `dtype`."""
    if dtype is BOOL:
        return "int1"
    if dtype.is_narrow:  # moved and taken apart as bits, never computed with
        return "uint8"
    return "float32" if dtype in (F16, BF16) else dtype.name


def settle(a: TritonArith, dtype: DType, x: Val) -> Val:
    """Round a float32 result to the half type it stands for."""
    if dtype in (F16, BF16) and x.type == "float32":
        return a.put(f"{x}.to(tl.{dtype.name}).to(tl.float32)", "float32")
    return x


def _rounded(function: Callable[..., Val]) -> Callable[..., Val]:
    return lambda a, e, *args: settle(a, e.dtype, function(a, e, *args))


def _add(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
    return a.either(x, y) if e.dtype is BOOL else a.add(x, y)


def _mul(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
    return a.both(x, y) if e.dtype is BOOL else a.mul(x, y)


def _quotient(a: TritonArith, e: Expr, x: Val, y: Val) -> tuple[Val, Val]:
    """(x / y toward zero, the rest) for integers; a zero divisor gives zeros, overflow wraps."""
    zero, one = a.const(y, 0), a.const(y, 1)
    is_zero = a.compare("==", y, zero)
    special = is_zero
    minus = None
    if e.dtype.is_signed:
        minus = a.compare("==", y, a.const(y, -1))
        special = a.either(is_zero, minus)
    safe = a.select(special, one, y)
    quotient, rest = a.put(f"{x} // {safe}", x.type), a.put(f"{x} % {safe}", x.type)
    if minus is not None:
        quotient = a.select(minus, a.sub(zero, x), quotient)
    return a.select(is_zero, zero, quotient), a.select(is_zero, zero, rest)


def _div(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
    return a.div(x, y) if e.dtype.is_float else _quotient(a, e, x, y)[0]


def _crosses(a: TritonArith, rest: Val, y: Val) -> Val:
    """True where truncation and flooring of a division differ."""
    zero = a.const(rest, 0)
    apart = a.lt(a.exclusive(rest, y), zero)
    return a.both(a.compare("!=", rest, zero), apart)


def _floordiv(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
    if e.dtype.is_float:
        return _float_floor(a, x, y)[0]
    quotient, rest = _quotient(a, e, x, y)
    if not e.dtype.is_signed:
        return quotient
    return a.sub(quotient, a.convert(_crosses(a, rest, y), quotient.type))


def _mod(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
    if e.dtype.is_float:
        return _float_floor(a, x, y)[1]
    rest = _quotient(a, e, x, y)[1]
    if not e.dtype.is_signed:
        return rest
    return a.select(_crosses(a, rest, y), a.add(rest, y), rest)


def _fmod(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
    return _remainder(a, x, y) if e.dtype.is_float else _quotient(a, e, x, y)[1]


def _remainder(a: TritonArith, x: Val, y: Val) -> Val:
    """fmod(x, y), exact: subtract from |x| the largest |y| * 2**k that fits, until none does.

    A denormal y counts as 0, as its bits are no multiple of a power of two's.
    """
    digits = 52 if x.type == "float64" else 23
    inf, zero = a.const(x, float("inf")), a.const(x, 0.0)
    size, divisor = a.abs(x), a.abs(y)
    by_zero = _counts_as_zero(a, y)
    divisor = a.select(by_zero, inf, divisor)
    bits = a.bits(divisor)
    exponent = a.shift_right(bits, digits)
    rest = a.source.fresh("rest")
    start = a.select(a.lt(size, inf), size, zero)
    a.source.line(f"{rest} = {start}")
    left = Val(rest, x.type)
    steps = a.source.fresh("more")
    a.source.line(f"{steps} = tl.sum(({divisor} <= {rest}).to(tl.int32))")
    with a.source.block(f"while {steps} > 0"):
        apart = a.sub(a.shift_right(a.bits(left), digits), exponent)
        multiple = a.from_bits(a.add(bits, a.put(f"{apart} << {digits}", apart.type)))
        halved = a.mul(multiple, a.const(x, 0.5))
        multiple = a.select(a.lt(left, multiple), halved, multiple)
        busy = a.compare("<=", divisor, left)
        a.source.line(f"{rest} = tl.where({busy}, {left} - {multiple}, {left})")
        a.source.line(f"{steps} = tl.sum(({divisor} <= {rest}).to(tl.int32))")
    result = a.copysign(left, x)
    broken = a.either(a.is_nan(a.add(x, y)), a.compare("==", size, inf))
    return a.select(a.either(broken, by_zero), a.const(x, float("nan")), result)


def _counts_as_zero(a: TritonArith, x: Val) -> Val:
    """Whether x is 0 or a denormal."""
    return a.lt(a.abs(x), a.const(x, 2.0**-1022 if x.type == "float64" else 2.0**-126))


def _float_floor(a: TritonArith, x: Val, y: Val) -> tuple[Val, Val]:
    """(floor(x / y), x mod y) of floats as Python and numpy define them, from an exact fmod."""
    zero, one = a.const(x, 0.0), a.const(x, 1.0)
    exact = rest = _remainder(a, x, y)
    quotient = a.div(a.sub(x, rest), y)
    nonzero = a.compare("!=", rest, zero)
    apart = a.both(nonzero, a.exclusive(a.lt(y, zero), a.lt(rest, zero)))
    quotient = a.select(apart, a.sub(quotient, one), quotient)
    rest = a.select(apart, a.add(rest, y), rest)
    rest = a.select(nonzero, rest, a.copysign(zero, y))
    whole = a.floor(quotient)
    whole = a.select(a.lt(a.const(x, 0.5), a.sub(quotient, whole)), a.add(whole, one), whole)
    plain = a.div(x, y)
    whole = a.select(a.compare("!=", quotient, zero), whole, a.copysign(zero, plain))
    by_zero = _counts_as_zero(a, y)
    return a.select(by_zero, plain, whole), a.select(by_zero, exact, rest)


def _pow(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
    if not e.dtype.is_float:
        return _integer_power(a, e, x, y)
    exponent = e.args[1]
    if exponent.op == "const":
        special = _constant_power(a, x, float(exponent.value))
        if special is not None:
            return special
    return _of_two(a, "pow", x, y)


def _of_two(a: TritonArith, name: str, x: Val, y: Val) -> Val:
    """The function called `name` (a key of PAIRS) of float32 or float64 values."""
    single, double = PAIRS[name]
    if x.type == "float64":
        return double(a, x, y)  # type: ignore[no-any-return]
    wide = single(a, a.convert(x, "float64"), a.convert(y, "float64"))
    return a.convert(wide, "float32")


def _constant_power(a: TritonArith, x: Val, exponent: float) -> Val | None:
    if exponent == 0:
        return a.const(x, 1.0)
    if exponent == 1:
        return x
    if exponent == 0.5:  # numpy: (-0) ** 0.5 is +0 and (-inf) ** 0.5 is inf
        root = a.abs(a.sqrt(a.add(x, a.const(x, 0.0))))
        minus = a.compare("==", x, a.const(x, float("-inf")))
        return a.select(minus, a.const(x, float("inf")), root)
    if exponent == -1:
        return a.div(a.const(x, 1.0), x)
    if exponent not in (2.0, 3.0, 4.0):
        return None
    square = a.mul(x, x)
    if exponent == 2:
        return square
    return a.mul(square, x) if exponent == 3 else a.mul(square, square)


def _integer_power(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
    """Square and multiply, modulo 2**bits; negative exponents give 0 except for 1 and -1."""
    zero, one = a.const(x, 0), a.const(x, 1)
    total, square, left = one, x, y
    literal = e.args[1]
    steps = e.dtype.bits
    if literal.op == "const":
        steps = max(1, int(literal.value).bit_length())
    for _ in range(steps):
        odd = a.compare("!=", a.both(left, one), zero)
        total = a.select(odd, a.mul(total, square), total)
        square, left = a.mul(square, square), a.shift_right(left, 1)
    if not e.dtype.is_signed:
        return total
    minus = a.const(x, -1)
    is_odd = a.compare("!=", a.both(y, one), zero)
    unit = a.select(a.compare("==", x, minus), a.select(is_odd, minus, one), zero)
    unit = a.select(a.compare("==", x, one), one, unit)
    return a.select(a.lt(y, zero), unit, total)


def _select(a: TritonArith, e: Expr, c: Val, x: Val, y: Val) -> Val:
    kind = limit(e)
    # of zeros, the larger is the positive one
    if kind is None or str(e.args[2].value) == ("-0.0" if kind == "max" else "0.0"):
        return a.select(c, x, y)
    return a.put(f"tl.{kind}imum({x}, {y})", x.type)  # of two operands, one NaN, the other


def _extreme(name: str) -> Callable[..., Val]:
    def apply(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
        if e.dtype is BOOL:
            return a.either(x, y) if name == "maximum" else a.both(x, y)
        nan = ", propagate_nan=NAN_OF_EITHER" if is_float(x.type) else ""
        return a.put(f"tl.{name}({x}, {y}{nan})", x.type)

    return apply


def _shift(left: bool) -> Callable[..., Val]:
    def apply(a: TritonArith, e: Expr, x: Val, y: Val) -> Val:
        bits = e.dtype.bits
        inside = a.compare("<", y, a.const(y, bits), signed=False)
        if not left and e.dtype.is_signed:
            return a.put(f"{x} >> {a.select(inside, y, a.const(y, bits - 1))}", x.type)
        count = a.select(inside, y, a.const(y, 0))
        moved = a.put(f"{x} {'<<' if left else '>>'} {count}", x.type)
        return a.select(inside, moved, a.const(x, 0))

    return apply


def _compare(op: str) -> Callable[..., Val]:
    return lambda a, e, x, y: a.compare(op, x, y)


def _sign(a: TritonArith, e: Expr, x: Val) -> Val:
    zero, one = a.const(x, 0), a.const(x, 1)
    positive = a.lt(zero, x)
    if not e.dtype.is_signed:
        return a.select(positive, one, zero)
    result = a.select(positive, one, a.select(a.lt(x, zero), a.const(x, -1), zero))
    return a.select(a.is_nan(x), x, result) if e.dtype.is_float else result


def _not(a: TritonArith, e: Expr, x: Val) -> Val:
    return a.exclusive(x, a.const(x, 1 if e.dtype is BOOL else -1))


def _cast(a: TritonArith, e: Expr, x: Val) -> Val:
    source, target = e.args[0].dtype, e.dtype
    if target is BOOL:
        return a.compare("!=", x, a.const(x, 0))
    if source.is_float and not target.is_float:
        return _truncate(a, x, target)
    if source is BOOL:
        x = a.convert(x, "int32")
    if target in (F16, BF16):
        return a.put(f"{x}.to(tl.{target.name}).to(tl.float32)", "float32")
    return a.convert(x, register_type(target))


def _truncate(a: TritonArith, x: Val, target: DType) -> Val:
    """Float to integer toward zero; what does not fit gives the least value of the type."""
    precision = 53 if x.type == "float64" else 24
    worst = -(2 ** (target.bits - 1)) if target.is_signed else 0
    exact = target.bits <= precision or not target.is_signed
    low = a.lt(a.const(x, worst - 1), x) if exact else a.compare("<=", a.const(x, worst), x)
    high = a.lt(x, a.const(x, 2.0 ** (target.bits - target.is_signed)))
    inside = a.both(low, high)
    safe = a.select(inside, x, a.const(x, 0.0))
    wide = a.convert(safe, "uint64" if target.name == "uint64" else "int64")
    number = a.convert(wide, target.name)
    return a.select(inside, number, a.of(worst, target.name))


def _bitcast(a: TritonArith, e: Expr, x: Val) -> Val:
    source, target = e.args[0].dtype, e.dtype
    stored = x.text
    if source in (F16, BF16):
        stored = f"{x}.to(tl.{source.name})"
    elif source is BOOL:
        stored = f"{x}.to(tl.int8)"
    if target is BOOL:
        return a.put(f"{stored} != 0", "int1")
    if target.is_narrow:
        return a.put(f"{stored}.to(tl.uint8, bitcast=True)", "uint8")
    text = f"{stored}.to(tl.{target.name}, bitcast=True)"
    return a.put(f"{text}.to(tl.float32)" if target in (F16, BF16) else text, register_type(target))


def _function(name: str) -> Callable[..., Val]:
    def apply(a: TritonArith, e: Expr, x: Val) -> Val:
        if x.type == "float64":
            return DOUBLE[name](a, x)  # type: ignore[no-any-return]
        if name in SINGLE:
            return settle(a, e.dtype, SINGLE[name](a, x))
        return settle(a, e.dtype, a.convert(DOUBLE[name](a, a.convert(x, "float64")), "float32"))

    return apply


def _pair_function(name: str) -> Callable[..., Val]:
    return lambda a, e, x, y: settle(a, e.dtype, _of_two(a, name, x, y))


def _isinf(a: TritonArith, e: Expr, x: Val) -> Val:
    return a.compare("==", a.abs(x), a.const(x, float("inf")))


PRIMITIVES: Mapping[str, Callable[..., Val]] = {
    "neg": lambda a, e, x: a.neg(x),
    "abs": lambda a, e, x: a.abs(x) if e.dtype.is_signed else x,
    "sign": _sign, "not": _not,
    "floor": lambda a, e, x: a.floor(x), "ceil": lambda a, e, x: a.ceil(x),
    "trunc": lambda a, e, x: a.trunc(x), "round": lambda a, e, x: a.round_even(x),
    "sqrt": _rounded(lambda a, e, x: a.sqrt(x)),
    **{name: _function(name) for name in FUNCTIONS},
    **{name: _pair_function(name) for name in PAIRS},
    "isnan": lambda a, e, x: a.is_nan(x), "isinf": _isinf, "given": lambda a, e, x: x,
    "add": _rounded(_add), "sub": _rounded(lambda a, e, x, y: a.sub(x, y)),
    "mul": _rounded(_mul), "div": _rounded(_div),
    "floordiv": _rounded(_floordiv), "mod": _rounded(_mod), "fmod": _rounded(_fmod),
    "pow": _rounded(_pow), "min": _extreme("minimum"), "max": _extreme("maximum"),
    "and": lambda a, e, x, y: a.both(x, y), "or": lambda a, e, x, y: a.either(x, y),
    "xor": lambda a, e, x, y: a.exclusive(x, y), "shl": _shift(True), "shr": _shift(False),
    "lt": _compare("<"), "le": _compare("<="), "eq": _compare("=="),
    "cast": _cast, "bitcast": _bitcast, "select": _select,
}  # fmt: skip
