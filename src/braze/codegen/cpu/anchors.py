"""Anchors of the CPU backend: which templates a kernel has and how they are compiled."""

from __future__ import annotations

from braze.codegen.cpu.attention.template import attention_tactics, compile_attention
from braze.codegen.cpu.conv.depthwise import compile_depthwise, depthwise_tactics, is_depthwise
from braze.codegen.cpu.conv.template import compile_conv, conv_tactics
from braze.codegen.cpu.conv.winograd.template import compile_winograd
from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.cpu.product.template import compile_matmul, matmul_tactics
from braze.core.errors import CompileError
from braze.core.target import CpuTarget
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Tactic
from braze.ops.lowering import ConvSpec, MatmulSpec


def anchor_tactics(kernel: AnchorKernel, target: CpuTarget, level: int) -> tuple[Tactic, ...]:
    """Ways to compile `kernel`, best estimate first; empty when only its fallback can run it."""
    if isinstance(kernel.spec, MatmulSpec):
        return matmul_tactics(kernel, target, level)
    if isinstance(kernel.spec, ConvSpec) and is_depthwise(kernel.spec):
        return depthwise_tactics(kernel, target, level)
    if isinstance(kernel.spec, ConvSpec):
        return conv_tactics(kernel, target, level)
    return attention_tactics(kernel, target, level)


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
    raise CompileError(f"tactic {tactic} is not one of the CPU backend; rebuild the timing cache")


__all__ = ["anchor_tactics", "compile_anchor", "pack_anchor"]
