"""`braze exec`: build or load an engine, run it, and report as trtexec does."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import braze
from braze.cli.callers import GpuCaller, HostCaller
from braze.cli.contents import Content, read_contents
from braze.cli.exec_log import TENSORRT, Log, title
from braze.cli.exec_options import ExecOptions, add_exec_arguments, exec_options
from braze.cli.exec_outputs import report_outputs
from braze.cli.exec_refit import build_refittable, refitted, stripped_image, weight_lines
from braze.cli.exec_sections import (
    build_lines,
    device_lines,
    inference_lines,
    model_lines,
    reporting_lines,
    system_lines,
)
from braze.cli.exec_table import TAKEN
from braze.cli.exec_values import check_formats
from braze.cli.feeds import bounded_contents, input_lines, make_feed, run_shapes
from braze.cli.layers import own_times
from braze.cli.measure import Limits, Measurement, Run, measure
from braze.cli.options import check_written
from braze.cli.progress import build_progress
from braze.cli.report import (
    decision_lines,
    engine_lines,
    layer_profile_lines,
    layer_profile_rows,
    performance_lines,
    performance_warnings,
    profile_lines,
    times_json,
    trace_lines,
    write_json,
)
from braze.cli.shape_inputs import with_values
from braze.core.errors import ConfigError, ExecutionError
from braze.core.trace import Trace
from braze.engine.read import read_file
from braze.engine.write import write_image
from braze.tensorrt.inspector import engine_information, one_line

HELP = "build or load an engine, time it, and report (trtexec's options)"
PROFILE_RUNS = 10
LOADS = 10  # of --timeDeserialize, of which the first does not count
MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare trtexec's options that braze has."""
    add_exec_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the command; the last line says PASSED or FAILED, as in trtexec."""
    about = title(args.command_line)
    try:
        options = exec_options(args, args.unknown)
        print(f"&&&& RUNNING {about}")
        _execute(options, Log(options.verbose))
    except BaseException:
        print(f"&&&& FAILED {about}", flush=True)
        raise
    print(f"&&&& PASSED {about}")
    return 0


def refused(command_line: Sequence[str]) -> None:
    """The last line where the arguments cannot be read, so that nothing begins."""
    print(f"&&&& FAILED {title(command_line)}")


def _execute(o: ExecOptions, log: Log) -> None:
    log.section("Model Options", model_lines(o))
    log.section("Build Options", build_lines(o))
    log.section("System Options", system_lines(o))
    log.section("Inference Options", inference_lines(o))
    log.section("Reporting Options", reporting_lines(o))
    why = {t.name: t.why for t in TAKEN}
    for name, _ in o.given:
        log.warn(f"{name} changes nothing: {why[name]}")
    check_written(o.written, [f for f in (o.onnx, o.load_engine, o.refit_from) if f])
    if o.version_only:
        _tell_version(o, log)
        return
    log.section("Device Information", device_lines())
    log.say(f"TensorRT version: {'.'.join(map(str, TENSORRT))}")
    contents = {} if o.skip_inference else read_contents(o.load_inputs)
    if o.time_load:
        _time_loading(o, log)
        return
    engine = _load(o, log) if o.load_engine else _build(o, log)
    if o.refit_from:
        engine = refitted(engine, o.refit_from, log)
    if o.dump_weights:
        log.section("Refittable Weights", weight_lines(engine))
    plan = engine.plan
    if plan.stripped and not o.skip_inference:
        raise ExecutionError(
            f"the weights of {o.load_engine} were left out when it was built; give them with "
            "--refitFromOnnx --onnx=FILE, or add --skipInference"
        )
    if o.weight_budget and engine.on_gpu:
        weights = sum(w.bytes for w in plan.weights)
        budget = o.weight_budget.bytes_of(weights)
        log.say(f"Weight streaming: {budget} of {weights} bytes of weights on the GPU")
        image = engine.to_bytes()
        del engine  # its weights take the memory that the limit is for
        engine = braze.Engine.from_bytes(image, weight_budget=budget)
    log.say(*engine_lines(plan))
    if o.dump_profiles:
        log.section("Optimization Profiles", profile_lines(plan))
    _layers(o, engine, log)
    if o.skip_inference:
        log.say("Skipped inference phase since --skipInference is added.")
    else:
        _infer(o, engine, contents, log)


def _tell_version(o: ExecOptions, log: Log) -> None:
    if not o.load_engine:
        raise ConfigError("--getPlanVersionOnly needs an engine; give --loadEngine=FILE")
    plan = read_file(o.load_engine)
    about = ", ".join(f"{k}={v}" for k, v in sorted(plan.target.about.items()))
    log.say(f"Plan was created with braze version: {braze.__version__} for {about}")


def _build(o: ExecOptions, log: Log) -> braze.Engine:
    log.say("Loading standard plugins", "Start parsing network model.")
    start = time.perf_counter()
    known = _cache_entries(o)
    with build_progress() as progress:
        trace = Trace(progress=progress)
        model = _model(o)
        options = with_values(model, o.build)
        engine = (
            build_refittable(model, Path(o.onnx).stem, trace, options, identical=not o.refit)
            if o.refit or o.strip
            else braze.build(model, trace=trace, **options)
        )
    spent = time.perf_counter() - start
    parsing = trace.seconds.get("import", 0.0)
    log.say(f"Finished parsing network model. Parse time: {parsing:.6g}")
    plan = engine.plan
    check_formats(o.input_formats, {b.name: str(b.dtype) for b in plan.inputs}, "--inputIOFormats")
    check_formats(
        o.output_formats, {b.name: str(b.dtype) for b in plan.outputs}, "--outputIOFormats"
    )
    if o.fail_on_cache_miss and _cache_entries(o) > known:
        raise ConfigError(
            "--errorOnTimingCacheMiss: tactics were timed that --timingCacheFile did not have; "
            "they are in it now"
        )
    log.say(f"Engine built in {spent:.6g} sec.")
    image = stripped_image(engine) if o.strip else engine.image()
    log.say(f"Created engine with size: {image.size / MIB:.6g} MiB")
    stages = ", ".join(f"{n} {s:.2f} s" for n, s in trace.seconds.items() if "." not in n)
    log.verbose(f"Stages: {stages}", *decision_lines(trace))
    if o.save_engine:
        write_image(image, o.save_engine)
        log.say(f"Engine saved to {o.save_engine}")
    if o.strip:
        log.say("The engine has no weights in its file; what is run here has those of the model")
    return engine


def _model(o: ExecOptions) -> Any:
    """What is built, as `braze.build` takes it."""
    if not any(f.dtype for f in (*o.input_formats, *o.output_formats)):
        return o.onnx
    from braze.cli.exec_formats import model_in_formats  # of the compiler, as what follows
    from braze.tensorrt.onnx_proto import to_proto

    model = model_in_formats(o.onnx, o.input_formats, o.output_formats)
    quantizes = {"int8", "fp8"} & set(o.build["precision"].split(","))
    if isinstance(model, str) or not (quantizes or o.build["calibration"]):
        return model
    return to_proto(model)  # quantization works on that


def _cache_entries(o: ExecOptions) -> int:
    path = o.build["timing_cache"]
    if not o.fail_on_cache_miss or path is None or not Path(path).exists():
        return 0
    from braze.tuning.timing_cache import TimingCache

    return len(TimingCache.load(path))


def _load(o: ExecOptions, log: Log) -> braze.Engine:
    start = time.perf_counter()
    engine = braze.Engine.load(o.load_engine, threads=o.build["threads"] or 0)
    log.say(f"Engine loaded in {time.perf_counter() - start:.6g} sec.")
    return engine


def _time_loading(o: ExecOptions, log: Log) -> None:
    """Load again and again; the first time warms up."""
    if not o.load_engine:
        raise ConfigError("--timeDeserialize needs an engine; give --loadEngine=FILE")
    spent = []
    for _ in range(LOADS):
        start = time.perf_counter()
        braze.Engine.load(o.load_engine, threads=o.build["threads"] or 0).verify()
        spent.append((time.perf_counter() - start) * 1e3)
    later = sorted(spent[1:])
    log.say(
        f"Total deserialization time = {sum(later):.6g} milliseconds in {len(later)} iterations, "
        f"average time = {sum(later) / len(later):.6g} milliseconds, "
        f"first time = {spent[0]:.6g} milliseconds."
    )


def _layers(o: ExecOptions, engine: braze.Engine, log: Log) -> None:
    if not (o.dump_layers or o.export_layers):
        return
    information = engine_information(engine.plan, o.verbosity)
    if o.dump_layers:
        log.say("Layer Information:", "Layers:")
        log.say(*(one_line(layer) for layer in information["Layers"]))
        log.say("", "Bindings:", *information["Bindings"])
    if o.export_layers:
        write_json(o.export_layers, information)


def _infer(o: ExecOptions, engine: braze.Engine, contents: Mapping[str, Content], log: Log) -> None:
    plan = engine.plan
    profile = o.profile if plan.profiles and o.profile else None
    count = max(1, len(plan.profiles))
    if o.profile >= count:
        have = "1 profile, number 0" if count == 1 else f"{count} profiles, 0 to {count - 1}"
        raise ConfigError(f"--useProfile={o.profile}: the engine has {have}; give one it has")
    shapes = run_shapes(engine, o.shapes, contents, profile)
    bounded = bounded_contents(plan, shapes, o.shapes, contents, profile)
    feed = make_feed(plan, shapes, contents, bounded)
    log.say(*input_lines(plan, feed, contents))
    for name in o.gpu_names if not engine.on_gpu else ():
        log.warn(f"{name} changes nothing: the engine runs on the host")
    callers: list[HostCaller | GpuCaller] = [
        GpuCaller(engine, feed, o.gpu, profile)
        if engine.on_gpu
        else HostCaller(engine, feed, profile)
        for _ in range(o.streams)
    ]
    log.say("Starting inference")
    limits = Limits(o.iterations, o.duration_s, o.warmup_ms, o.idle_ms + o.sleep_ms)
    runs: list[Run] = [*callers]
    measured = measure(runs, limits)
    log.say(
        f"Warmup completed {measured.warmup_queries} queries over {o.warmup_ms:g} ms",
        f"Timing trace has {len(measured.queries)} queries over {measured.wall_s:.6g} s",
        "",
    )
    log.section("Trace details", trace_lines(measured, o.average_runs))
    log.section("Performance summary", performance_lines(measured, o.percentiles))
    if o.streams > 1:
        log.warn(f"Latencies are those of {o.streams} streams that share the machine")
    log.warn(*performance_warnings(measured))
    _export(o, engine, feed, measured, log)
    report_outputs(o, engine, feed, callers[0].outputs(), log)


def _export(
    o: ExecOptions,
    engine: braze.Engine,
    feed: dict[str, np.ndarray[Any, Any]],
    measured: Measurement,
    log: Log,
) -> None:
    if o.export_times:
        write_json(o.export_times, times_json(measured))
    if o.dump_profile or o.export_profile:
        if o.verbosity == "none":
            raise ConfigError("--profilingVerbosity=none leaves nothing to profile; drop it")
        rows = layer_profile_rows(profile_times(engine, feed, PROFILE_RUNS))
        if o.dump_profile:
            log.say(*layer_profile_lines(rows, PROFILE_RUNS))
        if o.export_profile:
            write_json(o.export_profile, [{"count": PROFILE_RUNS}, *rows])


def profile_times(
    engine: braze.Engine, feed: dict[str, np.ndarray[Any, Any]], runs: int
) -> list[tuple[str, list[float]]]:
    """Milliseconds of every step's own part in `runs` profiled runs, in execution order."""
    times: list[tuple[str, list[float]]] = [(s.name, []) for s in engine.plan.every_step]
    for _ in range(runs):
        for (_, spent), ns in zip(times, own_times(engine.plan, engine.profile(feed)), strict=True):
            spent.append(ns / 1e6)
    return times
