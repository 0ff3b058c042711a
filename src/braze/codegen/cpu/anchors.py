"""Anchors of the CPU backend: which templates a kernel has and how they are compiled."""

from __future__ import annotations

from collections.abc import Sequence

from braze.codegen.cpu.attention.template import (
    attention_support,
    attention_tactics,
    compile_attention,
)
from braze.codegen.cpu.conv.depthwise import compile_depthwise, depthwise_tactics, is_depthwise
from braze.codegen.cpu.conv.template import compile_conv, conv_support, conv_tactics
from braze.codegen.cpu.conv.winograd.template import compile_winograd
from braze.codegen.cpu.product.template import compile_matmul, matmul_support, matmul_tactics
from braze.codegen.cpu.select.template import TEMPLATE as SELECT
from braze.codegen.cpu.select.template import compile_select, select_tactics
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.errors import CompileError
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Tactic
from braze.ops.lowering import AnchorSpec, ConvSpec, MatmulSpec, SelectSpec


def anchor_support(
    spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None where a template runs `spec`, else why none does (see `Abilities.supports`)."""
    if isinstance(spec, MatmulSpec):
        return matmul_support(spec, inputs)
    if isinstance(spec, ConvSpec):
        return conv_support(spec, inputs, constant)
    if isinstance(spec, SelectSpec):
        return None
    return attention_support(spec, inputs)


def anchor_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """Ways to compile `kernel`, best estimate first; empty when only its fallback can run it."""
    if anchor_support(kernel.spec, kernel.inputs, kernel.constant) is not None:
        return ()
    if isinstance(kernel.spec, MatmulSpec):
        return matmul_tactics(kernel, target, effort)
    if isinstance(kernel.spec, ConvSpec) and is_depthwise(kernel.spec):
        return depthwise_tactics(kernel, target, effort)
    if isinstance(kernel.spec, ConvSpec):
        return conv_tactics(kernel, target, effort)
    if isinstance(kernel.spec, SelectSpec):
        return select_tactics()
    return attention_tactics(kernel, target, effort)


def compile_anchor(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for `kernel` by `tactic`; raises CompileError for a tactic of another backend."""
    if tactic.template == "gemm":
        return compile_matmul(kernel, tactic, target)
    if tactic.template == "conv":
        return compile_conv(kernel, tactic, target)
    if tactic.template == "depthwise":
        return compile_depthwise(kernel, tactic, target)
    if tactic.template == "attention":
        return compile_attention(kernel, tactic, target)
    if tactic.template == "winograd":
        return compile_winograd(kernel, tactic, target)
    if tactic.template == SELECT:
        return compile_select(kernel, target)
    raise CompileError(f"tactic {tactic} is not one of the CPU backend; rebuild the timing cache")
