#!/usr/bin/env python3
"""Time float16 networks in braze and in torch.compile on one NVIDIA GPU, in turns.

    python benchmarks/gpu.py [--only NETWORK[:BATCH],...] [--peers NAME,NAME] [--layers 20]

Networks: resnet50 mobilenetv2 convnext_t vit_b16 bert_base gpt2, the last two of 128 tokens, and
llama, one step of a decoder. braze builds them from ONNX files that this script exports;
torch.compile gets the same module with fused attention, channels last and frozen weights. Inputs
lie on the device. All contestants are made side by side, each in a process of its own; then one
network after the other is timed. Its engines take turns in short
bursts, so that a card whose clock drifts slows all of them alike: what counts is the ratio within
one run. Outputs are compared with the float32 module, because a fast wrong answer is worth
nothing. The floor is the time of the bytes and operations that the plan's kernels cannot do
without, at the card's measured ceilings. Needs torch, transformers and onnxscript, and torchvision
for the peer of that name (which only vit_b16 has).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import multiprocessing
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from gpu_contestants import BRAZE, PEERS, Facts, Order, serve

CASES = (
    "resnet50:1", "resnet50:32", "resnet50:128", "bert_base:1", "bert_base:32", "vit_b16:1",
    "vit_b16:32", "mobilenetv2:1", "mobilenetv2:32", "convnext_t:1", "convnext_t:32", "gpt2:1",
    "gpt2:32",
)  # fmt: skip
DECODER = "llama:1"  # has a bound of its own
BURST, ROUNDS = 30, 5
BUILDS = 2  # of braze at a time
ONLY = {"torchvision": "vit_b16"}  # peers that one network has


@dataclass
class Result:
    """One network at one batch size; times are median milliseconds of a run, peers by name."""

    case: str
    braze_ms: float = math.nan
    facts: Facts = field(default_factory=Facts)
    peers_ms: dict[str, float] = field(default_factory=dict)
    peer_facts: dict[str, Facts] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # sentences, by contestant

    @property
    def ratio(self) -> float:
        """The fastest peer's time by braze's; nan without peers."""
        return min(self.peers_ms.values(), default=math.nan) / self.braze_ms


class Process:
    """A contestant, seen from here."""

    def __init__(self, order: Order) -> None:
        spawning = multiprocessing.get_context("spawn")
        self.order = order
        self.pipe: Connection
        self.pipe, theirs = spawning.Pipe()
        self._process = spawning.Process(target=serve, args=(order, theirs), daemon=False)
        self._process.start()
        theirs.close()

    def answer(self) -> Any:
        """What it says next; a sentence where it says nothing any more."""
        try:
            return self.pipe.recv()
        except EOFError:
            return "its process has ended"

    def ask(self, count: int) -> Any:
        """The answer to a number of runs."""
        self.pipe.send(count)
        return self.answer()

    def end(self) -> None:
        """End it, and what it has started."""
        pid = self._process.pid
        try:
            if pid is not None:
                os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or has not begun
            self._process.kill()
        self._process.join()


def prepare(
    wanted: Sequence[tuple[str, str]], args: argparse.Namespace, deadline: float
) -> Iterator[tuple[Process, Any]]:
    """Every contestant with its first answer, as they come: as many at a time as the host has
    cores, but few builds of braze, each of which uses all of them."""
    waiting, running = list(wanted), dict[Connection, Process]()
    most = len(os.sched_getaffinity(0))
    while waiting or running:
        builds = sum(p.order.name == BRAZE for p in running.values())
        for case, name in list(waiting):
            if len(running) == most or (name == BRAZE and builds == BUILDS):
                continue
            builds += name == BRAZE
            waiting.remove((case, name))
            process = Process(Order(case, name, args.folder, args.level, args.layers, args.rebuild))
            running[process.pipe] = process
        ready = wait(list(running), timeout=max(0.0, min(deadline - time.monotonic(), 1e6)))
        for pipe in ready:
            assert isinstance(pipe, Connection)
            process = running.pop(pipe)
            yield process, process.answer()
        if not ready:  # the deadline has passed
            for process in running.values():
                process.end()
                yield process, "not ready in time"
            return


@contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """While nobody else who takes this lock uses the card."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compete(result: Result, contestants: Sequence[Process], rounds: int) -> None:
    """Let the contestants of a case run in turns, and ask braze for its kernels."""
    times: dict[str, list[float]] = {p.order.name: [] for p in contestants}
    for _ in range(rounds):
        for p in contestants:
            found = p.ask(BURST)
            if isinstance(found, str):
                result.failed[p.order.name] = found
                times.pop(p.order.name, None)
                return
            times[p.order.name] += found
    result.peers_ms = {name: statistics.median(ms) for name, ms in times.items()}
    result.braze_ms = result.peers_ms.pop(BRAZE, math.nan)
    for p in contestants:
        if p.order.name == BRAZE:
            found = p.ask(0)
            result.facts = found if isinstance(found, Facts) else result.facts


def line(r: Result) -> str:
    """One row of the report."""
    others = []
    for name, ms in r.peers_ms.items():
        known = r.peer_facts[name]
        others.append(f"{name} {ms:.3f} ({known.build_s:.0f} s, error {known.error:.0e})")
    others += [f"{name} FAILED: {why[:300]}" for name, why in r.failed.items()]
    f = r.facts
    return "  ".join((
        f"{r.case:<15} {r.braze_ms:8.3f} ms",
        f"ratio {r.ratio:5.2f}",
        f"{r.braze_ms / f.floor_ms:5.2f} x floor {f.floor_ms:.3f}",
        f"{f.kernels} kernels {f.kernels_ms:.3f} ms ({f.in_place} in place)",
        f"build {f.build_s:.1f}/{f.rebuild_s:.1f} s",
        f"error {f.error:.1e}",
        *others,
    ))  # fmt: skip


def geometric_mean(results: Sequence[Result]) -> float:
    """Of the ratios there are."""
    ratios = [r.ratio for r in results if not math.isnan(r.ratio)]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def chosen(only: str) -> list[str]:
    """Cases by name: a network stands for all its batches, an unknown batch for itself."""
    every = [*CASES, DECODER]
    if not only:
        return every
    found: dict[str, None] = {}
    for name in only.split(","):
        same = [c for c in every if name in (c, c.partition(":")[0])]
        found.update(dict.fromkeys(same or [name]))
    return list(found)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="NETWORK[:BATCH],...; all without")
    parser.add_argument("--level", type=int, default=3, help="optimization level")
    parser.add_argument(
        "--peers", default="reduce-overhead,unfrozen,torchvision",
        help=f"of {', '.join(PEERS)}; '' for none",
    )  # fmt: skip
    parser.add_argument(
        "--layers", type=int, default=0, help="also print so many layers by lost time"
    )
    parser.add_argument("--only-peers", action="store_true", help="leave braze out")
    parser.add_argument("--rebuild", action="store_true", help="build again with the timing cache")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--ready-within", type=float, default=math.inf,
        help="seconds, after which what is not ready is left out",
    )  # fmt: skip
    parser.add_argument("--lock", type=Path, help="a file that is locked while times are taken")
    parser.add_argument("--folder", type=Path, help="keeps ONNX files and timing caches")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    args.folder = args.folder or Path(tempfile.mkdtemp())
    args.folder.mkdir(parents=True, exist_ok=True)
    return args


def main() -> int:
    """Make all contestants, then time one case after the other."""
    args = arguments()
    begin, cases = time.monotonic(), chosen(args.only)
    names = [] if args.only_peers else [BRAZE]
    names += [n for n in args.peers.split(",") if n]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the contestants too
    wanted = [(c, n) for n in names for c in cases if c.startswith(ONLY.get(n, ""))]
    results = {c: Result(c) for c in cases}
    ready: dict[str, list[Process]] = {c: [] for c in cases}
    started: list[Process] = []
    try:
        for process, said in prepare(wanted, args, begin + args.ready_within):
            started.append(process)
            case, name = process.order.case, process.order.name
            print(f"{time.monotonic() - begin:6.1f} s  {case} {name}: ", end="")
            print(said if isinstance(said, str) else f"ready ({said.build_s:.1f} s)", flush=True)
            if isinstance(said, str):
                results[case].failed[name] = said
                continue
            ready[case].append(process)
            if name == BRAZE:
                results[case].facts = said
            else:
                results[case].peer_facts[name] = said
        for case, result in results.items():
            with alone(args.lock):
                compete(result, ready[case], args.rounds)
            print("\n".join([line(result), *result.facts.table]), flush=True)
            if args.json:
                done = [{**asdict(r), "ratio": r.ratio} for r in results.values()]
                args.json.write_text(json.dumps(done, indent=1) + "\n")
    finally:
        for process in started:
            process.end()
    print("\n" + "\n".join(map(line, results.values())))
    networks = [r for c, r in results.items() if c != DECODER]
    print(f"geometric mean of the ratios without {DECODER}: {geometric_mean(networks):.3f}")
    return int(any(r.failed for r in results.values()))


if __name__ == "__main__":
    sys.exit(main())
