"""Enums of plugins, with the numbers of 10.13."""

from __future__ import annotations

from braze.tensorrt.numbers import Number, Ordered


class APILanguage(Number):
    """The language an interface is implemented in."""

    CPP = 0
    PYTHON = 1


class DimensionOperation(Ordered):
    """Arithmetic on sizes of plugin outputs."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    SUB = 4
    EQUAL = 5
    LESS = 6
    FLOOR_DIV = 7
    CEIL_DIV = 8


class PluginArgDataType(Ordered):
    """Types of kernel arguments of a plugin."""

    INT8 = 0
    INT16 = 1
    INT32 = 2


class PluginArgType(Ordered):
    """Kinds of kernel arguments of a plugin."""

    INT = 0


class PluginCapabilityType(Ordered):
    """What an interface of a plugin is for."""

    CORE = 0
    BUILD = 1
    RUNTIME = 2


class PluginCreatorVersion(Number):
    """Versions of plugin creators."""

    V1 = 0
    V1_PYTHON = 64


class PluginFieldType(Number):
    """Types of plugin fields."""

    FLOAT16 = 0
    FLOAT32 = 1
    FLOAT64 = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    CHAR = 6
    DIMS = 7
    UNKNOWN = 8
    BF16 = 9
    INT64 = 10
    FP8 = 11
    INT4 = 12
    FP4 = 13


class QuickPluginCreationRequest(Ordered):
    """Which implementation of a plugin is wanted."""

    UNKNOWN = 0
    PREFER_JIT = 1
    PREFER_AOT = 2
    STRICT_JIT = 3
    STRICT_AOT = 4


class TensorRTPhase(Ordered):
    """When a plugin is made."""

    BUILD = 0
    RUNTIME = 1
