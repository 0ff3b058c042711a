"""Promises of loop kernels beyond values: same bits for any worker count, checks, aliasing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.loops.template import can_share, compile_loops, loop_tactics
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import F32, I64
from braze.core.errors import ExecutionError
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store
from braze.expr.scalar import axis, binary, const, load, red, select, unary
from braze.runtime.native import LoadedKernel
from tests.codegen.loops.kernels import (
    add,
    add_bias,
    axes,
    concat,
    dequantize,
    embedding,
    floats,
    keep_positive,
    layer_norm,
    max_pool,
    mul,
    one_nest,
    pointwise,
    reduce_all,
    reduce_leading,
    scan,
    scatter,
    softmax,
    sub,
    transpose,
    whole,
    within,
)
from tests.codegen.loops.pointwise import host_isas
from tests.codegen.loops.test_loops import run

Array = np.ndarray[Any, Any]
N = sym("n")


def large() -> list[tuple[str, LoopKernel, list[Array], dict[str, int]]]:
    """Kernels with enough work to be shared."""
    x = floats(1, 70, 1037)
    return [
        ("bias", add_bias(N, 61, 40), [floats(1, 50, 61, 40), floats(2, 40)], {"n": 50}),
        ("softmax", softmax(70, 1037), [x], {}),
        ("softmax-dynamic", softmax(N, 1037), [x], {"n": 70}),
        ("layernorm", layer_norm(70, 1037), [x, floats(2, 1037), floats(3, 1037)], {}),
        ("columns", reduce_leading("sum", 70, 1037), [x], {}),
        ("columns-dynamic", reduce_leading("sum", N, 1037), [x], {"n": 70}),
        ("rows", reduce_all("sum", (N, 1037), 1), [x], {"n": 70}),
        ("argmax", reduce_all("argmax", (70, 1037), 1), [x], {}),
        ("pool", max_pool(1, 37, 41, 96), [floats(4, 1, 37, 41, 96)], {}),
        ("transpose", transpose(N, 70), [x], {"n": 1037}),
        ("scan", scan("scan", N, 1037), [x], {"n": 70}),
        ("concat", concat(N, 1037, 500), [x, floats(5, 70, 500)], {"n": 70}),
    ]


@pytest.mark.parametrize(("name", "kernel", "inputs", "env"), large(), ids=lambda v: str(v)[:20])
def test_worker_count_changes_no_bit(
    name: str, kernel: LoopKernel, inputs: list[Array], env: dict[str, int]
) -> None:
    isa = host_isas()[-1]
    _, (alone,) = run(kernel, inputs, env, isa)
    assert not np.any(np.isnan(alone)) if alone.dtype.kind == "f" else True
    for workers in (2, 3, 7):
        status, (together,) = run(kernel, inputs, env, isa, workers=workers)
        assert status == 0
        np.testing.assert_array_equal(together, alone, err_msg=f"{name}: {workers} workers")


def test_equal_rows_give_equal_bits() -> None:
    row = floats(6, 1, 203)
    rows = np.repeat(row, 5, axis=0)
    for isa in host_isas():
        for kernel in (softmax(N, 203), reduce_all("sum", (N, 203), 1)):
            _, (got,) = run(kernel, [rows], {"n": 5}, isa)
            _, (one,) = run(kernel, [row], {"n": 1}, isa)
            for k in range(5):
                np.testing.assert_array_equal(got[k], one[0])


def test_index_out_of_range_is_reported_and_reads_nothing() -> None:
    table = floats(7, 11, 37)
    for bad in (11, -1, 2**40, -(2**62)):
        index = np.array([3, bad, 0], np.int64)
        with pytest.raises(ExecutionError, match="out of range"):
            run_kernel(embedding(11, 37, N), [table, index], {"n": 3})
        for isa in host_isas():
            status, (got,) = run(embedding(11, 37, N), [table, index], {"n": 3}, isa)
            assert status == 1
            np.testing.assert_array_equal(got[[0, 2]], table[[3, 0]])


def test_scatter_out_of_range_writes_nothing() -> None:
    data, updates = floats(8, 5, 37), floats(9, 2, 37)
    index = np.array([5, 1], np.int64)
    for mode in ("set", "add"):
        for isa in host_isas():
            status, (got,) = run(scatter(mode, 5, 37, N), [data, index, updates], {"n": 2}, isa)
            assert status == 1
            np.testing.assert_array_equal(got[[0, 2, 3, 4]], data[[0, 2, 3, 4]])


def test_unneeded_index_is_not_checked() -> None:
    """A gather behind a select only reports indexes that the select chooses."""
    index = load(1, axes(0), I64)
    use = binary("lt", index, whole(4))
    value = select(use, load(0, (index,), F32), const(9.0, F32))
    kernel = pointwise(value, (N,), [(F32, (4,)), (I64, (N,))])
    ids = np.array([3, 700, 0, 4, 1] * 9, np.int64)
    want = run_kernel(kernel, [floats(1, 4), ids], {"n": 45})
    for isa in host_isas():
        status, got = run(kernel, [floats(1, 4), ids], {"n": 45}, isa)
        assert status == 0
        np.testing.assert_array_equal(got[0], want[0])


@pytest.mark.parametrize("width", [3, 16, 45])
def test_padding_reads_only_inside(width: int) -> None:
    """A select around a shifted load: vector loads are masked where it does not choose them."""
    shifted = sub(axis(1), whole(2))
    value = select(within(shifted, N), load(0, (axis(0), shifted), F32), const(-1.0, F32))
    kernel = pointwise(value, (2, N + 5), [(F32, (2, N))])
    x = floats(2, 2, width)
    want = np.pad(x, [(0, 0), (2, 3)], constant_values=-1.0)
    for isa in host_isas():
        status, (got,) = run(kernel, [x], {"n": width}, isa)
        assert status == 0
        np.testing.assert_array_equal(got, want)


def test_in_place_output() -> None:
    """A pointwise kernel may write over its first operand."""
    x = load(0, axes(0), F32)
    kernel = pointwise(add(mul(x, x), load(1, axes(0), F32)), (N,), [(F32, (N,)), (F32, (N,))])
    a, b = floats(3, 1003), floats(4, 1003)
    want = a * a + b
    for isa in host_isas():
        target = CpuTarget(isa, 2)
        for tactic in loop_tactics(kernel, target, EFFORTS[5]):
            compiled = compile_loops(kernel, tactic, target)
            shared = a.copy()
            loaded = LoadedKernel(compiled.code.data, compiled.code.entry)
            assert loaded.run([shared, b, shared], [1003], workers=2) == 0
            np.testing.assert_array_equal(shared, want)


def test_empty_sizes() -> None:
    for isa in host_isas():
        for n, m in ((0, 7), (3, 0), (0, 0)):
            kernel = reduce_all("sum", (N, sym("m")), 1)
            status, (got,) = run(kernel, [np.zeros((n, m), np.float32)], {"n": n, "m": m}, isa)
            assert status == 0
            np.testing.assert_array_equal(got, np.zeros(n, np.float32))
            status, (got,) = run(
                softmax(N, sym("m")), [np.zeros((n, m), np.float32)], {"n": n, "m": m}, isa
            )
            assert status == 0 and got.shape == (n, m)


def test_nan_and_ties_in_arg_reductions() -> None:
    rows = np.zeros((4, 40), np.float32)
    rows[0, [7, 20]] = 5
    rows[1, [9, 33]] = np.nan
    rows[2] = -np.inf
    rows[3, 39] = np.inf
    for kind in ("argmax", "argmin", "argmax_last", "argmin_last", "max", "min"):
        kernel = reduce_all(kind, (N, 40), 1)
        want = run_kernel(kernel, [rows], {"n": 4})
        for isa in host_isas():
            for tactic in loop_tactics(kernel, CpuTarget(isa, 1), EFFORTS[3]):
                _, got = run(kernel, [rows], {"n": 4}, isa, tactic)
                np.testing.assert_array_equal(got[0], want[0], err_msg=f"{kind} {isa} {tactic}")


def test_mixed_types() -> None:
    rng = np.random.default_rng(0)
    q, zero = (
        rng.integers(0, 256, (9, 21)).astype(np.uint8),
        rng.integers(0, 9, 21).astype(np.uint8),
    )
    scale = floats(5, 21)
    flags = rng.integers(0, 2, 77).astype(bool)
    x = floats(6, 77)
    for isa in host_isas():
        _, (got,) = run(dequantize(N, 21), [q, scale, zero], {"n": 9}, isa)
        np.testing.assert_array_equal(got, (q.astype(np.float32) - zero) * scale)
        _, (keep,) = run(keep_positive(N), [x, flags], {"n": 77}, isa)
        np.testing.assert_array_equal(keep, (x > 0) & flags)


def test_reshaped_indexes_become_plain() -> None:
    """(i // 12, i % 12) of a flat axis over (n, 12) is one contiguous walk, split or not."""
    i = axis(0)
    place = (binary("floordiv", i, whole(12)), binary("mod", i, whole(12)))
    value = unary("neg", load(0, place, F32))
    kernel = pointwise(value, (N * 12,), [(F32, (N, 12))])
    x = floats(7, 5, 12)
    for isa in host_isas():
        _, (got,) = run(kernel, [x], {"n": 5}, isa)
        np.testing.assert_array_equal(got, -x.ravel())


def test_heads_split_and_transposed() -> None:
    """[b, s, h * d] read as [b, h, s, d] from one flat output axis."""
    i = axis(1)
    head = binary("floordiv", i, mul(whole(N), whole(8)))
    rest = binary("mod", i, mul(whole(N), whole(8)))
    place = (
        axis(0),
        binary("floordiv", rest, whole(8)),
        add(mul(head, whole(8)), binary("mod", rest, whole(8))),
    )
    kernel = pointwise(load(0, place, F32), (2, N * 24), [(F32, (2, N, 24))])
    x = floats(8, 2, 5, 24)
    want = x.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3).reshape(2, -1)
    for isa in host_isas():
        for tactic in loop_tactics(kernel, CpuTarget(isa, 1), EFFORTS[4]):
            _, (got,) = run(kernel, [x], {"n": 5}, isa, tactic)
            np.testing.assert_array_equal(got, want)


def test_sharing_needs_disjoint_stores() -> None:
    assert can_share(concat(N, 5, 7))
    assert can_share(softmax(N, 7))
    assert not can_share(scatter("set", 5, 7, N))
    fill = LoopNest((N, 12), (), (), (Store(0, axes(0, 1), const(0.0, F32)),))
    copy = LoopNest((N, 5), (), (), (Store(0, axes(0, 1), load(0, axes(0, 1), F32)),))
    assert not can_share(one_nest([(F32, (N, 5))], [(F32, (N, 12))], fill, copy))


def test_two_reductions_in_one_pass_and_two_outputs() -> None:
    x = load(0, axes(0, 1), F32)
    nest = LoopNest(
        (N,),
        (50,),
        (Reduce("max", x), Reduce("argmin", x), Reduce("sum", mul(x, x))),
        (Store(0, axes(0), add(red(0, F32), red(2, F32))), Store(1, axes(0), red(1, I64))),
    )
    kernel = one_nest([(F32, (N, 50))], [(F32, (N,)), (I64, (N,))], nest)
    rows = floats(9, 6, 50)
    for isa in host_isas():
        for tactic in loop_tactics(kernel, CpuTarget(isa, 1), EFFORTS[3]):
            _, (total, where) = run(kernel, [rows], {"n": 6}, isa, tactic)
            np.testing.assert_allclose(total, rows.max(1) + (rows * rows).sum(1), rtol=1e-5)
            np.testing.assert_array_equal(where, rows.argmin(1))


def test_reduction_over_one_point() -> None:
    """Also in a nest that would otherwise be tiled."""
    x, y = load(0, axes(0, 1, 2), F32), load(1, axes(0, 1), F32)
    store = Store(0, axes(1, 0), sub(y, red(0, F32)))
    nest = LoopNest((N, 40), (1,), (Reduce("sum", x),), (store,))
    kernel = one_nest([(F32, (N, 40, 1)), (F32, (N, 40))], [(F32, (40, N))], nest)
    a, b = floats(1, 33, 40, 1), floats(2, 33, 40)
    for isa in host_isas():
        for tactic in loop_tactics(kernel, CpuTarget(isa, 1), EFFORTS[3]):
            _, (got,) = run(kernel, [a, b], {"n": 33}, isa, tactic)
            np.testing.assert_array_equal(got, (b - a[..., 0]).T)


def test_ties_are_met_in_row_major_order() -> None:
    """Also when an earlier inner axis is the contiguous one."""
    x = load(0, axes(1, 0), F32)
    for kind in ("argmax", "argmin", "argmax_last"):
        store = Store(0, (), red(0, I64))
        kernel = one_nest(
            [(F32, (7, 40))], [(I64, ())], LoopNest((), (40, 7), (Reduce(kind, x),), (store,))
        )
        data = np.random.default_rng(3).integers(0, 3, (7, 40)).astype(np.float32)
        (want,) = run_kernel(kernel, [data], {})
        for isa in host_isas():
            for tactic in loop_tactics(kernel, CpuTarget(isa, 1), EFFORTS[3]):
                _, (got,) = run(kernel, [data], {}, isa, tactic)
                assert got == want, f"{kind} {isa} {tactic}"


@pytest.mark.parametrize("channels", [2, 3, 4, 5])
def test_planes_become_pixels(channels: int) -> None:
    """Channels first to last with a scale and a padded border, and as bool."""
    moved = sub(axis(1), whole(1))
    inside = within(moved, N)
    pixel = select(inside, load(0, (axis(0), axis(2), moved), F32), const(2.0, F32))
    value = mul(pixel, load(1, axes(2), F32))
    kernel = pointwise(value, (2, N + 2, channels), [(F32, (2, channels, N)), (F32, (channels,))])
    flag = pointwise(
        binary("lt", const(0.0, F32), load(0, axes(1, 0), F32)),
        (N, channels),
        [(F32, (channels, N))],
    )
    for n in (5, 77):
        x, scale = floats(1, 2, channels, n), floats(2, channels)
        padded = np.pad(x, [(0, 0), (0, 0), (1, 1)], constant_values=2.0)
        want = padded.transpose(0, 2, 1) * scale
        for isa in host_isas():
            for tactic in loop_tactics(kernel, CpuTarget(isa, 2), EFFORTS[3]):
                _, (got,) = run(kernel, [x, scale], {"n": n}, isa, tactic, workers=2)
                np.testing.assert_array_equal(got, want, err_msg=f"{isa} {tactic}")
            for tactic in loop_tactics(flag, CpuTarget(isa, 2), EFFORTS[3]):
                _, (got,) = run(flag, [x[0].copy()], {"n": n}, isa, tactic)
                np.testing.assert_array_equal(got, x[0].T > 0)


@pytest.mark.parametrize("isa", host_isas())
def test_long_sums_over_leading_axes_are_accurate(isa: str) -> None:
    """The means of channels-last images: one number of each row, so lanes shorten no chain."""
    n, width = 200_704, 16
    x = np.full((n, width), np.float32(0.1))
    want = x.astype(np.float64).sum(0)
    known, unknown = reduce_leading("sum", n, width), reduce_leading("sum", N, width)
    for workers in (1, 3):
        _, (got,) = run(known, [x], {}, isa, workers=workers)
        # 32 + 32 + 196 additions in a chain, whose roundoffs of equal terms add up: a chain of
        # 32 and one of 6,272 were off by 1e-5
        np.testing.assert_allclose(got, want, rtol=4e-6)
        _, (same,) = run(unknown, [x], {"n": n}, isa, workers=workers)
        np.testing.assert_array_equal(same, got)
