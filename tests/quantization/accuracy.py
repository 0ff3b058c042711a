"""Write docs/accuracy.md: the real networks in int8 within a bound, and what they answer.

    python -m tests.quantization.accuracy [--only NAME ..] [--output docs/accuracy.md]

Results are kept as JSON, one network at a time, so that a run may be continued, and another one
with --only and another --method may replace what it does better; the networks are those of
`make models`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import braze
from braze.core.version import __version__
from braze.quantization.options import Options
from braze.quantization.search import search
from braze.quantization.thresholds import Method
from tests.models.networks import BY_NAME, dynamic_engine, model_path
from tests.quantization.tasks import TASKS, Task

Array = np.ndarray[Any, Any]
SAMPLES, MEASURED, BOUND, LEVEL = 64, 4, 0.01, 2
LISTED = 6  # layers that stay float, by name


def measure(task: Task, method: str, threads: int) -> dict[str, Any]:
    """Search, build, and ask both engines."""
    start = time.perf_counter()
    feeds = list(islice(task.samples(np.random.default_rng(1)), SAMPLES))
    path, ranges = model_path(task.network), BY_NAME[task.network].ranges
    found = search(path, feeds, BOUND, Options(method=Method(method)), samples=MEASURED,
                   threads=threads)  # fmt: skip
    engine = braze.build(
        found.quantized.model, shapes=ranges, optimization_level=LEVEL, threads=threads
    )

    def float32(name: str, feed: Mapping[str, Array]) -> Mapping[str, Array]:
        return dynamic_engine(name, LEVEL, threads)(feed)

    def int8(name: str, feed: Mapping[str, Array]) -> Mapping[str, Array]:
        return engine(feed) if name == task.network else float32(name, feed)

    (said, was_right), (says, right) = task.answer(float32), task.answer(int8)
    worst = sorted(found.layers, key=lambda layer: -layer.error)
    return {
        "network": task.network,
        "method": method,
        "error": found.error,
        "all_error": found.all_error,
        "layers": len(found.layers),
        "kept": [x.name for x in worst if x.runs == "float32"],
        "time_ms": found.time_ms,
        "float_time_ms": found.float_time_ms,
        "builds": found.builds,
        "float": [said, bool(was_right)],
        "int8": [says, bool(right)],
        "seconds": time.perf_counter() - start,
        "rows": [[x.op, x.name, x.runs, x.error, x.time_ms] for x in worst],
    }


def _cost(result: dict[str, Any]) -> tuple[bool, int, float]:
    """Less is better: a wrong answer, layers that stay float, the error of all in int8."""
    return not result["int8"][1], len(result["kept"]), result["all_error"]


def page(results: list[dict[str, Any]]) -> str:
    """The document."""
    lines = [
        "# Accuracy of quantized networks",
        "",
        f"Made by `python -m tests.quantization.accuracy` with braze {__version__}. Each float "
        "network of `make models` is",
        f"quantized to int8 (symmetric, a scale a channel) with {SAMPLES} calibration samples and "
        f"a bound of {BOUND:.0%}",
        "on the relative L2 error of its outputs against the float64 reference, measured on "
        f"{MEASURED} samples",
        "(`braze quantize --precisionBudget`). Layers stay float, the worst first, until it holds. "
        "Where ranges",
        "were chosen by two methods, the one that leaves fewer layers float is shown.",
        "",
        "| network | ranges | error, all int8 | error in the end | int8 layers | answer in float32 "
        "| answer in int8 |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in results:
        count = f"{r['layers'] - len(r['kept'])} of {r['layers']}"
        answers = [f"{'' if ok else '**wrong**: '}{text}" for text, ok in (r["float"], r["int8"])]
        lines.append(
            f"| {r['network']} | {r['method']} | {r['all_error']:.2%} | {r['error']:.2%} "
            f"| {count} | {answers[0]} | {answers[1]} |"
        )
    right = sum(r["int8"][1] for r in results)
    lines += ["", f"{right} of {len(results)} keep their answer.", "", "## What stays float", ""]
    for r in results:
        shown = ", ".join(f"`{n}`" for n in r["kept"][:LISTED])
        more = f" and {len(r['kept']) - LISTED} more" if len(r["kept"]) > LISTED else ""
        lines.append(f"- **{r['network']}**: {shown + more if shown else 'nothing'}")
    lines += ["", "## The worst layers alone", "",
              "The error of the outputs with one layer quantized and all others float.", "",
              "| network | layer | error | runs in |", "|---|---|---|---|"]  # fmt: skip
    for r in results:
        for op, name, runs, error, _ in r["rows"][:3]:
            lines.append(f"| {r['network']} | {op} `{name}` | {error:.2%} | {runs} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what is asked for and not known, then write the page of all that is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("docs/accuracy.md"))
    parser.add_argument("--results", type=Path, default=Path("out/accuracy.json"))
    parser.add_argument("--only", nargs="*", help="networks to measure (again)")
    parser.add_argument("--method", default="minmax")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    args.results.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(args.results.read_text()) if args.results.exists() else {}
    for task in TASKS:
        if task.network not in (args.only or [] if args.only else set(BY_NAME) - set(known)):
            continue
        try:
            found = measure(task, args.method, args.threads)
        except braze.BrazeError as e:
            print(f"{task.network}: {e}", flush=True)
            continue
        print({k: v for k, v in found.items() if k != "rows"}, flush=True)
        before = known.get(task.network)
        if before is None or _cost(found) < _cost(before):
            known[task.network] = found
            args.results.write_text(json.dumps(known, indent=1))
    args.output.write_text(page([known[t.network] for t in TASKS if t.network in known]))


if __name__ == "__main__":
    main()
