"""Makers of steps whose result is as large as data says: how many elements are not zero, which
differ, which boxes stay; and sizes that are inputs of the model."""

from __future__ import annotations

from typing import Final

from tests.fuzz.case import Fill
from tests.fuzz.make_views import fixed_axis, size
from tests.fuzz.sketch import Ref, Sketch, static

_BITS: Final = Fill("integers", 0, 1)
_FIRST_RESIZE = 13


def _number(s: Sketch, low: int, high: int, *shape: int) -> Ref:
    """Whole numbers that the run gives."""
    return s.input("int64", shape, Fill("integers", low, high), made=False)


def compress(s: Sketch, x: Ref) -> Ref:
    """Slices that the run chooses, perhaps none."""
    k = fixed_axis(s, x)
    chosen = s.input("bool", (size(x, k),), _BITS, made=False)
    return s.add1("Compress", x, chosen, axis=k)


def non_zero(s: Sketch, x: Ref) -> Ref:
    """The slices where a mask is not zero, or their numbers."""
    k = fixed_axis(s, x)
    mask = s.input(s.r.choice(["bool", "int32", "float32"]), (size(x, k),), _BITS, made=False)
    places = s.add1("Reshape", s.add1("NonZero", mask), s.ints(-1))
    return s.add1("Gather", x, places, axis=k)


def non_zero_elements(s: Sketch, x: Ref) -> Ref:
    """The elements that are not below a number, as a vector."""
    s.need(x.rank >= 1 and x.dtype.name in ("float32", "float64", "int64", "int32"))
    s.need(s.opset >= 13 and all(static(d) and int(d) > 0 for d in x.shape))
    bits = s.input("bool", [int(d) for d in x.shape], _BITS, made=False)
    places = s.add1("Transpose", s.add1("NonZero", bits), perm=[1, 0])
    return s.add1("GatherND", x, places)


def unique(s: Sketch, x: Ref) -> Ref:
    """Slices by the different numbers among some."""
    k = fixed_axis(s, x)
    given = _number(s, 0, size(x, k) - 1, s.r.choice([1, 5, 9]))
    outputs = s.add("Unique", given, outputs=s.r.choice([1, 4]), sorted=s.r.choice([0, 1]))
    return s.add1("Gather", x, outputs[0], axis=k)


def boxes(s: Sketch, x: Ref) -> Ref:
    """Slices by the numbers of boxes that stay: corners are small whole numbers, of which no two
    boxes overlap as much as the limit says, and scores differ."""
    k = fixed_axis(s, x)
    count = size(x, k)
    low = s.input("float32", (1, count, 2), Fill("integers", 0, 2), made=False)
    sides = s.input("float32", (1, count, 2), Fill("integers", 1, 2), made=False)
    corners = s.add1("Concat", low, s.add1("Add", low, sides), axis=2)
    scores = s.input("float32", (1, 1, count), Fill("spread"), made=False)
    limit = s.constant("float32", (1,), values=[s.r.choice([0.29, 0.57])])
    most = s.ints(s.r.choice([1, 3, 100]))
    kept = s.add1("NonMaxSuppression", corners, scores, most, limit)
    column = s.add1("Gather", kept, s.constant("int64", (), values=[2]), axis=1)
    return s.add1("Gather", x, column, axis=k)


def top(s: Sketch, x: Ref) -> Ref:
    """As many of the largest as the run says."""
    k = fixed_axis(s, x)
    s.need(x.dtype.kind != "b" and x.dtype.name != "bfloat16" and s.opset >= 10)
    count = _number(s, 1, size(x, k), 1)
    return s.add("TopK", x, count, outputs=2, axis=k)[0]


def ranged(s: Sketch, x: Ref) -> Ref:
    """Slices first, first + step .. of a range whose ends are inputs."""
    k = fixed_axis(s, x)
    s.need(s.opset >= 11)
    first, end = _number(s, 0, 1), _number(s, 0, size(x, k))
    places = s.add1("Range", first, end, s.constant("int64", (), values=[s.r.choice([1, 2])]))
    return s.add1("Gather", x, places, axis=k)


def sliced(s: Sketch, x: Ref) -> Ref:
    """Ends of either sign, and beyond the axis."""
    k = fixed_axis(s, x)
    s.need(s.opset >= 10)
    count = size(x, k)
    first, end = _number(s, -count - 1, count + 1, 1), _number(s, -count - 1, count + 1, 1)
    return s.add1("Slice", x, first, end, s.ints(k), s.ints(s.r.choice([1, 1, 2])))


def padded(s: Sketch, x: Ref) -> Ref:
    """As much around it as the run says."""
    s.need(1 <= x.rank <= 4 and s.opset >= 11 and x.dtype.name in ("float32", "float64", "int64"))
    mode = s.r.choice(["constant", "constant", "edge"])
    s.need(mode == "constant" or x.sample.size > 0)
    return s.add1("Pad", x, _number(s, 0, 2, 2 * x.rank), mode=mode)


def tiled(s: Sketch, x: Ref) -> Ref:
    s.need(1 <= x.rank <= 3)
    return s.add1("Tile", x, _number(s, 1, 2, x.rank))


def expanded(s: Sketch, x: Ref) -> Ref:
    """One more axis in front, as long as the run says."""
    s.need(x.rank <= 4)
    shape = s.add1("Concat", _number(s, 1, 3, 1), s.add1("Shape", x), axis=0)
    return s.add1("Expand", x, shape)


def filled(s: Sketch, x: Ref) -> Ref:
    """The largest element, as often as the run says."""
    s.need(x.dtype.name == "float32" and x.sample.size > 0)
    ones = s.add1("ConstantOfShape", _number(s, 1, 9, s.r.choice([1, 2])), value=s.one())
    return s.add1("Mul", ones, s.add1("ReduceMax", x, keepdims=0))


def one_hot(s: Sketch, x: Ref) -> Ref:
    """Of a depth that the run gives."""
    s.need(x.dtype.name == "float32" and x.sample.size > 0)
    values = s.constant("float32", (2,), values=[0.5, 2])
    hot = s.add1("OneHot", _number(s, -3, 3, 4), _number(s, 3, 6, 1), values, axis=-1)
    return s.add1("Mul", hot, s.add1("ReduceMax", x, keepdims=0))


def resized(s: Sketch, x: Ref) -> Ref:
    """Images as large as the run says."""
    s.need(x.rank == 4 and x.dtype.name == "float32" and s.opset >= _FIRST_RESIZE)
    s.need(all(d > 0 for d in x.sample.shape))
    front = s.add1("Slice", s.add1("Shape", x), s.ints(0), s.ints(2))
    sizes = s.add1("Concat", front, _number(s, 1, 9, 2), axis=0)
    given = s.r.choice([{"mode": "nearest"}, {"mode": "linear"}])
    if given["mode"] == "nearest":
        given |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return s.add1("Resize", x, None, None, sizes, **given)
