"""Ops of ai.onnx.ml on features: scaling, filling, encoding, picking."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from braze.core.dims import product
from braze.core.dtypes import F32, F64, I64
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Array, OnnxNode
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import reshape
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.compare import Compare, Where
from braze.ops.pointwise.elementwise import Binary, Unary, constant_like
from braze.ops.reduce.reduce import Reduce


def _float(g: GraphBuilder, x: Value) -> Value:
    """x as float32, or float64 where it is that."""
    return x if x.dtype is F64 else cast_to(g, x, F32)


def _vector(n: OnnxNode, g: GraphBuilder, x: Value, values: Sequence[float], what: str) -> Value:
    """One number, or one a feature, of the type of x."""
    if len(values) != 1 and (not x.shape or x.shape[-1] != len(values)):
        raise n.invalid(
            f"{len(values)} numbers in {what} for {list(x.shape)}; one a feature or one"
        )
    return g.constant(np.asarray(values).astype(x.dtype.numpy), what)


def import_scaler(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Scaler: (x - offset) * scale, float32."""
    x = _float(g, n.need(0))
    offset, scale = n.attr("offset", (0.0,)), n.attr("scale", (1.0,))
    y = g.add1(Binary("sub"), x, _vector(n, g, x, offset, "offset"))
    y = g.add1(Binary("mul"), y, _vector(n, g, x, scale, "scale"))
    return (cast_to(g, y, F32),)


def import_binarizer(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Binarizer: 1 where x > threshold, else 0."""
    x = n.need(0)
    wide = x if x.dtype.is_float else cast_to(g, x, F64)
    limit = constant_like(g, float(n.attr("threshold", 0.0)), wide.dtype)
    return (cast_to(g, g.add1(Compare("lt"), limit, wide), x.dtype),)


def import_normalizer(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Normalizer: rows divided by their largest number, or sum or root of squares of sizes."""
    x, norm = _float(g, n.need(0)), n.attr("norm", "MAX")
    last = (len(x.shape) - 1,)
    if norm == "MAX":
        size = g.add1(Reduce("max", last, True), x)
    elif norm in ("L1", "L2"):
        size = g.add1(Reduce(norm.lower(), last, True), x)
    else:
        raise n.invalid(f"norm {norm!r} is not MAX, L1 or L2")
    zero = g.add1(Compare("eq"), size, constant_like(g, 0.0, size.dtype))
    size = g.add1(Where(), zero, constant_like(g, 1.0, size.dtype), size)
    return (cast_to(g, g.add1(Binary("div"), x, size), F32),)


def import_imputer(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Imputer: what equals the replaced value (NaN: what is NaN) becomes the imputed one."""
    x = n.need(0)
    key, kind = ("value_float", "floats") if x.dtype.is_float else ("value_int64", "int64s")
    replaced, imputed = n.attr(f"replaced_{key}", 0), n.attr(f"imputed_value_{kind}", ())
    if not imputed:
        raise n.invalid(f"imputed_value_{kind} is missing for {x.dtype}")
    if x.dtype.is_float and math.isnan(replaced):
        absent = _is_nan(g, x)
    else:
        absent = g.add1(Compare("eq"), x, constant_like(g, replaced, x.dtype))
    return (g.add1(Where(), absent, _vector(n, g, x, imputed, "imputed values"), x),)


def _is_nan(g: GraphBuilder, x: Value) -> Value:
    return g.add1(Unary("not"), g.add1(Compare("eq"), x, x))


def _codes(g: GraphBuilder, x: Value, keys: Array) -> Value:
    """Whether x equals each key: [..., keys] bool."""
    x = reshape(g, x, (*x.shape, 1))
    hit = g.add1(Compare("eq"), x, g.constant(keys.astype(x.dtype.numpy), "keys"))
    if x.dtype.is_float and np.isnan(keys.astype(np.float64)).any():
        also = g.add1(Binary("and"), _is_nan(g, x), g.constant(np.isnan(keys), "keys"))
        hit = g.add1(Binary("or"), hit, also)
    return hit


def import_one_hot_encoder(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """OneHotEncoder: 1 at the place of the category, float32; all 0 for what is none."""
    if n.attr("cats_strings"):
        raise n.unsupported("categories are strings; give cats_int64s")
    categories = np.array(n.attr("cats_int64s", ()), np.int64)
    if not n.attr("zeros", 1):
        raise n.unsupported("zeros=0 asks for an error at run time; use zeros=1")
    return (cast_to(g, _codes(g, cast_to(g, n.need(0), I64), categories), F32),)


def _table(n: OnnxNode, what: str) -> Array:
    """Keys or values of a LabelEncoder, of whichever type they are."""
    if n.attr(f"{what}_strings") or n.attr("classes_strings"):
        raise n.unsupported(f"{what} are strings; map numbers to numbers")
    tensor = n.attr(f"{what}_tensor")
    if tensor is not None:
        return np.asarray(tensor).reshape(-1)
    if n.attr(f"{what}_floats"):
        return np.array(n.attr(f"{what}_floats"), np.float32)
    return np.array(n.attr(f"{what}_int64s", ()), np.int64)


def import_label_encoder(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """LabelEncoder of numbers to numbers; what is no key becomes the default."""
    keys, values = _table(n, "keys"), _table(n, "values")
    if len(keys) != len(values) or not len(keys):
        raise n.invalid(f"{len(keys)} keys for {len(values)} values; they must be as many")
    default = n.attr("default_tensor")
    if default is None:
        floating = values.dtype.kind == "f"
        default = n.attr("default_float", -0.0) if floating else n.attr("default_int64", -1)
    if n.opset < 4 and keys.dtype.kind == "f":  # no number is NaN before opset 4
        keys, values = keys[~np.isnan(keys)], values[~np.isnan(keys)]
    keys, first = np.unique(keys, return_index=True)
    x = n.need(0)
    hit = cast_to(g, _codes(g, x, keys), I64)
    numbers = g.constant(np.arange(1, len(keys) + 1), "places")
    place = g.add1(Reduce("sum", (len(x.shape),), False), g.add1(Binary("mul"), hit, numbers))
    rest = np.asarray(default).reshape(-1)[:1].astype(values.dtype)
    table = np.concatenate([rest, values[first]])
    return (g.add1(Gather(0), g.constant(table, "values"), place),)


def import_array_feature_extractor(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ArrayFeatureExtractor: the elements of the last axis at Y; a vector becomes one row."""
    x, y = n.need(0), n.need(1)
    if not x.shape:
        raise n.invalid("X is a scalar; the op picks along its last axis")
    count = product(y.shape)
    picked = g.add1(Gather(len(x.shape) - 1), x, reshape(g, y, (count,)))
    return (picked if len(x.shape) > 1 else reshape(g, picked, (1, count)),)


def import_feature_vectorizer(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """FeatureVectorizer: all inputs side by side, float32."""
    parts = [n.need(i) for i in range(len(n.inputs))]
    sizes = n.attr("inputdimensions", ())
    if any(len(p.shape) != 2 for p in parts):
        raise n.unsupported("inputs of another rank than 2; [batch, features] is meant")
    if sizes and [p.shape[1] for p in parts] != list(sizes):
        raise n.invalid(f"inputdimensions {list(sizes)} are not those of the inputs")
    return (g.add1(Concat(1), *(cast_to(g, p, F32) for p in parts)),)


def import_zip_map(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """ZipMap: the scores as they are, a column a label, instead of maps."""
    return (n.need(0),)
