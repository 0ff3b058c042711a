"""Makers of com.microsoft's products, convolutions and normalisations."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.case import Fill
from tests.fuzz.make_anchors import WIDTHS, weight
from tests.fuzz.make_contributed import DOMAIN, bias_of
from tests.fuzz.make_pointwise import floating, symbol_or_size
from tests.fuzz.make_views import size
from tests.fuzz.sketch import Ref, Sketch, static

Maker = Callable[[Sketch, Ref], Ref]
CONV_ACTIVATIONS: tuple[dict[str, object], ...] = (
    {}, {"activation": "Relu"}, {"activation": "Sigmoid"},
    {"activation": "LeakyRelu", "activation_params": [0.25]},
)  # fmt: skip


def _width(s: Sketch, x: Ref, axis: int) -> int:
    floating(s, x)
    s.need(x.rank > 0 and static(x.shape[axis]) and size(x, axis) > 0)
    s.need(all(d != 0 for d in x.shape))
    return size(x, axis)


def fused_matmul(op: str) -> Maker:
    """alpha * x W or x W', W constant."""

    def make(s: Sketch, x: Ref) -> Ref:
        k = _width(s, x, -1)
        other, n = s.r.choice([0, 1]), s.r.choice(WIDTHS)
        w = weight(s, x, (n, k) if other else (k, n), k)
        return s.add1(DOMAIN + op, x, w, transB=other, alpha=s.r.choice([1.0, 0.5]))

    return make


def fused_gemm(s: Sketch, x: Ref) -> Ref:
    """A matrix, turned or not, with an activation."""
    s.need(x.rank == 2)
    k, n = _width(s, x, 1), s.r.choice(WIDTHS)
    c = s.constant(x.dtype.name, (n,)) if s.r.random() < 0.6 else None
    given = s.r.choice([{"activation": "Relu"}, {"activation": "Tanh"},
                        {"activation": "LeakyRelu", "activation_alpha": 0.25}])  # fmt: skip
    return s.add1(DOMAIN + "FusedGemm", x, weight(s, x, (k, n), k), c, **given)


def fused_conv(s: Sketch, x: Ref) -> Ref:
    """Three taps an axis, with a residual and an activation now and then."""
    s.need(x.rank in (3, 4))
    c, n = _width(s, x, 1), s.r.choice([1, 3, 8, 16])
    spatial = x.rank - 2
    w = weight(s, x, (n, c, *[3] * spatial), c * 3**spatial)
    b = s.constant(x.dtype.name, (n,)) if s.r.random() < 0.6 else None
    z = None
    if all(static(d) for d in x.shape) and s.r.random() < 0.4:
        z = s.input(x.dtype.name, (size(x, 0), n, *[int(d) for d in x.shape[2:]]), made=False)
    given = s.r.choice(CONV_ACTIVATIONS)
    return s.add1(DOMAIN + "FusedConv", x, w, b, z, pads=[1] * 2 * spatial, **given)


def nhwc_conv(op: str) -> Maker:
    """Channels last."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.rank == 4)
        c, n = _width(s, x, -1), s.r.choice([1, 3, 8, 16])
        given = s.r.choice(CONV_ACTIVATIONS) if op == "NhwcFusedConv" else {}
        w = weight(s, x, (n, 3, 3, c) if op == "NhwcConv" else (n, c, 3, 3), 9 * c)
        return s.add1(DOMAIN + op, x, w, pads=[1] * 4, **given)

    return make


def bias_add(s: Sketch, x: Ref) -> Ref:
    """Both with the value itself as the residual and with its half."""
    skip = x if s.r.random() < 0.5 else s.add1("Mul", x, s.scalar(x.dtype.name, 0.5))
    return s.add1(DOMAIN + "BiasAdd", x, bias_of(s, x), skip)


def bias_split_gelu(s: Sketch, x: Ref) -> Ref:
    """Of an even last axis."""
    s.need(_width(s, x, -1) % 2 == 0)
    return s.add1(DOMAIN + "BiasSplitGelu", x, bias_of(s, x))


def skip_norm(op: str) -> Maker:
    """With and without bias and beta; one or the sum beside the result."""

    def make(s: Sketch, x: Ref) -> Ref:
        k = _width(s, x, -1)
        skip = s.constant(x.dtype.name, (k,)) if s.r.random() < 0.4 else x
        vectors = 3 if op == "SkipLayerNormalization" else 2
        rest = [s.constant(x.dtype.name, (k,)) for _ in range(s.r.randint(1, vectors))]
        return s.add1(DOMAIN + op, x, skip, *rest, epsilon=1e-2)

    return make


def contributed_group_norm(op: str) -> Maker:
    """Channels first or last."""

    def make(s: Sketch, x: Ref) -> Ref:
        s.need(x.rank == 4)
        last = s.r.choice([0, 1])
        c = _width(s, x, -1 if last else 1)
        groups = s.r.choice([d for d in (1, 2, 3, 4, c) if c % d == 0])
        more = [x] if op == "SkipGroupNorm" else []
        gamma, beta = s.constant("float32", (c,)), s.constant("float32", (c,))
        return s.add1(DOMAIN + op, x, gamma, beta, *more, groups=groups, channels_last=last,
                      epsilon=1e-2, activation=s.r.choice([0, 1]))  # fmt: skip

    return make


def embed_norm(s: Sketch, x: Ref) -> Ref:
    """The value is the table of words."""
    s.need(x.rank == 2)
    k, words = _width(s, x, 1), _width(s, x, 0)
    ids = s.constant("int32", (2, 3), values=[s.r.randrange(words) for _ in range(6)])
    vectors = [s.constant(x.dtype.name, (k,)) for _ in range(2)]
    return s.add1(DOMAIN + "EmbedLayerNormalization", ids, None, x,
                  s.constant(x.dtype.name, (4, k)), None, *vectors, epsilon=1e-2)  # fmt: skip


def sample(s: Sketch, x: Ref) -> Ref:
    """GridSample of images."""
    s.need(x.rank == 4 and x.dtype.name == "float32" and all(d != 0 for d in x.shape))
    shape = (symbol_or_size(s, x, 0), 2, 3, 2)
    grid = s.input("float32", shape, Fill("uniform", -1.2, 1.2), made=False)
    return s.add1(DOMAIN + "GridSample", x, grid, mode=s.r.choice(["bilinear", "bicubic"]),
                  padding_mode=s.r.choice(["zeros", "border"]), align_corners=1)  # fmt: skip


def rotary(s: Sketch, x: Ref) -> Ref:
    """Of heads or of a row of them, turned whole or in part, from one position on."""
    s.need(x.rank in (3, 4))
    width = _width(s, x, -1)
    s.need(width % 2 == 0)
    half = width // 2 if x.rank == 3 or s.r.random() < 0.5 else max(1, width // 4)
    cos, sin = (s.constant(x.dtype.name, (9, half), Fill("uniform", -1, 1)) for _ in range(2))
    start = s.constant("int64", (1,), values=[s.r.randrange(5)])
    return s.add1(DOMAIN + "RotaryEmbedding", x, start, cos, sin, interleaved=s.r.choice([0, 1]))


def crop_resize(s: Sketch, x: Ref) -> Ref:
    """Regions of images, some of which reach outside."""
    s.need(x.rank == 4 and x.dtype.name == "float32")
    s.need(all(static(d) and int(d) > 0 for d in x.shape))
    count = s.r.randint(1, 3)
    regions = s.input("float32", (count, 4), Fill("uniform", -0.2, 1.2), made=False)
    images = s.constant("int32", (count,), values=[s.r.randrange(size(x, 0)) for _ in range(count)])
    sizes = s.ints(s.r.choice([1, 2, 3]), s.r.choice([1, 4]))
    return s.add1(DOMAIN + "CropAndResize", x, regions, images, s.add1("Cast", sizes, to=6),
                  mode="bilinear", extrapolation_value=0.5)  # fmt: skip


def simplified_norm(s: Sketch, x: Ref) -> Ref:
    """RMSNormalization of the last axis, by its older name."""
    s.need(x.dtype.name in ("float32", "float16"))
    scale = s.constant(x.dtype.name, (_width(s, x, -1),))
    return s.add1("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-2)


def _axes(s: Sketch, rank: int) -> dict[str, int]:
    return {"normalized": 0, "onesided": 1, "signal_ndim": s.r.randint(1, min(rank, 2))}


def spectrum(s: Sketch, x: Ref) -> Ref:
    """Half a spectrum of one or two axes."""
    s.need(x.dtype.name in ("float32", "float64") and all(static(d) for d in x.shape))
    _width(s, x, -1)
    return s.add1(DOMAIN + "Rfft", x, **_axes(s, x.rank))


def from_spectrum(s: Sketch, x: Ref) -> Ref:
    """Back from half a spectrum, whether or not it is one of real numbers."""
    x = spectrum(s, x) if x.rank < 2 or x.shape[-1] != 2 or s.r.random() < 0.5 else x
    s.need(all(static(d) and d != 0 for d in x.shape) and size(x, x.rank - 2) > 1)
    return s.add1(DOMAIN + "Irfft", x, **_axes(s, x.rank - 1))
