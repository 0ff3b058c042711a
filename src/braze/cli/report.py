"""The text and JSON that `braze exec` reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from braze.cli.layers import CORNERS, binding_shape, engine_size, profile_shapes
from braze.cli.measure import Measurement, Statistics, summarize
from braze.core.files import replacing
from braze.core.trace import Trace
from braze.engine.plan import Plan

MIB = 1 << 20
MOST_TRACE_LINES = 20
UNSTABLE_VARIATION = 0.05


def section(title: str) -> str:
    """A heading line."""
    return f"\n=== {title} ==="


def shape_string(shape: Iterable[int]) -> str:
    """`1x3x224x224`, or `scalar`."""
    return "x".join(map(str, shape)) or "scalar"


def milliseconds(stats: Statistics) -> str:
    """The line of statistics that tools which read trtexec's output look for."""
    parts = [
        f"min = {stats.low:.6g} ms",
        f"max = {stats.high:.6g} ms",
        f"mean = {stats.mean:.6g} ms",
        f"median = {stats.median:.6g} ms",
    ]
    parts += [f"percentile({p:g}%) = {v:.6g} ms" for p, v in stats.percentiles]
    return ", ".join(parts)


def engine_lines(plan: Plan) -> list[str]:
    """Target, bindings and sizes of an engine."""
    size = engine_size(plan)
    lines = [
        f"Target: {', '.join(f'{k}={v}' for k, v in plan.target.about.items())}; "
        f"threads={plan.threads}",
        f"Steps: {len(plan.steps)}, kernels: {len(plan.kernels)}",
        f"Engine size: {(size.code + size.weights) / MIB:.2f} MiB "
        f"(code {size.code / MIB:.2f}, weights {size.weights / MIB:.2f})",
        f"Activation memory: {size.arena / MIB:.2f} MiB "
        f"(largest live set {size.lower_bound / MIB:.2f})",
    ]
    for kind, bindings in (("Input", plan.inputs), ("Output", plan.outputs)):
        lines += [f"{kind} {b.name}: {b.dtype} {binding_shape(plan, b)}" for b in bindings]
    return lines


def profile_lines(plan: Plan) -> list[str]:
    """min, opt and max shape of every input in every profile."""
    lines = []
    for k in range(len(plan.profiles)):
        corners = {w: profile_shapes(plan, k, w) for w in CORNERS}
        for b in plan.inputs:
            text = ", ".join(f"{w}={shape_string(s[b.name])}" for w, s in corners.items())
            lines.append(f"Model input {b.name} (profile {k}): {text}")
    return lines


def decision_lines(trace: Trace) -> list[str]:
    """Every decision of a build, one line each."""
    return [
        f"{d['kind']}: " + ", ".join(f"{k}={v}" for k, v in d.items() if k != "kind")
        for d in trace.decisions
    ]


def performance_lines(
    measured: Measurement, percentiles: Sequence[float], average_runs: int
) -> list[str]:
    """The trace averages and the performance summary."""
    latencies = [q.latency_ms for q in measured.queries]
    stats = summarize(latencies, percentiles)
    lines = [section("Trace"), f"Averages of {average_runs} runs each:"]
    groups = [latencies[i : i + average_runs] for i in range(0, len(latencies), average_runs)]
    shown = groups[:MOST_TRACE_LINES]
    lines += [f"  {sum(g) / len(g):.6g} ms" for g in shown]
    if len(groups) > len(shown):
        lines.append(f"  and {len(groups) - len(shown)} more; --exportTimes keeps all")
    lines += [
        section("Performance summary"),
        f"Warm-up: {measured.warmup_queries} queries; "
        f"measured: {len(latencies)} queries in {measured.wall_s:.3f} s",
        f"Throughput: {measured.throughput:.6g} qps",
        f"Latency: {milliseconds(stats)}",
        f"Total Host Walltime: {measured.wall_s:.6g} s",
    ]
    spread = float(np.std(latencies)) / stats.mean if stats.mean > 0 else 0.0
    if spread > UNSTABLE_VARIATION:
        lines.append(
            f"Note: latencies vary by {spread:.0%}; other programs, a changing clock or too short "
            f"a --duration may be why"
        )
    return lines


def layer_profile_rows(times: Sequence[tuple[str, Sequence[float]]]) -> list[dict[str, Any]]:
    """One row a layer from its times in ms, in trtexec's --exportProfile spelling."""
    total = sum(sum(ms) for _, ms in times) or 1.0
    return [
        {
            "name": name,
            "timeMs": sum(ms),
            "averageMs": sum(ms) / len(ms),
            "medianMs": float(np.median(np.asarray(ms))),
            "percentage": 100 * sum(ms) / total,
        }
        for name, ms in times
        if ms
    ]


def layer_profile_lines(rows: Sequence[Mapping[str, Any]], runs: int) -> list[str]:
    """The per-layer table of --dumpProfile."""
    lines = [section(f"Profile ({runs} runs)")]
    lines.append(f"{'Time(ms)':>10} {'Avg.(ms)':>10} {'Median(ms)':>11} {'Time(%)':>8}  Layer")
    for r in rows:
        lines.append(
            f"{r['timeMs']:>10.3f} {r['averageMs']:>10.4f} {r['medianMs']:>11.4f} "
            f"{r['percentage']:>8.1f}  {r['name']}"
        )
    total = sum(r["timeMs"] for r in rows)
    lines.append(f"{total:>10.3f} {total / max(runs, 1):>10.4f} {'':>11} {100.0:>8.1f}  Total")
    return lines


def times_json(measured: Measurement) -> list[dict[str, float]]:
    """trtexec's --exportTimes records; there are no copies to a device, so those are zero."""
    return [
        {
            "startEnqMs": q.start_ms,
            "endEnqMs": q.start_ms,
            "startH2dMs": q.start_ms,
            "endH2dMs": q.start_ms,
            "startComputeMs": q.start_ms,
            "endComputeMs": q.end_ms,
            "startD2hMs": q.end_ms,
            "endD2hMs": q.end_ms,
            "h2dMs": 0.0,
            "computeMs": q.latency_ms,
            "d2hMs": 0.0,
            "latencyMs": q.latency_ms,
        }
        for q in measured.queries
    ]


def outputs_json(outputs: Mapping[str, np.ndarray[Any, Any]]) -> list[dict[str, Any]]:
    """trtexec's --exportOutput records; NaN and infinities are written as strings."""
    return [
        {"name": n, "dimensions": shape_string(a.shape), "values": _finite(a.reshape(-1).tolist())}
        for n, a in outputs.items()
    ]


def _finite(values: list[Any]) -> list[Any]:
    return [str(v) if isinstance(v, float) and not np.isfinite(v) else v for v in values]


def write_json(path: str, data: object) -> None:
    """Write strict JSON, whole or not at all; raises FileError."""
    with replacing(path) as file:
        file.write((json.dumps(data, indent=1, allow_nan=False) + "\n").encode())
