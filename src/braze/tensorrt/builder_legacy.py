"""The part of Builder that later releases took away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braze.tensorrt.config import IBuilderConfig
from braze.tensorrt.deprecation import warn_deprecated
from braze.tensorrt.enums_build import BuilderFlag
from braze.tensorrt.network import INetworkDefinition
from braze.tensorrt.params import whole
from braze.tensorrt.recorder import Reporter

_FLAGS: Final = {
    "fp16_mode": BuilderFlag.FP16,
    "int8_mode": BuilderFlag.INT8,
    "strict_type_constraints": BuilderFlag.STRICT_TYPES,
    "refittable": BuilderFlag.REFIT,
    "debug_sync": BuilderFlag.DEBUG,
}


def _flag_of(name: str) -> Any:
    def get(self: LegacyBuilder) -> bool:
        return self._config.get_flag(_FLAGS[name])

    def put(self: LegacyBuilder, value: bool) -> None:
        warn_deprecated(f"Builder.{name}", "8.0", f"BuilderFlag.{_FLAGS[name].name}")
        (self._config.set_flag if value else self._config.clear_flag)(_FLAGS[name])

    return property(get, put, doc=f"Whether BuilderFlag.{_FLAGS[name].name} is set.")


class LegacyBuilder:
    """Options that stood at the builder before release 8, and builds without a configuration."""

    _reporter: Reporter

    if TYPE_CHECKING:

        def build_engine_with_config(
            self, network: INetworkDefinition, config: IBuilderConfig
        ) -> Any: ...

    fp16_mode = _flag_of("fp16_mode")
    int8_mode = _flag_of("int8_mode")
    strict_type_constraints = _flag_of("strict_type_constraints")
    refittable = _flag_of("refittable")
    debug_sync = _flag_of("debug_sync")

    def _reset_legacy(self) -> None:
        self._config = IBuilderConfig(self._reporter)
        self._batch, self._batch_was_set = 1, False

    @property
    def max_batch_size(self) -> int:
        """The most of the batch axis that shapes do not have; of no effect where they have it."""
        return self._batch

    @max_batch_size.setter
    def max_batch_size(self, value: int) -> None:
        warn_deprecated("Builder.max_batch_size", "8.4", "shapes with a batch axis")
        self._batch, self._batch_was_set = whole(value, "max_batch_size"), True

    @property
    def max_workspace_size(self) -> int:
        """The limit of MemoryPoolType.WORKSPACE."""
        return self._config.max_workspace_size

    @max_workspace_size.setter
    def max_workspace_size(self, value: int) -> None:
        self._config.max_workspace_size = value

    @property
    def int8_calibrator(self) -> Any:
        """An IInt8Calibrator, or None."""
        return self._config.int8_calibrator

    @int8_calibrator.setter
    def int8_calibrator(self, value: Any) -> None:
        self._config.int8_calibrator = value

    @property
    def average_find_iterations(self) -> int:
        """As IBuilderConfig.avg_timing_iterations."""
        return int(self._config.avg_timing_iterations)

    @average_find_iterations.setter
    def average_find_iterations(self, value: int) -> None:
        self._config.avg_timing_iterations = value

    min_find_iterations = average_find_iterations

    def build_cuda_engine(self, network: INetworkDefinition) -> Any:
        """The engine by the options at the builder, loaded."""
        warn_deprecated("Builder.build_cuda_engine", "8.0", "build_serialized_network")
        return self.build_engine_with_config(network, self._config)

    def build_engine(self, network: INetworkDefinition, config: IBuilderConfig) -> Any:
        """The engine, loaded."""
        warn_deprecated("Builder.build_engine", "8.0", "build_serialized_network")
        return self.build_engine_with_config(network, config)
