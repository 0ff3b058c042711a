"""Makers of quantized steps: to integers on a grid, back, and what computes with such integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.case import Fill
from tests.fuzz.make_views import size
from tests.fuzz.sketch import Ref, Sketch, static

SCALES = Fill("uniform", 0.02, 0.3)
QUANTIZED = ("uint8", "int8", "uint16", "int16")


def _parameters(
    s: Sketch, x: Ref, dtype: str, float_type: str
) -> tuple[Ref, Ref | None, dict[str, Any]]:
    """A scale, a zero point or none, and the attributes that say what they are for."""
    axes = [k for k, d in enumerate(x.shape) if static(d) and size(x, k) > 0]
    kind = s.r.choice(["all", "all", "axis", "block"])
    shape: tuple[int, ...] = s.r.choice([(), (1,)])
    attributes: dict[str, Any] = {}
    if kind != "all" and axes:
        axis = s.r.choice(axes)
        shape, attributes = (size(x, axis),), {"axis": axis}
        if kind == "block" and s.opset >= 21 and len(axes) == x.rank:
            block = s.r.choice([2, 3, 4])
            counts = [size(x, k) for k in range(x.rank)]
            counts[axis] = -(-counts[axis] // block)
            shape, attributes = tuple(counts), {"axis": axis, "block_size": block}
    scale = s.constant(float_type, shape, SCALES)
    reach = Fill("integers", 0 if dtype.startswith("u") else -9, 9)
    zero = s.constant(dtype, shape, reach)
    return scale, (None if s.r.random() < 0.2 else zero), attributes


def _real(s: Sketch, x: Ref) -> None:
    """Raise Unfit for what this opset does not quantize."""
    s.need(x.dtype.name in (("float32", "float16", "bfloat16") if s.opset >= 19 else ("float32",)))


def quantize(s: Sketch, x: Ref) -> Ref:
    _real(s, x)
    dtype = s.r.choice(QUANTIZED if s.opset >= 21 else QUANTIZED[:2])
    scale, zero, attributes = _parameters(s, x, dtype, x.dtype.name)
    return s.add1("QuantizeLinear", x, scale, zero, **attributes)


def dequantize(s: Sketch, x: Ref) -> Ref:
    if x.dtype.is_float:
        return rounded(s, x)
    s.need(x.dtype.name in (*QUANTIZED, "int32") and x.high < 1e5 and x.low > -1e5)
    to = s.r.choice(["float32", "float32", "float16", "bfloat16"]) if s.opset >= 19 else "float32"
    scale, zero, attributes = _parameters(s, x, x.dtype.name, to)
    return s.add1("DequantizeLinear", x, scale, None if x.dtype.bits == 32 else zero, **attributes)


def rounded(s: Sketch, x: Ref) -> Ref:
    """There and back, as networks to be run in integers are written."""
    _real(s, x)
    scale, zero, attributes = _parameters(s, x, s.r.choice(["uint8", "int8"]), x.dtype.name)
    q = s.add1("QuantizeLinear", x, scale, zero, **attributes)
    return s.add1("DequantizeLinear", q, scale, zero, **attributes)


def dynamic(s: Sketch, x: Ref) -> Ref:
    """Quantized by the range of the data, and back."""
    s.need(x.dtype.name == "float32" and x.sample.size > 0)
    q, scale, zero = s.add("DynamicQuantizeLinear", x, outputs=3)
    return s.add1("DequantizeLinear", q, scale, zero) if s.r.random() < 0.7 else q


# ------------------------------------------------------------------ products

BYTES = ("uint8", "int8")


def _code(s: Sketch, x: Ref) -> Ref:
    """`x` in 8 bits."""
    if x.dtype.name in BYTES:
        return x
    s.need(x.dtype.name == "float32")
    dtype = s.r.choice(BYTES)
    zero = s.constant(dtype, (), Fill("integers", 0 if dtype == "uint8" else -9, 9))
    return s.add1("QuantizeLinear", x, s.constant("float32", (), SCALES), zero)


def _offset(s: Sketch, dtype: str, count: int = 0) -> Ref | None:
    """A zero point, sometimes one for each of `count` channels, sometimes none."""
    if s.r.random() < 0.25:
        return None
    shape = (count,) if count and s.r.random() < 0.5 else ()
    return s.constant(dtype, shape, Fill("integers", 0 if dtype == "uint8" else -9, 9))


def _weight(s: Sketch, shape: tuple[int, ...]) -> Ref:
    dtype = s.r.choice(BYTES)
    full = Fill("integers", 0, 255) if dtype == "uint8" else Fill("integers", -128, 127)
    s.last_weight = s.constant(dtype, shape, full)
    return s.last_weight


def _factors(s: Sketch, x: Ref) -> tuple[Ref, Ref, int]:
    s.need(x.rank >= 1 and static(x.shape[-1]) and size(x, x.rank - 1) > 0)
    k, n = size(x, x.rank - 1), s.r.choice([1, 3, 8, 17, 33])
    return _code(s, x), _weight(s, (k, n)), n


def matmul_integer(s: Sketch, x: Ref) -> Ref:
    a, w, n = _factors(s, x)
    zeros = _offset(s, a.dtype.name), _offset(s, w.dtype.name, n)
    return s.add1("MatMulInteger", a, w, *zeros)


def _scale(s: Sketch, count: int = 0) -> Ref:
    shape = (count,) if count and s.r.random() < 0.5 else ()
    return s.constant("float32", shape, SCALES)


def _needed(s: Sketch, dtype: str, count: int = 0) -> Ref:
    found = _offset(s, dtype, count)
    return s.scalar(dtype, 0) if found is None else found


def qlinear_matmul(s: Sketch, x: Ref) -> Ref:
    a, w, n = _factors(s, x)
    y = s.r.choice(BYTES)
    return s.add1(
        "QLinearMatMul", a, _scale(s), _needed(s, a.dtype.name), w, _scale(s, n),
        _needed(s, w.dtype.name, n), s.constant("float32", (), Fill("uniform", 1.0, 9.0)),
        _needed(s, y),
    )  # fmt: skip


def _convolution(s: Sketch, x: Ref) -> tuple[Ref, Ref, int, dict[str, Any]]:
    s.need(x.rank in (3, 4, 5) and static(x.shape[1]) and size(x, 1) > 0)
    channels = size(x, 1)
    groups = s.r.choice([1, 1, channels] + ([2] if channels % 2 == 0 else []))
    filters = groups * s.r.choice([1, 2, 3])
    kernel = [s.r.choice([1, 2, 3]) for _ in range(x.rank - 2)]
    attributes = {
        "group": groups, "strides": [s.r.choice([1, 1, 2]) for _ in kernel],
        "pads": [s.r.choice([1, 2]) for _ in kernel * 2],
    }  # fmt: skip
    a = _code(s, x)
    return a, _weight(s, (filters, channels // groups, *kernel)), filters, attributes


def conv_integer(s: Sketch, x: Ref) -> Ref:
    a, w, filters, attributes = _convolution(s, x)
    zeros = _offset(s, a.dtype.name), _offset(s, w.dtype.name, filters)
    return s.add1("ConvInteger", a, w, *zeros, **attributes)


def qlinear_conv(s: Sketch, x: Ref) -> Ref:
    a, w, filters, attributes = _convolution(s, x)
    bias = s.constant("int32", (filters,), Fill("integers", -900, 900))
    return s.add1(
        "QLinearConv", a, _scale(s), _needed(s, a.dtype.name), w, _scale(s, filters),
        _needed(s, w.dtype.name, filters), s.constant("float32", (), Fill("uniform", 1.0, 9.0)),
        _needed(s, a.dtype.name), bias if s.r.random() < 0.5 else None, **attributes,
    )  # fmt: skip


# ------------------------------------------------------------------ com.microsoft

MS = "com.microsoft."


def _grid(s: Sketch, dtype: str, optional: bool = False) -> list[Ref | None]:
    """A scale and a zero point of one element each."""
    zero = None if optional and s.r.random() < 0.2 else _needed(s, dtype)
    return [s.constant("float32", (), SCALES), zero]


def _peer_operand(s: Sketch, x: Ref) -> Ref:
    """Codes that broadcast to `x`: of its own shape, or of some of its axes."""
    last = x.rank > 0 and static(x.shape[-1])
    if last and s.r.random() < 0.5:
        return _constant_codes(s, x, (size(x, x.rank - 1),))
    return x if s.r.random() < 0.5 else _constant_codes(s, x, ())


def _constant_codes(s: Sketch, x: Ref, shape: tuple[int, ...]) -> Ref:
    low, high = (0, 255) if x.dtype.name == "uint8" else (-128, 127)
    return s.constant(x.dtype.name, shape, Fill("integers", low, high))


def qlinear_pair(op: str) -> Callable[[Sketch, Ref], Ref]:
    """QLinearAdd and QLinearMul."""

    def make(s: Sketch, x: Ref) -> Ref:
        a = _code(s, x)
        b = _peer_operand(s, a)
        kind = a.dtype.name
        grids = [_grid(s, kind, True), _grid(s, kind, True), _grid(s, kind, True)]
        return s.add1(MS + op, a, *grids[0], b, *grids[1], *grids[2])

    return make


def qlinear_one(op: str, **choices: Sequence[object]) -> Callable[[Sketch, Ref], Ref]:
    """An op of one operand on a grid and the grid of its result."""

    def make(s: Sketch, x: Ref) -> Ref:
        a = _code(s, x)
        s.need(a.rank >= 1 or op != "QLinearSoftmax")
        given = {k: s.r.choice(list(v)) for k, v in choices.items()}
        pools_all = op == "QLinearGlobalAveragePool"  # it needs a zero point
        grid = _grid(s, a.dtype.name, not pools_all), _grid(s, a.dtype.name)
        return s.add1(MS + op, a, *grid[0], *grid[1], **given)

    return make


def qlinear_pool(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank == 4)
    kernel = [s.r.choice([1, 2, 3]) for _ in range(2)]
    return qlinear_one("QLinearAveragePool", kernel_shape=[kernel], pads=[[1, 0, 0, 1], [0] * 4],
                       count_include_pad=[0, 1])(s, x)  # fmt: skip


def qlinear_global_pool(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank in (3, 4, 5))
    return qlinear_one("QLinearGlobalAveragePool")(s, x)


def qlinear_concat(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 1)
    a = _code(s, x)
    grid, other = _grid(s, a.dtype.name), _grid(s, a.dtype.name)
    return s.add1(MS + "QLinearConcat", *grid, a, *other, a, *grid, axis=s.r.randrange(a.rank))


def qlinear_where(s: Sketch, x: Ref) -> Ref:
    a = _code(s, x)
    kind = a.dtype.name
    picked = s.add1("Less", a, _constant_codes(s, a, ()))
    return s.add1(MS + "QLinearWhere", picked, a, *_grid(s, kind), _peer_operand(s, a),
                  *_grid(s, kind), *_grid(s, kind))  # fmt: skip


def qgemm(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 2)
    x = x if x.rank == 2 else s.add1("Flatten", x, axis=x.rank - 1)
    a, w, n = _factors(s, x)
    bias = s.constant("int32", (n,), Fill("integers", -900, 900))
    to = [s.constant("float32", (), Fill("uniform", 1.0, 9.0)), _needed(s, a.dtype.name)]
    return s.add1(
        MS + "QGemm", a, _scale(s), _needed(s, a.dtype.name), w, _scale(s, n),
        _needed(s, w.dtype.name, n), bias if s.r.random() < 0.5 else None,
        *(to if s.r.random() < 0.7 else []),
    )  # fmt: skip


def matmul_integer_to_float(s: Sketch, x: Ref) -> Ref:
    a, w, n = _factors(s, x)
    zeros = _offset(s, a.dtype.name), _offset(s, w.dtype.name, n)
    scales = s.constant("float32", (), Fill("uniform", 0.001, 0.01)), _scale(s, n)
    return s.add1(MS + "MatMulIntegerToFloat", a, w, *scales, *zeros, _bias(s, n))


def _bias(s: Sketch, n: int) -> Ref | None:
    return s.constant("float32", (n,)) if s.r.random() < 0.5 else None


def dynamic_quantize_matmul(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name == "float32" and x.sample.size > 0 and x.rank >= 1)
    s.need(static(x.shape[-1]))
    k, n = size(x, x.rank - 1), s.r.choice([1, 3, 8, 17, 33])
    w = _weight(s, (k, n))
    scale = s.constant("float32", (), Fill("uniform", 0.001, 0.01))
    return s.add1(MS + "DynamicQuantizeMatMul", x, w, scale, _offset(s, w.dtype.name), _bias(s, n))


def matmul_nbits(s: Sketch, x: Ref) -> Ref:
    """Packed weights: any bytes are."""
    s.need(x.dtype.name == "float32" and x.rank >= 1 and static(x.shape[-1]))
    k, n = size(x, x.rank - 1), s.r.choice([1, 3, 8, 17])
    bits, block = s.r.choice([2, 4, 8]), s.r.choice([16, 32])
    s.need(k > 0)
    blocks, anything = -(-k // block), Fill("integers", 0, 255)
    w = s.constant("uint8", (n, blocks, block * bits // 8), anything)
    scales = s.constant("float32", (n, blocks), Fill("uniform", 0.001, 0.02))
    zero = s.constant("uint8", (n, -(-blocks * bits // 8)), anything)
    return s.add1(MS + "MatMulNBits", x, w, scales, zero if s.r.random() < 0.5 else None, None,
                  _bias(s, n), N=n, K=k, bits=bits, block_size=block)  # fmt: skip


def gather_blocks(s: Sketch, x: Ref) -> Ref:
    """Rows of a packed table that the value's integers name, or one whose largest is added."""
    named = x.dtype.name in ("int64", "int32") and x.low >= 0 and x.high < 9 and x.rank <= 3
    if not (named and x.name in s.inputs):
        s.need(x.dtype.name == "float32")
        rows = _rows(s, s.constant("int64", (2,), Fill("integers", 0, 8)))
        return s.add1("Add", x, s.add1("ReduceMax", rows, keepdims=0))
    return _rows(s, x)


def _rows(s: Sketch, indices: Ref) -> Ref:
    bits, block = s.r.choice([4, 8]), 16
    table = s.constant("uint8", (9, 64 * bits // 8), Fill("integers", 0, 255))
    scales = s.constant("float32", (9, 4), SCALES)
    zero = s.constant("uint8", (9, 4 * bits // 8), Fill("integers", 0, 255))
    return s.add1(MS + "GatherBlockQuantized", table, indices, scales,
                  zero if s.r.random() < 0.5 else None, bits=bits, block_size=block)  # fmt: skip


def contributed_linear(op: str) -> Callable[[Sketch, Ref], Ref]:
    """QuantizeLinear and DequantizeLinear of com.microsoft."""

    def make(s: Sketch, x: Ref) -> Ref:
        quantizes = op == "QuantizeLinear"
        x = x if quantizes or x.dtype.name in QUANTIZED else _code(s, x)
        s.need(not quantizes or x.dtype.name == "float32")
        kind = s.r.choice(QUANTIZED) if quantizes else x.dtype.name
        return s.add1(MS + op, x, *_grid(s, kind))

    return make


def channels_last_conv(s: Sketch, x: Ref) -> Ref:
    """QLinearConv over data whose channels are first or last."""
    a, w, filters, attributes = _convolution(s, x)
    last = s.r.random() < 0.5
    if last:
        a = s.add1("Transpose", a, perm=[0, *range(2, a.rank), 1])
    grid = _scale(s, filters), _needed(s, w.dtype.name, filters)
    to = s.constant("float32", (), Fill("uniform", 1.0, 9.0)), _needed(s, a.dtype.name)
    return s.add1(MS + "QLinearConv", a, *_grid(s, a.dtype.name), w, *grid, *to,
                  channels_last=int(last), **attributes)  # fmt: skip


def qattention(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank == 3 and static(x.shape[2]) and size(x, 2) > 0)
    a, heads = _code(s, x), s.r.choice([1, 2])
    width = 3 * heads * s.r.choice([3, 8])
    w = _weight(s, (size(x, 2), width))
    scale = s.constant("float32", (), Fill("uniform", 0.001, 0.01))
    zeros = _needed(s, a.dtype.name), _needed(s, w.dtype.name)
    bias = s.constant("float32", (width,))
    return s.add1(MS + "QAttention", a, w, bias, _scale(s), scale, None, *zeros,
                  num_heads=heads, unidirectional=s.r.choice([0, 1]))  # fmt: skip


def qembed(s: Sketch, x: Ref) -> Ref:
    """The largest of a few embeddings, added to the value."""
    s.need(x.dtype.name == "float32")
    ids = s.constant("int32", (2, 4), Fill("integers", 0, 8))
    tables = [s.constant("uint8", shape, Fill("integers", 0, 255)) for shape in ((9, 16), (6, 16))]
    both = [s.constant("uint8", (16,), Fill("integers", 0, 255)) for _ in range(2)]
    scales = [s.constant("float32", (), SCALES) for _ in range(4)]
    zeros = [s.constant("uint8", (), Fill("integers", 0, 9)) for _ in range(4)]
    y = s.add(
        MS + "QEmbedLayerNormalization", ids, None, *tables, None, *both, None, *scales[:2], None,
        *scales[2:], *zeros[:2], None, *zeros[2:], outputs=2,
    )[0]  # fmt: skip
    return s.add1("Add", x, s.add1("ReduceMax", y, keepdims=0))
