"""ONNX's random ops. Every run of an engine draws the same numbers.

The attribute `seed` is the key of the generator: nodes of one seed and shape draw the same numbers.
Nodes without it draw from streams of their own, which follow from their names.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

from braze.core.dims import Dim
from braze.core.dtypes import BOOL, F32, F64, I32, I64, DType, from_onnx
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import slice_axis
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.constant import ConstantOfShape
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.random.philox import WORD
from braze.ops.random.random import Random
from braze.ops.reduce.reduce import Reduce
from braze.ops.reduce.scan import Cumulative
from braze.ops.reduce.softmax import Softmax
from braze.ops.writing.precision import require_float

_DEFAULT_KEY: Final = (0, 0)


def _words(bits: int) -> tuple[int, int]:
    return bits & WORD, bits >> 32


def _draw(
    n: OnnxNode, g: GraphBuilder, shape: tuple[Dim, ...], dtype: DType, normal: bool = False
) -> Value:
    """Numbers of the node's stream, of float32 or float64."""
    wide = F64 if dtype is F64 else F32
    seed = n.attr("seed")
    key, stream = _DEFAULT_KEY, (0, 0)
    if seed is not None:
        key = _words(int.from_bytes(struct.pack("<d", float(seed)), "little"))
    else:
        digest = hashlib.blake2b(n.name.encode(), digest_size=8).digest()
        stream = _words(int.from_bytes(digest, "little"))
    return g.add1(Random(normal, shape, wide, 53 if wide is F64 else 24, key, stream))


def _type(n: OnnxNode, default: DType) -> DType:
    number = n.attr("dtype")
    return default if number is None else from_onnx(int(number), f"node {n.name!r} ({n.op_type})")


def random_importer(normal: bool, like: bool) -> Importer:
    """Importer of RandomNormal, RandomUniform and their Like forms."""

    def import_random(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        if like:
            x = n.need(0)
            shape, dtype = x.shape, _type(n, x.dtype)
        else:
            shape, dtype = tuple(int(d) for d in n.attr("shape")), _type(n, F32)
        require_float(dtype, n.op_type)
        low, high = ("mean", "scale") if normal else ("low", "high")
        start, width = float(n.attr(low, 0.0)), float(n.attr(high, 1.0))
        y = _draw(n, g, shape, dtype, normal)
        width = width if normal else width - start
        y = g.add1(Binary("mul"), y, constant_like(g, width, y.dtype))
        y = g.add1(Binary("add"), y, constant_like(g, start, y.dtype))
        return (cast_to(g, y, dtype),)

    return import_random


def import_bernoulli(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Bernoulli: 1 with the probability that the input gives, else 0."""
    x = n.need(0)
    require_float(x.dtype, n.op_type)
    u = _draw(n, g, x.shape, x.dtype)
    hit = g.add1(Compare("lt"), u, cast_to(g, x, u.dtype))
    return (cast_to(g, hit, _type(n, x.dtype)),)


def import_multinomial(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Multinomial: `sample_size` classes a row, drawn by the probabilities softmax(input).

    The class is the number of partial sums of probabilities that the drawn one is past.
    """
    x = n.need(0)
    require_float(x.dtype, n.op_type)
    if len(x.shape) != 2:
        raise n.invalid(f"input has rank {len(x.shape)}; [batch, classes] is meant")
    batch, classes = x.shape
    size = int(n.attr("sample_size", 1))
    sums = g.add1(Cumulative("sum", 1, False, False), g.add1(Softmax(1), cast_to(g, x, F64)))
    total = slice_axis(g, sums, 1, classes - 1, 1)
    u = g.add1(Binary("mul"), _draw(n, g, (batch, size), F64), total)
    sums, u = reshape(g, sums, (batch, 1, classes)), reshape(g, u, (batch, size, 1))
    # the last sum is left out: rounding must not lead past the last class
    inner = slice_axis(g, sums, 2, 0, classes - 1)
    past = cast_to(g, g.add1(Compare("le"), inner, u), I64)
    number = g.add1(Reduce("sum", (2,), False), past)
    return (cast_to(g, number, _type(n, I32)),)


def import_dropout(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Dropout: in training mode (input 2) an element is 0 with probability `ratio` (input 1, 0.5
    by default), else divided by 1 - ratio. The mask says which are kept."""
    x, training = n.need(0), n.input(2)
    known, dropped = g.array(training), g.array(n.input(1))
    off = training is None or (known is not None and not known.any())
    if training is None or off or (dropped is not None and not dropped.any()):
        if n.num_outputs < 2:
            return (x,)
        # before opset 10 the mask has the type of the data
        return x, g.add1(ConstantOfShape(x.shape, 1, x.dtype if n.opset < 10 else BOOL))
    u = _draw(n, g, x.shape, x.dtype)
    ratio = n.input(1)
    part = constant_like(g, 0.5, u.dtype) if ratio is None else cast_to(g, ratio, u.dtype)
    keep = g.add1(Compare("le"), part, u)
    if known is None:
        keep = g.add1(Binary("or"), keep, g.add1(Unary("not"), training))
        part = g.add1(Where(), training, part, constant_like(g, 0.0, u.dtype))
    rest = g.add1(Binary("sub"), constant_like(g, 1.0, u.dtype), part)
    kept = g.add1(Binary("div"), cast_to(g, x, u.dtype), rest)
    y = g.add1(Where(), keep, kept, constant_like(g, 0.0, u.dtype))
    return (cast_to(g, y, x.dtype), keep)[: n.num_outputs]
