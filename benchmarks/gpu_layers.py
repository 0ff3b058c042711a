"""Where a network's time goes on a GPU: each launch of a plan next to its floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import braze
from braze.builder import make_kernels
from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig
from braze.core.trace import Trace
from braze.engine.steps import Launch
from braze.frontend.onnx.importer import import_network
from braze.fusion.work import Work, work_of

# measured on an H200: a copy, and cuBLAS float16 products
BYTES_PER_S, FLOPS_PER_S = 4.29e12, 758e12
REPLAYS = 5


@dataclass(frozen=True)
class Row:
    """One step: its device time in the whole network and what it cannot be faster than."""

    step: int
    name: str
    tactic: str
    us: float
    floor_us: float

    @property
    def lost_us(self) -> float:
        return self.us - self.floor_us


def floor_us(work: Work) -> float:
    """Microseconds at the card's ceilings."""
    return max(work.flops / FLOPS_PER_S, work.bytes / BYTES_PER_S) * 1e6


def floors(model: Path, level: int) -> list[tuple[str, float]]:
    """(name, floor) of the kernels of a network of static shapes, in the order of the plan."""
    trace = Trace()
    graph = import_network(str(model), shapes=None, values=None, trace=trace).graph
    config = BuildConfig(optimization_level=level)
    network = make_kernels(graph, config, find_backend("cuda", 1), trace)
    return [
        (f"{k.region.root.name} [{k.region.label}]", floor_us(work_of(k, {})))
        for k in network.kernels
    ]


def layer_table(
    model: Path, engine: braze.Engine, context: Any, feed: Mapping[str, torch.Tensor], level: int
) -> list[Row]:
    """A row for each step of a plan; the floor of a kernel of several launches is in its first.

    context: one with memory bound, which runs by `execute`; feed: its inputs, on the card.
    """
    steps = engine.plan.steps
    times = traced_times(len(steps), context)
    if times is None:
        print("  the card's tracing does not work here: kernels are timed by events, gaps included")
        host = {name: x.cpu().numpy() for name, x in feed.items()}
        runs = [engine.profile(host) for _ in range(REPLAYS)]
        times = [sorted(ns)[REPLAYS // 2] / 1e3 for ns in zip(*runs, strict=True)]
    kernels = iter(floors(model, level))
    rows, last = [], ""
    for i, step in enumerate(steps):
        floor = 0.0
        if step.name != last:
            last, floor = next(kernels)
            assert last == step.name, f"the kernels of the plan are others: {last}, {step.name}"
        tactic = step.tactic if isinstance(step, Launch) else step.TAG
        rows.append(Row(i, step.name, tactic, times[i], floor))
    return rows


def traced_times(count: int, context: Any) -> list[float] | None:
    """Device microseconds of each of the `count` kernels of a run, as the card's own tracing sees
    them in the network's graph, the median of some runs; None where it does not see them all."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        context.execute()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        for _ in range(REPLAYS):
            context.execute()
        torch.cuda.synchronize()
    on_card = [e for e in traced.events() if e.device_type == DeviceType.CUDA]
    kernels = [e.time_range for e in on_card if not e.name.startswith("Mem")]
    kernels.sort(key=lambda span: span.start)
    if len(kernels) != count * REPLAYS:
        print(f"  {len(kernels)} kernels traced in {REPLAYS} runs of {count} steps")
        return None
    spans = [kernels[i * count : (i + 1) * count] for i in range(REPLAYS)]
    columns = zip(*spans, strict=True)
    return [sorted(s.elapsed_us() for s in column)[REPLAYS // 2] for column in columns]


def lines(rows: Sequence[Row], count: int) -> list[str]:
    """The rows that lose most, and equal kernels together."""
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        label = row.name.partition(" [")[2].rstrip("]")
        groups.setdefault((label, row.tactic, round(row.floor_us, 2)), []).append(row)
    ordered = sorted(groups.items(), key=lambda g: -sum(r.lost_us for r in g[1]))
    total, floor = sum(r.us for r in rows), sum(r.floor_us for r in rows)
    out = [f"  {len(rows)} launches, sum {total:.1f} us, floor {floor:.1f} us"]
    out.append("  lost us   times   us each   floor   what")
    for (label, tactic, low), found in ordered[:count]:
        each = sum(r.us for r in found) / len(found)
        lost = sum(r.lost_us for r in found)
        first = found[0].name.partition(" [")[0]
        out.append(
            f"  {lost:7.1f}  x{len(found):<5} {each:8.2f} {low:7.2f}   {label}  {tactic}  ({first})"
        )
    return out
