"""`run_kernel`: what a kernel computes, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from braze.codegen.reference.anchors import run_anchor
from braze.codegen.reference.loops import run_loops
from braze.expr.loops import LoopKernel
from braze.fusion.kernel import Kernel


def run_kernel(
    kernel: Kernel,
    inputs: Sequence[np.ndarray[Any, Any]],
    env: Mapping[str, int],
    float64: bool = False,
) -> list[np.ndarray[Any, Any]]:
    """Outputs of `kernel` as they stand in memory (`DType.numpy`).

    inputs: stored arrays in slot order; env: values of symbols; float64: accumulate in float64.
    Raises ExecutionError when the kernel would report an index out of range.
    """
    with np.errstate(all="ignore"):  # NaN and infinities are values like others
        if isinstance(kernel, LoopKernel):
            return run_loops(kernel, inputs, env, float64)
        return run_anchor(kernel, inputs, env, float64)
