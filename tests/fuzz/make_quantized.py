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
