"""Makers of anchors: products, convolutions of one to three spatial axes, attention.

Each leaves its second operand in `Sketch.last_weight`, for epilogues that read it again.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.case import Fill
from tests.fuzz.make_pointwise import floating, symbol_or_size
from tests.fuzz.make_views import size
from tests.fuzz.sketch import Ref, Sketch, static

Maker = Callable[[Sketch, Ref], Ref]
# Sizes of products: vector widths and their tails, and now and then more than a block of k
WIDTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 48, 65, 70)

MOST_ROWS = 600  # of attention: their square is what it computes


def weight(s: Sketch, x: Ref, shape: tuple[int, ...], terms: int, constant: bool = True) -> Ref:
    """A weight that keeps results of the size of the data: uniform, divided by sqrt(terms)."""
    width = min(2.0, 2.0 / max(terms, 1) ** 0.5)
    fill = Fill("uniform", -width, width)
    if constant:
        made = s.constant(x.dtype.name, shape, fill)
    else:
        made = s.input(x.dtype.name, shape, fill, made=False)
    s.last_weight = made
    return made


def _product_input(s: Sketch, x: Ref, least: int) -> int:
    floating(s, x)
    s.need(x.rank >= least and static(x.shape[-1]) and size(x, x.rank - 1) > 0)
    return size(x, x.rank - 1)


def matmul(s: Sketch, x: Ref) -> Ref:
    """x @ W with a constant matrix; of any rank."""
    k = _product_input(s, x, 1)
    return s.add1("MatMul", x, weight(s, x, (k, s.r.choice(WIDTHS)), k))


def square_matmul(s: Sketch, x: Ref) -> Ref:
    """x @ W whose result has the shape of W: m = k = n of a matrix."""
    k = _product_input(s, x, 2)
    s.need(x.rank == 2 and static(x.shape[0]) and size(x, 0) == k)
    return s.add1("MatMul", x, weight(s, x, (k, s.r.choice([k, 17, 40])), k))


def matmul_left(s: Sketch, x: Ref) -> Ref:
    """W @ x: the constant on the left."""
    floating(s, x)
    s.need(x.rank >= 2 and static(x.shape[-2]) and size(x, x.rank - 2) > 0)
    k = size(x, x.rank - 2)
    return s.add1("MatMul", weight(s, x, (s.r.choice(WIDTHS), k), k), x)


def matmul_computed(s: Sketch, x: Ref) -> Ref:
    """Both operands are computed: with the value's own transpose, or with an input."""
    k = _product_input(s, x, 2)
    if s.r.random() < 0.5:
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        y = s.add1("Transpose", x, perm=perm)
        s.last_weight = None
        return s.add1("MatMul", x, y)
    return s.add1("MatMul", x, weight(s, x, (k, s.r.choice(WIDTHS)), k, constant=False))


def matmul_batched(s: Sketch, x: Ref) -> Ref:
    """A matrix for every batch index, or one that broadcasts along some of them."""
    k = _product_input(s, x, 3)
    batch = tuple(
        1 if not static(d) or s.r.random() < 0.4 else int(d)
        for d in x.shape[:-2]
    )
    if s.r.random() < 0.3:
        batch = batch[1:]
    shape = (*batch, k, s.r.choice(WIDTHS))
    return s.add1("MatMul", x, weight(s, x, shape, k, s.r.random() < 0.6))


def gemm(s: Sketch, x: Ref) -> Ref:
    floating(s, x)
    s.need(x.rank == 2 and x.dtype.name != "bfloat16")
    turned, n = s.r.choice([0, 0, 1]), s.r.choice(WIDTHS)
    d = x.shape[0] if turned else x.shape[1]
    s.need(static(d) and int(d) > 0)
    k = int(d)
    other = s.r.choice([0, 1])
    w = weight(s, x, (n, k) if other else (k, n), k)
    bias = s.r.choice([None, (n,), (1, n), (1, 1), ()])
    c = None if bias is None else s.constant(x.dtype.name, bias)
    given = {"alpha": s.r.choice([1.0, 0.5, 2.0]), "beta": s.r.choice([1.0, 0.5, 0.0])}
    chosen = given if s.r.random() < 0.5 else {}
    return s.add1("Gemm", x, w, c, transA=turned, transB=other, **chosen)


def siblings(s: Sketch, x: Ref) -> Ref:
    """Products of one value with several weights, or convolutions, and what reads their parts."""
    floating(s, x)
    convolved = x.rank in (3, 4, 5) and static(x.shape[1]) and s.r.random() < 0.5
    at = 1 if convolved else x.rank - 1
    s.need(x.rank >= 1 and static(x.shape[at]) and size(x, at) > 0)

    def product(y: Ref) -> Ref:
        k, n = size(y, at), s.r.choice([4, 8, 12, *WIDTHS[:12]])
        shape = (n, k, *(1,) * (x.rank - 2)) if convolved else (k, n)
        out = s.add1("Conv" if convolved else "MatMul", y, weight(s, y, shape, k))
        bias = (n, *(1,) * (x.rank - 2)) if convolved else (n,)
        return s.add1("Add", out, s.constant(x.dtype.name, bias)) if s.r.random() < 0.6 else out

    parts = []
    for _ in range(s.r.choice([2, 2, 3])):
        part = product(x)
        if s.r.random() < 0.5:
            part = s.add1(s.r.choice(["Relu", "Relu", "Sigmoid"]), part)
        reader = s.r.choice(["product", "softmax", "itself", "itself"])
        if reader == "product":
            part = product(part)
        parts.append(s.add1("Softmax", part, axis=at) if reader == "softmax" else part)
    return s.add1("Concat", *parts, axis=at)


# ------------------------------------------------------------------ convolutions


def _least_sizes(s: Sketch, x: Ref) -> list[int]:
    return [
        int(d) if static(d) else s.sizes[str(d)][0] if str(d) in s.sizes else 1
        for d in x.shape[2:]
    ]


def conv(spatial: int, groups: str) -> Maker:
    """Conv over `spatial` axes; groups: "one", "depth" (as many as channels) or "some"."""

    def make(s: Sketch, x: Ref) -> Ref:
        floating(s, x)
        s.need(x.rank == spatial + 2 and static(x.shape[1]) and size(x, 1) > 0)
        c, low = size(x, 1), _least_sizes(s, x)
        s.need(all(n >= 1 for n in low))
        if groups == "some":
            s.need(any(c % g == 0 and g < c for g in (2, 3, 4)))
        group = 1 if groups == "one" else c if groups == "depth" else s.r.choice(
            [g for g in (2, 3, 4) if c % g == 0 and g < c]
        )  # fmt: skip
        per_group = s.r.choice([1, 1, 2]) if groups == "depth" else s.r.choice([1, 2, 4, 8])
        if groups == "one":
            per_group = s.r.choice([1, 2, 3, 4, 8, 16, 17, 32])
        kernel = [s.r.choice([k for k in (1, 2, 3, 3, 5) if k <= n + 2]) for n in low]
        if s.r.random() < 0.3:
            kernel = [3] * spatial if all(n >= 2 for n in low) else kernel
        given = _geometry(s, kernel, low)
        terms = c // group
        for k in kernel:
            terms *= k
        w = weight(s, x, (group * per_group, c // group, *kernel), terms, s.r.random() < 0.92)
        bias = s.constant(x.dtype.name, (group * per_group,)) if s.r.random() < 0.4 else None
        return s.add1("Conv", x, w, bias, group=group, **given)

    return make


def plain_conv(s: Sketch, x: Ref) -> Ref:
    """A 3x3 convolution without strides: with enough channels, what Winograd's algorithm takes."""
    floating(s, x)
    s.need(x.rank == 4 and static(x.shape[1]) and size(x, 1) > 0)
    s.need(all(n >= 3 for n in _least_sizes(s, x)))
    c, pads = size(x, 1), s.r.choice([[0] * 4, [1] * 4, [1, 0, 0, 1]])
    w = weight(s, x, (s.r.choice([16, 17, 32, 40]), c, 3, 3), 9 * c)
    bias = s.constant(x.dtype.name, (int(w.shape[0]),)) if s.r.random() < 0.4 else None
    return s.add1("Conv", x, w, bias, pads=pads)


def _geometry(s: Sketch, kernel: list[int], low: list[int]) -> dict[str, object]:
    """Pads, strides and dilations for which every size from `low` on gives an output."""
    n = len(kernel)
    dilations = [s.r.choice([1, 1, 1, 2]) for _ in range(n)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if s.r.random() < 0.15:
        return {"auto_pad": s.r.choice(["SAME_UPPER", "SAME_LOWER"]),
                "strides": [s.r.choice([1, 2]) for _ in range(n)]}  # fmt: skip
    begin = [s.r.randint(0, r // 2) for r in reach]
    end = [s.r.choice([b, s.r.randint(0, r // 2)]) for b, r in zip(begin, reach, strict=True)]
    for i in range(n):
        if low[i] + begin[i] + end[i] < reach[i]:
            begin[i] = end[i] = reach[i] // 2
            s.need(low[i] + 2 * begin[i] >= reach[i])
    return {"pads": [*begin, *end], "dilations": dilations,
            "strides": [s.r.choice([1, 1, 2, 3]) for _ in range(n)]}  # fmt: skip


def conv_transpose(spatial: int) -> Maker:
    """ConvTranspose over `spatial` axes, also grouped."""

    def make(s: Sketch, x: Ref) -> Ref:
        floating(s, x)
        s.need(x.rank == spatial + 2 and static(x.shape[1]) and size(x, 1) > 0)
        c = size(x, 1)
        group = s.r.choice([g for g in (1, 1, 1, 2, c) if c % g == 0])
        kernel = [s.r.choice([1, 2, 3, 4]) for _ in range(spatial)]
        strides = [s.r.choice([1, 2]) for _ in range(spatial)]
        pads = [s.r.randint(0, (k - 1) // 2) for k in kernel] * 2
        output_padding = [s.r.choice([0, 0, t - 1]) for t in strides]
        shape = (c, s.r.choice([1, 2, 3, 8]), *kernel)
        w = weight(s, x, shape, c // group * 2)
        bias = s.constant(x.dtype.name, (shape[1] * group,)) if s.r.random() < 0.4 else None
        return s.add1("ConvTranspose", x, w, bias, group=group, strides=strides, pads=pads,
                      output_padding=output_padding)  # fmt: skip

    return make


def deform_conv(s: Sketch, x: Ref) -> Ref:
    s.need(x.rank == 4 and x.dtype.name == "float32" and s.opset >= 19)
    s.need(all(static(d) and int(d) >= 2 for d in x.shape[2:]) and static(x.shape[1]))
    c, h, w = (int(d) for d in x.shape[1:])
    s.need(c > 0)
    shape = (symbol_or_size(s, x, 0), 8, h - 1, w - 1)
    offset = s.input("float32", shape, Fill("uniform", -0.7, 0.7), made=False)
    kernel = weight(s, x, (s.r.choice([1, 3, 4]), c, 2, 2), 4 * c)
    return s.add1("DeformConv", x, kernel, offset, kernel_shape=[2, 2], pads=[0, 0, 0, 0])


# ------------------------------------------------------------------ attention


def attention_op(s: Sketch, x: Ref) -> Ref:
    """The Attention op on [batch, heads, rows, size] or [batch, rows, heads * size]."""
    s.need(s.opset >= 23 and x.dtype.name == "float32" and x.rank in (3, 4))
    s.need(x.sample.shape[-2] <= MOST_ROWS)
    s.need(static(x.shape[-1]) and size(x, x.rank - 1) > 0 and all(d != 0 for d in x.shape))
    given: dict[str, object] = {"is_causal": s.r.choice([0, 1])}
    if x.rank == 3:
        heads = s.r.choice([h for h in (1, 2, 4) if size(x, 2) % h == 0])
        given |= {"q_num_heads": heads, "kv_num_heads": heads}
    else:
        s.need(static(x.shape[1]))
    if s.r.random() < 0.5:
        given["scale"] = 0.5
    s.last_weight = None
    mask = None
    if s.r.random() < 0.4:
        rows = symbol_or_size(s, x, x.rank - 2)
        kind = s.r.choice(["float32", "bool"])
        s.need(kind == "float32" or not given["is_causal"])
        mask = s.input(kind, (rows, rows), made=False)
    k = s.add1("Mul", x, s.scalar("float32", 0.5)) if s.r.random() < 0.5 else x
    return s.add1("Attention", x, k, x, mask, **given)


def attention_spelled(s: Sketch, x: Ref) -> Ref:
    """softmax(q k^T * scale + mask) v in single steps, as exporters write it."""
    s.need(x.dtype.name == "float32" and 2 <= x.rank <= 4 and x.sample.shape[-2] <= MOST_ROWS)
    s.need(static(x.shape[-1]) and size(x, x.rank - 1) > 0 and all(d != 0 for d in x.shape))
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    k = s.add1("Transpose", s.add1("Mul", x, s.scalar("float32", 0.5)), perm=perm)
    scores = s.add1("MatMul", x, k)
    if s.r.random() < 0.6:
        scores = s.add1(s.r.choice(["Mul", "Div"]), scores, s.scalar("float32", 2.0))
    if s.r.random() < 0.5:
        rows = symbol_or_size(s, x, x.rank - 2)
        scores = s.add1("Add", scores, s.input("float32", (rows, rows), made=False))
    s.last_weight = None
    return s.add1("MatMul", s.add1("Softmax", scores, axis=-1), x)
