"""network and configuration -> the bytes of an engine."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from braze.api import compile as compile_model
from braze.core.errors import BrazeError, ConfigError, ProfileError
from braze.engine.write import to_bytes
from braze.tensorrt.calibration import quantized, wants_int8
from braze.tensorrt.config import IBuilderConfig
from braze.tensorrt.enums_build import (
    BuilderFlag,
    DeviceType,
    EngineCapability,
    PreviewFeature,
    RuntimePlatform,
)
from braze.tensorrt.enums_runtime import TensorFormat
from braze.tensorrt.kept import finished
from braze.tensorrt.layers_attention import caches_written
from braze.tensorrt.logger import Severity
from braze.tensorrt.lowering import Lowering
from braze.tensorrt.model import NamedModel, to_model
from braze.tensorrt.optimization_profile import IOptimizationProfile
from braze.tensorrt.plugin_runs import marked
from braze.tensorrt.rebuild import refit_part
from braze.tensorrt.record import EngineRecord, Triple
from braze.tensorrt.selection import report
from braze.tensorrt.target import default_target
from braze.tensorrt.weights import IHostMemory

if TYPE_CHECKING:
    from braze.tensorrt.network import INetworkDefinition

_REFITS = (
    BuilderFlag.REFIT,
    BuilderFlag.REFIT_IDENTICAL,
    BuilderFlag.REFIT_INDIVIDUAL,
    BuilderFlag.STRIP_PLAN,
)


class CancelledError(BrazeError):
    """The progress monitor ended the build."""


def build(network: INetworkDefinition, config: IBuilderConfig) -> IHostMemory:
    """The engine; raises a BrazeError that says why there is none."""
    check(network, config)
    shapes = profile_shapes(network, config)
    values = fixed_contents(network, config)
    lowering = Lowering(network, shapes, obey=_obeys(config), values=values)
    failures = lowering.failures(network._layers)
    if failures:
        raise failures[0]
    model = to_model(lowering)
    int8 = wants_int8(network, config)
    record, ranges = quantized(network, config, model) if int8 else (model.record, {})
    target = default_target()
    options = {
        "target": target,
        "precision": precision_of(network, config, target),
        "optimization_level": min(config.builder_optimization_level, 5),
        "debug": ["*"] if network._unfused_debug else [*model.debug, *told_of(model)],
        "values": values,
    }
    if model.plugins and target.startswith("cuda"):
        raise ConfigError("plugins run on the host; build for a CPU, or say them in layers")
    cache = None if config.get_flag(BuilderFlag.DISABLE_TIMING_CACHE) else config._cache
    known = len(cache or ())
    with nullcontext() if cache is None else cache.as_file() as path:
        listener = None if config.progress_monitor is None else _Phases(config.progress_monitor)
        plan = compile_model(record, shapes=shapes, timing_cache=path, progress=listener, **options)
        if listener is not None:
            listener.end()
    if config.get_flag(BuilderFlag.ERROR_ON_TIMING_CACHE_MISS) and len(cache or ()) > known:
        raise ConfigError("tactics had to be measured that the timing cache does not have")
    if config.algorithm_selector is not None:
        strict = config.get_flag(BuilderFlag.REJECT_EMPTY_ALGORITHMS)
        report(config.algorithm_selector, plan, strict)
    if config.get_flag(BuilderFlag.MONITOR_MEMORY):
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        network._say(Severity.INFO, f"the process has used {kilobytes / 1024:.0f} MiB at most")
    about = describe(network, config, model, options)
    refits = {f for f in _REFITS if config.get_flag(f)}
    if refits:
        strip = BuilderFlag.STRIP_PLAN in refits
        single = refits - {BuilderFlag.STRIP_PLAN} == {BuilderFlag.REFIT_INDIVIDUAL}
        about.update(refit_part(network, lowering, model, single, strip))
        about["ranges"] = ranges
    data = to_bytes(finished(plan, about))
    return IHostMemory(marked(data) if model.plugins else data)


def precision_of(network: INetworkDefinition, config: IBuilderConfig, target: str) -> str:
    """The precisions that flags allow and the target is faster with.

    CPUs multiply no half types; networks that are strongly typed say theirs.
    """
    names = ["tf32" if config.get_flag(BuilderFlag.TF32) else "fp32"]
    if target.startswith("cuda") and not network.strongly_typed:
        halves = {"fp16": BuilderFlag.FP16, "bf16": BuilderFlag.BF16}
        names += [name for name, flag in halves.items() if config.get_flag(flag)]
    return ",".join(names)


def told_of(model: NamedModel) -> list[str]:
    """The tensors that a run must tell plugins of."""
    ends = [e for p in model.plugins for e in (*p["inputs"], *p["outputs"])]
    return [e["debug"] for e in ends if "debug" in e]


def check(network: INetworkDefinition, config: IBuilderConfig) -> None:
    """Raise ConfigError for what this machine or braze does not build."""
    if config.engine_capability is not EngineCapability.STANDARD:
        raise ConfigError(
            f"engine capability {config.engine_capability.name} needs hardware that braze does not "
            "build for; use EngineCapability.STANDARD"
        )
    on_dla = DeviceType.DLA in (config.default_device_type, *config._devices.values())
    if on_dla and not config.get_flag(BuilderFlag.GPU_FALLBACK):
        raise ConfigError("layers are to run on a DLA, which is not there; set GPU_FALLBACK")
    if config.runtime_platform is not RuntimePlatform.SAME_AS_BUILD:
        raise ConfigError("braze builds engines for the platform it runs on; use SAME_AS_BUILD")
    names = [t.name for t in (*network._inputs, *network._all_outputs())]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise ConfigError(f"two inputs or outputs are called {twice[0]!r}; rename one of them")
    for tensor in (*network._inputs, *network._all_outputs()):
        if not tensor.allowed_formats >> int(TensorFormat.LINEAR) & 1:
            raise ConfigError(
                f"tensor {tensor.name!r} allows no linear format, which is the only one that "
                "engines have; add TensorFormat.LINEAR to its allowed formats"
            )
    if not network.num_outputs and not network._shape_outputs:
        raise ConfigError("the network has no outputs; mark one with mark_output")


def profile_shapes(
    network: INetworkDefinition, config: IBuilderConfig
) -> list[dict[str, Triple]] | None:
    """Shapes of the inputs, a mapping a profile; None where all are known."""
    if network.has_implicit_batch_dimension:
        return [_batched(network)]
    profiles = config._profiles
    dynamic = [t for t in network._inputs if any(d < 0 for d in t._declared_shape)]
    if dynamic and not profiles:
        names = ", ".join(repr(t.name) for t in dynamic)
        raise ProfileError(
            f"inputs {names} have sizes that only the run knows but there is no optimization "
            "profile; add one with add_optimization_profile"
        )
    result = []
    for index, profile in enumerate(profiles):
        named = {}
        for tensor in network._inputs:
            given = profile.get_shape(tensor.name)
            if given:
                low, best, high = (tuple(d) for d in given)
                named[tensor.name] = (low, best, high)
            elif tensor in dynamic:
                raise ProfileError(f"profile {index} has no shapes of input {tensor.name!r}")
            else:
                named[tensor.name] = (tuple(tensor._declared_shape),) * 3
        result.append(named)
    return result or None


def fixed_contents(network: INetworkDefinition, config: IBuilderConfig) -> dict[str, Any]:
    """Inputs whose content every profile holds to one value: the engine is made for that.

    As nested lists, which the record of the engine holds too.
    """
    found = {}
    for tensor in network._inputs:
        given = [p.get_shape_input(tensor.name) for p in config._profiles]
        contents = {tuple(v) for triple in given for v in triple}
        if len(contents) != 1 or not all(given):
            continue
        (only,), shape = contents, tuple(tensor._declared_shape)
        if min(shape, default=1) >= 0 and math.prod(shape) == len(only):
            found[tensor.name] = np.array(only).reshape(shape).tolist()
    return found


def _batched(network: INetworkDefinition) -> dict[str, Triple]:
    """Shapes with the batch axis that those of an old network do not have."""
    most = network.builder.max_batch_size
    return {
        t.name: ((1, *t._declared_shape), (most, *t._declared_shape), (most, *t._declared_shape))
        for t in network._inputs
    }


def _obeys(config: IBuilderConfig) -> bool:
    obey = config.get_flag(BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    return obey or config.get_flag(BuilderFlag.PREFER_PRECISION_CONSTRAINTS)


def describe(
    network: INetworkDefinition,
    config: IBuilderConfig,
    model: NamedModel,
    options: dict[str, Any],
) -> EngineRecord:
    """What the engine remembers."""
    return EngineRecord(
        name=network.name,
        shape_inputs=[t.name for t in network._inputs if t.is_shape_tensor],
        shape_outputs=[t.name for t in network._shape_outputs],
        formats={},
        profiles=profile_shapes(network, config) or [],
        values=[_contents(p) for p in config._profiles],
        flags=config.flags,
        capability=int(config.engine_capability),
        verbosity=int(config.profiling_verbosity),
        hardware_compatibility=int(config.hardware_compatibility_level),
        tactic_sources=config.get_tactic_sources(),
        profile_sharing=config.get_preview_feature(PreviewFeature.PROFILE_SHARING_0806),
        aliases=caches_written(network),
        metadata={x.name: x.metadata for x in network._layers if x.metadata},
        implicit_batch=network.has_implicit_batch_dimension,
        max_batch_size=network.builder.max_batch_size,
        debug=model.debug,
        plugins=model.plugins,
        unfused_debug=network._unfused_debug,
        options=options,
    )


def _contents(profile: IOptimizationProfile) -> dict[str, Triple]:
    found: dict[str, Triple] = {}
    for name, values in profile._contents.items():
        low, best, high = map(tuple, values)
        found[name] = (low, best, high)
    return found


class _Phases:
    """Tells a progress monitor of the stages of a build."""

    def __init__(self, monitor: Any) -> None:
        self.monitor, self.stage = monitor, ""
        self.finished: Callable[[str], None] = monitor.phase_finish

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self.stage:
            self.end()
            self.stage = stage
            self.monitor.phase_start(stage, None, max(total, 1))
        if done and not self.monitor.step_complete(stage, done - 1):
            self.end()
            raise CancelledError("the progress monitor ended the build")

    def end(self) -> None:
        """The stage is over."""
        if self.stage:
            self.finished(self.stage)
        self.stage = ""
