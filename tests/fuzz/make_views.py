"""Makers of steps that move elements: reshapes, transposes, slices, pads, gathers, concats."""

from __future__ import annotations

import math

from tests.fuzz.case import Fill, Tensor
from tests.fuzz.make_pointwise import full_shape
from tests.fuzz.sketch import Ref, Sketch, static


def fixed_axis(s: Sketch, x: Ref, least: int = 1) -> int:
    """Some axis of a plain size of at least `least`."""
    found = [k for k, d in enumerate(x.shape) if static(d) and int(d) >= least]
    s.need(bool(found))
    return s.r.choice(found)


def size(x: Ref, axis: int) -> int:
    """The plain size of an axis that `fixed_axis` gave."""
    return int(x.shape[axis])


def axes_input(s: Sketch, *axes: int) -> Ref | None:
    """Axes as an int64 input."""
    return s.ints(*axes)


# ------------------------------------------------------------------ reshapes


def reshape(s: Sketch, x: Ref) -> Ref:
    """Merge two axes, split one, or add and remove axes of size 1; at most one size is dynamic."""
    target: list[int | None] = [int(d) if static(d) else None for d in x.shape]
    s.need(x.rank >= 1 and target.count(None) <= 1)
    kind = s.r.choice(["merge", "merge", "split", "split", "unit", "flat", "swap"])
    k = s.r.randrange(x.rank)
    if kind == "merge" and x.rank >= 2:
        k = s.r.randrange(x.rank - 1)
        a, b = target[k], target[k + 1]
        target[k : k + 2] = [None if a is None or b is None else a * b]
    elif kind == "split" and target[k] and x.rank < 5:
        whole = target[k] or 1
        parts = [p for p in range(1, whole + 1) if whole % p == 0]
        p = s.r.choice(parts)
        target[k : k + 1] = [p, whole // p]
    elif kind == "unit" and x.rank < 5:
        target.insert(s.r.randint(0, x.rank), 1)
    elif kind == "swap" and None not in target and x.rank >= 2:
        s.r.shuffle(target)
    else:
        target = [None]
    plain = [-1 if d is None else d for d in target]
    if -1 not in plain and 0 not in plain and s.r.random() < 0.3:
        plain[s.r.randrange(len(plain))] = -1
    s.need(plain.count(-1) <= 1 and (0 not in plain))
    return s.add1("Reshape", x, s.ints(*plain))


def reshape_by_shape(s: Sketch, x: Ref) -> Ref:
    """Reshape to a shape computed by Shape, Gather and Concat, as exporters write it."""
    # a product may be fixed where its factors are not: with an axis of no elements it is 0
    s.need(2 <= x.rank <= 4 and all(static(d) for d in x.shape[1:]))
    whole = s.add1("Shape", x)
    first = s.add1("Gather", whole, s.ints(0), axis=0)
    rest = s.ints(-1) if s.r.random() < 0.5 else s.ints(*[int(d) for d in x.shape[:0:-1]])
    target = s.add1("Concat", first, rest, axis=0)
    s.made = [v for v in s.made if v.name not in (whole.name, first.name, target.name)]
    return s.add1("Reshape", x, target)


def flatten(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 1)
    return s.add1("Flatten", x, axis=s.r.randint(-x.rank, x.rank))


def squeeze(s: Sketch, x: Ref) -> Ref:
    ones = [k for k, d in enumerate(x.shape) if d == 1]
    s.need(bool(ones))
    k = s.r.choice(ones)
    if s.opset < 13:
        return s.add1("Squeeze", x, axes=[k])
    return s.add1("Squeeze", x, s.ints(s.r.choice([k, k - x.rank])))


def unsqueeze(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank < 5)
    k = s.r.randint(0, x.rank)
    if s.opset < 13:
        return s.add1("Unsqueeze", x, axes=[k])
    return s.add1("Unsqueeze", x, s.ints(s.r.choice([k, k - x.rank - 1])))


def transpose(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 2)
    perm = s.r.sample(range(x.rank), x.rank)
    return s.add1("Transpose", x, perm=perm) if s.r.random() < 0.9 else s.add1("Transpose", x)


# ------------------------------------------------------------------ slices, pads, tiles


def slice_(s: Sketch, x: Ref) -> Ref:
    """Part of one or two axes, forwards, backwards or with a stride."""
    s.need(x.rank >= 1)
    axes = s.r.sample(range(x.rank), s.r.randint(1, min(2, x.rank)))
    starts, ends, steps = [], [], []
    for k in axes:
        least = min(r[0] for r in s.sizes.values()) if s.sizes else 1
        n = size(x, k) if static(x.shape[k]) else least
        s.need(n >= 1)
        step = s.r.choice([1, 1, 2, 3, -1, -2])
        a = s.r.randrange(n)
        if step > 0:
            start, end = a, s.r.choice([a + s.r.randint(1, n - a), 1 << 40])
        else:
            start, end = s.r.choice([n - 1 - a, -1 - a, 1 << 40, -(1 << 40)]), -(1 << 40)
        starts.append(start)
        ends.append(end)
        steps.append(step)
    return s.add1("Slice", x, *(s.ints(*v) for v in (starts, ends, axes, steps)))


def pad(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 1 and x.dtype.kind != "b")
    mode = s.r.choice(["constant", "constant", "reflect", "edge", "wrap"])
    s.need(mode != "wrap" or s.opset >= 19)
    pads = [0] * (2 * x.rank)
    for k in s.r.sample(range(x.rank), s.r.randint(1, min(2, x.rank))):
        if mode == "constant":
            pads[k], pads[k + x.rank] = s.r.randint(0, 3), s.r.randint(0, 3)
            if static(x.shape[k]) and size(x, k) > 2 and s.r.random() < 0.2:
                pads[k] = -1
        elif static(x.shape[k]) and size(x, k) > 1:
            most = min(3, size(x, k) - 1)
            pads[k], pads[k + x.rank] = s.r.randint(0, most), s.r.randint(0, most)
    value = s.scalar(x.dtype.name, s.r.choice([0, 1, 2])) if s.r.random() < 0.5 else None
    return s.add1("Pad", x, s.ints(*pads), value, mode=mode)


def expand(s: Sketch, x: Ref) -> Ref:
    """Axes of size 1 grow, and new ones come in front."""
    s.need(all(static(d) for d in x.shape))
    target = [s.r.choice([1, 3, 4]) if d == 1 else int(d) for d in x.shape]
    if x.rank < 5 and s.r.random() < 0.4:
        target.insert(0, s.r.choice([1, 2]))
    s.need(math.prod(target) > 0)
    return s.add1("Expand", x, s.ints(*target))


def tile(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 1)
    repeats = [1] * x.rank
    for k in s.r.sample(range(x.rank), s.r.randint(1, min(2, x.rank))):
        repeats[k] = s.r.choice([2, 3])
    return s.add1("Tile", x, s.ints(*repeats))


def depth_to_space(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank == 4 and static(x.shape[1]) and size(x, 1) % 4 == 0 and size(x, 1) > 0)
    return s.add1("DepthToSpace", x, blocksize=2, mode=s.r.choice(["DCR", "CRD"]))


def space_to_depth(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank == 4 and all(static(d) and d % 2 == 0 for d in x.shape[2:]))
    return s.add1("SpaceToDepth", x, blocksize=2)


def trilu(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 2)
    k = s.constant("int64", (), values=[s.r.randint(-2, 2)]) if s.r.random() < 0.6 else None
    return s.add1("Trilu", x, k, upper=s.r.choice([0, 1]))


# ------------------------------------------------------------------ concat, split


def concat(s: Sketch, x: Ref) -> Ref:
    """With itself, with earlier values, with constants: one to four pieces."""
    s.need(x.rank >= 1)
    k = s.r.randrange(x.rank)
    alike = [
        v for v in s.made
        if v.dtype == x.dtype and v.rank == x.rank
        and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if i != k)
    ]  # fmt: skip
    pieces = [x]
    for _ in range(s.r.randint(0, 3)):
        pieces.append(s.r.choice([*alike, x]) if s.r.random() < 0.7 else _piece(s, x, k))
    s.r.shuffle(pieces)
    return s.add1("Concat", *pieces, axis=s.r.choice([k, k - x.rank]))


def _piece(s: Sketch, x: Ref, axis: int) -> Ref:
    shape = list(full_shape(s, x))
    shape[axis] = s.r.choice([1, 2, 5])
    if all(isinstance(d, int) for d in shape) and s.r.random() < 0.5:
        return s.constant(x.dtype.name, [d for d in shape if isinstance(d, int)])
    return s.input(x.dtype.name, shape, made=False)


def split(s: Sketch, x: Ref) -> Ref:
    """Into two or three parts; all stay available, the last one goes on."""
    k = fixed_axis(s, x, 2)
    n = size(x, k)
    if s.opset >= 18 and s.r.random() < 0.4:
        count = s.r.randint(2, min(3, n))
        s.need(-(-n // count) * (count - 1) < n)
        return s.add("Split", x, outputs=count, axis=k, num_outputs=count)[-1]
    cut = s.r.randrange(1, n)
    if s.opset < 13:
        return s.add("Split", x, outputs=2, axis=k, split=[cut, n - cut])[-1]
    return s.add("Split", x, s.ints(cut, n - cut), outputs=2, axis=k)[-1]


# ------------------------------------------------------------------ shapes and made-up tensors


def shape_of(s: Sketch, x: Ref) -> Ref:
    """The sizes of a value as data."""
    s.need(x.rank >= 1)
    return s.add1("Cast", s.add1("Shape", x), to=1)


def size_of(s: Sketch, x: Ref) -> Ref:
    """x divided by its number of elements."""
    s.need(x.dtype.name == "float32" and x.sample.size > 0)
    return s.add1("Div", x, s.add1("Cast", s.add1("Size", x), to=1))


def constant_of_shape(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name == "float32")
    value = Tensor("float32", (1,), values=(0.5,))
    return s.add1("Add", x, s.add1("ConstantOfShape", s.add1("Shape", x), value=value))


def range_(s: Sketch, x: Ref) -> Ref:
    """Positions 0 .. n - 1 along the last axis, added."""
    s.need(x.rank >= 1 and x.dtype.name in ("float32", "int64"))
    n = s.add1("Gather", s.add1("Shape", x), s.constant("int64", (), values=[x.rank - 1]), axis=0)
    zero, one = s.constant("int64", (), values=[0]), s.constant("int64", (), values=[1])
    r = s.add1("Range", zero, n, one)
    return s.add1("Add", x, r if x.dtype.name == "int64" else s.add1("Cast", r, to=1))


def eye_like(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank == 2 and x.dtype.name in ("float32", "float64", "int64", "int32"))
    return s.add1("Add", x, s.add1("EyeLike", x, k=s.r.randint(-2, 2)))


def non_zero(s: Sketch, x: Ref) -> Ref:
    """The nonzero positions of a constant, as indices."""
    k = fixed_axis(s, x)
    mask = s.constant("bool", (min(4, size(x, k)),), values=[True, False, True, True][: size(x, k)])
    where = s.add1("NonZero", mask)
    return s.add1("Gather", x, s.add1("Reshape", where, s.ints(-1)), axis=k)


def non_max_suppression(s: Sketch, x: Ref) -> Ref:
    """Numbers of kept boxes of four constants, as indices; overlaps are far from the limit."""
    k = fixed_axis(s, x)
    s.need(size(x, k) >= 2)
    corners = [0.0, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 3.9, 4.0]
    boxes = s.constant("float32", (1, 4, 4), values=corners)
    scores = s.constant(
        "float32", (1, 1, 4), values=[s.r.choice([0.2, 0.5, 0.9]) for _ in range(4)]
    )
    limit = s.constant("float32", (1,), values=[0.5])
    kept = s.add1("NonMaxSuppression", boxes, scores, s.ints(2), limit)
    flat = s.add1("Mod", s.add1("Reshape", kept, s.ints(-1)), s.ints(2))
    return s.add1("Gather", x, flat, axis=k)


def unique(s: Sketch, x: Ref) -> Ref:
    """What is different among some constants, as indices."""
    k = fixed_axis(s, x)
    values = [s.r.randrange(size(x, k)) for _ in range(6)]
    given = s.constant("int64", (2, 3), values=values)
    outputs = s.add("Unique", given, outputs=4, sorted=s.r.choice([0, 1]))
    return s.add1("Gather", x, outputs[0], axis=k)


def compress(s: Sketch, x: Ref) -> Ref:
    k = fixed_axis(s, x)
    mask = [s.r.random() < 0.6 for _ in range(size(x, k))]
    mask[s.r.randrange(len(mask))] = True
    return s.add1("Compress", x, s.constant("bool", (len(mask),), values=mask), axis=k)


# ------------------------------------------------------------------ indices


def indices_for(
    s: Sketch,
    axis_size: int,
    shape: tuple[int, ...],
    negative: bool = True,
    unique: bool = False,
    wide: bool = False,
) -> Ref:
    """Indices into an axis, constant or an input; unique: no two are equal; wide: int64 only."""
    low = -axis_size if negative and not unique else 0
    dtype = "int64" if wide else s.r.choice(["int64", "int64", "int32"])
    if unique:
        picked = s.r.sample(range(axis_size), math.prod(shape))
        return s.constant("int64", shape, values=picked)
    fill = Fill("integers", low, axis_size - 1)
    if s.r.random() < 0.5:
        return s.constant(dtype, shape, fill)
    return s.input(dtype, shape, fill, made=False)


def gather(s: Sketch, x: Ref) -> Ref:
    k = fixed_axis(s, x)
    rank = s.r.choice([0, 1, 1, 2])
    s.need(x.rank - 1 + rank <= 5)
    shape = tuple(s.r.choice([1, 2, 3, 7]) for _ in range(rank))
    return s.add1("Gather", x, indices_for(s, size(x, k), shape), axis=s.r.choice([k, k - x.rank]))


def gather_elements(s: Sketch, x: Ref) -> Ref:
    k = fixed_axis(s, x)
    s.need(all(static(d) for d in x.shape))
    shape = [s.r.randint(1, max(1, int(d))) for d in x.shape]
    s.need(all(int(d) > 0 for d in x.shape))
    shape[k] = s.r.choice([1, 2, 5])
    return s.add1("GatherElements", x, indices_for(s, size(x, k), tuple(shape)), axis=k)


def gather_nd(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 1 and static(x.shape[0]) and size(x, 0) > 0)
    index = indices_for(s, size(x, 0), (s.r.choice([1, 3, 4]), 1), wide=True)
    return s.add1("GatherND", x, index)


def scatter_elements(s: Sketch, x: Ref, op: str = "ScatterElements") -> Ref:
    k = fixed_axis(s, x)
    s.need(all(static(d) and int(d) > 0 for d in x.shape) and x.dtype.kind != "b")
    kinds = ["none", "none"]
    if op == "ScatterElements" and s.opset >= 18:
        kinds += ["add", "mul", "max", "min"]
    reduction = s.r.choice(kinds)
    shape = [s.r.randint(1, int(d)) for d in x.shape]
    if reduction == "none":  # no element twice: which one wins is not said
        shape = [1] * x.rank
        shape[k] = s.r.randint(1, size(x, k))
    index = indices_for(s, size(x, k), tuple(shape), unique=reduction == "none")
    updates = s.input(x.dtype.name, shape, made=False)
    given = {"reduction": reduction} if reduction != "none" else {}
    return s.add1(op, x, index, updates, axis=k, **given)


def scatter(s: Sketch, x: Ref) -> Ref:
    """The name ScatterElements had before opset 11."""
    s.need(s.opset < 11 and x.dtype.name != "bfloat16")  # gone before ONNX had that type
    return scatter_elements(s, x, "Scatter")


def scatter_nd(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 1 and all(static(d) for d in x.shape) and x.dtype.kind != "b")
    n = size(x, 0)
    s.need(n > 0)
    count = s.r.randint(1, min(3, n))
    index = indices_for(s, n, (count, 1), unique=True)
    updates = s.input(x.dtype.name, (count, *[int(d) for d in x.shape[1:]]), made=False)
    kinds = ["none", "add", "mul", "max", "min"] if s.opset >= 18 else ["none"]
    return s.add1("ScatterND", x, index, updates, reduction=s.r.choice(kinds))


def tensor_scatter(s: Sketch, x: Ref) -> Ref:
    """A few rows of a cache [batch, sequence, features] are overwritten."""
    s.need(s.opset >= 24 and x.rank == 3 and all(static(d) and int(d) > 0 for d in x.shape))
    b, n, f = (int(d) for d in x.shape)
    rows = s.r.randint(1, n)
    update = s.input(x.dtype.name, (b, rows, f), made=False)
    mode = s.r.choice(["linear", "circular"])
    most = n - rows if mode == "linear" else n - 1
    start = s.input("int64", (b,), Fill("integers", 0, most), made=False)
    return s.add1("TensorScatter", x, update, start, axis=1, mode=mode)


def one_hot(s: Sketch, x: Ref) -> Ref:
    """Of indices; the value gives what is hot."""
    s.need(x.dtype.name in ("int64", "int32") and x.rank <= 4)
    depth = s.constant("int64", (1,), values=[s.r.choice([2, 5, 11])])
    kind = s.r.choice(["float32", "int64"])
    values = s.constant(kind, (2,), values=[0, 1] if s.r.random() < 0.5 else [3, -2])
    return s.add1("OneHot", x, depth, values, axis=s.r.randint(-x.rank - 1, x.rank))


def reverse_sequence(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank >= 2 and all(static(d) and int(d) > 0 for d in x.shape[:2]))
    batch = s.r.choice([0, 1])
    fill = Fill("integers", 1, size(x, 1 - batch))
    lengths = s.input("int64", (size(x, batch),), fill, made=False)
    return s.add1("ReverseSequence", x, lengths, batch_axis=batch, time_axis=1 - batch)
