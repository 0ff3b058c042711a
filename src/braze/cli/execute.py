"""`braze exec`: build or load an engine, run it, and report as trtexec does."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import braze
from braze.cli.callers import GpuCaller, HostCaller
from braze.cli.contents import Content, read_contents
from braze.cli.feeds import input_lines, make_feed, run_shapes
from braze.cli.layers import describe, own_times
from braze.cli.measure import Limits, Measurement, measure
from braze.cli.options import ExecOptions, add_exec_arguments, check_written, exec_options
from braze.cli.progress import build_progress
from braze.cli.report import (
    decision_lines,
    engine_lines,
    layer_profile_lines,
    layer_profile_rows,
    outputs_json,
    performance_lines,
    profile_lines,
    section,
    shape_string,
    times_json,
    write_json,
)
from braze.core.errors import ConfigError
from braze.core.trace import Trace
from braze.runtime.report import describe_plan

HELP = "build or load an engine, time it, and report (trtexec's options)"
PROFILE_RUNS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare trtexec's options that braze has."""
    add_exec_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; the last line says PASSED or FAILED, as in trtexec."""
    options = exec_options(args, args.unknown)
    title = f"braze.exec # {' '.join(args.command_line)}"
    print(f"&&&& RUNNING {title}")
    try:
        _execute(options)
    except BaseException:
        print(f"&&&& FAILED {title}", flush=True)
        raise
    print(f"\n&&&& PASSED {title}")
    return 0


def _execute(o: ExecOptions) -> None:
    for note in o.notes:
        print(f"Note: {note}")
    check_written(o.written, [f for f in (o.onnx, o.load_engine) if f])
    contents = {} if o.skip_inference else read_contents(o.load_inputs)
    engine = _load(o) if o.load_engine else _build(o)
    plan = engine.plan
    if o.weight_budget and engine.on_gpu:
        weights = sum(w.bytes for w in plan.weights)
        budget = o.weight_budget.bytes_of(weights)
        print(f"Weight streaming: {budget} of {weights} bytes of weights on the GPU")
        image = engine.to_bytes()
        del engine  # its weights take the memory that the limit is for
        engine = braze.Engine.from_bytes(image, weight_budget=budget)
    print("\n".join(engine_lines(plan)))
    if o.dump_profiles:
        print("\n".join([section("Optimization profiles"), *profile_lines(plan)]))
    if o.dump_layers:
        print(section("Layers"))
        print(describe_plan(replace(plan, record={})))
    if o.export_layers:
        write_json(o.export_layers, describe(plan, detailed=o.verbosity == "detailed"))
    if not o.skip_inference:
        _infer(o, engine, contents)


def _build(o: ExecOptions) -> braze.Engine:
    print(section("Build"))
    print(f"Model: {o.onnx}")
    level, precision, cache = (
        o.build[k] for k in ("optimization_level", "precision", "timing_cache")
    )
    print(f"Optimization level: {level}; precision: {precision}; timing cache: {cache or 'none'}")
    start = time.perf_counter()
    with build_progress() as progress:
        trace = Trace(progress=progress)
        engine = braze.build(o.onnx, trace=trace, **o.build)
    print(f"Engine built in {time.perf_counter() - start:.3f} s")
    stages = ", ".join(f"{n} {s:.2f} s" for n, s in trace.seconds.items() if "." not in n)
    print(f"Stages: {stages}")
    if o.verbose:
        print("\n".join([section("Decisions"), *decision_lines(trace)]))
    if o.save_engine:
        engine.save(o.save_engine)
        print(f"Engine saved to {o.save_engine}")
    return engine


def _load(o: ExecOptions) -> braze.Engine:
    print(section("Load"))
    start = time.perf_counter()
    engine = braze.Engine.load(o.load_engine, threads=o.build["threads"] or 0)
    print(f"Engine {o.load_engine} loaded in {(time.perf_counter() - start) * 1e3:.3f} ms")
    return engine


def _infer(o: ExecOptions, engine: braze.Engine, contents: Mapping[str, Content]) -> None:
    plan = engine.plan
    shapes = run_shapes(engine, o.shapes, contents)
    feed = make_feed(plan, shapes, contents)
    print(section("Inference"))
    print("\n".join(input_lines(plan, feed, contents)))
    for name in o.gpu_names if not engine.on_gpu else ():
        print(f"Note: {name} has no effect, since the engine runs on the host")
    runs: list[HostCaller | GpuCaller] = [
        GpuCaller(engine, feed, o.gpu) if engine.on_gpu else HostCaller(engine, feed)
        for _ in range(o.streams)
    ]
    limits = Limits(o.iterations, o.duration_s, o.warmup_ms, o.idle_ms)
    measured = measure(runs, limits)
    if o.streams > 1:
        print(f"Note: latencies are those of {o.streams} streams that share the machine")
    print("\n".join(performance_lines(measured, o.percentiles, o.average_runs)))
    _export(o, engine, feed, measured, runs[0].outputs())


def _export(
    o: ExecOptions,
    engine: braze.Engine,
    feed: dict[str, np.ndarray[Any, Any]],
    measured: Measurement,
    outputs: dict[str, np.ndarray[Any, Any]],
) -> None:
    if o.dump_output:
        print(section("Outputs"))
        for name, array in outputs.items():
            print(f"{name}: {shape_string(array.shape)}")
            print(np.array2string(array, threshold=100, edgeitems=4))
    if o.export_output:
        write_json(o.export_output, outputs_json(outputs))
    if o.export_times:
        write_json(o.export_times, times_json(measured))
    if o.dump_profile or o.export_profile:
        if o.verbosity == "none":
            raise ConfigError("--profilingVerbosity=none leaves nothing to profile; drop it")
        rows = layer_profile_rows(profile_times(engine, feed, PROFILE_RUNS))
        if o.dump_profile:
            print("\n".join(layer_profile_lines(rows, PROFILE_RUNS)))
        if o.export_profile:
            write_json(o.export_profile, [{"count": PROFILE_RUNS}, *rows])


def profile_times(
    engine: braze.Engine, feed: dict[str, np.ndarray[Any, Any]], runs: int
) -> list[tuple[str, list[float]]]:
    """Milliseconds of every step, without those inside it, in `runs` runs, in execution order."""
    times: list[tuple[str, list[float]]] = [(s.name, []) for s in engine.plan.every_step]
    for _ in range(runs):
        for (_, spent), ns in zip(times, own_times(engine.plan, engine.profile(feed)), strict=True):
            spent.append(ns / 1e6)
    return times
