"""Importers of Resize (opset 10, 11, 13, 18, 19) and Upsample (7, 9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.dtypes import F32, F64, I64
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import SizeTensor, reshape
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.sample.resize import MODES, Resize, RunResize
from braze.ops.sample.resize_axis import COORDINATES, NEAREST
from braze.ops.writing.arguments import normalize_axis, run_sizes
from braze.ops.writing.run_contents import is_run_size, settled

SIMPLE = 256  # denominators of scales that are meant as fractions


def _scaled(size: Dim, scale: float) -> Dim:
    """floor(size * scale) of float32 numbers: 10 * 0.7 is 7, where 0.7 as float32 is less."""
    if isinstance(size, int):
        return int(np.float32(size) * np.float32(scale))
    simple, exact = Fraction(scale).limit_denominator(SIMPLE), Fraction(scale)
    share = simple if np.float32(simple) == np.float32(scale) else exact
    return dims.floordiv(size * share.numerator, share.denominator)


def _given(n: OnnxNode, g: GraphBuilder, index: int) -> Value | None:
    """An optional input; exporters write an empty tensor for "not given"."""
    v = n.input(index)
    return None if v is None or 0 in v.shape else v


def _count(n: OnnxNode, v: Value, what: str) -> int:
    """How many numbers a list has."""
    if len(v.shape) != 1 or not isinstance(v.shape[0], int):
        raise n.unsupported(f"{what} have shape {list(v.shape)}; give one number for each axis")
    return v.shape[0]


def _floats(g: GraphBuilder, v: Value) -> list[float | None]:
    """The numbers of a list; None for those that only the run knows."""
    content = g.array(v)
    if content is not None:
        return [float(d) for d in content.reshape(-1)]
    node = g.producer.get(v)
    if node is not None and node.op == Concat(0) and dims.is_static(v.shape):
        return [d for part in node.inputs if part is not None for d in _floats(g, part)]
    return [None for _ in range(dims.number(v.shape[0]))]


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


@dataclass(frozen=True)
class _Fed:
    """What the run gives, each on the axes `which` of `rank`: scales [k], and roi [2 k]."""

    rank: int
    which: tuple[int, ...]
    scales: Value | None = None
    roi: Value | None = None

    def factors(self, g: GraphBuilder) -> Value:
        """float64 [3, rank] of scales, starts and ends; where nothing is given 1, 0 and 1."""
        places = {a: k for k, a in enumerate(self.which)}
        count = len(places)
        every = range(self.rank)
        rows = [
            self._row(g, self.scales, [places.get(a) for a in every], 1.0),
            self._row(g, self.roi, [places.get(a) for a in every], 0.0),
            self._row(
                g, self.roi, [count + places[a] if a in places else None for a in every], 1.0
            ),
        ]
        return g.add1(Concat(0), *rows)

    def _row(
        self, g: GraphBuilder, given: Value | None, places: Sequence[int | None], rest: float
    ) -> Value:
        fill = g.constant(np.array([rest]))
        if given is None:
            picked = g.constant(np.full(len(places), rest))
        else:
            every = g.add1(Concat(0), cast_to(g, given, F64), fill)
            last = dims.number(given.shape[0])
            index = np.array([last if p is None else p for p in places])
            picked = g.add1(Gather(0), every, g.constant(index))
        return reshape(g, picked, (1, len(places)))


@dataclass(frozen=True)
class _Target:
    """What is asked for: sizes and scales of every axis, the region of the input, what is fed."""

    sizes: Sequence[Dim]
    scales: Sequence[float | None]
    roi: tuple[float, ...] = ()
    fed: _Fed | None = None


def _add(
    n: OnnxNode, g: GraphBuilder, target: _Target, coordinate: str, nearest: str
) -> tuple[Value, ...]:
    sizes, scales, fed = target.sizes, target.scales, target.fed
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(n.attr("mode"), n.attr("mode"))
    mode = mode or "nearest"
    if mode not in MODES or coordinate not in COORDINATES or nearest not in NEAREST:
        raise n.unsupported(
            f"mode {mode!r} with coordinates {coordinate!r} and nearest_mode {nearest!r} is unknown"
        )
    antialias = bool(n.attr("antialias", 0)) and mode != "nearest"
    if antialias and fed is not None and fed.scales is not None:
        raise n.needs_content(2, "the number of taps of antialias follows from scales (input 2)")
    if antialias and not all(
        s is not None or dims.is_static((a, b))
        for s, a, b in zip(scales, sizes, n.need(0).shape, strict=True)
    ):
        why = "antialias needs fixed sizes; give scales or fix the shape"
        raise n.needs_content(3, why) if n.input(3) is not None else n.unsupported(why)
    options = (
        mode,
        tuple(sizes),
        tuple(scales),
        coordinate,
        nearest,
        float(n.attr("cubic_coeff_a", -0.75)),
        bool(n.attr("exclude_outside", 0)),
        float(n.attr("extrapolation_value", 0.0)),
        antialias,
        target.roi,
    )
    if fed is None:
        return (g.add1(Resize(*options), n.need(0)),)
    reads = tuple(
        fed.scales is not None and k in fed.which and s is None for k, s in enumerate(scales)
    )
    op = RunResize(*options, fed=reads, crops=fed.roi is not None)
    return (g.add1(op, n.need(0), fed.factors(g)),)


def _from_scales(
    n: OnnxNode, g: GraphBuilder, which: Sequence[int], given: Value | Sequence[float]
) -> _Target:
    """Sizes by scales, some of which only the run may know."""
    shape = n.need(0).shape
    known: list[float | None]
    if isinstance(given, Value):
        count, known = _count(n, given, "scales"), _floats(g, given)
    else:
        count, known = len(given), list(given)
    if count != len(which) or not all(s is None or 0 < s < math.inf for s in known):
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): scales {known} must be positive, one per axis"
        )
    sizes = list(shape)
    scales: list[float | None] = [None] * len(shape)
    for a, s in zip(which, known, strict=True):
        if s is not None:
            sizes[a], scales[a] = _scaled(shape[a], s), s
    if not isinstance(given, Value) or None not in known:
        return _Target(sizes, scales)
    have = g.add1(SizeTensor(tuple(shape[a] for a in which), (count,), I64))
    wanted = g.add1(Binary("mul"), cast_to(g, have, F32), cast_to(g, given, F32))
    made = cast_to(g, g.add1(Unary("floor"), wanted), I64)
    for k, (a, s) in enumerate(zip(which, known, strict=True)):
        if s is None:
            sizes[a] = g.read_size(made, k, 0, None, f"{n.name}_{a}")
    return _Target(sizes, scales, fed=_Fed(len(shape), tuple(which), scales=given))


def _region(
    n: OnnxNode, g: GraphBuilder, rank: int, which: Sequence[int]
) -> tuple[tuple[float, ...], _Fed | None]:
    """Start and end of every axis for tf_crop_and_resize; or what the run gives."""
    value = n.need(1)
    if _count(n, value, "roi") != 2 * len(which):
        raise ShapeError(f"node {n.name!r} (Resize): roi needs start and end of every axis")
    starts, ends = [0.0] * rank, [1.0] * rank
    for i, a in enumerate(which):
        first, last = (_floats(g, value)[k] for k in (i, len(which) + i))
        if first is None or last is None:
            return (), _Fed(rank, tuple(which), roi=value)
        starts[a], ends[a] = first, last
    return (*starts, *ends), None


def import_resize(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Resize. Opset 10 has only scales and means asymmetric coordinates; `axes`, `antialias` and
    keep_aspect_ratio_policy came with 18."""
    x = n.need(0)
    shape, rank = x.shape, len(x.shape)
    if n.opset < 11:
        return _add(n, g, _from_scales(n, g, range(rank), n.need(1)), "asymmetric", "simple")
    which = _axes(n, rank)
    coordinate = n.attr("coordinate_transformation_mode", "half_pixel")
    nearest = n.attr("nearest_mode", "round_prefer_floor")
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    crop = coordinate == "tf_crop_and_resize"
    roi: tuple[float, ...] = ()
    fed: _Fed | None = None
    if crop:
        roi, fed = _region(n, g, rank, which)
    by_scales = _given(n, g, 2)
    if by_scales is not None:
        if crop:
            raise n.unsupported("tf_crop_and_resize with scales is ambiguous; give sizes")
        return _add(n, g, _from_scales(n, g, which, by_scales), coordinate, nearest)
    wanted = tuple(
        settled(g, d, None, f"{n.name}_{i}") for i, d in enumerate(run_sizes(n, g, 3, "sizes"))
    )
    if len(wanted) != len(which):
        raise ShapeError(f"node {n.name!r} (Resize): {len(wanted)} sizes for {len(which)} axes")
    sizes = list(shape)
    scales: list[float | None] = [None] * rank
    common: float | None = None
    if policy in ("not_larger", "not_smaller"):
        kept, common = _keep_aspect(n, g, shape, which, wanted, policy)
        wanted = tuple(kept)
    elif policy != "stretch":
        raise n.unsupported(f"keep_aspect_ratio_policy {policy!r} is unknown; use stretch")
    for a, s in zip(which, wanted, strict=True):
        sizes[a], scales[a] = s, common
    return _add(n, g, _Target(sizes, scales, roi, fed), coordinate, nearest)


def import_upsample(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Upsample: scales are an attribute in opset 7 and an input in 9; asymmetric, floor."""
    x = n.need(0)
    given = tuple(n.attr("scales")) if n.opset < 9 else n.need(1)
    target = _from_scales(n, g, range(len(x.shape)), given)
    return _add(n, g, target, "asymmetric", "floor")
