"""The Pythonic face of the compiler: build, compile."""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from braze.builder import build_plan
from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig, check_layers, precision_text
from braze.core.errors import ConfigError, OptionError
from braze.core.trace import Progress, Trace
from braze.core.words import shown
from braze.engine.plan import Plan
from braze.frontend.onnx.importer import Imported, import_network
from braze.frontend.onnx.proto import load_model
from braze.frontend.onnx.records import layer_names
from braze.runtime.engine import Engine

if TYPE_CHECKING:
    from typing_extensions import Unpack


class BuildOptions(TypedDict, total=False):
    """The keyword arguments of `compile` and `build`; see `compile` for what each means."""

    target: str
    precision: str | Collection[str]
    layer_precisions: Mapping[str, str] | None
    calibration: Any
    threads: int | None
    shapes: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    dims: Mapping[str, Any] | None
    values: Mapping[str, Any] | None
    optimization_level: int
    timing_cache: str | os.PathLike[str] | None
    progress: Progress | None
    debug: Sequence[str]
    trace: Trace | None


def build(model: Any, **options: Unpack[BuildOptions]) -> Engine:
    """Compile an ONNX model and load it: an engine that is ready to run on this machine.

    Takes the options of `compile` and raises what it raises, and TargetError for a target this
    machine does not have (use `compile` to make such an engine's plan and write it to a file).
    """
    _check_names(options)
    _check_listeners(options.get("progress"), options.get("trace"))
    backend = find_backend(options.get("target", "cpu"), _workers(options.get("threads")))
    backend.require()
    trace = options.get("trace") or Trace(progress=options.get("progress"))
    options["trace"] = trace
    plan = compile(model, **options)
    with trace.stage("load"):
        return backend.load(plan)


def compile(  # the field's word, and braze.compile reads well
    model: Any,
    *,
    target: str = "cpu",
    precision: str | Collection[str] = "fp32",
    layer_precisions: Mapping[str, str] | None = None,
    calibration: Any = None,
    threads: int | None = None,
    shapes: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    dims: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    optimization_level: int = 3,
    timing_cache: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    debug: Sequence[str] = (),
    trace: Trace | None = None,
) -> Plan:
    """Compile an ONNX model into a plan, for this machine or another one.

    `braze.engine.write.write_file(plan, path)` makes an engine file of it.

    model: a path, the bytes of a model, or an onnx.ModelProto.
    target: what the engine runs on: "cpu", the best this processor has, or an instruction set,
        "cpu:avx512", "cpu:avx2" or "cpu:x86-64", or "cpu:amx" (Xeons from 2023 on); "cuda", the
        NVIDIA GPU here, or a compute capability, "cuda:sm_90", for which no GPU is needed here.
        Tactics of a machine that is not this one are chosen without measuring. "reference" runs the
        plan in numpy, slowly, to compare with; "reference:float64" sums in float64.
    precision: "fp32", or "tf32": a GPU multiplies float32 operands rounded to TF32 (11 bits), about
        twice as fast; sums stay float32, other types and processors are not touched. "fp16",
        "bf16", where that is safe; "int8", "fp8": quantized with `calibration`; "best": all that
        the target computes in; or a set of these. The record says what each layer runs in and why.
    layer_precisions: ONNX node name, or pattern -> "fp32", "fp16" or "bf16"; the last that matches
        counts, and what it names is not quantized.
    calibration: data in the forms that `braze.quantize` takes, the path of a calibration cache, or
        a `braze.quantization.recipe.Recipe`.
    threads: workers of one run on the host; None (the default) or 0 for all processors it may use.
    shapes: input name -> one shape, or (min, opt, max) shapes; or a list of such mappings, one per
        optimization profile.
    dims: the same by the names that the model gives its sizes: one size, (min, opt, max), or a list
        of the latter. Sizes that neither gives may be anything; kernels are measured at guesses.
    values: input name -> array that runs must pass; of integers also (min, opt, max), as in shapes.
    optimization_level: 0 (no fusion) to 5; from 3 on tactics are measured on this machine.
    timing_cache: file that keeps measured times between builds.
    debug: names of intermediate tensors that can be read back after a run; "*" for all.

    Raises FileError, ModelError, UnsupportedOpError, ShapeError, ProfileError, ConfigError and
    other BrazeErrors; each says where, what, and how to go on.
    """
    _check_kinds(shapes, values, debug, layer_precisions)
    _check_listeners(progress, trace)
    trace = trace if trace is not None else Trace(progress=progress)
    names = (debug,) if isinstance(debug, str) else tuple(debug)
    level, layers = _plain(optimization_level), tuple((layer_precisions or {}).items())
    config = BuildConfig(precision_text(precision), level, timing_cache, names, layers)
    source, model = model, quantized(model, config, calibration, _workers(threads), trace)
    backend = find_backend(target, _workers(threads))
    with trace.stage("import"):
        imported = import_network(model, shapes=shapes, dims=dims, values=values, trace=trace)
        check_layer_names(config, source, model, imported)
    return build_plan(imported.graph, imported.profiles, config, backend, trace)


def check_layer_names(config: BuildConfig, source: Any, model: Any, imported: Imported) -> None:
    """Raise ConfigError for an override of `layer_precisions` that stands for no node.

    source: the model as given; where it was quantized they may also name its nodes and op types.
    """
    names = imported.layers
    if config.layer_precisions and model is not source:
        record = load_model(source)
        names |= layer_names(record) | {n.op_type for n in record.graph.nodes}
    check_layers(config, names)


def quantized(model: Any, config: BuildConfig, calibration: Any, threads: int, trace: Trace) -> Any:
    """The model that is built: quantized first, where that is asked for."""
    if calibration is None and not {"int8", "fp8"} & set(config.asked):
        return model
    from braze.quantization.recipe import quantized_for_build  # other builds do without

    return quantized_for_build(model, config, calibration, threads, trace)


def _check_names(options: Iterable[str]) -> None:
    """What Python checks of a function with named parameters, in the name of `build`."""
    known = list(BuildOptions.__annotations__)
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            raise OptionError(
                f"braze.build has no option {name!r}"
                + (f"; did you mean {close[0]!r}?" if close else "")
                + f" (its options are {', '.join(known)})"
            )


def _check_kinds(shapes: object, values: object, debug: object, layers: object) -> None:
    for name, given, kinds, form in (
        ("shapes", shapes, (Mapping, Sequence, type(None)), "a dict of shapes by input name"),
        ("values", values, (Mapping, type(None)), "a dict of arrays by input name"),
        ("debug", debug, (Collection,), "a list of tensor names"),
        ("layer_precisions", layers, (Mapping, type(None)), "a dict of precisions by node name"),
    ):
        if not isinstance(given, kinds) or isinstance(given, np.ndarray):
            raise ConfigError(f"{name}={shown(given)} is of no kind that works; give {form}")


def _check_listeners(progress: object, trace: object) -> None:
    if not (progress is None or callable(progress)):
        raise ConfigError(
            f"progress={shown(progress)} cannot be called; give a function of 3 arguments"
        )
    if not (trace is None or isinstance(trace, Trace)):
        raise ConfigError(f"trace={shown(trace)} is no Trace; give a braze.core.trace.Trace")


def _workers(threads: object) -> int:
    given = _plain(threads)
    if isinstance(given, bool) or not isinstance(given, (int, type(None))):
        raise ConfigError(
            f"threads={shown(threads)} is not a whole number; leave it out to use all"
        )
    return given or available_threads()


def _plain(value: Any) -> Any:
    """A whole number of numpy's as one of Python's; all else as it is."""
    return operator.index(value) if isinstance(value, np.integer) else value


def available_threads() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
