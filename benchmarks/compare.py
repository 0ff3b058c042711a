#!/usr/bin/env python3
"""Time ONNX models in braze and in every other CPU engine that is installed, in turns.

    python benchmarks/compare.py MODEL.onnx [MODEL.onnx ...] [--threads N] [--shapes x:1x3x224x224]

Engines take turns in short bursts, so that a machine whose clock drifts slows all of them alike:
what counts is the ratio between engines of one run, never milliseconds across runs. The pause
before a burst lets the previous engine's threads fall asleep, and the first runs of a burst are
not counted. Outputs are compared with the first engine's, because a fast wrong answer is worth
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import braze
from braze.cli.compare import compare_arrays
from braze.cli.feeds import random_array
from braze.cli.shapes import parse_shapes
from braze.core.dtypes import from_onnx
from braze.core.errors import BrazeError

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
Run = Callable[[], list[Array]]
BURST, UNCOUNTED, PAUSE_S = 8, 2, 0.1


def onnxruntime_engine(model: Path, feed: Feed, threads: int) -> Run:
    """ONNX Runtime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(model), options, ["CPUExecutionProvider"])
    return lambda: list(session.run(None, feed))


def openvino_engine(model: Path, feed: Feed, threads: int) -> Run:
    """OpenVINO in fp32, tuned for latency."""
    import openvino

    core = openvino.Core()
    network = core.read_model(str(model))
    network.reshape({name: list(x.shape) for name, x in feed.items()})
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(network, "CPU", options)
    request = compiled.create_infer_request()

    def run() -> list[Array]:
        results = request.infer(feed)
        return [results[o] for o in compiled.outputs]

    return run


def braze_engine(model: Path, feed: Feed, threads: int) -> Run:
    """braze, built for exactly these shapes."""
    shapes = {name: x.shape for name, x in feed.items()}
    engine = braze.build(str(model), threads=threads, shapes=shapes)
    return lambda: list(engine(feed).values())


ENGINES: Mapping[str, Callable[[Path, Feed, int], Run]] = {
    "onnxruntime": onnxruntime_engine,
    "openvino": openvino_engine,
    "braze": braze_engine,
}


@dataclass(frozen=True)
class Result:
    """What one engine did on one model."""

    engine: str
    median_ms: float
    least_ms: float
    p95_ms: float
    build_s: float
    error: float  # relative L2 to the first engine, the worst output


def make_feed(model: Path, shapes: Mapping[str, tuple[int, ...]]) -> Feed:
    """Random inputs; dynamic axes that `shapes` leaves out are 1."""
    graph = onnx.load(model, load_external_data=False).graph
    constants = {t.name for t in graph.initializer}
    rng = np.random.default_rng(0)
    feed = {}
    for i in graph.input:
        if i.name in constants:
            continue
        tensor = i.type.tensor_type
        shape = shapes.get(i.name) or tuple(max(1, d.dim_value) for d in tensor.shape.dim)
        feed[i.name] = random_array(from_onnx(tensor.elem_type, i.name), shape, rng)
    return feed


def compare(
    model: Path, engines: Sequence[str], feed: Feed, threads: int, runs: int
) -> list[Result]:
    """Build all engines, then time them in turns."""
    built: dict[str, Run] = {}
    build_s: dict[str, float] = {}
    outputs: dict[str, list[Array]] = {}
    for name in engines:
        start = time.perf_counter()
        built[name] = ENGINES[name](model, feed, threads)
        build_s[name] = time.perf_counter() - start
        outputs[name] = built[name]()
    times: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(-(-runs // BURST)):
        for name, run in built.items():
            time.sleep(PAUSE_S)
            for k in range(UNCOUNTED + BURST):
                start = time.perf_counter()
                run()
                if k >= UNCOUNTED:
                    times[name].append((time.perf_counter() - start) * 1e3)
    first = outputs[engines[0]]
    return [
        Result(
            engine=name,
            median_ms=statistics.median(ms),
            least_ms=min(ms),
            p95_ms=sorted(ms)[int(0.95 * len(ms))],
            build_s=build_s[name],
            error=max(
                compare_arrays("", got, want).error
                for got, want in zip(outputs[name], first, strict=True)
            ),
        )
        for name, ms in times.items()
    ]


def print_results(model: Path, results: Sequence[Result]) -> None:
    """The table of one model, and braze's ratio to the fastest other engine."""
    print(f"\n{model.name}")
    for r in results:
        print(
            f"  {r.engine:<12} median {r.median_ms:9.3f} ms  min {r.least_ms:9.3f}  "
            f"p95 {r.p95_ms:9.3f}  build {r.build_s:7.2f} s  rel. L2 {r.error:.1e}"
        )
    own = [r.median_ms for r in results if r.engine == "braze"]
    others = [r.median_ms for r in results if r.engine != "braze"]
    if own and others:
        print(f"  fastest other engine / braze: {min(others) / own[0]:.3f}", flush=True)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--runs", type=int, default=40, help="counted runs of each engine")
    parser.add_argument("--shapes", default="", help="as in `braze exec`")
    parser.add_argument("--engines", default=",".join(ENGINES), help="comma-separated")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    args = parser.parse_args()
    chosen = [e for e in args.engines.split(",") if e == "braze" or find_spec(e) is not None]
    figures: dict[str, list[dict[str, Any]]] = {}
    for model in args.models:
        try:
            shapes = parse_shapes(args.shapes, "--shapes") if args.shapes else {}
            results = compare(model, chosen, make_feed(model, shapes), args.threads, args.runs)
        except BrazeError as e:
            print(f"{model.name}: {e}", file=sys.stderr)
            return 1
        print_results(model, results)
        figures[model.name] = [asdict(r) for r in results]
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
