"""The options of `braze exec`: trtexec's names, parsed into one frozen record."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from braze.cli.callers import GpuOptions, WeightBudget
from braze.cli.numbers import MOST_THREADS, MOST_TIME, number, whole
from braze.cli.shapes import Shape, parse_pairs, parse_shapes, parse_values, profile_ranges
from braze.core.config import EFFORTS, ShapeRange
from braze.core.errors import ConfigError
from braze.core.files import writable_target

# trtexec options braze refuses because ignoring them would change what is built or measured
_PRECISION_LATER: Final = "only fp32 engines are built so far; leave the option out"
REFUSED: Final = {
    "--fp16": _PRECISION_LATER,
    "--bf16": _PRECISION_LATER,
    "--int8": _PRECISION_LATER,
    "--fp8": _PRECISION_LATER,
    "--int4": _PRECISION_LATER,
    "--best": _PRECISION_LATER,
    "--calib": _PRECISION_LATER,
    "--precisionConstraints": _PRECISION_LATER,
    "--layerPrecisions": _PRECISION_LATER,
    "--layerOutputTypes": _PRECISION_LATER,
    "--sparsity": "sparse kernels do not exist in braze; leave the option out",
    "--refit": "engines cannot be refitted yet; build again with the new weights",
    "--stripWeights": "engines always hold their weights; leave the option out",
    "--deploy": "Caffe models are not read; convert the model to ONNX",
    "--model": "Caffe models are not read; convert the model to ONNX",
    "--uff": "UFF models are not read; convert the model to ONNX",
    "--useDLACore": "there is no DLA backend; leave the option out",
    "--device": "an engine runs on the first GPU it sees; choose with CUDA_VISIBLE_DEVICES",
    "--plugins": "plugins are not loaded; the ops braze runs are listed by `braze check`",
    "--staticPlugins": "plugins are not loaded; the ops braze runs are listed by `braze check`",
    "--dynamicPlugins": "plugins are not loaded; the ops braze runs are listed by `braze check`",
    "--inputIOFormats": "inputs are dense row-major arrays; leave the option out",
    "--outputIOFormats": "outputs are dense row-major arrays; leave the option out",
    "--batch": "implicit batch does not exist in ONNX; give the batch in --shapes",
    "--maxBatch": "implicit batch does not exist in ONNX; give the batch in --maxShapes",
}
# trtexec options that change nothing in braze, on any target: accepted, with a note in the report
WITHOUT_EFFECT: Final = (
    "--noTF32",
    "--stronglyTyped",
    "--explicitBatch",
    "--exposeDMA",
    "--useManagedMemory",
    "--separateProfileRun",
    "--allowWeightStreaming",  # every engine of a GPU does
)
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
MOST_BYTES: Final = float(1 << 62)
VERBOSITIES: Final = ("layer_names_only", "detailed", "none")


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """Everything `braze exec` was asked for; file names are as the user gave them.

    build: keyword arguments for `braze.build`; shapes: those of the run, names may be patterns.
    """

    onnx: str = ""
    load_engine: str = ""
    save_engine: str = ""
    build: dict[str, Any] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    load_inputs: dict[str, str] = field(default_factory=dict)
    skip_inference: bool = False
    iterations: int = 10
    duration_s: float = 3.0
    warmup_ms: float = 200.0
    idle_ms: float = 0.0
    streams: int = 1
    average_runs: int = 10
    percentiles: tuple[float, ...] = (90.0, 95.0, 99.0)
    dump_output: bool = False
    dump_profile: bool = False
    dump_layers: bool = False
    dump_profiles: bool = False
    export_times: str = ""
    export_output: str = ""
    export_profile: str = ""
    export_layers: str = ""
    verbosity: str = "layer_names_only"
    verbose: bool = False
    notes: tuple[str, ...] = ()
    weight_budget: WeightBudget | None = None
    gpu: GpuOptions = field(default_factory=GpuOptions)
    gpu_names: tuple[str, ...] = ()  # those given of ON_GPU

    @property
    def written(self) -> tuple[str, ...]:
        """The files this command is to write."""
        files = (self.save_engine, self.export_times, self.export_output, self.export_profile,
                 self.export_layers)  # fmt: skip
        return tuple(f for f in files if f)


def file_name(text: str) -> str:
    """The value of an option that names a file; an empty one is wrong usage."""
    if not text:
        raise argparse.ArgumentTypeError("the name of a file is empty")
    return text


def check_written(written: Sequence[str], read: Sequence[str]) -> None:
    """Refuse before a build, which takes long, what could not be written after it.

    Raises FileError, and ConfigError where a file would take the place of another one in use.
    """
    taken = {os.path.realpath(name) for name in read}
    for name in written:
        target = str(writable_target(name))
        if target in taken:
            raise ConfigError(f"{name} is named twice, and would be overwritten; give another name")
        taken.add(target)


class ProfileEvents(argparse.Action):
    """Keeps --profile and --min/opt/maxShapes in the order they were given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        events = [*(getattr(namespace, self.dest, None) or []), (option_string, values)]
        setattr(namespace, self.dest, events)


def add_exec_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on `parser`, in trtexec's groups."""
    _add_model_arguments(parser.add_argument_group("model and engine"))
    _add_inference_arguments(parser.add_argument_group("inference"))
    _add_report_arguments(parser.add_argument_group("report"))
    ignored = parser.add_argument_group("accepted without effect")
    for name in WITHOUT_EFFECT:
        ignored.add_argument(name, action="append_const", const=name, dest="ignored",
                             help=argparse.SUPPRESS)  # fmt: skip
    ignored.description = ", ".join(WITHOUT_EFFECT)


def _add_model_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--onnx", type=file_name, metavar="FILE", help="ONNX model to build an engine from")
    add("--loadEngine", type=file_name, metavar="FILE",
        help="run this engine instead of building one")  # fmt: skip
    add("--saveEngine", type=file_name, metavar="FILE", help="write the built engine here")
    add_build_arguments(group)
    add("--skipInference", "--buildOnly", action="store_true", help="build or load, then stop")


def add_build_arguments(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Declare what every command that builds takes: profiles, values, threads, level, cache."""
    add = group.add_argument
    for which in ("min", "opt", "max"):
        add(f"--{which}Shapes", metavar="SPEC", action=ProfileEvents, dest="profile_events",
            help=f"{which} shapes of the profile, e.g. x:1x3x224x224,y:scalar")  # fmt: skip
    add("--profile", metavar="K", action=ProfileEvents, dest="profile_events",
        help="the shape options that follow belong to profile K")  # fmt: skip
    add("--shapes", metavar="SPEC",
        help="input shapes of the run; also of the build where no profile is given")  # fmt: skip
    add("--values", metavar="SPEC",
        help="fix small inputs to a content known at build time, e.g. sizes:1x3x64x64")  # fmt: skip
    add("--threads", type=whole(0, MOST_THREADS), metavar="N",
        help="worker threads of a run (0, the default: all processors)")  # fmt: skip
    add("--target", metavar="NAME",
        help="cpu (the default), cpu:avx2, cuda, cuda:sm_90, reference")  # fmt: skip
    add("--precision", metavar="NAME",
        help="fp32 (the default), or tf32: factors of 11 bits on a GPU")  # fmt: skip
    add("--builderOptimizationLevel", type=whole(0, len(EFFORTS) - 1), metavar="0..5",
        help="0 no fusion, 1 fusion, 2 cost model, 3 (default) to 5 measure")  # fmt: skip
    add("--timingCacheFile", type=file_name, metavar="FILE",
        help="timing cache to read and extend")  # fmt: skip
    add("--markDebug", metavar="NAMES", help="intermediate tensors to keep readable, by name")


def build_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `braze.build` from what `add_build_arguments` declared."""
    profiles = parse_profiles(args.profile_events or [])
    shapes: dict[str, Any] | None = None
    if profiles:
        shapes = {name: [p[name] for p in profiles] for name in profiles[0]}
    elif args.shapes is not None:
        shapes = dict(parse_shapes(args.shapes, "--shapes"))
    level = args.builderOptimizationLevel
    return {
        "threads": args.threads,
        "target": args.target or "cpu",
        "precision": args.precision or "fp32",
        "shapes": shapes,
        "values": _build_values(args),
        "optimization_level": 3 if level is None else level,
        "timing_cache": args.timingCacheFile,
        "debug": tuple(args.markDebug.split(",")) if args.markDebug else (),
    }


def _add_inference_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--loadInputs", metavar="SPEC", help="input contents: x:file.npy or raw bytes x:file.bin")
    time = number(0, MOST_TIME)
    add("--iterations", type=whole(1), default=10, metavar="N", help="at least N runs (10)")
    add("--duration", type=time, default=3.0, metavar="S", help="at least S seconds (3)")
    add("--warmUp", type=time, default=200.0, metavar="MS", help="uncounted runs first (200 ms)")
    add("--idleTime", type=time, default=0.0, metavar="MS", help="pause between runs")
    add("--infStreams", "--streams", type=whole(1, MOST_THREADS), default=1, metavar="N",
        help="N callers at a time, each with its own context")  # fmt: skip
    add("--weightStreamingBudget", metavar="N[%]",
        help="bytes, or a part, of the weights that may lie on a GPU; -2: no limit")  # fmt: skip
    for usual, opposite, what in ON_GPU:
        add(usual, action="append_const", const=usual, dest="on_gpu",
            help=f"on a GPU, {what} (so it is anyway)")  # fmt: skip
        add(opposite, action="append_const", const=opposite, dest="on_gpu",
            help=f"on a GPU, do not {what}")  # fmt: skip


def _add_report_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--avgRuns", type=whole(1), default=10, metavar="N",
        help="average the trace over N runs (10)")  # fmt: skip
    add("--percentile", default="90,95,99", metavar="P,..", help="percentiles (90,95,99)")
    add("--profilingVerbosity", choices=VERBOSITIES, default="layer_names_only",
        help="how much the layer reports tell")  # fmt: skip
    add("--dumpOutput", action="store_true", help="print the outputs of the last run")
    add("--dumpProfile", action="store_true", help="print the time of every layer")
    add("--dumpLayerInfo", action="store_true", help="print the layers of the engine")
    add("--dumpOptimizationProfile", action="store_true", help="print min, opt and max shapes")
    for what in ("Times", "Output", "Profile", "LayerInfo"):
        add(f"--export{what}", type=file_name, metavar="FILE",
            help=f"write {what.lower()} as JSON")  # fmt: skip
    add("--verbose", "-v", action="store_true", help="also print decisions and tracebacks")


def _build_values(args: argparse.Namespace) -> dict[str, Any] | None:
    """Contents as nested lists; a list of numbers unless --shapes gives the input a shape."""
    if args.values is None:
        return None
    shapes = parse_shapes(args.shapes, "--shapes")
    out: dict[str, Any] = {}
    for name, numbers in parse_values(args.values, "--values").items():
        shape = shapes.get(name, (len(numbers),))
        if math.prod(shape) != len(numbers):
            raise ConfigError(f"--values: {name!r} has {len(numbers)} numbers for shape {shape}")
        out[name] = np.array(numbers, dtype=object).reshape(shape).tolist()
    return out


def exec_options(args: argparse.Namespace, unknown: Sequence[str]) -> ExecOptions:
    """The checked options; raises ConfigError for contradictions and options braze has not."""
    _refuse(unknown)
    if bool(args.onnx) == bool(args.loadEngine):
        raise ConfigError("give either --onnx=FILE to build an engine or --loadEngine=FILE")
    if args.loadEngine:
        _refuse_build_options(args)
    if args.precision == "tf32" and "--noTF32" in (args.ignored or ()):
        raise ConfigError("--precision=tf32 and --noTF32 contradict each other; leave one out")
    return ExecOptions(
        onnx=args.onnx or "",
        load_engine=args.loadEngine or "",
        save_engine=args.saveEngine or "",
        build=build_keywords(args),
        shapes=parse_shapes(args.shapes, "--shapes"),
        load_inputs=parse_pairs(args.loadInputs, "--loadInputs"),
        skip_inference=args.skipInference,
        iterations=args.iterations,
        duration_s=args.duration,
        warmup_ms=args.warmUp,
        idle_ms=args.idleTime,
        streams=args.infStreams,
        average_runs=args.avgRuns,
        percentiles=_parse_percentiles(args.percentile),
        dump_output=args.dumpOutput,
        dump_profile=args.dumpProfile,
        dump_layers=args.dumpLayerInfo,
        dump_profiles=args.dumpOptimizationProfile,
        export_times=args.exportTimes or "",
        export_output=args.exportOutput or "",
        export_profile=args.exportProfile or "",
        export_layers=args.exportLayerInfo or "",
        verbosity=args.profilingVerbosity,
        verbose=args.verbose,
        notes=tuple(f"{n} has no effect" for n in args.ignored or ()),
        weight_budget=_weight_budget(args.weightStreamingBudget),
        gpu=_gpu_options(args.on_gpu or ()),
        gpu_names=tuple(args.on_gpu or ()),
    )


def _refuse_build_options(args: argparse.Namespace) -> None:
    given = [option for option, _ in args.profile_events or ()]
    given += [f"--{name}" for name in BUILD_ONLY if getattr(args, name) is not None]
    if given:
        raise ConfigError(
            f"{', '.join(dict.fromkeys(given))}: what belongs to a build has no effect on an "
            "engine that is built; leave it out with --loadEngine (--shapes is for the run)"
        )


def _weight_budget(text: str | None) -> WeightBudget | None:
    if text in (None, "-2"):
        return None
    amount = text.removesuffix("%")
    part = amount != text
    try:
        value = float(amount) if part else float(int(amount))
    except (ValueError, OverflowError):
        value = -1.0
    if not 0 <= value <= (100 if part else MOST_BYTES):
        raise ConfigError(
            f"--weightStreamingBudget={text} is neither bytes, nor a part as 30%, nor -2 (all); "
            "braze does not choose one by itself"
        )
    return WeightBudget(value, part)


def _gpu_options(names: Sequence[str]) -> GpuOptions:
    for usual, opposite, _ in ON_GPU:
        if usual in names and opposite in names:
            raise ConfigError(f"{usual} and {opposite} contradict each other; give one of them")
    return GpuOptions(*(opposite not in names for _, opposite, _ in ON_GPU))


def _refuse(unknown: Sequence[str]) -> None:
    for argument in unknown:
        name = argument.split("=", 1)[0]
        if name in REFUSED:
            raise ConfigError(f"{name}: {REFUSED[name]}")
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]!r}; `braze exec --help` lists the options")


def _parse_percentiles(text: str) -> tuple[float, ...]:
    try:
        out = tuple(float(p) for p in text.split(","))
    except ValueError:
        out = ()
    if not out or not all(0 <= p <= 100 for p in out):
        raise ConfigError(f"--percentile={text} is not a list of numbers from 0 to 100")
    return out


def parse_profiles(events: Sequence[tuple[str, str]]) -> tuple[dict[str, ShapeRange], ...]:
    """Group --profile/--minShapes/--optShapes/--maxShapes in command-line order into profiles."""
    groups: dict[int, dict[str, dict[str, Shape]]] = {}
    current = 0
    for option, text in events:
        if option == "--profile":
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ConfigError(f"--profile={text} is not the number of a profile")
            current = int(text)
            continue
        group = groups.setdefault(current, {})
        if option in group:
            raise ConfigError(f"{option} is given twice for profile {current}")
        group[option] = parse_shapes(text, option)
    if sorted(groups) != list(range(len(groups))):
        raise ConfigError("profiles must be numbered 0, 1, 2, … without gaps")
    profiles = tuple(
        profile_ranges(g.get("--minShapes", {}), g.get("--optShapes", {}), g.get("--maxShapes", {}))
        for _, g in sorted(groups.items())
    )
    if any(set(p) != set(profiles[0]) for p in profiles):
        raise ConfigError("every profile must give shapes for the same inputs")
    return profiles
