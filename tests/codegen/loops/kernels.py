"""Loop kernels that the code generator tests share, with inputs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from braze.core.dims import Dim, sym
from braze.core.dtypes import BOOL, F32, I64, U8, DType
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, dim, load, red, select, unary

Array = np.ndarray[Any, Any]
Index = tuple[Expr, ...]


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs, symbol values and how far float results may be off (relative)."""

    name: str
    kernel: LoopKernel
    inputs: Sequence[Array]
    env: Mapping[str, int] = field(default_factory=dict)
    rtol: float = 0.0


def add(a: Expr, b: Expr) -> Expr:
    return binary("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    return binary("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return binary("mul", a, b)


def whole(value: Dim) -> Expr:
    return dim(value)


def axes(*numbers: int) -> Index:
    return tuple(axis(k) for k in numbers)


def one_nest(
    inputs: Sequence[tuple[DType, tuple[Dim, ...]]],
    outputs: Sequence[tuple[DType, tuple[Dim, ...]]],
    *nests: LoopNest,
) -> LoopKernel:
    return LoopKernel(
        tuple(TensorSpec(*i) for i in inputs), tuple(TensorSpec(*o) for o in outputs), nests
    )


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pointwise(
    expr: Expr, shape: tuple[Dim, ...], inputs: Sequence[tuple[DType, tuple[Dim, ...]]]
) -> LoopKernel:
    store = Store(0, axes(*range(len(shape))), expr)
    return one_nest(inputs, [(expr.dtype, shape)], LoopNest(shape, (), (), (store,)))


def add_bias(n: Dim, m: Dim, c: Dim) -> LoopKernel:
    value = add(load(0, axes(0, 1, 2), F32), load(1, axes(2), F32))
    return pointwise(value, (n, m, c), [(F32, (n, m, c)), (F32, (c,))])


def softmax(n: Dim, m: Dim) -> LoopKernel:
    x = load(0, axes(0, 1), F32)
    e = unary("exp", sub(x, red(0, F32)))
    store = Store(0, axes(0, 1), binary("div", e, red(1, F32)), "all")
    nest = LoopNest((n,), (m,), (Reduce("max", x), Reduce("sum", e)), (store,))
    return one_nest([(F32, (n, m))], [(F32, (n, m))], nest)


def layer_norm(n: Dim, m: Dim) -> LoopKernel:
    x = load(0, axes(0, 1), F32)
    count = cast(dim(m), F32)
    mean = binary("div", red(0, F32), count)
    off = sub(x, mean)
    variance = binary("div", red(1, F32), count)
    scale = binary("div", load(1, axes(1), F32), unary("sqrt", add(variance, const(1e-5, F32))))
    value = add(mul(off, scale), load(2, axes(1), F32))
    nest = LoopNest(
        (n,),
        (m,),
        (Reduce("sum", x), Reduce("sum", mul(off, off))),
        (Store(0, axes(0, 1), value, "all"),),
    )
    return one_nest([(F32, (n, m)), (F32, (m,)), (F32, (m,))], [(F32, (n, m))], nest)


def max_pool(n: Dim, h: Dim, w: Dim, c: Dim) -> LoopKernel:
    """3x3, stride 2, padding 1, channels last."""
    two = whole(2)
    y = sub(add(mul(axis(1), two), axis(4)), whole(1))
    x = sub(add(mul(axis(2), two), axis(5)), whole(1))
    inside = binary("and", within(y, h), within(x, w))
    value = select(inside, load(0, (axis(0), y, x, axis(3)), F32), const(float("-inf"), F32))
    ho, wo = (h + 1) // 2, (w + 1) // 2
    nest = LoopNest(
        (n, ho, wo, c),
        (3, 3),
        (Reduce("max", value),),
        (Store(0, axes(0, 1, 2, 3), red(0, F32)),),
    )
    return one_nest([(F32, (n, h, w, c))], [(F32, (n, ho, wo, c))], nest)


def within(i: Expr, size: Dim) -> Expr:
    return binary("and", binary("le", whole(0), i), binary("lt", i, whole(size)))


def reduce_all(kind: str, shape: tuple[Dim, ...], outer: int, dtype: DType = F32) -> LoopKernel:
    """Reduce the axes after the first `outer`."""
    rank = len(shape)
    value = load(0, axes(*range(rank)), dtype)
    result = I64 if kind.startswith("arg") else dtype
    nest = LoopNest(
        shape[:outer],
        shape[outer:],
        (Reduce(kind, value),),
        (Store(0, axes(*range(outer)), red(0, result)),),
    )
    return one_nest([(dtype, shape)], [(result, shape[:outer])], nest)


def reduce_leading(kind: str, n: Dim, m: Dim) -> LoopKernel:
    """Reduce the first axis of (n, m)."""
    value = load(0, axes(1, 0), F32)
    result = I64 if kind.startswith("arg") else F32
    nest = LoopNest((m,), (n,), (Reduce(kind, value),), (Store(0, axes(0), red(0, result)),))
    return one_nest([(F32, (n, m))], [(result, (m,))], nest)


def transpose(n: Dim, m: Dim) -> LoopKernel:
    return pointwise(load(0, axes(1, 0), F32), (n, m), [(F32, (m, n))])


def scan(over: str, n: Dim, m: Dim, reverse: bool = False) -> LoopKernel:
    """Running sums along the last axis."""
    at = sub(whole(m - 1), axis(1)) if reverse else axis(1)
    nest = LoopNest(
        (n,),
        (m,),
        (Reduce("sum", load(0, (axis(0), at), F32)),),
        (Store(0, (axis(0), at), red(0, F32), over),),
    )
    return one_nest([(F32, (n, m))], [(F32, (n, m))], nest)


def concat(n: Dim, a: Dim, b: Dim) -> LoopKernel:
    first = LoopNest((n, a), (), (), (Store(0, axes(0, 1), load(0, axes(0, 1), F32)),))
    target = (axis(0), add(axis(1), whole(a)))
    second = LoopNest((n, b), (), (), (Store(0, target, load(1, axes(0, 1), F32)),))
    return one_nest([(F32, (n, a)), (F32, (n, b))], [(F32, (n, a + b))], first, second)


def embedding(rows: Dim, width: Dim, count: Dim) -> LoopKernel:
    value = load(0, (load(1, axes(0), I64), axis(1)), F32)
    return pointwise(value, (count, width), [(F32, (rows, width)), (I64, (count,))])


def scatter(mode: str, rows: Dim, width: Dim, count: Dim) -> LoopKernel:
    """out = data; out[index[i]] (mode)= updates[i]."""
    copy = LoopNest((rows, width), (), (), (Store(0, axes(0, 1), load(0, axes(0, 1), F32)),))
    place = (load(1, axes(0), I64), axis(1))
    update = LoopNest(
        (count, width), (), (), (Store(0, place, load(2, axes(0, 1), F32), "outer", mode),), True
    )
    inputs = [(F32, (rows, width)), (I64, (count,)), (F32, (count, width))]
    return one_nest(inputs, [(F32, (rows, width))], copy, update)


def cases(channels: int = 20, wide: int = 128, square: tuple[int, int] = (64, 48)) -> list[Case]:
    """Every kind of nest, static and dynamic, with sizes that leave partial vectors; channels of a
    pool, columns of reductions over rows, and a transposed matrix hold several whole ones."""
    n, m = sym("n"), sym("m")
    x = floats(0, 5, 37)
    found = [
        Case("bias", add_bias(2, 3, 16), [floats(1, 2, 3, 16), floats(2, 16)]),
        Case("bias-odd", add_bias(n, 3, 7), [floats(1, 5, 3, 7), floats(2, 7)], {"n": 5}),
        Case("softmax", softmax(n, m), [x], {"n": 5, "m": 37}, 2e-6),
        Case("softmax-static", softmax(5, 37), [x], {}, 2e-6),
        Case("softmax-one", softmax(n, m), [floats(3, 4, 1)], {"n": 4, "m": 1}, 2e-6),
        Case(
            "layernorm",
            layer_norm(n, 96),
            [floats(4, 7, 96), floats(5, 96), floats(6, 96)],
            {"n": 7},
            1e-4,
        ),
        Case("pool", max_pool(n, 7, 9, channels), [floats(7, 2, 7, 9, channels)], {"n": 2}),
        Case("pool-dynamic", max_pool(1, n, m, 3), [floats(7, 1, 6, 5, 3)], {"n": 6, "m": 5}),
        Case("transpose", transpose(n, m), [floats(8, 19, 33)], {"n": 33, "m": 19}),
        Case("transpose-static", transpose(*square), [floats(8, *square[::-1])]),
        Case("scan", scan("scan", n, 37), [x], {"n": 5}, 1e-5),
        Case("scan-exclusive", scan("scan_exclusive", 5, m), [x], {"m": 37}, 1e-5),
        Case("scan-reverse", scan("scan", 5, 37, True), [x], {}, 1e-5),
        Case("concat", concat(n, 5, 37), [floats(9, 5, 5), x], {"n": 5}),
        Case(
            "embedding",
            embedding(11, 37, n),
            [floats(10, 11, 37), np.array([3, 0, 10, 3], np.int64)],
            {"n": 4},
        ),
    ]
    for kind in ("sum", "prod", "max", "min", "argmax", "argmin", "argmax_last", "argmin_last"):
        rtol = 2e-4 if kind in ("sum", "prod") else 0.0
        found += [
            Case(f"{kind}-rows", reduce_all(kind, (n, m), 1), [x], {"n": 5, "m": 37}, rtol),
            Case(
                f"{kind}-inner2", reduce_all(kind, (3, 4, 70), 1), [floats(1, 3, 4, 70)], {}, rtol
            ),
            Case(f"{kind}-everything", reduce_all(kind, (n, m), 0), [x], {"n": 5, "m": 37}, rtol),
            Case(f"{kind}-columns", reduce_leading(kind, n, m), [x], {"n": 5, "m": 37}, rtol),
            Case(
                f"{kind}-columns-static",
                reduce_leading(kind, 5, wide),
                [floats(2, 5, wide)],
                {},
                rtol,
            ),
        ]
    for mode in ("set", "add", "mul", "max", "min"):
        index = np.array([2, 2, 0, 4], np.int64)
        found.append(
            Case(
                f"scatter-{mode}",
                scatter(mode, 5, 37, n),
                [x, index, floats(11, 4, 37)],
                {"n": 4},
                1e-6,
            )
        )
    return found


def dequantize(n: Dim, c: Dim) -> LoopKernel:
    """uint8 to float32 with a scale and zero point per channel."""
    off = sub(cast(load(0, axes(0, 1), U8), F32), cast(load(2, axes(1), U8), F32))
    value = mul(off, load(1, axes(1), F32))
    return pointwise(value, (n, c), [(U8, (n, c)), (F32, (c,)), (U8, (c,))])


def keep_positive(n: Dim) -> LoopKernel:
    """A bool result and a bool operand."""
    x = load(0, axes(0), F32)
    value = binary("and", binary("lt", const(0.0, F32), x), load(1, axes(0), BOOL))
    return pointwise(value, (n,), [(F32, (n,)), (BOOL, (n,))])
