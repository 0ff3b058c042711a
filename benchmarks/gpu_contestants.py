"""What benchmarks/gpu.py lets run against each other: one process each, which makes itself ready
and then runs as often as it is told.

A process each, because braze's engines and modules of torch.compile can then be made side by side,
and none has the caches, the streams and the memory of another.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gpu_layers
import torch
from gpu_networks import NETWORKS, Network, first, reference

import braze
from braze.core.trace import Trace

BRAZE = "braze"
LEAST_STAGE_S = 0.2  # shorter ones are not reported
WARM_S = 0.05  # of runs before those that count
# torch.compile by name: what mode="reduce-overhead" sets, with weights folded and laid out while
# compiling, and with weights as they are; and without CUDA graphs
PEERS = {
    "reduce-overhead": {"triton.cudagraphs": True, "freezing": True},
    "unfrozen": {"triton.cudagraphs": True, "freezing": False},
    "default": {"triton.cudagraphs": False, "freezing": True},
    "torchvision": {"triton.cudagraphs": True, "freezing": True},
}
Times = Callable[[int], list[float]]  # milliseconds of so many runs


@dataclass(frozen=True)
class Order:
    """One contestant: `name` is "braze" or one of PEERS.

    folder: keeps ONNX files and timing caches; layers: rows of the table of layers.
    """

    case: str
    name: str
    folder: Path
    level: int = 3
    layers: int = 0
    rebuild: bool = False

    @property
    def network(self) -> Network:
        return NETWORKS[self.case.partition(":")[0]]

    @property
    def batch(self) -> int:
        return int(self.case.partition(":")[2])


@dataclass
class Facts:
    """What a contestant says of itself when it is ready.

    build_s, rebuild_s: without and with the timing cache; error: against the float32 module;
    kernels_ms: the sum of the kernels' times on the card; in_place: kernels whose tactic is not the
    fastest alone but the one that makes the network faster; stages_s: where the build's time went.
    """

    build_s: float = math.nan
    rebuild_s: float = math.nan
    error: float = math.nan
    floor_ms: float = math.nan
    kernels: int = 0
    kernels_ms: float = math.nan
    in_place: int = 0
    stages_s: dict[str, float] = field(default_factory=dict)
    table: list[str] = field(default_factory=list)


def serve(order: Order, pipe: Connection) -> None:
    """Get ready and say so with `Facts`, or with a sentence why not. Then answer every number of
    runs with their times in milliseconds, and 0 with `Facts` that know each kernel's."""
    os.setsid()  # what it starts can be ended with it
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # others prepare too
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    facts = Facts()
    try:
        times, detail = own(order, facts) if order.name == BRAZE else (peer(order, facts), None)
    except Exception as e:  # one that fails leaves the others their figures
        traceback.print_exc()
        pipe.send(f"{type(e).__name__}: {e}")
        return
    pipe.send(facts)
    while True:
        count = pipe.recv()
        if not count:
            if detail is not None:
                detail()
            pipe.send(facts)
            continue
        end = time.perf_counter() + WARM_S
        while time.perf_counter() < end:
            times(5)
        pipe.send(times(count))


def relative(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative L2 error; infinite where numbers became none."""
    if not bool(torch.isfinite(got).all()):
        return math.inf
    return float((got.double() - want.double()).norm() / want.double().norm())


def event_times(run: Callable[[], Any], count: int) -> list[float]:
    """Milliseconds of each run between two events of the current stream."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


class Contestant:
    """braze: an engine on device memory and a stream of torch."""

    def __init__(
        self, engine: braze.Engine, feed: Mapping[str, torch.Tensor], **options: int
    ) -> None:
        self.context = engine.create_context(**options)
        self.stream, self.feed = torch.cuda.Stream(), feed
        for name, x in feed.items():
            self.context.set_input_shape(name, tuple(x.shape))
            self.context.bind(name, x)
        device = next(iter(feed.values())).device
        self.outputs = {}
        for out in engine.outputs:
            y = torch.zeros(self.context.shape(out.name), dtype=torch.float16, device=device)
            self.context.bind(out.name, y)
            self.outputs[out.name] = y
        torch.cuda.synchronize()
        self.run()
        self.context.synchronize()

    def run(self) -> None:
        """Put a run on the stream."""
        self.context.enqueue(self.stream)

    def times(self, count: int) -> list[float]:
        """Milliseconds of each run on the card."""
        with torch.cuda.stream(self.stream):
            found = event_times(self.run, count)
        self.context.synchronize()
        return found


def peer(order: Order, facts: Facts) -> Times:
    """A module by torch.compile, warmed up. Options, unlike modes, may be combined."""
    network = order.network
    feed: Sequence[torch.Tensor] = network.feed(order.batch, "cuda")
    if order.name == "torchvision":
        module = torchvision_module(order.case)
    else:
        module = network.module("sdpa")
    module = module.half().cuda()
    if network.is_image:
        module = module.to(memory_format=torch.channels_last)
        feed = [x.to(memory_format=torch.channels_last) for x in feed]
    start = time.perf_counter()
    run = torch.compile(module, options=PEERS[order.name])
    with torch.inference_mode():
        for _ in range(3):
            got = first(run(*feed)).clone()
    torch.cuda.synchronize()
    facts.build_s = time.perf_counter() - start
    facts.error = relative(got, reference(module, feed))

    def times(count: int) -> list[float]:
        with torch.inference_mode():
            return event_times(lambda: run(*feed), count)

    return times


def torchvision_module(case: str) -> torch.nn.Module:
    """The vision transformer as torchvision has it: other code for the same network."""
    import torchvision

    if not case.startswith("vit_b16"):
        raise ValueError(f"{case} is not compared with torchvision's module; only vit_b16 is")
    torch.manual_seed(0)
    module: torch.nn.Module = torchvision.models.vit_b_16().eval()
    # its head begins as zeros
    torch.nn.init.normal_(module.heads.head.weight, std=0.02)
    return module


def build(order: Order, facts: Facts) -> tuple[braze.Engine, dict[str, torch.Tensor]]:
    """Export and build; with `rebuild` also again, with the timing cache of the first build."""
    network, name = order.network, order.case.replace(":", "-")
    path = order.folder / f"{name}.onnx"
    if not path.exists():
        network.export(order.batch, path, "cuda")
    cache = order.folder / f"{name}-{order.level}.times"
    how: dict[str, Any] = {
        "target": "cuda", "optimization_level": order.level, "timing_cache": cache,
    }  # fmt: skip
    start = time.perf_counter()
    trace = Trace()
    engine = braze.build(str(path), trace=trace, **how)
    facts.build_s = time.perf_counter() - start
    facts.stages_s = {s: round(t, 2) for s, t in trace.seconds.items() if t > LEAST_STAGE_S}
    if order.rebuild:
        start = time.perf_counter()
        engine = braze.build(str(path), **how)
        facts.rebuild_s = time.perf_counter() - start
    return engine, dict(zip(network.inputs, network.feed(order.batch, "cuda"), strict=True))


def own(order: Order, facts: Facts) -> tuple[Times, Callable[[], None]]:
    """braze's engine, ready to be timed, and what notes the time of each of its kernels."""
    network = order.network
    engine, feed = build(order, facts)
    contestant = Contestant(engine, feed)
    want = reference(network.module("eager").half().cuda(), list(feed.values()))
    facts.error = relative(contestant.outputs[network.outputs[0]], want)
    facts.kernels = len(engine.plan.steps)
    decisions = engine.plan.record["decisions"]
    facts.in_place = sum(d["kind"] == "in_place" for d in decisions)

    def detail() -> None:
        path = order.folder / f"{order.case.replace(':', '-')}.onnx"
        one_stream = Contestant(engine, feed, extra_streams=0)
        table = gpu_layers.layer_table(path, engine, one_stream.context, feed, order.level)
        facts.floor_ms = sum(row.floor_us for row in table) / 1e3
        facts.kernels_ms = sum(row.us for row in table) / 1e3
        facts.table = gpu_layers.lines(table, order.layers) if order.layers else []

    return contestant.times, detail
