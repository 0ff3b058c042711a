"""Loop kernels to machine code: the templates "loops" and "tiles" and their tactics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.loops.interleave import WeaveWriter, find_weave
from braze.codegen.cpu.loops.normal_form import Form, form
from braze.codegen.cpu.loops.schedule import Schedule, candidates, is_small
from braze.codegen.cpu.loops.transpose import TileWriter, find_tile
from braze.codegen.cpu.loops.writer import NestWriter
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.dims import Dim
from braze.expr.bounds import at_most, index_range
from braze.expr.guards import topological
from braze.expr.loops import LoopKernel
from braze.expr.scalar import Expr
from braze.fusion.in_place import in_place_slots
from braze.fusion.kernel import CompiledKernel, HostLaunch, Tactic

TEMPLATE = "loops"
TILE_TEMPLATE = "tiles"


def loop_tactics(kernel: LoopKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """Ways to generate `kernel`, the most promising first; one where nothing is measured.

    "tiles" comes first where a nest transposes or interleaves. Parameters of "loops": axis, the
    rank of the vectorised axis by estimated cost, for every nest; unroll, vectors per step (0: by
    nest).
    """
    best = Tactic(TEMPLATE, (("axis", 0), ("unroll", 0)))
    if not effort.estimate:
        return (best,)
    forms = [form(kernel, nest) for nest in kernel.nests]
    turned = any(find_tile(f, target) or find_weave(f, target) for f in forms)
    first = (Tactic(TILE_TEMPLATE),) if turned else ()
    if not effort.measure:
        return (*first, best)[:1]
    options = [candidates(f, target) for f in forms]
    found = {best: tuple(_choose(o, best) for o in options)}
    for rank in range(max(map(len, options), default=0)):
        if not all(_worth(o, rank, effort.loop_slack) for o in options):
            break
        for unroll in effort.unrolls:
            tactic = Tactic(TEMPLATE, (("axis", rank), ("unroll", unroll)))
            schedules = tuple(_choose(o, tactic) for o in options)
            if schedules not in found.values():
                found[tactic] = schedules
    return (*first, *found)


def _worth(options: Sequence[tuple[Schedule, float]], rank: int, slack: float) -> bool:
    """Whether the choice of this rank is cheap enough, by estimate, to be measured."""
    return options[min(rank, len(options) - 1)][1] <= slack * options[0][1]


def _choose(options: Sequence[tuple[Schedule, float]], tactic: Tactic) -> Schedule:
    if tactic.template == TILE_TEMPLATE:
        return options[0][0]
    schedule, _ = options[min(int(tactic["axis"]), len(options) - 1)]
    unroll = int(tactic["unroll"])
    if unroll and schedule.vector is not None:
        return replace(schedule, unroll=unroll)
    return schedule


def compile_loops(kernel: LoopKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Machine code for a loop kernel. Raises CompileError when it would need outside symbols."""
    name = _entry(kernel)
    overwritten = in_place_slots(kernel)
    shared = (*overwritten, len(kernel.inputs)) if overwritten else ()
    buffers = len(kernel.inputs) + len(kernel.outputs)
    fn = KernelFunction(name, target, buffers, shared=shared)
    forms = [form(kernel, nest) for nest in kernel.nests]
    parallel = can_share(kernel) and not all(is_small(f) for f in forms)
    for given in forms:
        _write(fn, given, tactic, parallel)
    # what templates leave to LLVM needs no more than its first level, at half the time
    data, params = fn.finish(speed=1, unroll=False)
    return CompiledKernel(elf(name, target, data), params, HostLaunch(parallel))


def _write(fn: KernelFunction, given: Form, tactic: Tactic, parallel: bool) -> None:
    if tactic.template == TILE_TEMPLATE:
        weave = find_weave(given, fn.target)
        if weave is not None:
            WeaveWriter(fn, given, weave, parallel).write()
            return
        tile = find_tile(given, fn.target)
        if tile is not None:
            TileWriter(fn, given, tile, parallel).write()
            return
    schedule = _choose(candidates(given, fn.target), tactic)
    NestWriter(fn, given, schedule, parallel).write()


def _entry(kernel: LoopKernel) -> str:
    stores = [s for nest in kernel.nests for s in nest.stores]
    last = stores[-1].expr.op if stores else "empty"
    return re.sub(r"\W", "_", f"loops_{last}")


def can_share(kernel: LoopKernel) -> bool:
    """Whether workers may run the kernel together with no barrier between its nests.

    Nests must not read what another writes, and must write places that are proven apart.
    """
    if any(nest.serial for nest in kernel.nests):
        return False
    if len(kernel.nests) == 1:
        return not _reads_outputs(kernel)
    if _reads_outputs(kernel):
        return False
    boxes: list[tuple[int, list[tuple[Dim | None, Dim | None]]]] = []
    for nest in kernel.nests:
        extents = dict(enumerate((*nest.outer, *nest.inner)))
        mine = [(s.slot, [index_range(i, extents) for i in s.index]) for s in nest.stores]
        if any(s.mode != "set" for s in nest.stores):
            return False
        for slot, box in mine:
            if any(slot == other and not _apart(box, theirs) for other, theirs in boxes):
                return False
        boxes.extend(mine)
    return True


def _reads_outputs(kernel: LoopKernel) -> bool:
    roots: list[Expr] = []
    for nest in kernel.nests:
        roots.extend(r.expr for r in nest.reduces)
        for s in nest.stores:
            roots.extend((*s.index, s.expr))
    loads = [e for e in topological(roots) if e.op == "load"]
    return any(e.slot >= len(kernel.inputs) for e in loads)


def _apart(a: list[tuple[Dim | None, Dim | None]], b: list[tuple[Dim | None, Dim | None]]) -> bool:
    """True when some axis has disjoint intervals."""
    for (a_low, a_high), (b_low, b_high) in zip(a, b, strict=True):
        if a_high is not None and b_low is not None and at_most(a_high + 1, b_low):
            return True
        if b_high is not None and a_low is not None and at_most(b_high + 1, a_low):
            return True
    return False
