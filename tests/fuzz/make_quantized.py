"""Makers of quantized steps: to integers on a grid, back, and what computes with such integers."""

from __future__ import annotations

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
