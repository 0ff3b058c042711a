"""Calibrators of release 10 and before, which scripts derive from."""

from __future__ import annotations

from typing import Any

from braze.tensorrt.enums_build import CalibrationAlgoType


class IInt8Calibrator:
    """Gives batches of data, and keeps what was found in them."""

    def __init__(self) -> None:
        return None

    def get_batch_size(self) -> int:
        """How many samples a batch has."""
        raise NotImplementedError(f"{type(self).__name__}.get_batch_size is to be overridden")

    def get_batch(self, names: list[str]) -> Any:
        """Addresses of the inputs of the next batch, by the order of names; None at the end."""
        raise NotImplementedError(f"{type(self).__name__}.get_batch is to be overridden")

    def read_calibration_cache(self) -> Any:
        """What `write_calibration_cache` kept, or None."""

    def write_calibration_cache(self, cache: Any) -> None:
        """Keep what was found."""

    def get_algorithm(self) -> CalibrationAlgoType:
        """How scales are found."""
        return CalibrationAlgoType.ENTROPY_CALIBRATION_2


class IInt8EntropyCalibrator2(IInt8Calibrator):
    """Scales that keep most of the entropy."""


class IInt8EntropyCalibrator(IInt8Calibrator):
    """The same in its first form."""

    def get_algorithm(self) -> CalibrationAlgoType:
        """How scales are found."""
        return CalibrationAlgoType.ENTROPY_CALIBRATION


class IInt8MinMaxCalibrator(IInt8Calibrator):
    """Scales of the extremes."""

    def get_algorithm(self) -> CalibrationAlgoType:
        """How scales are found."""
        return CalibrationAlgoType.MINMAX_CALIBRATION


class IInt8LegacyCalibrator(IInt8Calibrator):
    """Scales of a quantile."""

    def get_algorithm(self) -> CalibrationAlgoType:
        """How scales are found."""
        return CalibrationAlgoType.LEGACY_CALIBRATION

    def get_quantile(self) -> float:
        """The share of values that are not cut off."""
        return 0.9999

    def get_regression_cutoff(self) -> float:
        """From which share of the quantile on scales are sought."""
        return 1.0

    def read_histogram_cache(self, length: int) -> Any:
        """A histogram that was kept, or None."""

    def write_histogram_cache(self, ptr: Any, length: int) -> None:
        """Keep a histogram."""
