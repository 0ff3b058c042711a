"""The options of `braze exec`: trtexec's names, parsed into one frozen record."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from braze.cli.callers import GpuOptions, WeightBudget
from braze.cli.exec_table import REFUSED, TAKEN, nearest
from braze.cli.exec_values import (
    ALGORITHMS,
    DEBUG_FORMATS,
    IoFormat,
    parse_budget,
    parse_choices,
    parse_duration,
    parse_formats,
    parse_percentiles,
)
from braze.cli.numbers import MOST_THREADS, MOST_TIME, number, whole
from braze.cli.options import add_build_arguments, build_keywords, file_name
from braze.cli.shapes import Shape, parse_pairs, parse_shapes
from braze.core.errors import ConfigError

# what an engine that is loaded was built with; options of a profile besides
BUILD_ONLY: Final = (
    "saveEngine", "values", "target", "precision", "builderOptimizationLevel", "timingCacheFile",
    "markDebug",
)  # fmt: skip
# pairs that say how an engine runs on a GPU: what braze does anyway, and the opposite
ON_GPU: Final = (
    ("--includeDataTransfers", "--noDataTransfers", "copy inputs and outputs in every run"),
    ("--useCudaGraph", "--noCudaGraph", "launch the network as one CUDA graph"),
    ("--useSpinWait", "--noSpinWait", "wait for the GPU without sleeping"),
)
VERBOSITIES: Final = {"layer_names_only": 0, "none": 1, "detailed": 2}
NVTX_MODES: Final = {"default": "layer_names_only", "verbose": "detailed", "none": "none"}


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Files with the outputs that are expected, and how far from them a run may be."""

    files: dict[str, str] = field(default_factory=dict)
    algorithm: str = "l1"
    threshold: float = 1e-5
    atol: float = 1e-5
    rtol: float = 1e-5


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """Everything `braze exec` was asked for; file names are as the user gave them.

    build: keyword arguments for `braze.build`, with values still among the shapes; shapes: those of
    the run, names may be patterns; given: (option, value) of what changes nothing.
    """

    onnx: str = ""
    load_engine: str = ""
    save_engine: str = ""
    build: dict[str, Any] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    load_inputs: dict[str, str] = field(default_factory=dict)
    input_formats: tuple[IoFormat, ...] = ()
    output_formats: tuple[IoFormat, ...] = ()
    version_only: bool = False
    skip_inference: bool = False
    time_load: bool = False
    fail_on_cache_miss: bool = False
    refit: bool = False
    strip: bool = False
    refit_from: str = ""
    dump_weights: bool = False
    profile: int = 0
    iterations: int = 10
    duration_s: float = 3.0
    warmup_ms: float = 200.0
    idle_ms: float = 0.0
    sleep_ms: float = 0.0
    streams: int = 1
    average_runs: int = 10
    percentiles: tuple[float, ...] = (90.0, 95.0, 99.0)
    dump_output: bool = False
    dump_raw: bool = False
    dump_profile: bool = False
    dump_layers: bool = False
    dump_profiles: bool = False
    export_times: str = ""
    export_output: str = ""
    export_profile: str = ""
    export_layers: str = ""
    debug_files: dict[str, str] = field(default_factory=dict)
    debug_formats: tuple[str, ...] = ()
    accuracy: Accuracy = field(default_factory=Accuracy)
    verbosity: str = "layer_names_only"
    verbose: bool = False
    given: tuple[tuple[str, str], ...] = ()
    weight_budget: WeightBudget | None = None
    gpu: GpuOptions = field(default_factory=GpuOptions)
    gpu_names: tuple[str, ...] = ()  # those given of ON_GPU
    threaded: bool = False

    @property
    def written(self) -> tuple[str, ...]:
        """The files this command is to write."""
        files = (self.save_engine, self.export_times, self.export_output, self.export_profile,
                 self.export_layers, *self.debug_files.values())  # fmt: skip
        return tuple(f for f in files if f)


def add_exec_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on `parser`, in groups."""
    parser.usage = "%(prog)s (--onnx=FILE | --loadEngine=FILE) [OPTIONS]"
    _add_model_arguments(parser.add_argument_group("model and engine"))
    _add_inference_arguments(parser.add_argument_group("inference"))
    _add_gpu_arguments(parser.add_argument_group("inference on a GPU"))
    _add_check_arguments(parser.add_argument_group("checks of outputs and debug tensors"))
    _add_report_arguments(parser.add_argument_group("report"))
    taken = parser.add_argument_group(
        "taken, changing nothing (the log says why)", ", ".join(t.name for t in TAKEN)
    )
    for t in TAKEN:
        if t.metavar:
            taken.add_argument(t.name, action=_Take, metavar=t.metavar, dest="taken",
                               help=argparse.SUPPRESS)  # fmt: skip
        else:
            taken.add_argument(t.name, action=_Take, nargs=0, dest="taken",
                               help=argparse.SUPPRESS)  # fmt: skip
    parser.add_argument_group("refused, with the reason", ", ".join(REFUSED))


class _Take(argparse.Action):
    """Keeps an option and its value, in order."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        text = values if isinstance(values, str) else ""
        before = getattr(namespace, self.dest, None) or []
        setattr(namespace, self.dest, [*before, (option_string, text)])


def _add_model_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--onnx", type=file_name, metavar="FILE", help="ONNX model to build an engine from")
    add("--loadEngine", type=file_name, metavar="FILE",
        help="run this engine instead of building one")  # fmt: skip
    add("--saveEngine", type=file_name, metavar="FILE", help="write the built engine here")
    add_build_arguments(group)
    add(
        "--noBuilderCache", action="store_true", help="time every tactic, also of --timingCacheFile"
    )
    add("--errorOnTimingCacheMiss", action="store_true",
        help="fail where a tactic is timed that --timingCacheFile has not")  # fmt: skip
    add("--markUnfusedTensorsAsDebugTensors", action="store_true",
        help="keep every tensor readable that exists between kernels")  # fmt: skip
    add("--inputIOFormats", metavar="SPEC",
        help="types and layouts of the inputs, as fp16:chw; layouts are chw")  # fmt: skip
    add("--outputIOFormats", metavar="SPEC", help="the same of the outputs")
    add("--refit", action="store_true",
        help="keep the model in the engine, so that its weights can be replaced")  # fmt: skip
    add("--stripWeights", "--weightless", action="store_true",
        help="save an engine without its weights, which a refit gives it")  # fmt: skip
    add("--stripAllWeights", action="store_true", help="--refit and --stripWeights")
    add("--refitFromOnnx", action="store_true",
        help="give the engine of --loadEngine the weights of --onnx")  # fmt: skip
    add("--timeRefit", action="store_true", help="the log tells the time of a refit anyway")
    add("--skipInference", "--buildOnly", action="store_true", help="build or load, then stop")
    add("--getPlanVersionOnly", action="store_true",
        help="tell what wrote the engine of --loadEngine, then stop")  # fmt: skip


def _add_inference_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--loadInputs", metavar="SPEC", help="input contents: x:file.npy or raw bytes x:file.bin")
    add("--useProfile", type=whole(0), default=0, metavar="K", help="optimization profile (0)")
    time = number(0, MOST_TIME)
    add("--iterations", type=whole(1), default=10, metavar="N", help="at least N runs (10)")
    add("--duration", default="3", metavar="S", help="at least S seconds (3); -1 for ever")
    add("--warmUp", type=time, default=200.0, metavar="MS", help="uncounted runs first (200 ms)")
    add("--idleTime", type=time, default=0.0, metavar="MS", help="pause between runs")
    add("--sleepTime", type=time, default=0.0, metavar="MS", help="pause before every run")
    add("--infStreams", "--streams", type=whole(1, MOST_THREADS), default=1, metavar="N",
        help="N callers at a time, each with its own context and thread")  # fmt: skip
    add("--timeDeserialize", action="store_true", help="time how long loading takes, then stop")


def _add_gpu_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--weightStreamingBudget", metavar="N[%]",
        help="bytes, or a part, of the weights that may lie there; -1, -2: no limit")  # fmt: skip
    for usual, opposite, what in ON_GPU:
        add(usual, action="append_const", const=usual, dest="on_gpu",
            help=f"{what} (so it is anyway)")  # fmt: skip
        add(opposite, action="append_const", const=opposite, dest="on_gpu",
            help=f"do not {what}")  # fmt: skip


def _add_check_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--loadRefOutputs", metavar="SPEC", help="outputs to compare with: y:file.npy or raw bytes")
    add("--accuracyAlgorithm", choices=ALGORITHMS, default="l1", metavar="NAME",
        help=f"how they are compared: {', '.join(ALGORITHMS)} (l1)")  # fmt: skip
    tolerance = number(0, MOST_TIME)
    add("--accuracyThreshold", type=tolerance, default=1e-5, metavar="X", help="most loss (1e-5)")
    add("--atol", type=tolerance, default=1e-5, metavar="X", help="of l0, absolute (1e-5)")
    add("--rtol", type=tolerance, default=1e-5, metavar="X", help="of l0, relative (1e-5)")
    add("--refPair", metavar="N", help="inputs and outputs given together are one pair")
    add("--saveDebugTensors", metavar="SPEC", help="debug tensors as raw bytes: m:file")
    add("--saveAllDebugTensors", metavar="FORMATS", help=f"all of them: {', '.join(DEBUG_FORMATS)}")


def _add_report_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--avgRuns", type=whole(1), default=10, metavar="N",
        help="average the trace over N runs (10)")  # fmt: skip
    add("--percentile", default="90,95,99", metavar="P,..", help="percentiles (90,95,99)")
    add("--profilingVerbosity", choices=[*VERBOSITIES], default=None, metavar="MODE",
        help=f"how much the layer reports tell: {', '.join(VERBOSITIES)}")  # fmt: skip
    add("--nvtxMode", choices=[*NVTX_MODES], help=argparse.SUPPRESS)
    add("--dumpRefit", action="store_true", help="print the weights that can be refitted")
    add("--dumpOutput", action="store_true", help="print the outputs of the last run")
    add("--dumpRawBindingsToFile", action="store_true",
        help="write inputs and outputs of the last run as raw bytes here")  # fmt: skip
    add("--dumpProfile", action="store_true", help="print the time of every layer")
    add("--dumpLayerInfo", action="store_true", help="print the layers of the engine")
    add("--dumpOptimizationProfile", action="store_true", help="print min, opt and max shapes")
    for what in ("Times", "Output", "Profile", "LayerInfo"):
        add(f"--export{what}", type=file_name, metavar="FILE",
            help=f"write {what.lower()} as JSON")  # fmt: skip
    add("--verbose", "-v", action="store_true", help="also print decisions and tracebacks")


def exec_options(args: argparse.Namespace, unknown: Sequence[str]) -> ExecOptions:
    """The checked options; raises ConfigError for contradictions and options braze has not."""
    given = tuple(args.taken or ())
    _refuse(unknown, given)
    if args.refitFromOnnx and not (args.onnx and args.loadEngine):
        raise ConfigError("--refitFromOnnx needs both --loadEngine=FILE and --onnx=FILE")
    if bool(args.onnx) == bool(args.loadEngine) and not args.refitFromOnnx:
        raise ConfigError("give either --onnx=FILE to build an engine or --loadEngine=FILE")
    if args.loadEngine:
        _refuse_build_options(args)
    build = build_keywords(args)
    if "tf32" in build["precision"].split(",") and "--noTF32" in dict(given):
        raise ConfigError("--precision=tf32 and --noTF32 contradict each other; leave one out")
    if args.markUnfusedTensorsAsDebugTensors:
        build["debug"] = ("*",)
    if args.noBuilderCache:
        build["timing_cache"] = None
    return ExecOptions(
        onnx="" if args.refitFromOnnx else args.onnx or "",
        load_engine=args.loadEngine or "",
        save_engine=args.saveEngine or "",
        build=build,
        shapes=parse_shapes(args.shapes, "--shapes", signed=True),
        load_inputs=parse_pairs(args.loadInputs, "--loadInputs"),
        input_formats=parse_formats(args.inputIOFormats, "--inputIOFormats"),
        output_formats=parse_formats(args.outputIOFormats, "--outputIOFormats"),
        version_only=args.getPlanVersionOnly,
        skip_inference=args.skipInference,
        time_load=args.timeDeserialize,
        fail_on_cache_miss=args.errorOnTimingCacheMiss,
        refit=args.refit or args.stripAllWeights,
        strip=args.stripWeights or args.stripAllWeights,
        refit_from=args.onnx if args.refitFromOnnx else "",
        dump_weights=args.dumpRefit,
        **_run_fields(args),
        **_report_fields(args),
        given=given,
    )


def _run_fields(args: argparse.Namespace) -> dict[str, Any]:
    """What ExecOptions says of the runs."""
    return {
        "profile": args.useProfile,
        "iterations": args.iterations,
        "duration_s": parse_duration(args.duration),
        "warmup_ms": args.warmUp,
        "idle_ms": args.idleTime,
        "sleep_ms": args.sleepTime,
        "streams": args.infStreams,
        "weight_budget": parse_budget(args.weightStreamingBudget),
        "gpu": _gpu_options(args.on_gpu or ()),
        "gpu_names": tuple(args.on_gpu or ()),
        "threaded": args.threads is not None,
    }


def _report_fields(args: argparse.Namespace) -> dict[str, Any]:
    """What ExecOptions says of reports and checks."""
    return {
        "average_runs": args.avgRuns,
        "percentiles": parse_percentiles(args.percentile),
        "dump_output": args.dumpOutput,
        "dump_raw": args.dumpRawBindingsToFile,
        "dump_profile": args.dumpProfile,
        "dump_layers": args.dumpLayerInfo,
        "dump_profiles": args.dumpOptimizationProfile,
        "export_times": args.exportTimes or "",
        "export_output": args.exportOutput or "",
        "export_profile": args.exportProfile or "",
        "export_layers": args.exportLayerInfo or "",
        "debug_files": parse_pairs(args.saveDebugTensors, "--saveDebugTensors"),
        "debug_formats": parse_choices(
            args.saveAllDebugTensors, "--saveAllDebugTensors", DEBUG_FORMATS
        ),
        "accuracy": _accuracy(args),
        "verbosity": args.profilingVerbosity or NVTX_MODES[args.nvtxMode or "default"],
        "verbose": args.verbose,
    }


def _accuracy(args: argparse.Namespace) -> Accuracy:
    files = parse_pairs(args.loadRefOutputs, "--loadRefOutputs")
    return Accuracy(files, args.accuracyAlgorithm, args.accuracyThreshold, args.atol, args.rtol)


def _refuse_build_options(args: argparse.Namespace) -> None:
    given = [option for option, _ in args.profile_events or ()]
    given += [f"--{name}" for name in BUILD_ONLY if getattr(args, name) is not None]
    if given:
        raise ConfigError(
            f"{', '.join(dict.fromkeys(given))}: what belongs to a build has no effect on an "
            "engine that is built; leave it out with --loadEngine (--shapes is for the run)"
        )


def _gpu_options(names: Sequence[str]) -> GpuOptions:
    for usual, opposite, _ in ON_GPU:
        if usual in names and opposite in names:
            raise ConfigError(f"{usual} and {opposite} contradict each other; give one of them")
    return GpuOptions(*(opposite not in names for _, opposite, _ in ON_GPU))


def _refuse(unknown: Sequence[str], given: Sequence[tuple[str, str]]) -> None:
    by_name = {t.name: t for t in TAKEN}
    for name, value in given:
        taken = by_name[name]
        if taken.values and value not in taken.values:
            raise ConfigError(f"{name}={value}: {taken.otherwise}")
    for argument in unknown:
        name = argument.split("=", 1)[0]
        if name in REFUSED:
            raise ConfigError(f"{name}: {REFUSED[name]}")
    if unknown:
        name = unknown[0].split("=", 1)[0]
        if not name.startswith("-"):
            raise ConfigError(
                f"{unknown[0]!r} stands alone; name a model --onnx={name}, an engine "
                f"--loadEngine={name}"
            )
        near = nearest(name, [*_names(), *REFUSED])
        hint = f"did you mean {near}?" if near else "`braze exec --help` lists the options"
        raise ConfigError(f"unknown option {unknown[0]!r}; {hint}")


def _names() -> list[str]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_exec_arguments(parser)
    return [name for action in parser._actions for name in action.option_strings]
