"""IBuilderConfig: how a network is built."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from braze.tensorrt.config_legacy import LegacyConfig
from braze.tensorrt.deprecation import Scoped
from braze.tensorrt.enums_build import (
    BuilderFlag,
    DeviceType,
    EngineCapability,
    HardwareCompatibilityLevel,
    MemoryPoolType,
    PreviewFeature,
    ProfilingVerbosity,
    RuntimePlatform,
    TacticSource,
    TilingOptimizationLevel,
)
from braze.tensorrt.layer import ILayer
from braze.tensorrt.optimization_profile import IOptimizationProfile
from braze.tensorrt.params import flag, member, text, whole
from braze.tensorrt.recorder import Reporter
from braze.tensorrt.timing_cache import ITimingCache

_MIB: Final = 1 << 20
_DEFAULTS: Final[dict[str, Any]] = {
    "avg_timing_iterations": 1,
    "builder_optimization_level": 3,
    "max_num_tactics": -1,
    "max_aux_streams": -1,
    "l2_limit_for_tiling": -1,
    "profile_stream": 0,
    "DLA_core": -1,
    "default_device_type": DeviceType.GPU,
    "engine_capability": EngineCapability.STANDARD,
    "hardware_compatibility_level": HardwareCompatibilityLevel.NONE,
    "profiling_verbosity": ProfilingVerbosity.LAYER_NAMES_ONLY,
    "runtime_platform": RuntimePlatform.SAME_AS_BUILD,
    "tiling_optimization_level": TilingOptimizationLevel.NONE,
    "remote_auto_tuning_config": "",
    "flags": 1 << int(BuilderFlag.TF32),
    "plugins_to_serialize": [],
    "progress_monitor": None,
    "build_route": "",
}
_TACTICS: Final = 1 << int(TacticSource.EDGE_MASK_CONVOLUTIONS) | 1 << int(
    TacticSource.JIT_CONVOLUTIONS
)


def _setting(name: str, convert: Callable[[Any, str], Any], doc: str) -> Any:
    def get(self: IBuilderConfig) -> Any:
        return self._settings[name]

    def put(self: IBuilderConfig, value: Any) -> None:
        self._settings[name] = convert(value, f"IBuilderConfig.{name}")

    return property(get, put, doc=doc)


def _any(value: Any, what: str) -> Any:
    return value


def _names(value: Any, what: str) -> list[str]:
    return [text(v, what) for v in value]


class IBuilderConfig(LegacyConfig, Scoped):
    """Options of a build; `Builder.create_builder_config` makes one."""

    avg_timing_iterations = _setting("avg_timing_iterations", whole, "runs that a time is of")
    builder_optimization_level = _setting("builder_optimization_level", whole, "0 to 5")
    max_num_tactics = _setting("max_num_tactics", whole, "most tactics that are timed; -1: any")
    max_aux_streams = _setting("max_aux_streams", whole, "most further streams; -1: any")
    l2_limit_for_tiling = _setting("l2_limit_for_tiling", whole, "bytes of cache for tiling")
    profile_stream = _setting("profile_stream", whole, "the stream that is measured on")
    DLA_core = _setting("DLA_core", whole, "which DLA, of which there is none")
    default_device_type = _setting("default_device_type", member(DeviceType), "where layers run")
    engine_capability = _setting("engine_capability", member(EngineCapability), "which runtime")
    hardware_compatibility_level = _setting(
        "hardware_compatibility_level", member(HardwareCompatibilityLevel), "on which GPUs"
    )
    profiling_verbosity = _setting(
        "profiling_verbosity", member(ProfilingVerbosity), "how much the inspector tells"
    )
    runtime_platform = _setting("runtime_platform", member(RuntimePlatform), "where it runs")
    tiling_optimization_level = _setting(
        "tiling_optimization_level", member(TilingOptimizationLevel), "how hard tilings are sought"
    )
    remote_auto_tuning_config = _setting("remote_auto_tuning_config", text, "for safety engines")
    flags = _setting("flags", whole, "bits of BuilderFlag")
    plugins_to_serialize = _setting("plugins_to_serialize", _names, "libraries of plugins")
    progress_monitor = _setting("progress_monitor", _any, "an IProgressMonitor, or None")
    build_route = _setting("build_route", text, "a choice of knobs, of which there are none")

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter  # of the builder
        self.reset()

    def reset(self) -> None:
        """All options as they were at first."""
        self._settings = {k: list(v) if isinstance(v, list) else v for k, v in _DEFAULTS.items()}
        self._profiles: list[IOptimizationProfile] = []
        self._pools: dict[MemoryPoolType, int] = {}
        self._features = {PreviewFeature.PROFILE_SHARING_0806: True}
        self._tactic_sources = _TACTICS
        self._devices: dict[ILayer, DeviceType] = {}
        self._cache: ITimingCache | None = None
        self._reset_legacy()

    # ---- flags --------------------------------------------------------------------------

    def set_flag(self, flag: BuilderFlag) -> None:
        """Set a flag."""
        self.flags |= 1 << int(member(BuilderFlag)(flag, "set_flag"))

    def clear_flag(self, flag: BuilderFlag) -> None:
        """Clear a flag."""
        self.flags &= ~(1 << int(member(BuilderFlag)(flag, "clear_flag")))

    def get_flag(self, flag: BuilderFlag) -> bool:
        """Whether a flag is set."""
        return bool(self.flags >> int(member(BuilderFlag)(flag, "get_flag")) & 1)

    def set_preview_feature(self, feature: PreviewFeature, enable: bool) -> None:
        """Turn a feature on or off; none changes what is built."""
        key = member(PreviewFeature)(feature, "set_preview_feature")
        self._features[key] = flag(enable, "set_preview_feature")

    def get_preview_feature(self, feature: PreviewFeature) -> bool:
        """Whether a feature is on."""
        return self._features.get(member(PreviewFeature)(feature, "get_preview_feature"), False)

    def set_tactic_sources(self, tactic_sources: int) -> bool:
        """Say which libraries tactics may come from; False for bits that mean none."""
        bits = whole(tactic_sources, "set_tactic_sources")
        if bits < 0 or bits >> len(TacticSource):
            return False
        self._tactic_sources = bits
        return True

    def get_tactic_sources(self) -> int:
        """Bits of TacticSource."""
        return self._tactic_sources

    # ---- memory -------------------------------------------------------------------------

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        """Limit a kind of memory; sizes below zero are not taken."""
        key = member(MemoryPoolType)(pool, "set_memory_pool_limit")
        size = whole(pool_size, "set_memory_pool_limit")
        if size < 0:
            raise TypeError(f"set_memory_pool_limit: {size} is no size of memory")
        self._pools[key] = size

    def get_memory_pool_limit(self, pool: MemoryPoolType) -> int:
        """The limit of a kind of memory; as a rule, all there is."""
        key = member(MemoryPoolType)(pool, "get_memory_pool_limit")
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        usual = {
            MemoryPoolType.DLA_MANAGED_SRAM: 0,
            MemoryPoolType.DLA_LOCAL_DRAM: 1024 * _MIB,
            MemoryPoolType.DLA_GLOBAL_DRAM: 512 * _MIB,
        }
        return self._pools.get(key, usual.get(key, memory))

    # ---- profiles -----------------------------------------------------------------------

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles were added."""
        return len(self._profiles)

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        """Add a profile; its index."""
        if not isinstance(profile, IOptimizationProfile):
            raise TypeError(f"an IOptimizationProfile is expected, not {profile!r}")
        self._profiles.append(profile)
        return len(self._profiles) - 1

    # ---- timing cache -------------------------------------------------------------------

    def create_timing_cache(self, serialized_timing_cache: Any) -> ITimingCache | None:
        """A cache of bytes that `serialize` gave, or an empty one of none; None for others."""
        try:
            return ITimingCache(bytes(serialized_timing_cache))
        except ValueError as e:
            self._reporter.wrong("IBuilderConfig::createTimingCache", f"{e}.")
            return None

    def set_timing_cache(self, cache: ITimingCache | None, ignore_mismatch: bool) -> bool:
        """Let builds use and fill a cache; times of another machine are never found in it."""
        if not isinstance(cache, (ITimingCache, type(None))):
            raise TypeError(f"set_timing_cache: an ITimingCache is expected, not {cache!r}")
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache | None:
        """The cache that is set, or None."""
        return self._cache

    # ---- devices ------------------------------------------------------------------------

    def set_device_type(self, layer: ILayer, device_type: DeviceType) -> None:
        """Say where a layer runs."""
        self._devices[layer] = member(DeviceType)(device_type, "set_device_type")

    def get_device_type(self, layer: ILayer) -> DeviceType:
        """Where a layer runs."""
        found: DeviceType = self._devices.get(layer, self.default_device_type)
        return found

    def is_device_type_set(self, layer: ILayer) -> bool:
        """Whether it was said where a layer runs."""
        return layer in self._devices

    def reset_device_type(self, layer: ILayer) -> None:
        """Take that back."""
        self._devices.pop(layer, None)

    def can_run_on_DLA(self, layer: ILayer) -> bool:
        """False: there is no DLA."""
        return False

    @property
    def all_build_routes(self) -> str:
        """JSON of the knobs of the builder that a route may turn: none."""
        return "[]"
