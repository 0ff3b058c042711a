"""Tensors made from nothing but sizes and literals: Constant, ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.core import dims
from braze.core.dims import Dim, DimExpr
from braze.core.dtypes import F32, I64, DType, from_numpy, from_onnx
from braze.expr import scalar
from braze.expr.scalar import Expr
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, Pointwise
from braze.ops.move.shape import reshape
from braze.ops.pointwise.cast import Cast, cast_array
from braze.ops.pointwise.elementwise import Binary
from braze.ops.pointwise.range_count import range_count
from braze.ops.writing.arguments import known_sizes, run_sizes
from braze.ops.writing.precision import compute_type
from braze.ops.writing.run_contents import settled
from braze.ops.writing.size_arithmetic import as_dim, larger, wrap
from braze.ops.writing.size_ratio import Ratio, few_bits

MAX_KNOWN: Final = 1024


@dataclass(frozen=True)
class ConstantOfShape(Op):
    """A tensor of `shape` (no inputs) with every element `value`."""

    shape: tuple[Dim, ...]
    value: float
    dtype: DType

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, self.shape),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        one = np.asarray(self.value, np.float64 if self.dtype.is_float else self.dtype.numpy)
        return (np.full(self.shape, cast_array(one, self.dtype)),)

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        size = dims.product(self.shape)
        # a size of 0 makes the product 0 whatever the symbols are
        if not dims.is_static(self.shape) or as_dim(self.value) is None:
            return None
        if not isinstance(size, int) or size > MAX_KNOWN:
            return None
        return (np.full(self.shape, self.value, dtype=object),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        return Pointwise(scalar.const(self.value, self.dtype))


@dataclass(frozen=True)
class Range(Op):
    """start + i * delta for i below `length` (no inputs); computed in float32 for half types.

    start and delta are sizes or numbers; sizes in a float range are converted first.
    """

    start: Dim | float
    delta: Dim | float
    length: Dim
    dtype: DType

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, (self.length,)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        wide = compute_type(self.dtype).numpy
        with np.errstate(all="ignore"):
            assert isinstance(self.length, int), self.length
            steps = np.arange(self.length).astype(wide) * np.asarray(self.delta, wide)
            values = np.asarray(self.start, wide) + steps
        return (cast_array(values, self.dtype),)

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        start, delta = as_dim(self.start), as_dim(self.delta)
        if not isinstance(self.length, int) or self.length > MAX_KNOWN:
            return None
        if start is None or delta is None or not self.dtype.is_int:
            return None
        out = np.empty((self.length,), dtype=object)
        for i in range(self.length):
            out[i] = wrap(start + delta * i, self.dtype)
        return (out,)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        wide = compute_type(self.dtype)
        step = scalar.binary("mul", scalar.cast(scalar.axis(0), wide), _number(self.delta, wide))
        value = scalar.binary("add", _number(self.start, wide), step)
        return Pointwise(scalar.cast(value, self.dtype))


def _number(x: Dim | float, dtype: DType) -> Expr:
    """A literal or a size as a value of `dtype`."""
    if isinstance(x, (int, float)):
        return scalar.const(x, dtype)
    return scalar.cast(scalar.dim(x), dtype)


@dataclass(frozen=True)
class Eye(Op):
    """1 where column - row == k, else 0 (no inputs)."""

    rows: Dim
    columns: Dim
    k: int
    dtype: DType

    @property
    def name(self) -> str:
        return "EyeLike"

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        return (TensorType(self.dtype, (self.rows, self.columns)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        rows, columns = dims.static((self.rows, self.columns))
        return (cast_array(np.eye(rows, columns, self.k), self.dtype),)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        offset = scalar.binary("sub", scalar.axis(1), scalar.axis(0))
        hit = scalar.binary("eq", offset, scalar.const(self.k, I64))
        return Pointwise(scalar.cast(hit, self.dtype))


# --------------------------------------------------------------------------- importers


def import_constant(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Constant with any numeric attribute."""
    given = {k: v for k, v in n.attributes.items() if "value" in k}
    if len(given) != 1:
        raise n.unsupported("needs exactly one value attribute")
    ((kind, value),) = given.items()
    if kind in ("value", "sparse_value"):
        return (g.constant(np.asarray(value)),)
    if kind in ("value_float", "value_floats"):
        return (g.constant(np.asarray(value, np.float32)),)
    if kind in ("value_int", "value_ints"):
        return (g.constant(np.asarray(value, np.int64)),)
    raise n.unsupported("strings are not supported; remove them from the model")


def import_constant_of_shape(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ConstantOfShape: sizes must be known at import; the value defaults to float32 zero."""
    wanted = run_sizes(n, g, 0, "the shape")
    shape = tuple(settled(g, d, None, f"{n.name}_{i}") for i, d in enumerate(wanted))
    given = n.attr("value")
    if given is None:
        return (g.add1(ConstantOfShape(shape, 0.0, F32)),)
    array = np.asarray(given)
    if array.size != 1:
        raise n.invalid("value must hold one element")
    return (g.add1(ConstantOfShape(shape, array.item(), from_numpy(array.dtype))),)


def import_range(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Range: start, limit and delta are constants or sizes, or what the run computes."""
    dtype = n.need(0).dtype
    if any(g.array(v) is None and g.sizes(v) is None for v in map(n.need, range(3))):
        return (_run_range(n, g),)
    start, limit, delta = (_scalar(n, g, i) for i in range(3))
    if delta == 0:
        raise n.invalid("delta is 0; give a step")
    numbers = [x for x in (start, limit, delta) if isinstance(x, (int, float))]
    if len(numbers) == 3 and dtype.is_float:
        if not math.isfinite((limit - start) / delta):
            raise n.invalid(f"from {start} to {limit} there is no number of steps of {delta}")
        length: Dim = max(0, math.ceil((limit - start) / delta))
    elif isinstance(delta, (DimExpr, Ratio)):
        raise n.needs_content(2, "delta depends on a dynamic size; make it a constant")
    else:
        first, end, step = (few_bits(x) for x in (start, limit, delta))
        if first is None or end is None or step is None or isinstance(start, Ratio):
            raise n.unsupported(
                "mixes sizes with fractions that are rounded in floating point; use halves, "
                "quarters ... or compute the limits in integers"
            )
        # ceil((p/q - r/s) / (t/u)) = ceil((p*s - r*q) * u / (q*s*t))
        (p, q), (r, s), (t, u) = end, first, step
        assert isinstance(t, int), delta
        span = (p * s - r * q) * (u if t > 0 else -u)
        length = larger(dims.ceildiv(span, q * s * abs(t)), 0, g.range_of)
    return (g.add1(Range(start, delta, length, dtype)),)


def _run_range(n: OnnxNode, g: GraphBuilder) -> Value:
    """Range where the run computes what it is given; elements as for fixed ones."""
    dtype = n.need(0).dtype
    first, limit, step = (reshape(g, n.need(i), (1,)) for i in range(3))
    where = f"node {n.name!r} (Range)"
    size = range_count(g, (first, limit, step), where, f"{n.name}_size")
    wide = compute_type(dtype)
    places = g.add1(Cast(wide), g.add1(Range(0, 1, size, I64)))
    first, step = (g.add1(Cast(wide), v) for v in (first, step))
    moved = g.add1(Binary("add"), first, g.add1(Binary("mul"), places, step))
    return g.add1(Cast(dtype), moved)


def _scalar(n: OnnxNode, g: GraphBuilder, index: int) -> Any:
    """The single element of an input: a number or a size."""
    v = n.need(index)
    array = g.array(v)
    if array is not None:
        return array.reshape(-1)[0].item()
    return known_sizes(n, g, index, "start, limit or delta")[0]


def import_eye_like(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """EyeLike: the sizes of input 0, and its type unless `dtype` says otherwise."""
    x = n.need(0)
    if x.type.rank != 2:
        raise n.invalid(f"input has rank {x.type.rank} but must be a matrix")
    number = n.attr("dtype")
    dtype = x.dtype if number is None else from_onnx(number, f"node {n.name!r} (EyeLike)")
    return (g.add1(Eye(x.shape[0], x.shape[1], int(n.attr("k", 0)), dtype)),)


def import_identity(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Identity: the value itself."""
    return (n.need(0),)
