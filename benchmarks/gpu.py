#!/usr/bin/env python3
"""Time float16 networks in braze and in torch.compile on one NVIDIA GPU, in turns.

    python benchmarks/gpu.py [NETWORK:BATCH ...] [--peers NAME,NAME] [--layers 20]

Networks: resnet50 mobilenetv2 convnext_t vit_b16 bert_base gpt2, the last two of 128 tokens, and
llama, one step of a decoder. braze builds them from ONNX files that this script exports;
torch.compile gets the same module with fused attention, channels last and frozen weights. Inputs
lie on the device. Engines take turns in short bursts, so that a card whose clock drifts slows all
of them alike: what counts is the ratio within one run. Outputs are compared with the float32
module, because a fast wrong answer is worth nothing. The floor is the time of the bytes and
operations that the plan's kernels cannot do without, at the card's measured ceilings. Needs torch,
transformers and onnxscript.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gpu_layers
import torch
from gpu_networks import NETWORKS, first, reference

import braze
from braze.core.trace import Trace

CLOSING = (
    "resnet50:1", "resnet50:32", "resnet50:128", "bert_base:1", "bert_base:32", "vit_b16:1",
    "vit_b16:32", "mobilenetv2:1", "mobilenetv2:32", "convnext_t:1", "convnext_t:32", "gpt2:1",
    "gpt2:32",
)  # fmt: skip
LEAST_STAGE_S = 0.2  # shorter ones are not reported
BURST, UNCOUNTED, ROUNDS = 20, 5, 5
# torch.compile by name: what mode="reduce-overhead" sets, with weights folded and laid out while
# compiling, and with weights as they are; and without CUDA graphs
PEERS = {
    "reduce-overhead": {"triton.cudagraphs": True, "freezing": True},
    "unfrozen": {"triton.cudagraphs": True, "freezing": False},
    "default": {"triton.cudagraphs": False, "freezing": True},
}
Times = Callable[[int], list[float]]  # milliseconds of so many runs


@dataclass
class Result:
    """One network at one batch size; times are median milliseconds of a run, peers by mode.

    kernels_ms: the sum of the kernels' times on the card; in_place: kernels whose tactic is not the
    fastest alone but the one that makes the network faster; build_s, rebuild_s: without and with
    the timing cache; stages_s: where the first went.
    """

    case: str
    braze_ms: float = math.nan
    floor_ms: float = math.nan
    build_s: float = math.nan
    rebuild_s: float = math.nan
    error: float = math.nan
    kernels: int = 0
    kernels_ms: float = math.nan
    in_place: int = 0
    stages_s: dict[str, float] = field(default_factory=dict)
    peers_ms: dict[str, float] = field(default_factory=dict)
    peer_build_s: dict[str, float] = field(default_factory=dict)
    peer_error: float = math.nan
    failed: str = ""

    @property
    def ratio(self) -> float:
        """The fastest peer's time by braze's; nan without peers."""
        return min(self.peers_ms.values(), default=math.nan) / self.braze_ms


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


def compiled_peer(
    module: torch.nn.Module, feed: Sequence[torch.Tensor], mode: str
) -> Callable[[], Any]:
    """The module by torch.compile, warmed up. Options, unlike modes, live side by side."""
    run = torch.compile(module, options=PEERS[mode])
    with torch.inference_mode():
        for _ in range(3):
            run(*feed)
    torch.cuda.synchronize()
    return lambda: run(*feed)


def peers(
    case: str, feed: Sequence[torch.Tensor], modes: Sequence[str], r: Result
) -> dict[str, Times]:
    """Ways to time the peers; notes their build times and the error of the last."""
    network = NETWORKS[case.partition(":")[0]]
    found: dict[str, Times] = {}
    if not modes:
        return found
    module = network.module("sdpa").half().cuda()
    if network.is_image:
        module = module.to(memory_format=torch.channels_last)
        feed = [x.to(memory_format=torch.channels_last) for x in feed]
    want = reference(module, feed)
    for mode in modes:
        start = time.perf_counter()
        run = compiled_peer(module, feed, mode)
        r.peer_build_s[mode] = time.perf_counter() - start
        with torch.inference_mode():
            r.peer_error = relative(first(run()), want)

        def times(count: int, run: Callable[[], Any] = run) -> list[float]:
            with torch.inference_mode():
                return event_times(run, count)

        found[mode] = times
    return found


def build(
    case: str, folder: Path, options: argparse.Namespace, r: Result
) -> tuple[braze.Engine, dict[str, torch.Tensor]]:
    """Export and build; with --rebuild also again, with the timing cache of the first build."""
    name, _, batch = case.partition(":")
    network = NETWORKS[name]
    path = folder / f"{name}-{batch}.onnx"
    if not path.exists():
        network.export(int(batch), path, "cuda")
    cache = folder / f"{name}-{batch}-{options.level}.times"
    how: dict[str, Any] = {
        "target": "cuda", "optimization_level": options.level, "timing_cache": cache,
    }  # fmt: skip
    start = time.perf_counter()
    trace = Trace()
    engine = braze.build(str(path), trace=trace, **how)
    r.build_s = time.perf_counter() - start
    r.stages_s = {name: round(s, 2) for name, s in trace.seconds.items() if s > LEAST_STAGE_S}
    if options.rebuild:
        start = time.perf_counter()
        engine = braze.build(str(path), **how)
        r.rebuild_s = time.perf_counter() - start
    return engine, dict(zip(network.inputs, network.feed(int(batch), "cuda"), strict=True))


def own(case: str, folder: Path, options: argparse.Namespace, r: Result) -> Times:
    """braze's engine, ready to be timed; notes all that is known of it."""
    engine, feed = build(case, folder, options, r)
    contestant = Contestant(engine, feed)
    name, _, batch = case.partition(":")
    network = NETWORKS[name]
    want = reference(network.module("eager").half().cuda(), list(feed.values()))
    r.error = relative(contestant.outputs[network.outputs[0]], want)
    r.kernels = len(engine.plan.steps)
    decisions = engine.plan.record["decisions"]
    r.in_place = sum(d["kind"] == "in_place" for d in decisions)
    path = folder / f"{name}-{batch}.onnx"
    one_stream = Contestant(engine, feed, extra_streams=0)
    table = gpu_layers.layer_table(path, engine, one_stream.context, feed, options.level)
    r.floor_ms = sum(row.floor_us for row in table) / 1e3
    r.kernels_ms = sum(row.us for row in table) / 1e3
    if options.layers:
        print("\n".join([case, *gpu_layers.lines(table, options.layers)]), flush=True)
    return contestant.times


def compete(case: str, folder: Path, modes: Sequence[str], options: argparse.Namespace) -> Result:
    """Build all, then time them in turns."""
    name, _, batch = case.partition(":")
    r = Result(case)
    contestants = {} if options.only_peers else {"braze": own(case, folder, options, r)}
    contestants |= peers(case, NETWORKS[name].feed(int(batch), "cuda"), modes, r)
    times: dict[str, list[float]] = {engine: [] for engine in contestants}
    for _ in range(options.rounds):
        for engine, run in contestants.items():
            run(UNCOUNTED)
            times[engine] += run(BURST)
    r.peers_ms = {engine: statistics.median(ms) for engine, ms in times.items()}
    r.braze_ms = r.peers_ms.pop("braze", math.nan)
    return r


def line(r: Result) -> str:
    """One row of the report."""
    if r.failed:
        return f"{r.case:<15} FAILED {r.failed[:300]}"
    others = ", ".join(
        f"{m} {ms:.3f} ({r.peer_build_s.get(m, 0):.0f} s)" for m, ms in r.peers_ms.items()
    )
    return "  ".join((
        f"{r.case:<15} {r.braze_ms:8.3f} ms",
        f"ratio {r.ratio:5.2f}",
        f"{r.braze_ms / r.floor_ms:5.2f} x floor {r.floor_ms:.3f}",
        f"{r.kernels} kernels {r.kernels_ms:.3f} ms ({r.in_place} in place)",
        f"build {r.build_s:.1f}/{r.rebuild_s:.1f} s",
        f"error {r.error:.1e} (peer {r.peer_error:.1e})",
        others,
    ))  # fmt: skip


def geometric_mean(results: Sequence[Result]) -> float:
    """Of the ratios there are."""
    ratios = [r.ratio for r in results if not math.isnan(r.ratio)]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def known_peers(path: Path | None) -> Mapping[str, dict[str, float]]:
    """Peers' times of an earlier run, by case."""
    if path is None:
        return {}
    return {r["case"]: r["peers_ms"] for r in json.loads(path.read_text())}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*", default=CLOSING, help="NETWORK:BATCH")
    parser.add_argument("--level", type=int, default=3, help="optimization level")
    parser.add_argument(
        "--peers", default="reduce-overhead,unfrozen", help=f"of {', '.join(PEERS)}; '' for none"
    )
    parser.add_argument("--peers-from", type=Path, help="peers' times of an earlier --json")
    parser.add_argument(
        "--layers", type=int, default=0, help="also print so many layers by lost time"
    )
    parser.add_argument("--only-peers", action="store_true", help="leave braze out")
    parser.add_argument("--rebuild", action="store_true", help="build again with the timing cache")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--deadline", type=float, default=math.inf, help="start no case after seconds"
    )
    parser.add_argument("--folder", type=Path, help="keeps ONNX files and timing caches")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    begin = time.monotonic()
    modes = [m for m in args.peers.split(",") if m]
    folder = args.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    earlier = known_peers(args.peers_from)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name(), flush=True)
    results: list[Result] = []
    for case in args.cases:
        if time.monotonic() - begin > args.deadline:
            print(f"{case:<15} not run: the deadline has passed")
            continue
        try:
            result = compete(case, folder, modes, args)
        except Exception as e:  # one network that fails leaves the others their figures
            traceback.print_exc()
            result = Result(case, failed=f"{type(e).__name__}: {e}")
        result.peers_ms = {**earlier.get(case, {}), **result.peers_ms}
        results.append(result)
        print(line(result), flush=True)
        if args.json:
            args.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    print("\n" + "\n".join(map(line, results)))
    print(f"geometric mean of the ratios: {geometric_mean(results):.3f}")
    return int(any(r.failed for r in results))


if __name__ == "__main__":
    sys.exit(main())
