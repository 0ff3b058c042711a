"""Importers of Resize (opset 10, 11, 13, 18, 19) and Upsample (7, 9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from braze.core import dims
from braze.core.dims import Dim
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.sample.resize import MODES, Resize
from braze.ops.sample.resize_axis import COORDINATES, NEAREST
from braze.ops.writing.arguments import normalize_axis, run_sizes
from braze.ops.writing.run_contents import is_run_size, settled


def _scaled(size: Dim, scale: float) -> Dim:
    """floor(size * scale), as the product of float64 gives it."""
    if isinstance(size, int):
        return math.floor(size * scale)
    exact = Fraction(scale)
    return dims.floordiv(size * exact.numerator, exact.denominator)


def _given(n: OnnxNode, g: GraphBuilder, index: int) -> Value | None:
    """An optional input; exporters write an empty tensor for "not given"."""
    v = n.input(index)
    return None if v is None or 0 in v.shape else v


def _floats(n: OnnxNode, g: GraphBuilder, index: int, what: str) -> tuple[float, ...]:
    content = g.array(n.need(index))
    if content is None:
        raise n.needs_content(
            index, f"{what} (input {index}) must be constant; fold the model's constants"
        )
    return tuple(float(v) for v in content.reshape(-1))


def _axes(n: OnnxNode, rank: int) -> tuple[int, ...]:
    given = n.attr("axes")
    if given is None or not len(given):
        return tuple(range(rank))
    found = tuple(normalize_axis(int(a), rank, n) for a in given)
    if len(set(found)) != len(found):
        raise ShapeError(f"node {n.name!r} (Resize): axes {list(given)} repeat; correct them")
    return found


def _keep_aspect(
    n: OnnxNode,
    g: GraphBuilder,
    shape: Sequence[Dim],
    which: Sequence[int],
    wanted: Sequence[Dim],
    policy: str,
) -> tuple[list[Dim], float]:
    """(sizes of the axes, common scale) of keep_aspect_ratio_policy not_larger / not_smaller."""
    have = [shape[a] for a in which]
    if any(is_run_size(g, d) for d in wanted):
        raise n.needs_content(3, f"keep_aspect_ratio_policy {policy!r} needs sizes that are known")
    if not dims.is_static(have) or not dims.is_static(wanted):
        raise n.unsupported(f"keep_aspect_ratio_policy {policy!r} needs fixed sizes")
    fixed = dims.static(have)
    ratios = [Fraction(w, h) for w, h in zip(dims.static(wanted), fixed, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    half = Fraction(1, 2)
    return [math.floor(scale * h + half) for h in fixed], float(scale)


def _add(
    n: OnnxNode, g: GraphBuilder, sizes: Sequence[Dim], scales: Sequence[float | None],
    roi: tuple[float, ...], coordinate: str, nearest: str,
) -> tuple[Value, ...]:  # fmt: skip
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(n.attr("mode"), n.attr("mode"))
    mode = mode or "nearest"
    if mode not in MODES or coordinate not in COORDINATES or nearest not in NEAREST:
        raise n.unsupported(
            f"mode {mode!r} with coordinates {coordinate!r} and nearest_mode {nearest!r} is unknown"
        )
    antialias = bool(n.attr("antialias", 0)) and mode != "nearest"
    if antialias and not all(
        s is not None or dims.is_static((a, b))
        for s, a, b in zip(scales, sizes, n.need(0).shape, strict=True)
    ):
        why = "antialias needs fixed sizes; give scales or fix the shape"
        raise n.needs_content(3, why) if n.input(3) is not None else n.unsupported(why)
    op = Resize(
        mode,
        tuple(sizes),
        tuple(scales),
        coordinate,
        nearest,
        float(n.attr("cubic_coeff_a", -0.75)),
        bool(n.attr("exclude_outside", 0)),
        float(n.attr("extrapolation_value", 0.0)),
        antialias,
        roi,
    )
    return (g.add1(op, n.need(0)),)


def _from_scales(
    n: OnnxNode, shape: Sequence[Dim], which: Sequence[int], given: Sequence[float]
) -> tuple[list[Dim], list[float | None]]:
    if len(given) != len(which) or not all(0 < s < math.inf for s in given):
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): scales {list(given)} must be positive, one per axis"
        )
    sizes = list(shape)
    scales: list[float | None] = [None] * len(shape)
    for a, s in zip(which, given, strict=True):
        sizes[a], scales[a] = _scaled(shape[a], s), s
    return sizes, scales


def import_resize(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Resize. Opset 10 has only scales and means asymmetric coordinates; `axes`, `antialias` and
    keep_aspect_ratio_policy came with 18."""
    x = n.need(0)
    shape, rank = x.shape, len(x.shape)
    if n.opset < 11:
        sizes, scales = _from_scales(n, shape, range(rank), _floats(n, g, 1, "scales"))
        return _add(n, g, sizes, scales, (), "asymmetric", "simple")
    which = _axes(n, rank)
    coordinate = n.attr("coordinate_transformation_mode", "half_pixel")
    nearest = n.attr("nearest_mode", "round_prefer_floor")
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    crop = coordinate == "tf_crop_and_resize"
    roi: tuple[float, ...] = ()
    if crop:
        given = _floats(n, g, 1, "roi")
        if len(given) != 2 * len(which):
            raise ShapeError(f"node {n.name!r} (Resize): roi needs start and end of every axis")
        starts, ends = [0.0] * rank, [1.0] * rank
        for i, a in enumerate(which):
            starts[a], ends[a] = given[i], given[len(which) + i]
        roi = (*starts, *ends)
    if _given(n, g, 2) is not None:
        if crop:
            raise n.unsupported("tf_crop_and_resize with scales is ambiguous; give sizes")
        sizes, scales = _from_scales(n, shape, which, _floats(n, g, 2, "scales"))
        return _add(n, g, sizes, scales, roi, coordinate, nearest)
    wanted = tuple(
        settled(g, d, None, f"{n.name}_{i}") for i, d in enumerate(run_sizes(n, g, 3, "sizes"))
    )
    if len(wanted) != len(which):
        raise ShapeError(f"node {n.name!r} (Resize): {len(wanted)} sizes for {len(which)} axes")
    sizes, scales = list(shape), [None] * rank
    common: float | None = None
    if policy in ("not_larger", "not_smaller"):
        kept, common = _keep_aspect(n, g, shape, which, wanted, policy)
        wanted = tuple(kept)
    elif policy != "stretch":
        raise n.unsupported(f"keep_aspect_ratio_policy {policy!r} is unknown; use stretch")
    for a, s in zip(which, wanted, strict=True):
        sizes[a], scales[a] = s, common
    return _add(n, g, sizes, scales, roi, coordinate, nearest)


def import_upsample(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Upsample: scales are an attribute in opset 7 and an input in 9; asymmetric, floor."""
    x = n.need(0)
    given = tuple(n.attr("scales")) if n.opset < 9 else _floats(n, g, 1, "scales")
    sizes, scales = _from_scales(n, x.shape, range(len(x.shape)), given)
    return _add(n, g, sizes, scales, (), "asymmetric", "floor")
