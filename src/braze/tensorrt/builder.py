"""Builder: makes networks, configurations and engines."""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

from braze.core.errors import BrazeError
from braze.tensorrt.builder_legacy import LegacyBuilder
from braze.tensorrt.building import build, check
from braze.tensorrt.config import IBuilderConfig
from braze.tensorrt.deprecation import Scoped, warn_deprecated
from braze.tensorrt.logger import ILogger
from braze.tensorrt.network import INetworkDefinition
from braze.tensorrt.optimization_profile import IOptimizationProfile
from braze.tensorrt.params import whole
from braze.tensorrt.plugin_registry import get_plugin_registry
from braze.tensorrt.recorder import RAISED, Reporter, Reporting
from braze.tensorrt.stream_io import write_all
from braze.tensorrt.weights import IHostMemory

BUILD: Final = "IBuilder::buildSerializedNetwork"


class Builder(Reporting, LegacyBuilder, Scoped):
    """Builds engines of networks. Errors go to the logger and to the error recorder."""

    gpu_allocator: Any

    def __init__(self, logger: ILogger) -> None:
        if not isinstance(logger, ILogger):
            raise TypeError(f"Builder: an ILogger is expected, not {logger!r}")
        self._reporter = Reporter(logger)
        self.gpu_allocator = None
        self._networks = 0
        self.reset()

    @property
    def logger(self) -> ILogger:
        """The logger it was made with."""
        return self._reporter.logger

    def reset(self) -> None:
        """All settings as they were at first."""
        self._threads = os.cpu_count() or 1
        self._reset_legacy()

    # ---- making -------------------------------------------------------------------------

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        """An empty network. flags: bits of NetworkDefinitionCreationFlag."""
        return INetworkDefinition(self, whole(flags, "create_network"))

    def create_builder_config(self) -> IBuilderConfig:
        """A configuration with its defaults."""
        return IBuilderConfig(self._reporter)

    def create_optimization_profile(self) -> IOptimizationProfile:
        """A profile without shapes."""
        return IOptimizationProfile()

    def _count_network(self) -> int:
        self._networks += 1
        return self._networks - 1

    # ---- building -----------------------------------------------------------------------

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> IHostMemory | None:
        """The bytes of the engine; None where there is none, with the reason in the log."""
        self._check_arguments(network, config)
        try:
            return build(network, config)
        except RAISED as e:  # of braze, or of what the program wrote: plugins, calibrators, ...
            self._report(BUILD, e, network.error_recorder)
            return None

    def build_serialized_network_to_stream(
        self, network: INetworkDefinition, config: IBuilderConfig, writer: Any
    ) -> bool:
        """Write the bytes of the engine to an IStreamWriter; False where that failed."""
        data = self.build_serialized_network(network, config)
        if data is None:
            return False
        try:
            write_all(writer, data)
        except RAISED as e:  # of the writer
            self._report(f"{BUILD}ToStream", e)
            return False
        return True

    def build_engine_with_config(self, network: INetworkDefinition, config: IBuilderConfig) -> Any:
        """The engine, loaded; None where there is none."""
        runtime = importlib.import_module("braze.tensorrt.runtime").Runtime
        data = self.build_serialized_network(network, config)
        if data is None:
            return None
        return runtime(self.logger).deserialize_cuda_engine(data)

    def is_network_supported(self, network: INetworkDefinition, config: IBuilderConfig) -> bool:
        """Whether the configuration can be met, and all layers can be made."""
        self._check_arguments(network, config)
        try:
            check(network, config)
            failures = network._lowered().failures(network._layers)
        except BrazeError as e:
            failures = [e]
        for failure in failures:
            self._report("IBuilder::isNetworkSupported", failure, network.error_recorder)
        return not failures

    def _check_arguments(self, network: Any, config: Any) -> None:
        if not isinstance(network, INetworkDefinition):
            raise TypeError(f"an INetworkDefinition is expected, not {network!r}")
        if not isinstance(config, IBuilderConfig):
            raise TypeError(f"an IBuilderConfig is expected, not {config!r}")

    def _report(self, where: str, error: BaseException, recorder: Any = None) -> None:
        """Log an error and hand it to the recorders, that of a network too."""
        self._reporter.raised(where, error, [] if recorder is None else [recorder])

    # ---- what the platform has ----------------------------------------------------------

    @property
    def max_threads(self) -> int:
        """Most threads of a build."""
        return self._threads

    @max_threads.setter
    def max_threads(self, value: int) -> None:
        self._threads = whole(value, "max_threads")

    @property
    def platform_has_tf32(self) -> bool:
        """True: float32 products may be rounded to TF32 where that is faster."""
        warn_deprecated("platform_has_tf32", "10.5")
        return True

    @property
    def platform_has_fast_fp16(self) -> bool:
        """True: HALF is computed in."""
        warn_deprecated("platform_has_fast_fp16", "10.5")
        return True

    @property
    def platform_has_fast_int8(self) -> bool:
        """True: INT8 is computed in."""
        warn_deprecated("platform_has_fast_int8", "10.5")
        return True

    @property
    def num_DLA_cores(self) -> int:
        """0: there is no DLA."""
        return 0

    @property
    def max_DLA_batch_size(self) -> int:
        """What a DLA would take, as TensorRT says it also where there is none."""
        return 4096

    def get_plugin_registry(self) -> Any:
        """The registry of plugins."""
        return get_plugin_registry()
