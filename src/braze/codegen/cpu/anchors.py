"""Anchors of the CPU backend: which templates a kernel has and how they are compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from braze.codegen.cpu.amx.template import compile_tiles, tile_tactics
from braze.codegen.cpu.attention.template import (
    attention_support,
    attention_tactics,
    compile_attention,
)
from braze.codegen.cpu.conv.depthwise import compile_depthwise, depthwise_tactics, is_depthwise
from braze.codegen.cpu.conv.template import compile_conv, conv_support, conv_tactics
from braze.codegen.cpu.conv.winograd.template import compile_winograd
from braze.codegen.cpu.product.coded_template import (
    coded_support,
    coded_tactics,
    compile_coded,
)
from braze.codegen.cpu.product.template import compile_matmul, matmul_support, matmul_tactics
from braze.codegen.cpu.recurrence.template import (
    compile_recurrence,
    recurrence_support,
    recurrence_tactics,
)
from braze.codegen.cpu.select.suppress import (
    compile_suppress,
    suppress_support,
    suppress_tactics,
)
from braze.codegen.cpu.select.template import compile_select, select_support, select_tactics
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.errors import CompileError
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Tactic
from braze.ops.lowering import (
    AnchorSpec,
    AttentionSpec,
    CodedSpec,
    ConvSpec,
    MatmulSpec,
    RecurrenceSpec,
    SelectSpec,
    SuppressSpec,
)

Offer = Callable[[AnchorKernel, CpuTarget, Effort], tuple[Tactic, ...]]


@dataclass(frozen=True)
class Family:
    """The templates of one kind of anchor.

    support(spec, inputs, constant): None, or why no template fits; tactics(kernel, target,
    effort): of what fits, best estimate first; compilers: tactic's template -> code of a kernel.
    """

    support: Callable[..., str | None]
    tactics: Offer
    compilers: Mapping[str, Callable[[AnchorKernel, Tactic, CpuTarget], CompiledKernel]]


def _conv_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    assert isinstance(kernel.spec, ConvSpec)
    if is_depthwise(kernel.spec):
        return depthwise_tactics(kernel, target, effort)
    return _with_tiles(conv_tactics, kernel, target, effort)


def _product_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    return _with_tiles(matmul_tactics, kernel, target, effort)


def _with_tiles(
    others: Offer, kernel: AnchorKernel, target: CpuTarget, effort: Effort
) -> tuple[Tactic, ...]:
    """AMX's tiles, where they fit, before the others; alone where these round differently."""
    found, limit = tile_tactics(kernel, target, effort), effort.tactics
    if not found:
        return others(kernel, target, effort)
    if kernel.spec.acc.is_float:
        return found
    kept = found[: max(1, limit - limit // 4)]
    return (*kept, *others(kernel, target, effort))[:limit]


# what has no line here is refused, and its loop nest runs
FAMILIES: Final[Mapping[type[AnchorSpec], Family]] = {
    MatmulSpec: Family(
        matmul_support, _product_tactics, {"gemm": compile_matmul, "amx": compile_tiles}
    ),
    CodedSpec: Family(coded_support, coded_tactics, {"coded": compile_coded}),
    ConvSpec: Family(
        conv_support,
        _conv_tactics,
        {
            "conv": compile_conv,
            "depthwise": compile_depthwise,
            "winograd": compile_winograd,
            "amx": compile_tiles,
        },
    ),
    AttentionSpec: Family(attention_support, attention_tactics, {"attention": compile_attention}),
    SelectSpec: Family(select_support, select_tactics, {"select": compile_select}),
    SuppressSpec: Family(suppress_support, suppress_tactics, {"suppress": compile_suppress}),
    RecurrenceSpec: Family(
        recurrence_support, recurrence_tactics, {"recurrence": compile_recurrence}
    ),
}


def anchor_support(
    spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None where a template runs `spec`, else why none does (see `Abilities.supports`)."""
    family = FAMILIES.get(type(spec))
    return (
        f"{spec.kind} has no template" if family is None else family.support(spec, inputs, constant)
    )


def anchor_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """Ways to compile `kernel`, best estimate first; empty when only its fallback can run it."""
    if anchor_support(kernel.spec, kernel.inputs, kernel.constant) is not None:
        return ()
    return FAMILIES[type(kernel.spec)].tactics(kernel, target, effort)


def compile_anchor(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for `kernel` by `tactic`; raises CompileError for a tactic of another backend."""
    family = FAMILIES.get(type(kernel.spec))
    make = None if family is None else family.compilers.get(tactic.template)
    if make is None:
        raise CompileError(
            f"tactic {tactic} is none of the CPU backend for {kernel.spec.kind}; "
            "rebuild the timing cache"
        )
    return make(kernel, tactic, target)
