"""Anchor kernels of the CPU tests in other element types."""

from __future__ import annotations

from dataclasses import replace

from braze.core.dtypes import F32, DType
from braze.expr.fold import rewrite
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, cast, load
from braze.fusion.kernel import AnchorKernel


def typed(kernel: AnchorKernel, dtype: DType) -> AnchorKernel:
    """A float32 kernel of `harness` with operands and output of another type."""
    if dtype is F32:
        return kernel

    def change(e: Expr) -> Expr | None:
        return cast(load(e.slot, e.args, dtype), F32) if e.op == "load" else None

    return replace(
        kernel,
        inputs=tuple(TensorSpec(dtype, t.shape) for t in kernel.inputs),
        output=TensorSpec(dtype, kernel.output.shape),
        epilogue=cast(rewrite(kernel.epilogue, change), dtype),
    )
