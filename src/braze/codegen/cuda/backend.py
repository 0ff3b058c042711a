"""The CUDA backend: Triton templates compiled to cubins, with or without a GPU at hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from braze.codegen.cuda.driver import Card, find_card, seek_card
from braze.codegen.cuda.gluon import attention as short_attention
from braze.codegen.cuda.gluon.layout import gluon_tile
from braze.codegen.cuda.gluon.pooled import pooled_sources, pooled_tactics, pools
from braze.codegen.cuda.gluon.product import gluon_source
from braze.codegen.cuda.gluon.stem import TEMPLATE as GLUON_STEM
from braze.codegen.cuda.gluon.stem import gluon_stem_sources, stem_tactics
from braze.codegen.cuda.gluon.sweep import TEMPLATE as SWEEP
from braze.codegen.cuda.gluon.sweep import sweep_source, sweep_tactics
from braze.codegen.cuda.gluon.tactics import gluon_tactics, is_large
from braze.codegen.cuda.gluon.walk import TEMPLATE as WALK
from braze.codegen.cuda.gluon.walk import walk_source, walk_tactics, walk_tile
from braze.codegen.cuda.libraries.tactics import (
    LIBRARIES,
    library_code,
    library_codes,
    library_listing,
    library_tactics,
    rest_sources,
    rest_takes,
)
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.cuda.products import product_tactics
from braze.codegen.cuda.row_tactics import TEMPLATE as ROW
from braze.codegen.cuda.row_tactics import row_tactics, row_tile
from braze.codegen.cuda.shipped import shipped_table, shipped_tactic
from braze.codegen.cuda.tactics import (
    attention_tactics,
    nest_blocks,
    nest_tactics,
    select_tactics,
    suppress_tactics,
    tile_of,
    window_of,
    window_tactics,
)
from braze.codegen.cuda.target import SHARED_BYTES, CudaTarget
from braze.codegen.cuda.timer import TimedElsewhere, Timer
from braze.codegen.cuda.triton.attention import attention_source
from braze.codegen.cuda.triton.conv import conv_source
from braze.codegen.cuda.triton.cubin import (
    EIGHT_BITS,
    OVERLAP,
    Cubin,
    compile_cubin,
    listing_of,
    triton_version,
)
from braze.codegen.cuda.triton.lanes import TEMPLATE as LANES
from braze.codegen.cuda.triton.lanes import lane_tactics, lanes_source
from braze.codegen.cuda.triton.matmul import matmul_source
from braze.codegen.cuda.triton.nests import TritonSource, sources_of_nests
from braze.codegen.cuda.triton.pool import compile_all
from braze.codegen.cuda.triton.pooled import PLAIN, plain_source, plain_tactic
from braze.codegen.cuda.triton.row import row_source
from braze.codegen.cuda.triton.select import select_source
from braze.codegen.cuda.triton.stem import folds, stem_sources
from braze.codegen.cuda.triton.suppress import suppress_source
from braze.codegen.cuda.triton.tile import FLOAT8, Tile
from braze.codegen.cuda.triton.window import is_depthwise, window_source
from braze.core.config import Effort
from braze.core.dtypes import BF16, F16, F32, I8, I32
from braze.core.errors import CompileError, ConfigError, TargetError
from braze.core.target import Preferences
from braze.core.version import __version__
from braze.core.words import worded
from braze.engine.plan import Plan
from braze.expr.loops import LoopKernel, TensorSpec
from braze.fusion.kernel import (
    AnchorKernel,
    Code,
    CompiledKernel,
    GridLaunch,
    Kernel,
    Packing,
    Tactic,
)
from braze.ops.lowering import (
    AnchorSpec,
    AttentionSpec,
    ConvSpec,
    MatmulSpec,
    PooledSpec,
    SelectSpec,
    SuppressSpec,
)
from braze.runtime.engine import Engine

REVISION: Final = 10  # change with every change to what a tactic means
DEFAULT: Final = "sm_90"
LARGEST_HEAD: Final = 256
HOPPER: Final = 90  # the capability whose instructions the Gluon templates are made of
FEW: Final = 8  # so few are compiled before workers have started
FLOATS: Final = (F32, F16, BF16)
# the template of each anchor; what has no line here is refused, and its loop nest runs
TEMPLATES: Final[Mapping[type[AnchorSpec], Callable[[AnchorKernel, Tile], TritonSource]]] = {
    MatmulSpec: matmul_source,
    ConvSpec: conv_source,
    AttentionSpec: attention_source,
    SelectSpec: select_source,
    SuppressSpec: suppress_source,
}


def cuda_backend(variant: str, threads: int) -> CudaBackend:
    """The backend for a compute capability ("": the card here; TargetError where there is none)."""
    card = seek_card()
    if variant and not (isinstance(card, Card) and card.capability == variant):
        return CudaBackend(CudaTarget(variant, threads))
    if not isinstance(card, Card):
        raise TargetError(
            f"target 'cuda' needs an NVIDIA GPU and {card}; name the card to compile for, such as "
            f"'cuda:{DEFAULT}', to build an engine for another machine"
        )
    if card.capability not in SHARED_BYTES:
        why = f"the GPU here ({card.name}) is {card.capability}, which is not one of "
        raise TargetError(
            *worded(
                lambda words: f"{why}{', '.join(SHARED_BYTES)}; use {words.option('target', 'cpu')}"
            )
        )
    return CudaBackend(CudaTarget(card.capability, threads, card.name, card.driver))


@dataclass(frozen=True)
class CudaBackend:
    """Implements `braze.codegen.backend.Backend`."""

    target: CudaTarget
    timer: Timer = field(default_factory=Timer, compare=False, repr=False)

    @property
    def preferences(self) -> Preferences:
        return Preferences(
            channels_last=frozenset({1, 2, 3}),
            max_cost=2000,
            joint_products=True,
            patch_products=True,
            side_by_side=True,
            finishes=True,
            grouped_queries=True,
            unsigned_bytes=False,
            fills=False,  # a tensor map gives zeros outside
            shares_products=False,  # rows and boxes are read from places that are known
            lowest_hides=True,
            halves=frozenset({"fp16", "bf16"}),
        )

    @property
    def generator(self) -> str:
        return f"braze {__version__} cuda {REVISION} triton {triton_version()}"

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        if isinstance(spec, PooledSpec):
            if self.target.number != HOPPER:
                return "pools behind convolutions have a template for Hopper alone"
            return pools(spec, inputs, constant)
        if type(spec) not in TEMPLATES:
            return f"{spec.kind} has no template"
        types = [i.dtype for i in inputs[:2]]
        if isinstance(spec, (SelectSpec, SuppressSpec)):
            return None
        if isinstance(spec, AttentionSpec):
            if types[0] not in FLOATS or len({i.dtype for i in inputs}) > 1:
                return f"attention of {types[0]} has no template"
            for size in (spec.head_dim, spec.value_dim):
                if not isinstance(size, int) or size > LARGEST_HEAD:
                    return f"heads of {size} do not fit into registers"
            return None
        products = types[0] in FLOATS and spec.acc is F32
        if types[0] is I8 and spec.acc is I32:
            products = isinstance(spec, MatmulSpec) or (
                isinstance(spec, ConvSpec) and not is_depthwise(spec)
            )
        if types[0] in FLOAT8 and self.target.number >= EIGHT_BITS:
            products = isinstance(spec, MatmulSpec)
        if not products or types[0] != types[1]:
            return f"products of {types[0]} and {types[1]} in {spec.acc} have no template"
        if isinstance(spec, ConvSpec):
            if 1 not in constant:
                return "its weight is not constant"
            if not spec.in_channels or not spec.out_channels:
                return "it has no channel"
            if spec.fill:
                return f"its padding holds {spec.fill}, and boxes are padded with zeros"
            if spec.groups > 1 and spec.in_channels == spec.groups and not is_depthwise(spec):
                return "a window with several outputs a channel is no product"
            if spec.pixels is None and not folds(spec):
                return "its pixels do not follow each other at one distance"
        return None

    def tactics(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        found = self._estimated(kernel, effort)
        timed = effort.measure and self.can_measure()
        if timed or not effort.estimate or not found:
            return found
        best = shipped_tactic(kernel, shipped_table(self.target.capability, REVISION))
        return tuple(dict.fromkeys((*best, *found)))

    def _estimated(self, kernel: Kernel, effort: Effort) -> tuple[Tactic, ...]:
        """Every tactic that is tried, the best estimate first."""
        if isinstance(kernel, LoopKernel):
            lanes = lane_tactics(kernel, 1 if effort.tactics == 1 else 2 * effort.tactics)
            return lanes + nest_tactics(kernel, effort)
        if self.supports(kernel.spec, kernel.inputs, kernel.constant) is not None:
            return ()
        if isinstance(kernel.spec, PooledSpec):
            return (*pooled_tactics(kernel, effort), plain_tactic())
        if isinstance(kernel.spec, AttentionSpec):
            return attention_tactics(kernel, effort) + self._short_attentions(kernel, effort)
        if isinstance(kernel.spec, SelectSpec):
            return select_tactics(effort)
        if isinstance(kernel.spec, SuppressSpec):
            return suppress_tactics(effort)
        if isinstance(kernel.spec, ConvSpec) and is_depthwise(kernel.spec):
            return window_tactics(kernel, effort)
        found = product_tactics(kernel, self.target.shared_bytes, effort)
        if self.target.number == HOPPER:
            shared = self.target.shared_bytes
            own = stem_tactics(kernel, shared, effort) or gluon_tactics(kernel, shared, effort)
            own += sweep_tactics(kernel, shared, effort) + walk_tactics(kernel, shared, effort)
            first = effort.estimate and is_large(kernel)
            found = own + found if first else found + own
        found = row_tactics(kernel, effort) + found
        if self.can_measure() and effort.measure:  # nothing else tells which algorithm is fast
            found += library_tactics(kernel, effort)
        return found

    def _short_attentions(self, kernel: AnchorKernel, effort: Effort) -> tuple[Tactic, ...]:
        """Tiles of attention over few keys, where they may be chosen by their times."""
        if self.target.number != HOPPER or effort.tactics == 1:
            return ()
        found = short_attention.head_tactics(kernel, self.target.shared_bytes)
        return found[: 3 * effort.tactics]

    def compile(self, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        sources = self.sources(kernel, tactic)
        cubins = [compile_cubin(s, self.target.number) for s in sources]
        if isinstance(kernel, AnchorKernel) and tactic.template in LIBRARIES:
            takes = rest_takes(kernel)
            return replace(library_code(kernel, tactic), then=self._joined(sources, cubins, takes))
        done = self._joined(sources, cubins)
        assert done is not None, "a kernel without nests"
        return done

    def compile_ahead(
        self, wanted: Sequence[tuple[Kernel, Tactic]]
    ) -> Mapping[int, CompiledKernel | CompileError]:
        if len(wanted) < FEW:
            return {}
        processors = len(os.sched_getaffinity(0))
        calls = {
            i: (kernel, tactic)
            for i, (kernel, tactic) in enumerate(wanted)
            if isinstance(kernel, AnchorKernel) and tactic.template in LIBRARIES
        }
        called = dict(zip(calls, library_codes(list(calls.values()), processors), strict=True))
        sources = [self.sources(kernel, tactic) for kernel, tactic in wanted]
        flat = [s for group in sources for s in group]
        cubins = iter(compile_all(flat, self.target.number, processors))
        done: dict[int, CompiledKernel | CompileError] = {}
        for i, group in enumerate(sources):
            made = [next(cubins) for _ in group]
            failed = [c for c in (called.get(i), *made) if isinstance(c, CompileError)]
            good = [c for c in made if isinstance(c, Cubin)]
            call = called.get(i)
            if failed:
                done[i] = failed[0]
            elif isinstance(call, CompiledKernel):
                takes = rest_takes(calls[i][0])
                done[i] = replace(call, then=self._joined(group, good, takes))
            else:
                joined = self._joined(group, good)
                assert joined is not None, "a kernel without nests"
                done[i] = joined
        return done

    def _joined(
        self,
        sources: Sequence[TritonSource],
        cubins: Sequence[Cubin],
        takes: tuple[int, ...] | None = None,
    ) -> CompiledKernel | None:
        """Launches as a chain; takes: the buffers that each takes, where it is not all."""
        done: CompiledKernel | None = None
        for source, cubin in reversed(list(zip(sources, cubins, strict=True))):
            code = Code("cubin", cubin.entry, self.target.capability, cubin.code)
            waits = source.waits and self.target.number >= OVERLAP
            memory = (cubin.shared, source.scratch_bytes, source.counters)
            launch = GridLaunch(source.grid, cubin.threads, *memory, waits, source.maps)
            done = CompiledKernel(code, source.params, launch, source.packings, done, takes)
        return done

    def sources(self, kernel: Kernel, tactic: Tactic) -> tuple[TritonSource, ...]:
        """The launches of `kernel` by one of its tactics."""
        if isinstance(kernel, LoopKernel):
            if tactic.template == LANES:
                return (lanes_source(kernel, tactic),)
            p = {k: int(v) for k, v in tactic.parameters}
            return sources_of_nests(kernel, nest_blocks(kernel, p))
        if isinstance(kernel.spec, PooledSpec):
            plain = tactic.template == PLAIN
            return (plain_source(kernel),) if plain else pooled_sources(kernel, tactic)
        if tactic.template == "stem":
            return stem_sources(kernel, tile_of(tactic))
        if tactic.template == "window":
            return (window_source(kernel, window_of(tactic)),)
        if tactic.template == short_attention.TEMPLATE:
            tile = short_attention.head_tile(tactic)
            return (short_attention.short_attention_source(kernel, tile),)
        if tactic.template == ROW:
            return (row_source(kernel, row_tile(tactic)),)
        if tactic.template == SWEEP:
            return (sweep_source(kernel, gluon_tile(tactic)),)
        if tactic.template == WALK:
            return (walk_source(kernel, walk_tile(tactic)),)
        if tactic.template == GLUON_STEM:
            return gluon_stem_sources(kernel, gluon_tile(tactic))
        if tactic.template == "gluon":
            return (gluon_source(kernel, gluon_tile(tactic)),)
        if tactic.template in LIBRARIES:
            return rest_sources(kernel, tactic)
        return (TEMPLATES[type(kernel.spec)](kernel, tile_of(tactic)),)

    def listing(self, kernel: Kernel, tactic: Tactic, form: str) -> str:
        sources = self.sources(kernel, tactic)
        calls: list[str] = []
        if isinstance(kernel, AnchorKernel) and tactic.template in LIBRARIES:
            calls = [library_listing(kernel, tactic)]
        if form == "ir":
            return "\n\n".join((*calls, *(s.text for s in sources)))
        if form == "asm":
            return "\n\n".join((*calls, *(listing_of(s, self.target.number) for s in sources)))
        raise ConfigError(f"there is no listing {form!r}; use ir or asm")

    def pack(self, array: np.ndarray[Any, Any], packing: Packing) -> np.ndarray[Any, Any]:
        return pack_constant(array, packing)

    def can_measure(self) -> bool:
        return bool(self.target.card)

    def workload(self, kernel: Kernel, sizes: Mapping[str, int]) -> TimedElsewhere:
        return TimedElsewhere(self.timer, kernel, sizes)

    def require(self) -> None:
        card = find_card()
        if card is None or card.capability != self.target.capability:
            here = "no NVIDIA GPU" if card is None else f"{card.name} ({card.capability})"
            why = (
                f"the engine needs a GPU of compute capability {self.target.capability} and this "
                f"machine has {here}"
            )
            raise TargetError(
                f"{why}; use `braze.compile` to make an engine for another machine",
                f"{why}; use `braze build` to write an engine for another machine",
            )

    def load(self, plan: Plan) -> Engine:
        return Engine.from_plan(plan)
