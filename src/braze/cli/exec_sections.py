"""What `braze exec` was asked for, as trtexec says it before it begins: one section a group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from braze.cli.callers import WeightBudget
from braze.cli.exec_options import VERBOSITIES, ExecOptions
from braze.cli.exec_values import IoFormat
from braze.cli.report import shape_string
from braze.shim.memory import total_memory

MIB = 1 << 20
POOLS = ("workspace", "dlaSRAM", "dlaLocalDRAM", "dlaGlobalDRAM", "tacticSharedMem")
TEMPFILES = "{ in_memory: allow, temporary: allow }"


def enabled(flag: bool) -> str:
    """trtexec's words for a flag."""
    return "Enabled" if flag else "Disabled"


def model_lines(o: ExecOptions) -> list[str]:
    """=== Model Options ==="""
    return [f"Format: {'ONNX' if o.onnx else '*'}", f"Model: {o.onnx}", "Output:"]


def build_lines(o: ExecOptions) -> list[str]:
    """=== Build Options ==="""
    given = dict(o.given)
    asked = o.build["precision"].split(",")
    types = [n for n in ("fp16", "bf16", "int8", "fp8", "int4") if n in asked or f"--{n}" in given]
    layers = o.build["layer_precisions"]
    pools = _pools(given)
    cache = o.build["timing_cache"]
    return [
        f"Memory Pools: {', '.join(f'{k}: {v}' for k, v in pools.items())}",
        f"avgTiming: {given.get('--avgTiming', '8')}",
        f"Precision: {'+'.join(['FP32', *(t.upper() for t in types)])}"
        + (" (obey precision constraints)" if "--stronglyTyped" in given else ""),
        f"LayerPrecisions: {','.join(f'{name}:{kind}' for name, kind in layers.items())}",
        f"Layer Device Types: {given.get('--layerDeviceTypes', '')}",
        f"Calibration: {o.build['calibration'] or ''}",
        f"Refit: {enabled(o.refit)}",
        f"Strip weights: {enabled(o.strip)}",
        "Version Compatible: Disabled",
        f"ONNX Plugin InstanceNorm: {enabled('--pluginInstanceNorm' in given)}",
        "TensorRT runtime: full",
        "Lean DLL Path: ",
        f"Tempfile Controls: {given.get('--tempfileControls', TEMPFILES)}",
        f"Exclude Lean Runtime: {enabled('--excludeLeanRuntime' in given)}",
        f"Sparsity: {given.get('--sparsity', 'Disabled').capitalize()}",
        "Safe mode: Disabled",
        "Build DLA standalone loadable: Disabled",
        f"Allow GPU fallback for DLA: {enabled('--allowGPUFallback' in given)}",
        f"DirectIO mode: {enabled('--directIO' in given)}",
        "Restricted mode: Disabled",
        f"Skip inference: {enabled(o.skip_inference)}",
        f"Save engine: {o.save_engine}",
        f"Load engine: {o.load_engine}",
        f"Profiling verbosity: {VERBOSITIES[o.verbosity]}",
        f"Tactic sources: {given.get('--tacticSources', 'Using default tactic sources')}",
        f"timingCacheMode: {'global' if cache else 'local'}",
        f"timingCacheFile: {cache or ''}",
        f"Enable Compilation Cache: {enabled('--noCompilationCache' not in given)}",
        f"Enable Monitor Memory: {enabled('--monitorMemory' in given)}",
        f"errorOnTimingCacheMiss: {enabled(o.fail_on_cache_miss)}",
        f"Preview Features: {given.get('--preview', 'Use default preview flags.')}",
        f"MaxAuxStreams: {given.get('--maxAuxStreams', '-1')}",
        f"BuilderOptimizationLevel: {o.build['optimization_level']}",
        f"MaxTactics: {given.get('--maxTactics', '-1')}",
        f"Calibration Profile Index: {given.get('--calibProfile', '0')}",
        f"Weight Streaming: {enabled('--allowWeightStreaming' in given)}",
        "Runtime Platform: Same As Build",
        f"Debug Tensors: {','.join(o.build['debug'])}",
        *_format_lines("Input(s)", o.input_formats),
        *_format_lines("Output(s)", o.output_formats),
        *_shape_lines(o),
    ]  # fmt: skip


def _pools(given: Mapping[str, str]) -> dict[str, str]:
    pools = dict.fromkeys(POOLS, "default")
    if "--workspace" in given:
        pools["workspace"] = f"{given['--workspace']} MiB"
    for item in given.get("--memPoolSize", "").split(","):
        name, colon, size = item.partition(":")
        if colon:
            pools[name] = size if size[-1:].isalpha() else f"{size} MiB"
    return pools


def _format_lines(side: str, formats: tuple[IoFormat, ...]) -> Iterator[str]:
    if not formats:
        yield f"{side}s format: fp32:CHW"
    for f in formats:
        yield f"{side}: {f.text}"


def _shape_lines(o: ExecOptions) -> Iterator[str]:
    shapes = o.build["shapes"] or {}
    if not shapes:
        yield "Input build shapes: model"
    for name, given in shapes.items():
        profiles = given if isinstance(given, list) else [(given,) * 3]
        for k, corners in enumerate(profiles):
            yield f"Input build shape (profile {k}): {name}=" + "+".join(map(shape_string, corners))
    yield "Input calibration shapes: model"


def system_lines(o: ExecOptions) -> list[str]:
    """=== System Options ==="""
    return [
        "Device: 0", "DLACore: ", "Plugins:", "setPluginsToSerialize:", "dynamicPlugins:",
        f"ignoreParsedPluginLibs: {int('--ignoreParsedPluginLibs' in dict(o.given))}", "",
    ]  # fmt: skip


def inference_lines(o: ExecOptions) -> list[str]:
    """=== Inference Options ==="""
    given = dict(o.given)
    shapes = [f"Input inference shape : {n}={shape_string(s)}" for n, s in o.shapes.items()]
    return [
        "Batch: Explicit",
        *(shapes or ["Input inference shapes: model"]),
        f"Iterations: {o.iterations}",
        f"Duration: {o.duration_s:g}s (+ {o.warmup_ms:g}ms warm up)",
        f"Sleep time: {o.sleep_ms:g}ms",
        f"Idle time: {o.idle_ms:g}ms",
        f"Inference Streams: {o.streams}",
        f"ExposeDMA: {enabled('--exposeDMA' in given)}",
        f"Data transfers: {enabled(o.gpu.transfers)}",
        f"Spin-wait: {enabled(o.gpu.spin)}",
        f"Multithreading: {enabled(o.threaded)}",
        f"CUDA Graph: {enabled(o.gpu.graph)}",
        f"Separate profiling: {enabled('--separateProfileRun' in given)}",
        f"Time Deserialize: {enabled(o.time_load)}",
        "Time Refit: Disabled",
        f"NVTX verbosity: {VERBOSITIES[o.verbosity]}",
        f"Persistent Cache Ratio: {given.get('--persistentCacheRatio', '0')}",
        f"Optimization Profile Index: {o.profile}",
        f"Weight Streaming Budget: {_budget_text(o.weight_budget)}",
        "Inputs:",
        *(f"{name}<-{path}" for name, path in o.load_inputs.items()),
        "Debug Tensor Save Destinations:",
        *(f"{name}: {path}" for name, path in o.debug_files.items()),
        "Dump All Debug Tensor in Formats: ",
        *o.debug_formats,
    ]  # fmt: skip


def _budget_text(budget: WeightBudget | None) -> str:
    if budget is None:
        return "100.000000%"
    return f"{budget.value:f}%" if budget.part else f"{budget.value:.0f} bytes"


def reporting_lines(o: ExecOptions) -> list[str]:
    """=== Reporting Options ==="""
    return [
        f"Verbose: {enabled(o.verbose)}",
        f"Averages: {o.average_runs} inferences",
        f"Percentiles: {','.join(f'{p:g}' for p in o.percentiles)}",
        f"Dump refittable layers:{enabled(o.dump_weights)}",
        f"Dump output: {enabled(o.dump_output)}",
        f"Profile: {enabled(o.dump_profile)}",
        f"Export timing to JSON file: {o.export_times}",
        f"Export output to JSON file: {o.export_output}",
        f"Export profile to JSON file: {o.export_profile}",
        "",
    ]


def device_lines() -> list[str]:
    """=== Device Information === of the host, under the names a GPU's has."""
    name, clock = _processor()
    return [
        "Available Devices:",
        f'  Device 0: "{name}" UUID: host',
        f"Selected Device: {name}",
        "Selected Device ID: 0",
        "Selected Device UUID: host",
        "Compute Capability: 0.0",
        f"SMs: {os.cpu_count() or 1}",
        f"Device Global Memory: {total_memory() // MIB} MiB",
        "Shared Memory per SM: 0 KiB",
        "Memory Bus Width: 0 bits (ECC disabled)",
        f"Application Compute Clock Rate: {clock:g} GHz",
        "Application Memory Clock Rate: 0 GHz",
        "",
    ]


def _processor() -> tuple[str, float]:
    """Name and clock of the processor, as the system tells them."""
    name, clock = "host", 0.0
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    name = value.strip()
                elif key.strip() == "cpu MHz":
                    clock = round(float(value) / 1e3, 3)
                    break
    except (OSError, ValueError):
        return name, clock
    return name, clock
