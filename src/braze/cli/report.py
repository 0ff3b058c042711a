"""The text and JSON that `braze exec` reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from braze.cli.layers import CORNERS, binding_shape, engine_size, profile_shapes
from braze.cli.measure import Measurement, Query, Statistics, summarize
from braze.core.files import replacing
from braze.core.trace import Trace
from braze.engine.plan import Plan
from braze.runtime.context import Times

MIB = 1 << 20
MOST_TRACE_LINES = 20
UNSTABLE_VARIATION = 0.05
MOST_ENQUEUE = 0.8  # of the time of computing, as in trtexec


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
    decisions = plan.record.get("decisions", ())
    return [*lines, *(f"Note: {d['text']}" for d in decisions if d.get("kind") == "note")]


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
    queries = measured.queries
    groups = [queries[i : i + average_runs] for i in range(0, len(queries), average_runs)]
    shown = groups[:MOST_TRACE_LINES]
    lines += [f"  {_averages(g)}" for g in shown]
    if len(groups) > len(shown):
        lines.append(f"  and {len(groups) - len(shown)} more; --exportTimes keeps all")
    lines += [
        section("Performance summary"),
        f"Warm-up: {measured.warmup_queries} queries; "
        f"measured: {len(latencies)} queries in {measured.wall_s:.3f} s",
        f"Throughput: {measured.throughput:.6g} qps",
        f"Latency: {milliseconds(stats)}",
        *_gpu_lines(measured, percentiles),
        f"Total Host Walltime: {measured.wall_s:.6g} s",
    ]
    times = [q.times for q in queries if q.times]
    if times:
        lines.append(f"Total GPU Compute Time: {sum(t.compute for t in times) / 1e3:.6g} s")
        lines += _gpu_notes(times)
    spread = float(np.std(latencies)) / stats.mean if stats.mean > 0 else 0.0
    if spread > UNSTABLE_VARIATION:
        lines.append(
            f"Note: latencies vary by {spread:.0%}; other programs, a changing clock or too short "
            f"a --duration may be why"
        )
    return lines


def _averages(queries: Sequence[Query]) -> str:
    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    latency = mean(q.latency_ms for q in queries)
    times = [q.times for q in queries if q.times]
    if not times:
        return f"{latency:.6g} ms"
    compute, enqueue = mean(t.compute for t in times), mean(t.enqueue for t in times)
    return (
        f"GPU latency: {compute:.6g} ms - Host latency: {latency:.6g} ms "
        f"(enqueue {enqueue:.6g} ms)"
    )


def _gpu_lines(measured: Measurement, percentiles: Sequence[float]) -> list[str]:
    """What a GPU spent its time with, as trtexec names the parts; none on the host."""
    times = [q.times for q in measured.queries if q.times]
    if not times:
        return []
    parts = (
        ("Enqueue Time", [t.enqueue for t in times]),
        ("H2D Latency", [t.h2d for t in times]),
        ("GPU Compute Time", [t.compute for t in times]),
        ("D2H Latency", [t.d2h for t in times]),
    )
    return [f"{name}: {milliseconds(summarize(values, percentiles))}" for name, values in parts]


def _gpu_notes(times: Sequence[Times]) -> list[str]:
    """What trtexec warns of: runs that wait for the host or for copies."""
    h2d, enqueue, compute, d2h = (
        float(np.median([getattr(t, part) for t in times]))
        for part in ("h2d", "enqueue", "compute", "d2h")
    )
    notes = []
    if enqueue > MOST_ENQUEUE * compute:
        notes.append(
            f"Note: launching takes {enqueue:.3g} ms of the host, and computing {compute:.3g} ms: "
            "the host may hold the GPU up; leave out --noCudaGraph"
        )
    if max(h2d, d2h) >= compute:
        notes.append(
            f"Note: copies take {h2d:.3g} ms in and {d2h:.3g} ms out, and computing {compute:.3g} "
            "ms; with --infStreams=2 they overlap, with --noDataTransfers they are left out"
        )
    return notes


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
    """trtexec's --exportTimes records; on the host copies and launching take no time."""
    return [_times_record(q) for q in measured.queries]


def _times_record(q: Query) -> dict[str, float]:
    t = q.times or Times(0.0, 0.0, q.latency_ms, 0.0)
    computes = q.start_ms + t.h2d
    copies = computes + t.compute
    return {
        "startEnqMs": q.start_ms,
        "endEnqMs": q.start_ms + t.enqueue,
        "startH2dMs": q.start_ms,
        "endH2dMs": computes,
        "startComputeMs": computes,
        "endComputeMs": copies,
        "startD2hMs": copies,
        "endD2hMs": copies + t.d2h,
        "h2dMs": t.h2d,
        "computeMs": t.compute,
        "d2hMs": t.d2h,
        "latencyMs": q.latency_ms,
    }


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
