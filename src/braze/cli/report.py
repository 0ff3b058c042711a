"""The text and JSON that `braze exec` reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from braze.cli.layers import (
    CORNERS,
    binding_shape,
    engine_size,
    profile_contents,
    profile_shapes,
)
from braze.cli.measure import Measurement, Query, Statistics, summarize
from braze.core.files import replacing
from braze.core.trace import Trace
from braze.engine.plan import Plan
from braze.runtime.context import Times

MIB = 1 << 20
MOST_TRACE_LINES = 200  # at either end, as in trtexec
UNSTABLE_VARIATION = 0.025
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
        f"(code {size.code / MIB:.2f}, weights "
        + ("left out)" if plan.stripped else f"{size.weights / MIB:.2f})"),
        f"Activation memory: {size.arena / MIB:.2f} MiB "
        f"(largest live set {size.lower_bound / MIB:.2f})",
    ]
    for kind, bindings in (("Input", plan.inputs), ("Output", plan.outputs)):
        lines += [
            f"{kind} {b.name}: {b.dtype} {binding_shape(plan, b)}"
            + (", its values within the profiles" if b.content else "")
            for b in bindings
        ]
    decisions = plan.record.get("decisions", ())
    return [*lines, *(f"Note: {d['text']}" for d in decisions if d.get("kind") == "note")]


def profile_lines(plan: Plan) -> list[str]:
    """min, opt and max shape of every input in every profile, or the values it may hold."""
    lines = []
    for k in range(len(plan.profiles)):
        corners = {w: profile_shapes(plan, k, w) | profile_contents(plan, k, w) for w in CORNERS}
        for b in plan.inputs:
            text = ", ".join(f"{w}={shape_string(s[b.name])}" for w, s in corners.items())
            what = " (values)" if b.content else ""
            lines.append(f"Model input {b.name} (profile {k}){what}: {text}")
    return lines


def decision_lines(trace: Trace) -> list[str]:
    """Every decision of a build, one line each."""
    return [
        f"{d['kind']}: " + ", ".join(f"{k}={v}" for k, v in d.items() if k != "kind")
        for d in trace.decisions
    ]


def trace_lines(measured: Measurement, average_runs: int) -> list[str]:
    """The averages of every few runs, the first and last of them where there are many."""
    queries = measured.queries
    groups = [queries[i : i + average_runs] for i in range(0, len(queries), average_runs)]
    lines = [f"Trace averages of {average_runs} runs:"]
    for number, group in enumerate(groups):
        if MOST_TRACE_LINES <= number < len(groups) - MOST_TRACE_LINES:
            continue
        latency = _mean(q.latency_ms for q in group)
        compute = _mean(times_of(q).compute for q in group)
        enqueue = _mean(times_of(q).enqueue for q in group)
        lines.append(
            f"Average on {len(group)} runs - GPU latency: {compute:.6g} ms - Host latency: "
            f"{latency:.6g} ms (enqueue {enqueue:.6g} ms)"
        )
    return [*lines, ""]


def performance_lines(measured: Measurement, percentiles: Sequence[float]) -> list[str]:
    """The performance summary; on the host, all of a run is computing."""
    times = [times_of(q) for q in measured.queries]
    parts = (
        ("Latency", [q.latency_ms for q in measured.queries]),
        ("Enqueue Time", [t.enqueue for t in times]),
        ("H2D Latency", [t.h2d for t in times]),
        ("GPU Compute Time", [t.compute for t in times]),
        ("D2H Latency", [t.d2h for t in times]),
    )
    return [
        f"Throughput: {measured.throughput:.6g} qps",
        *(f"{name}: {milliseconds(summarize(values, percentiles))}" for name, values in parts),
        f"Total Host Walltime: {measured.wall_s:.6g} s",
        f"Total GPU Compute Time: {sum(t.compute for t in times) / 1e3:.6g} s",
    ]


def performance_warnings(measured: Measurement) -> list[str]:
    """What makes the numbers worse than they could be, or unsure."""
    latencies = [q.latency_ms for q in measured.queries]
    mean = _mean(latencies)
    spread = float(np.std(latencies)) / mean if mean > 0 else 0.0
    lines = []
    if spread > UNSTABLE_VARIATION:
        lines.append(
            f"GPU compute time is unstable, with coefficient of variance = {spread:.2%}: other "
            "programs, a changing clock or too short a --duration may be why"
        )
    times = [q.times for q in measured.queries if q.times]
    return [*lines, *(_gpu_notes(times) if times else ())]


def times_of(query: Query) -> Times:
    """The parts of a run; on the host copies and launching take no time."""
    return query.times or Times(0.0, 0.0, query.latency_ms, 0.0)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _gpu_notes(times: Sequence[Times]) -> list[str]:
    """What trtexec warns of: runs that wait for the host or for copies."""
    h2d, enqueue, compute, d2h = (
        float(np.median([getattr(t, part) for t in times]))
        for part in ("h2d", "enqueue", "compute", "d2h")
    )
    notes = []
    if enqueue > MOST_ENQUEUE * compute:
        notes.append(
            f"Launching takes {enqueue:.3g} ms of the host, and computing {compute:.3g} ms: "
            "the host may hold the GPU up; leave out --noCudaGraph"
        )
    if max(h2d, d2h) >= compute:
        notes.append(
            f"Copies take {h2d:.3g} ms in and {d2h:.3g} ms out, and computing {compute:.3g} "
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
    lines = ["", f"=== Profile ({runs} iterations ) ==="]
    lines.append(f"{'Time(ms)':>12} {'Avg.(ms)':>12} {'Median(ms)':>12} {'Time(%)':>9}   Layer")
    for r in rows:
        lines.append(
            f"{r['timeMs']:>12.2f} {r['averageMs']:>12.4f} {r['medianMs']:>12.4f} "
            f"{r['percentage']:>9.1f}   {r['name']}"
        )
    total = sum(r["timeMs"] for r in rows)
    medians = sum(r["medianMs"] for r in rows)
    average = total / max(runs, 1)
    lines.append(f"{total:>12.2f} {average:>12.4f} {medians:>12.4f} {100.0:>9.1f}   Total")
    return lines


def times_json(measured: Measurement) -> list[dict[str, float]]:
    """trtexec's --exportTimes records; on the host copies and launching take no time."""
    return [_times_record(q) for q in measured.queries]


def _times_record(q: Query) -> dict[str, float]:
    t = times_of(q)
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
