"""ICudaEngine: a loaded engine under TensorRT's names."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import braze.runtime.engine as core
from braze.core.errors import BrazeError
from braze.engine.write import to_bytes
from braze.tensorrt.dims import Dims
from braze.tensorrt.engine_weights import EngineWeights
from braze.tensorrt.enums_build import (
    BuilderFlag,
    EngineCapability,
    HardwareCompatibilityLevel,
    ProfilingVerbosity,
)
from braze.tensorrt.enums_runtime import (
    DataType,
    EngineStat,
    ExecutionContextAllocationStrategy,
    SerializationFlag,
    TensorFormat,
    TensorIOMode,
    TensorLocation,
)
from braze.tensorrt.format_text import format_text
from braze.tensorrt.legacy_engine import LegacyEngine
from braze.tensorrt.logger import ILogger
from braze.tensorrt.plugin_runs import EnginePlugins, marked
from braze.tensorrt.recorder import IErrorRecorder, Reporter, Reporting
from braze.tensorrt.runtime_config import IRuntimeConfig, ISerializationConfig
from braze.tensorrt.tensor_table import TensorEntry, TensorTable, read_table
from braze.tensorrt.weights import IHostMemory

if TYPE_CHECKING:
    from braze.tensorrt.context import IExecutionContext
    from braze.tensorrt.inspector import EngineInspector


class ICudaEngine(Reporting, EngineWeights, LegacyEngine):
    """An engine. Get one from `Runtime.deserialize_cuda_engine`."""

    def __init__(
        self, engine: core.Engine, logger: ILogger, recorder: IErrorRecorder | None = None
    ) -> None:
        self._reporter = Reporter(logger, recorder)
        self._contexts: weakref.WeakSet[IExecutionContext] = weakref.WeakSet()
        self._take(engine)

    def _take(self, engine: core.Engine) -> None:
        """Be this engine: at first, and after its weights changed."""
        self._engine = engine
        self._table = read_table(engine.plan)
        entries = self._table.record.get("plugins", ())
        self._plugins = EnginePlugins(entries) if entries else None
        self.step_names = [step.name for step in engine.plan.every_step]

    def renew(self, engine: core.Engine) -> None:
        """Go on with other weights; contexts keep their shapes and addresses."""
        self._take(engine)
        for context in self.contexts:
            context.renew()

    # ---- about the engine ---------------------------------------------------------------

    @property
    def core(self) -> core.Engine:
        """braze's own engine."""
        return self._engine

    @property
    def table(self) -> TensorTable:
        """Its tensors and profiles."""
        return self._table

    @property
    def plugins(self) -> EnginePlugins | None:
        """Its plugins, where it has any."""
        return self._plugins

    @property
    def reporter(self) -> Reporter:
        """Where its errors go."""
        return self._reporter

    @property
    def name(self) -> str:
        """The network's name."""
        return self._table.record.get("name", "")

    @property
    def num_io_tensors(self) -> int:
        """How many inputs and outputs there are."""
        return len(self._table.tensors)

    @property
    def num_layers(self) -> int:
        """How many steps a run has."""
        return len(self.step_names)

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles there are, one at least."""
        return len(self._table.profiles)

    @property
    def num_aux_streams(self) -> int:
        """Streams a run uses beside its own."""
        return 0

    @property
    def profiling_verbosity(self) -> ProfilingVerbosity:
        """How much the engine tells of its layers."""
        return self._table.verbosity

    @property
    def engine_capability(self) -> EngineCapability:
        """What it may do."""
        return EngineCapability(self._table.record.get("capability", 0))

    @property
    def hardware_compatibility_level(self) -> HardwareCompatibilityLevel:
        """Which other devices it runs on."""
        return HardwareCompatibilityLevel(self._table.record.get("hardware_compatibility", 0))

    @property
    def tactic_sources(self) -> int:
        """Where tactics may have come from, as bits."""
        return self._table.record.get("tactic_sources", 0b11000)

    @property
    def refittable(self) -> bool:
        """Whether its weights can be replaced."""
        flags = BuilderFlag.REFIT, BuilderFlag.REFIT_IDENTICAL, BuilderFlag.REFIT_INDIVIDUAL
        return self._has(*flags, BuilderFlag.STRIP_PLAN)

    def _has(self, *flags: BuilderFlag) -> bool:
        given = self._table.record.get("flags", 0)
        return any(given >> int(flag) & 1 for flag in flags)

    def get_engine_stat(self, stat: EngineStat) -> int:
        """Bytes of its weights, or of those that were stripped."""
        if stat is EngineStat.TOTAL_WEIGHTS_SIZE:
            return sum(w.bytes for w in self._engine.plan.weights)
        return self._table.record.get("stripped_bytes", 0)

    # ---- tensors ------------------------------------------------------------------------

    def get_tensor_name(self, index: int) -> str | None:
        """The name of an input or output by its number; None where there is none."""
        if not 0 <= index < self.num_io_tensors:
            self._reporter.wrong(
                "ICudaEngine::getIOTensorName",
                f"Index {index} is not below the number of I/O tensors, {self.num_io_tensors}.",
            )
            return None
        return self._table.tensors[index].name

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        """Whether a tensor is an input or an output."""
        entry = self.entry(name, "getTensorIOMode")
        if entry is None:
            return TensorIOMode.NONE
        return TensorIOMode.INPUT if entry.is_input else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> Dims:
        """The shape; -1 where the size is not the same in every run."""
        entry = self.entry(name, "getTensorShape")
        return Dims(() if entry is None else self._table.told(entry.shape))

    def get_tensor_dtype(self, name: str) -> DataType:
        """The element type."""
        entry = self.entry(name, "getTensorDataType")
        return DataType.FLOAT if entry is None else entry.dtype

    def get_tensor_location(self, name: str) -> TensorLocation:
        """Where its memory must be: what holds sizes is read on the host."""
        entry = self.entry(name, "getTensorLocation")
        on_host = entry is not None and entry.holds_sizes
        return TensorLocation.HOST if on_host else TensorLocation.DEVICE

    def is_shape_inference_io(self, name: str) -> bool:
        """Whether `infer_shapes` reads or writes it."""
        entry = self.entry(name, "isShapeInferenceIO")
        return entry is not None and entry.holds_sizes

    def get_tensor_format(self, name: str, profile_index: int = 0) -> TensorFormat:
        """The layout."""
        entry = self.entry(name, "getTensorFormat")
        return TensorFormat.LINEAR if entry is None else entry.format

    def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str:
        """The layout in words."""
        entry = self.entry(name, "getTensorFormatDesc")
        return "" if entry is None else format_text(entry.dtype, entry.format)

    def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int:
        """Bytes of an element."""
        entry = self.entry(name, "getTensorBytesPerComponent")
        return -1 if entry is None else max(1, entry.bits // 8)

    def get_tensor_components_per_element(self, name: str, profile_index: int = 0) -> int:
        """Elements that stand together; 1 in linear layouts."""
        return -1 if self.entry(name, "getTensorComponentsPerElement") is None else 1

    def get_tensor_vectorized_dim(self, name: str, profile_index: int = 0) -> int:
        """The axis along which elements stand together; -1 in linear layouts."""
        self.entry(name, "getTensorVectorizedDim")
        return -1

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        """Least, best and largest shape of an input in a profile."""
        where = "getProfileShape"
        entry = self.entry(name, where)
        if entry is None or not self.has_profile(profile_index, where):
            return [Dims(), Dims(), Dims()]
        if not entry.is_input:
            self._reporter.wrong(f"ICudaEngine::{where}", f"{name} is not an input.")
            return [Dims(), Dims(), Dims()]
        corners = self._table.profiles[profile_index][entry.name]
        return [Dims(self._table.told(c)) for c in corners]

    def get_tensor_profile_values(self, name: Any, profile_index: Any) -> list[list[int]]:
        """Least, best and largest content of an input that holds sizes.

        The arguments come in either order, as the names of TensorRT's own are swapped.
        """
        if isinstance(profile_index, str):
            name, profile_index = profile_index, name
        where = "getProfileTensorValues"
        entry = self.entry(name, where)
        if entry is None or not (entry.is_input and entry.holds_sizes):
            raise RuntimeError("Binding index does not correspond to an input shape tensor.")
        if not self.has_profile(profile_index, where):
            return []
        corners = self._table.values[profile_index].get(entry.name)
        return [] if corners is None else [list(c) for c in corners]

    def is_debug_tensor(self, name: str) -> bool:
        """Whether a tensor was marked for debugging."""
        return any(t.name == name for t in self._engine.plan.debug)

    def get_aliased_input_tensor(self, name: str) -> str | None:
        """The input that an output may lie over: that of an updated cache, on CPUs."""
        entry = self.entry(name, "getAliasedInputTensor")
        return None if entry is None else self.aliases.get(entry.name)

    @property
    def aliases(self) -> Mapping[str, str]:
        """Outputs that may lie over an input, and that input."""
        return {} if self._engine.on_gpu else self._table.record.get("aliases", {})

    def entry(self, name: str, where: str) -> TensorEntry | None:
        """What is known of a tensor; reports where there is none of that name."""
        if not isinstance(name, str):
            raise TypeError(f"{where}: the name of a tensor is expected, not {name!r}")
        found = self.named(name)
        if found is None:
            self._reporter.wrong(
                f"ICudaEngine::{where}",
                f"Given invalid tensor name: {name}. getIOTensorName() tells the names there are.",
            )
        return None if found is None else found[0]

    def has_profile(self, index: int, where: str) -> bool:
        """Whether there is a profile of this number; reports where there is not."""
        if 0 <= index < self.num_optimization_profiles:
            return True
        self._reporter.wrong(
            f"ICudaEngine::{where}",
            f"Profile index {index} is not below the number of profiles, "
            f"{self.num_optimization_profiles}.",
        )
        return False

    # ---- memory -------------------------------------------------------------------------

    @property
    def device_memory_size(self) -> int:
        """Bytes a context needs for the largest profile."""
        profiles = self._engine.plan.profiles
        return max((p.arena_bytes for p in profiles), default=0)

    @property
    def device_memory_size_v2(self) -> int:
        """The same."""
        return self.device_memory_size

    def get_device_memory_size_for_profile(self, profile_index: int) -> int:
        """Bytes a context needs for one profile."""
        if not self.has_profile(profile_index, "getDeviceMemorySizeForProfile"):
            return 0
        profiles = self._engine.plan.profiles
        return profiles[profile_index].arena_bytes if profiles else 0

    def get_device_memory_size_for_profile_v2(self, profile_index: int) -> int:
        """The same."""
        return self.get_device_memory_size_for_profile(profile_index)

    # ---- what is made from it -----------------------------------------------------------

    def serialize(self) -> IHostMemory:
        """The engine as bytes."""
        data = self._engine.to_bytes()
        return IHostMemory(data if self._plugins is None else marked(data))

    def create_serialization_config(self) -> ISerializationConfig:
        """How to write it."""
        return ISerializationConfig()

    def serialize_with_config(self, config: ISerializationConfig) -> IHostMemory | None:
        """The engine as bytes, as a configuration says."""
        if not config.get_flag(SerializationFlag.EXCLUDE_WEIGHTS):
            return self.serialize()
        without_weights = importlib.import_module("braze.tensorrt.kept").without_weights
        try:
            data = to_bytes(without_weights(self._engine.plan))
        except BrazeError as e:
            self._reporter.raised("ICudaEngine::serializeWithConfig", e)
            return None
        return IHostMemory(data if self._plugins is None else marked(data))

    def create_runtime_config(self) -> IRuntimeConfig:
        """How to make a context."""
        return IRuntimeConfig()

    def create_execution_context(
        self, strategy: Any = None, *, runtime_config: IRuntimeConfig | None = None
    ) -> IExecutionContext | None:
        """A context, by an ExecutionContextAllocationStrategy or an IRuntimeConfig."""
        from braze.tensorrt.context import make_context

        if isinstance(strategy, IRuntimeConfig):
            runtime_config, strategy = strategy, None
        if runtime_config is None:
            runtime_config = IRuntimeConfig()
            if strategy is not None:
                runtime_config.set_execution_context_allocation_strategy(strategy)
        context = make_context(self, runtime_config)
        if context is not None:
            self._contexts.add(context)
        return context

    def create_execution_context_without_device_memory(self) -> IExecutionContext | None:
        """A context whose memory the program brings."""
        return self.create_execution_context(ExecutionContextAllocationStrategy.USER_MANAGED)

    @property
    def contexts(self) -> list[IExecutionContext]:
        """The contexts that exist."""
        return list(self._contexts)

    def create_engine_inspector(self) -> EngineInspector:
        """What tells of its layers."""
        from braze.tensorrt.inspector import EngineInspector

        return EngineInspector(self)
