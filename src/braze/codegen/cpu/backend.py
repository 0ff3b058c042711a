"""The CPU backend: tactics of a kernel, its machine code, and the packing of its constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from braze.codegen.cpu.anchors import (
    anchor_tactics,
    compile_anchor,
    pack_anchor,
)
from braze.codegen.cpu.loops.template import compile_loops, loop_tactics
from braze.core.target import CpuTarget
from braze.expr.loops import LoopKernel
from braze.fusion.kernel import CompiledKernel, Kernel, Packing, Tactic
from braze.fusion.kernel_text import kernel_text


def tactics(kernel: Kernel, target: CpuTarget, level: int) -> tuple[Tactic, ...]:
    """Ways to generate code for `kernel`, the most promising first.

    Empty for an anchor that no template fits: its fallback loop nest must be used. level: the
    optimization level (higher levels give more tactics).
    """
    if isinstance(kernel, LoopKernel):
        return loop_tactics(kernel, target, level)
    return anchor_tactics(kernel, target, level)


def compile_kernel(kernel: Kernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Machine code of `kernel` by one of its tactics; raises CompileError."""
    if isinstance(kernel, LoopKernel):
        return compile_loops(kernel, tactic, target)
    return compile_anchor(kernel, tactic, target)


def pack(array: np.ndarray[Any, Any], packing: Packing) -> np.ndarray[Any, Any]:
    """A constant slot's content laid out as a template asked for."""
    return pack_anchor(array, packing)


__all__ = ["compile_kernel", "kernel_text", "pack", "tactics"]
