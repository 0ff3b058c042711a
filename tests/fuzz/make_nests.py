"""Makers of steps that become loop nests: reductions, scans, softmax, norms, pools, resampling."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.case import Fill
from tests.fuzz.make_pointwise import FLOATS, floating, full_shape, symbol_or_size
from tests.fuzz.make_views import fixed_axis, indices_for, size
from tests.fuzz.sketch import Ref, Sketch, static

Maker = Callable[[Sketch, Ref], Ref]
POSITIVE = Fill("uniform", 0.3, 1.5)


def never_empty(s: Sketch, x: Ref, axes: list[int]) -> None:
    """Raise Unfit where one of the axes may have no elements (a mean of nothing is NaN)."""
    s.need(all(x.shape[k] != 0 for k in axes))


# ------------------------------------------------------------------ reductions


def reduce(op: str) -> Maker:
    """A reduction over one axis, several, or all."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.rank >= 1 and x.dtype.kind != "b")
        floats_only = op in ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
        s.need(x.dtype.is_float or not floats_only)
        extreme = op in ("ReduceMax", "ReduceMin")  # of 8 bits too, but not of 16
        s.need(x.dtype.is_float or x.dtype.bits >= 32 or (extreme and x.dtype.bits == 8))
        s.need(op != "ReduceLogSum" or x.low > 0.05)
        s.need(op != "ReduceProd" or (x.sample.size <= 64 and max(x.high, -x.low) <= 4))
        axes = sorted(s.r.sample(range(x.rank), s.r.randint(1, min(3, x.rank))))
        never_empty(s, x, axes)
        keep = s.r.choice([0, 1])
        if s.r.random() < 0.1:
            return s.add1(op, x, keepdims=keep)
        if s.opset >= 18 or (op == "ReduceSum" and s.opset >= 13):
            return s.add1(op, x, s.ints(*axes), keepdims=keep)
        return s.add1(op, x, axes=axes, keepdims=keep)

    return make


def arg(op: str) -> Maker:
    """ArgMax and ArgMin."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.rank >= 1 and x.dtype.kind != "b" and x.dtype.name != "bfloat16")
        k = s.r.randrange(x.rank)
        never_empty(s, x, [k])
        return s.add1(op, x, axis=k, keepdims=s.r.choice([0, 1]),
                      select_last_index=s.r.choice([0, 0, 1]))  # fmt: skip

    return make


def softmax(op: str) -> Maker:
    """Softmax, LogSoftmax, Hardmax along some axis."""

    def make(s: Sketch, x: Ref) -> Ref:
        floating(s, x)
        s.need(x.rank >= 1)
        k = s.r.randrange(x.rank)
        never_empty(s, x, [k])
        return s.add1(op, x, axis=s.r.choice([k, k - x.rank]))

    return make


def cumulative(op: str) -> Maker:
    """CumSum and CumProd."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.rank >= 1 and x.dtype.name in ("float32", "float64", "int32", "int64"))
        k = s.r.randrange(x.rank)
        longest = max(x.sample.shape[k], 1)
        s.need(op == "CumSum" or (longest <= 12 and max(x.high, -x.low) <= 3))
        axis = s.constant("int64", (), values=[k])
        return s.add1(op, x, axis, exclusive=s.r.choice([0, 1]), reverse=s.r.choice([0, 1]))

    return make


def top_k(s: Sketch, x: Ref) -> Ref:
    """Values go on; the indices stay available."""
    k = fixed_axis(s, x)
    s.need(x.dtype.kind != "b" and x.dtype.name != "bfloat16")
    count = s.ints(s.r.randint(1, size(x, k)))
    # equal values may come in any order only where the standard says nothing; braze keeps theirs
    return s.add("TopK", x, count, outputs=2, axis=k, largest=s.r.choice([0, 1]), sorted=1)[0]


# ------------------------------------------------------------------ norms


def layer_norm(s: Sketch, x: Ref) -> Ref:
    floating(s, x)
    s.need(x.rank >= 1)
    k = s.r.choice([x.rank - 1, x.rank - 1, s.r.randrange(x.rank)])
    s.need(all(static(d) and int(d) > 0 for d in x.shape[k:]))
    shape = [int(d) for d in x.shape[k:]]
    scale = s.constant(x.dtype.name, shape)
    bias = s.constant(x.dtype.name, shape) if s.r.random() < 0.6 else None
    return s.add1("LayerNormalization", x, scale, bias, axis=k - x.rank, epsilon=1e-2)


def rms_norm(s: Sketch, x: Ref) -> Ref:
    floating(s, x)
    s.need(s.opset >= 23 and x.rank >= 1 and static(x.shape[-1]) and size(x, x.rank - 1) > 0)
    return s.add1("RMSNormalization", x, s.constant(x.dtype.name, (size(x, x.rank - 1),)),
                  axis=-1, epsilon=1e-2)  # fmt: skip


def _channels(s: Sketch, x: Ref, least_rank: int = 3) -> int:
    floating(s, x)
    s.need(x.rank >= least_rank and static(x.shape[1]) and size(x, 1) > 0)
    s.need(all(d != 0 for d in x.shape))
    return size(x, 1)


def group_norm(s: Sketch, x: Ref) -> Ref:
    c = _channels(s, x)
    groups = s.r.choice([g for g in (1, 2, 3, 4, c) if c % g == 0])
    n = c if s.opset >= 21 else groups
    s.need(s.opset >= 18)
    scale, bias = s.constant(x.dtype.name, (n,)), s.constant(x.dtype.name, (n,))
    return s.add1("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=1e-2)


def instance_norm(s: Sketch, x: Ref) -> Ref:
    c = _channels(s, x)
    scale, bias = s.constant(x.dtype.name, (c,)), s.constant(x.dtype.name, (c,))
    return s.add1("InstanceNormalization", x, scale, bias, epsilon=1e-2)


def batch_norm(s: Sketch, x: Ref) -> Ref:
    c = _channels(s, x, 2)
    name = x.dtype.name
    scale, bias, mean = (s.constant(name, (c,)) for _ in range(3))
    return s.add1("BatchNormalization", x, scale, bias, mean, s.constant(name, (c,), POSITIVE))


def lrn(s: Sketch, x: Ref) -> Ref:
    _channels(s, x, 4)
    return s.add1("LRN", x, size=s.r.choice([1, 3, 5]), alpha=s.r.choice([1e-4, 0.1]), bias=1.0)


def lp_norm(s: Sketch, x: Ref) -> Ref:
    floating(s, x)
    s.need(x.rank >= 1 and x.least > 0.01)
    return s.add1("LpNormalization", x, axis=s.r.randrange(x.rank), p=s.r.choice([1, 2]))


def mean_variance(s: Sketch, x: Ref) -> Ref:
    _channels(s, x, 4)
    # a single element has variance 0 and an epsilon of 1e-9: noise, and nothing to compare
    s.need(x.sample.size > 8 and all(n > 1 for n in x.sample.shape[2:]))
    return s.add1("MeanVarianceNormalization", x, axes=s.r.choice([[0, 2, 3], [2, 3], [1, 2, 3]]))


# ------------------------------------------------------------------ windows


def window(s: Sketch, x: Ref) -> dict[str, list[int]]:
    """Kernel, strides and pads of a pool over the spatial axes of `x`."""
    floating(s, x)
    s.need(3 <= x.rank <= 5)
    spatial = x.rank - 2
    low = [int(d) if static(d) else _least(s, str(d)) for d in x.shape[2:]]
    kernel = [s.r.randint(1, max(1, min(3, n))) for n in low]
    pads = [s.r.randint(0, k // 2) for k in kernel] + [s.r.randint(0, k // 2) for k in kernel]
    s.need(all(n >= 1 for n in low))
    return {"kernel_shape": kernel, "strides": [s.r.choice([1, 2]) for _ in range(spatial)],
            "pads": pads}  # fmt: skip


def _least(s: Sketch, name: str) -> int:
    return s.sizes[name][0] if name in s.sizes else 1


def max_pool(s: Sketch, x: Ref) -> Ref:
    given = window(s, x)
    if s.r.random() < 0.2:
        given["dilations"] = [1] * (x.rank - 2)
    count = 2 if s.r.random() < 0.2 else 1
    return s.add("MaxPool", x, outputs=count, ceil_mode=s.r.choice([0, 0, 1]), **given)[0]


def average_pool(s: Sketch, x: Ref) -> Ref:
    return s.add1("AveragePool", x, count_include_pad=s.r.choice([0, 1]),
                  ceil_mode=s.r.choice([0, 0, 1]), **window(s, x))  # fmt: skip


def lp_pool(s: Sketch, x: Ref) -> Ref:
    return s.add1("LpPool", x, p=s.r.choice([1, 2, 3]), **window(s, x))


def global_pool(op: str) -> Maker:
    """Pools over all spatial axes."""

    def make(s: Sketch, x: Ref) -> Ref:
        floating(s, x)
        s.need(x.rank >= 3 and all(d != 0 for d in x.shape[2:]))
        return s.add1(op, x)

    return make


def max_unpool(s: Sketch, x: Ref) -> Ref:
    """Behind a MaxPool with indices of its own."""
    s.need(x.rank in (3, 4) and x.dtype.name == "float32")
    s.need(all(static(d) and int(d) >= 2 and int(d) % 2 == 0 for d in x.shape[2:]))
    k = [2] * (x.rank - 2)
    values, where = s.add("MaxPool", x, outputs=2, kernel_shape=k, strides=k)
    return s.add1("MaxUnpool", values, where, kernel_shape=k, strides=k)


def col2im(s: Sketch, x: Ref) -> Ref:
    """[n, c * kh * kw, blocks] to an image."""
    floating(s, x)
    s.need(x.rank == 3 and static(x.shape[1]) and static(x.shape[2]))
    c, blocks = size(x, 1), size(x, 2)
    s.need(blocks >= 1 and c >= 1)
    kernel = s.r.choice([k for k in ((1, 1), (1, 2), (2, 2)) if c % (k[0] * k[1]) == 0])
    height = s.r.choice([h for h in range(1, blocks + 1) if blocks % h == 0])
    image = (height + kernel[0] - 1, blocks // height + kernel[1] - 1)
    return s.add1("Col2Im", x, s.ints(*image), s.ints(*kernel))


# ------------------------------------------------------------------ resampling


def resize(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name in FLOATS and 2 <= x.rank <= 5 and s.opset >= 13)
    s.need(all(d != 0 for d in x.shape))
    mode = s.r.choice(["nearest", "linear", "cubic"] if x.rank == 4 else ["nearest", "linear"])
    rule = s.r.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    # powers of two: a source position is exact, so that every evaluation picks the same neighbour
    scales = [1.0] * x.rank
    for k in s.r.sample(range(max(0, x.rank - 2), x.rank), s.r.randint(1, 2)):
        scales[k] = s.r.choice([2.0, 0.5, 1.5] if mode != "nearest" else [2.0, 0.5])
        s.need(static(x.shape[k]) and size(x, k) * scales[k] >= 1)
    given = {"nearest_mode": s.r.choice(["floor", "ceil"])} if mode == "nearest" else {}
    factors = s.constant("float32", (x.rank,), values=scales)
    return s.add1("Resize", x, None, factors, mode=mode, coordinate_transformation_mode=rule,
                  **given)  # fmt: skip


def upsample(s: Sketch, x: Ref) -> Ref:
    """The name Resize had before opset 10."""
    s.need(s.opset == 9 and x.rank == 4 and x.dtype.name == "float32")
    scales = s.constant("float32", (4,), values=[1, 1, s.r.choice([1, 2]), 2])
    return s.add1("Upsample", x, scales, mode=s.r.choice(["nearest", "linear"]))


def grid_sample(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank in (4, 5) and x.dtype.name == "float32" and s.opset >= 20)
    s.need(all(d != 0 for d in x.shape))
    spatial = x.rank - 2
    shape = (symbol_or_size(s, x, 0), *[s.r.choice([1, 2, 3]) for _ in range(spatial)], spatial)
    grid = s.input("float32", shape, Fill("uniform", -1.2, 1.2), made=False)
    modes = ["linear", "nearest"] + (["cubic"] if spatial == 2 else [])
    return s.add1("GridSample", x, grid, mode=s.r.choice(modes),
                  padding_mode=s.r.choice(["zeros", "border", "reflection"]),
                  align_corners=s.r.choice([0, 1]))  # fmt: skip


def roi_align(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank == 4 and x.dtype.name == "float32" and s.opset >= 16)
    s.need(all(static(d) and int(d) > 0 for d in x.shape))
    count = s.r.randint(1, 3)
    # corners far from each other: begin in [0, 1], end in [3, 5]
    begin = s.input("float32", (count, 2), Fill("uniform", 0.1, 1.0), made=False)
    end = s.input("float32", (count, 2), Fill("uniform", 3.1, 5.0), made=False)
    rois = s.add1("Concat", begin, end, axis=1)
    batch = indices_for(s, size(x, 0), (count,), negative=False, wide=True)
    return s.add1("RoiAlign", x, rois, batch, sampling_ratio=s.r.choice([0, 1, 2]),
                  output_height=s.r.choice([1, 2]), output_width=s.r.choice([1, 3]),
                  mode=s.r.choice(["avg", "max"]),
                  spatial_scale=s.r.choice([1.0, 0.5]))  # fmt: skip


# ------------------------------------------------------------------ transforms and products


def dft(s: Sketch, x: Ref) -> Ref:
    """Along some axis of a real tensor with a unit axis behind it."""
    s.need(x.dtype.name in ("float32", "float64") and 1 <= x.rank <= 3 and s.opset >= 20)
    k = fixed_axis(s, x)
    parts = s.add1("Unsqueeze", x, s.ints(-1))
    axis = s.constant("int64", (), values=[k])
    return s.add1("DFT", parts, None, axis, onesided=s.r.choice([0, 1]))


def stft(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name == "float32" and x.rank == 2 and static(x.shape[1]) and size(x, 1) >= 4)
    length = s.r.choice([2, 3, 4])
    step = s.constant("int64", (), values=[s.r.choice([1, 2])])
    window_ = s.constant("float32", (length,), POSITIVE)
    return s.add1("STFT", x, step, window_, s.constant("int64", (), values=[length]), onesided=1)


def mel_weights(s: Sketch, x: Ref) -> Ref:
    """The value times a mel filter bank of constants."""
    s.need(x.dtype.name == "float32" and x.rank >= 2 and x.shape[-1] == 9)
    numbers = [s.constant("int64", (), values=[v]) for v in (4, 16, 8000)]
    edges = [s.constant("float32", (), values=[v]) for v in (0.0, 4000.0)]
    return s.add1("MatMul", x, s.add1("MelWeightMatrix", *numbers, *edges))


def det(s: Sketch, x: Ref) -> Ref:
    s.need(x.dtype.name == "float32" and x.rank >= 2 and x.shape[-1] == x.shape[-2])
    s.need(static(x.shape[-1]) and 1 <= size(x, x.rank - 1) <= 4)
    return s.add1("Det", x)


def einsum(s: Sketch, x: Ref) -> Ref:
    """Products, traces and transposes of one, two or three operands."""
    floating(s, x)
    s.need(1 <= x.rank <= 4 and x.dtype.name in ("float32", "float64"))
    letters = "abcd"[: x.rank]
    kind = s.r.choice(["sum", "outer", "product", "batch", "ellipsis"])
    if kind == "sum":
        kept = "".join(s.r.sample(letters, s.r.randint(0, x.rank)))
        return s.add1("Einsum", x, equation=f"{letters}->{kept}")
    if kind == "outer":
        s.last_weight = y = s.constant(x.dtype.name, (3,))
        return s.add1("Einsum", x, y, equation=f"{letters},z->{letters}z")
    s.need(static(x.shape[-1]) and size(x, x.rank - 1) > 0)
    if kind == "batch":
        s.last_weight = y = s.input(x.dtype.name, full_shape(s, x), made=False)
        return s.add1("Einsum", x, y, equation=f"{letters},{letters}->{letters[:-1]}")
    y = s.constant(x.dtype.name, (size(x, x.rank - 1), s.r.choice([1, 4, 17])))
    s.last_weight = y
    last = letters[-1]
    if kind == "ellipsis":
        return s.add1("Einsum", x, y, equation=f"...{last},{last}z->...z")
    return s.add1("Einsum", x, y, equation=f"{letters},{last}z->{letters[:-1]}z")

