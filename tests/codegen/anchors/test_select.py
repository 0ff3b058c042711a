"""Selection: the first elements in sorted order, exactly as numpy's stable sort has them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_tactics, compile_anchor
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import Dim, evaluate, sym
from braze.core.dtypes import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)
from braze.expr.loops import TensorSpec
from braze.expr.scalar import hole
from braze.fusion.kernel import AnchorKernel, CompiledKernel
from braze.fusion.kernel_text import kernel_text, parse_kernel
from braze.ops.lowering import SelectSpec
from braze.runtime.native import LoadedKernel
from tests.codegen.anchors.harness import host_isas

Array = np.ndarray[Any, Any]
TYPES = [F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, BOOL]
SHAPES = [(1, 1, 1, 1), (2, 9, 1, 4), (3, 40, 2, 40), (1, 300, 5, 7), (4, 33, 1, 0), (2, 0, 3, 0)]


def select(outer: Dim, size: Dim, inner: Dim, count: Dim, dtype: DType, largest: bool):
    spec = SelectSpec((outer, size, inner), 1, count, largest)
    inputs = (TensorSpec(dtype, spec.shape),)
    return AnchorKernel(spec, inputs, TensorSpec(I64, spec.out_shape), hole(0, I64))


def memory(values: Array, dtype: DType) -> Array:
    """float32 values as they stand in memory as `dtype`."""
    if dtype is BF16:
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        return bits.view(dtype.numpy)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def mixed(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    """Many ties, both ends of the type, and for floats NaN of both signs, infinities and -0."""
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        pool = np.array([0.0, -0.0, 1, -1, 2.5, 1e-30, np.inf, -np.inf, np.nan, -np.nan, 7], "f4")
        drawn = np.where(
            rng.random(shape) < 0.5, rng.choice(pool, shape), rng.standard_normal(shape)
        )
        return memory(drawn.astype("f4"), dtype)
    if dtype is BOOL:
        return rng.integers(0, 2, shape).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    pool = np.array([info.min, info.max, info.max - 1, 0, 1, 2, 3, 100], dtype.numpy)
    return rng.choice(pool, shape)


@functools.lru_cache(maxsize=2)
def compiled(kernel: AnchorKernel, isa: str) -> tuple[CompiledKernel, LoadedKernel]:
    """One object for all sizes and numbers of workers."""
    (tactic,) = anchor_tactics(kernel, CpuTarget(isa, 2), EFFORTS[3])
    code = compile_anchor(kernel, tactic, CpuTarget(isa, 2))
    return code, LoadedKernel(code.code.data, code.code.entry)


def run(kernel: AnchorKernel, x: Array, isa: str, workers: int, env: dict[str, int]) -> Array:
    code, loaded = compiled(kernel, isa)
    shape = [evaluate(d, env) for d in kernel.output.shape]
    size, guard = int(np.prod(shape)), 16
    filled = np.full(size + 2 * guard, -7, np.int64)
    out = filled[guard : guard + size]
    buffers = [x, out]
    if code.launch.scratch_bytes != 0:
        needed = evaluate(code.launch.scratch_bytes, env) * workers
        buffers.append(np.full(max(1, needed), 0xFF, np.uint8))
    params = [evaluate(d, env) for d in code.params]
    assert loaded.run(buffers, params, workers=workers) == 0
    assert (filled[:guard] == -7).all() and (filled[guard + size :] == -7).all()
    return out.reshape(shape)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type(dtype: DType, largest: bool, isa: str) -> None:
    outer, size, inner, count = sym("o"), sym("n"), sym("i"), sym("k")
    kernel = select(outer, size, inner, count, dtype, largest)
    for shape in SHAPES:
        env = dict(zip("onik", shape, strict=True))
        x = mixed(shape[:3], dtype, sum(shape))
        (want,) = run_kernel(kernel, [x], env)
        for workers in (1, 3):
            np.testing.assert_array_equal(run(kernel, x, isa, workers, env), want)


@pytest.mark.parametrize("order", ["rising", "falling", "equal", "mixed"])
@pytest.mark.parametrize("count", [1, 2, 17, 999, 1000])
def test_orders_and_counts(order: str, count: int) -> None:
    kernel = select(2, 1000, 1, count, F32, True)
    line = np.arange(2000, dtype=np.float32).reshape(2, 1000, 1)
    x = {"rising": line, "falling": -line, "equal": line * 0, "mixed": np.sin(line)}[order]
    want = np.argsort(-x, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(run(kernel, x, host_isas()[0], 2, {}), want)


def test_nothing_is_selected() -> None:
    x = np.ones((2, 3, 1), np.float32)
    assert run(select(2, 3, 1, 0, F32, True), x, host_isas()[0], 2, {}).shape == (2, 0, 1)


def test_text() -> None:
    kernel = select(2, sym("n"), 3, 4, F16, False)
    assert parse_kernel(kernel_text(kernel)) == kernel
