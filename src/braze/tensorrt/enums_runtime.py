"""Enums of tensors and engines, with the numbers of 10.13."""

from __future__ import annotations

from braze.tensorrt.numbers import Number, Ordered


class AllocatorFlag(Ordered):
    """What an allocation may do later."""

    RESIZABLE = 0


class DataType(Number):
    """Element types."""

    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8
    INT4 = 9
    FP4 = 10
    E8M0 = 11

    @property
    def itemsize(self) -> float | None:
        """Bytes of an element, half a byte for those of 4 bits; None for E8M0."""
        if self in (DataType.FP4, DataType.INT4, DataType.E8M0):
            return None if self is DataType.E8M0 else 0.5
        wide = {DataType.INT64: 8, DataType.FLOAT: 4, DataType.INT32: 4}
        return wide.get(self, 2 if self in (DataType.HALF, DataType.BF16) else 1)


class ErrorCodeTRT(Ordered):
    """What went wrong, for error recorders."""

    SUCCESS = 0
    UNSPECIFIED_ERROR = 1
    INTERNAL_ERROR = 2
    INVALID_ARGUMENT = 3
    INVALID_CONFIG = 4
    FAILED_ALLOCATION = 5
    FAILED_INITIALIZATION = 6
    FAILED_EXECUTION = 7
    FAILED_COMPUTATION = 8
    INVALID_STATE = 9
    UNSUPPORTED_STATE = 10


class ExecutionContextAllocationStrategy(Ordered):
    """When a context gets its memory."""

    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class LayerInformationFormat(Number):
    """What the inspector prints."""

    ONELINE = 0
    JSON = 1


class SeekPosition(Ordered):
    """Where a seek counts from."""

    SET = 0
    CUR = 1
    END = 2


class SerializationFlag(Ordered):
    """What a serialized engine holds."""

    EXCLUDE_WEIGHTS = 0
    EXCLUDE_LEAN_RUNTIME = 1
    INCLUDE_REFIT = 2


class TempfileControlFlag(Number):
    """Which temporary files the runtime may use."""

    ALLOW_IN_MEMORY_FILES = 0
    ALLOW_TEMPORARY_FILES = 1


class TensorFormat(Ordered):
    """Layouts of tensors in memory."""

    LINEAR = 0
    CHW2 = 1
    HWC8 = 2
    CHW4 = 3
    CHW16 = 4
    CHW32 = 5
    DHWC8 = 6
    CDHW32 = 7
    HWC = 8
    DLA_LINEAR = 9
    DLA_HWC4 = 10
    HWC16 = 11
    DHWC = 12


class TensorIOMode(Number):
    """Whether a tensor is an input or an output."""

    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(Number):
    """Where a tensor lies."""

    DEVICE = 0
    HOST = 1


class EngineStat(Number):
    """Numbers an engine knows of itself."""

    TOTAL_WEIGHTS_SIZE = 0
    STRIPPED_WEIGHTS_SIZE = 1
