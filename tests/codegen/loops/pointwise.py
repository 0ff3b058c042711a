"""Compile expressions over flat operands and run it: what the emitter tests share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from braze.codegen.cpu.llvm.emit import Emitter, Env
from braze.codegen.cpu.llvm.function import I64, KernelFunction, i64
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import sym
from braze.core.dtypes import DType
from braze.core.elements import stored
from braze.expr.evaluate import evaluate
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, axis, load
from braze.runtime.native import LoadedKernel, host_isa

Array = np.ndarray[Any, Any]
ORDER = ("x86-64", "avx2", "avx512")


def host_isas() -> tuple[str, ...]:
    """Every ISA this machine can run."""
    return ORDER[: ORDER.index(host_isa()) + 1]


def operand(slot: int, dtype: DType) -> Expr:
    """Element axis(0) of the flat operand in `slot`."""
    return load(slot, (axis(0),), dtype)


def compile_pointwise(
    exprs: Sequence[Expr], dtypes: Sequence[DType], isa: str, width: int, masked: bool = False
) -> LoadedKernel:
    """Loops one after another, each for an output of its own: see `_loop`."""
    n = sym("n")
    fn = KernelFunction("pointwise", CpuTarget(isa, 1), len(dtypes) + len(exprs))
    specs = [TensorSpec(d, (n,)) for d in [*dtypes, *(e.dtype for e in exprs)]]
    for slot, expr in enumerate(exprs, len(dtypes)):
        _loop(fn, expr, specs, slot, width, masked)
    data, params = fn.finish(speed=1, unroll=False)
    assert params == (n,)
    return LoadedKernel(data, "pointwise")


def _loop(
    fn: KernelFunction, expr: Expr, specs: list[TensorSpec], slot: int, width: int, masked: bool
) -> None:
    """out[i] = expr(i) for i < n, `width` lanes at a time; the rest masked or one by one."""
    (n,) = specs[slot].shape
    count = fn.dim(n)

    def step(i: Any, lanes: int, mask: Any) -> None:
        env = Env(specs, {0: (i, lanes > 1)}, mask=mask, extents={0: n})
        emitter = Emitter(fn, env, lanes, [expr])
        value = emitter.value(expr)
        emitter.memory.store(slot, specs[slot], (axis(0),), value)

    whole = fn.builder.mul(fn.builder.sdiv(count, i64(width)), i64(width))
    with fn.loop(0, whole, width) as i:
        step(i, width, None)
    if masked:
        with fn.if_(fn.builder.icmp_signed("<", whole, count)):
            lanes = Emitter(fn, Env(specs, {}), width, []).lanes
            left = lanes.splat(fn.builder.sub(count, whole))
            assert left.type.element == I64
            step(whole, width, fn.builder.icmp_signed("<", lanes.lane_numbers(), left))
    else:
        with fn.loop(whole, count) as i:
            step(i, 1, None)


def run_each(
    exprs: Sequence[Expr],
    operands: Sequence[Array],
    dtypes: Sequence[DType],
    isa: str,
    width: int,
    masked: bool = False,
) -> list[Array]:
    """Stored results of expressions of the same operands, compiled together."""
    made = [np.empty(operands[0].shape, e.dtype.numpy) for e in exprs]
    kernel = compile_pointwise(exprs, dtypes, isa, width, masked)
    status = kernel.run([*operands, *made], [operands[0].size], workers=1)
    assert status == 0, status
    return made


def run_pointwise(
    expr: Expr,
    operands: Sequence[Array],
    dtypes: Sequence[DType],
    isa: str,
    width: int,
    masked: bool = False,
) -> Array:
    """Stored results of the compiled expression."""
    (got,) = run_each([expr], operands, dtypes, isa, width, masked)
    return got


def expected(expr: Expr, operands: Sequence[Array]) -> Array:
    """Stored results by the numpy evaluator."""
    axes = {0: np.arange(operands[0].size)}
    return stored(evaluate(expr, axes, operands, {}), expr.dtype)
