"""The part of IBuilderConfig that later releases took away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braze.tensorrt.deprecation import warn_deprecated
from braze.tensorrt.enums_build import MemoryPoolType, QuantizationFlag
from braze.tensorrt.optimization_profile import IOptimizationProfile
from braze.tensorrt.params import member, whole


class LegacyConfig:
    """Calibration, algorithm selection and the names of releases before 8.4."""

    if TYPE_CHECKING:
        avg_timing_iterations: int

        def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None: ...

        def get_memory_pool_limit(self, pool: MemoryPoolType) -> int: ...

    def _reset_legacy(self) -> None:
        self._calibrator: Any = None
        self._selector: Any = None
        self._calibration_profile: IOptimizationProfile | None = None
        self._quantization_flags = 0

    @property
    def int8_calibrator(self) -> Any:
        """An IInt8Calibrator, or None."""
        return self._calibrator

    @int8_calibrator.setter
    def int8_calibrator(self, value: Any) -> None:
        warn_deprecated("IBuilderConfig.int8_calibrator", "10.1", "Q/DQ layers")
        self._calibrator = value

    @property
    def algorithm_selector(self) -> Any:
        """An IAlgorithmSelector, or None."""
        return self._selector

    @algorithm_selector.setter
    def algorithm_selector(self, value: Any) -> None:
        warn_deprecated("IBuilderConfig.algorithm_selector", "10.8", "an editable timing cache")
        self._selector = value

    def set_calibration_profile(self, profile: IOptimizationProfile | None) -> bool:
        """The sizes to calibrate with."""
        if not isinstance(profile, (IOptimizationProfile, type(None))):
            raise TypeError(f"an IOptimizationProfile is expected, not {profile!r}")
        self._calibration_profile = profile
        return True

    def get_calibration_profile(self) -> IOptimizationProfile | None:
        """The sizes to calibrate with, or None."""
        return self._calibration_profile

    @property
    def quantization_flags(self) -> int:
        """Bits of QuantizationFlag."""
        return self._quantization_flags

    @quantization_flags.setter
    def quantization_flags(self, value: int) -> None:
        self._quantization_flags = whole(value, "quantization_flags")

    def set_quantization_flag(self, flag: QuantizationFlag) -> None:
        """Set a flag of calibration."""
        bit = int(member(QuantizationFlag)(flag, "set_quantization_flag"))
        self._quantization_flags |= 1 << bit

    def clear_quantization_flag(self, flag: QuantizationFlag) -> None:
        """Clear a flag of calibration."""
        bit = int(member(QuantizationFlag)(flag, "clear_quantization_flag"))
        self._quantization_flags &= ~(1 << bit)

    def get_quantization_flag(self, flag: QuantizationFlag) -> bool:
        """Whether a flag of calibration is set."""
        bit = int(member(QuantizationFlag)(flag, "get_quantization_flag"))
        return bool(self._quantization_flags >> bit & 1)

    # ---- releases before 8.4 ------------------------------------------------------------

    @property
    def max_workspace_size(self) -> int:
        """The limit of MemoryPoolType.WORKSPACE."""
        return self.get_memory_pool_limit(MemoryPoolType.WORKSPACE)

    @max_workspace_size.setter
    def max_workspace_size(self, value: int) -> None:
        warn_deprecated("max_workspace_size", "8.4", "set_memory_pool_limit")
        self.set_memory_pool_limit(MemoryPoolType.WORKSPACE, value)

    @property
    def min_timing_iterations(self) -> int:
        """As avg_timing_iterations."""
        return self.avg_timing_iterations

    @min_timing_iterations.setter
    def min_timing_iterations(self, value: int) -> None:
        warn_deprecated("min_timing_iterations", "8.4", "avg_timing_iterations")
        self.avg_timing_iterations = value
