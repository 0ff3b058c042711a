"""Enums of networks, builders and parsers, with the numbers of 10.13."""

from __future__ import annotations

from braze.tensorrt.numbers import Number, Ordered


class BuilderFlag(Ordered):
    """Switches of IBuilderConfig."""

    FP16 = 0
    INT8 = 1
    DEBUG = 2
    GPU_FALLBACK = 3
    REFIT = 4
    DISABLE_TIMING_CACHE = 5
    TF32 = 6
    SPARSE_WEIGHTS = 7
    SAFETY_SCOPE = 8
    OBEY_PRECISION_CONSTRAINTS = 9
    PREFER_PRECISION_CONSTRAINTS = 10
    DIRECT_IO = 11
    REJECT_EMPTY_ALGORITHMS = 12
    VERSION_COMPATIBLE = 13
    EXCLUDE_LEAN_RUNTIME = 14
    FP8 = 15
    ERROR_ON_TIMING_CACHE_MISS = 16
    BF16 = 17
    DISABLE_COMPILATION_CACHE = 18
    WEIGHTLESS = 19
    STRIP_PLAN = 19
    REFIT_IDENTICAL = 20
    WEIGHT_STREAMING = 21
    INT4 = 22
    REFIT_INDIVIDUAL = 23
    STRICT_NANS = 24
    MONITOR_MEMORY = 25
    FP4 = 26
    EDITABLE_TIMING_CACHE = 27
    DISTRIBUTIVE_INDEPENDENCE = 28
    # names of releases before 10
    STRICT_TYPES = PREFER_PRECISION_CONSTRAINTS
    ENABLE_TACTIC_HEURISTIC = 29


class CalibrationAlgoType(Number):
    """How a calibrator finds scales."""

    LEGACY_CALIBRATION = 0
    ENTROPY_CALIBRATION = 1
    ENTROPY_CALIBRATION_2 = 2
    MINMAX_CALIBRATION = 3


class DeviceType(Number):
    """Where a layer runs."""

    GPU = 0
    DLA = 1


class EngineCapability(Ordered):
    """Which runtime an engine is for."""

    STANDARD = 0
    SAFETY = 1
    DLA_STANDALONE = 2
    # names of releases before 10
    DEFAULT = STANDARD
    SAFE_GPU = SAFETY
    SAFE_DLA = DLA_STANDALONE


class ErrorCode(Number):
    """What went wrong in a parser."""

    SUCCESS = 0
    INTERNAL_ERROR = 1
    MEM_ALLOC_FAILED = 2
    MODEL_DESERIALIZE_FAILED = 3
    INVALID_VALUE = 4
    INVALID_GRAPH = 5
    INVALID_NODE = 6
    UNSUPPORTED_GRAPH = 7
    UNSUPPORTED_NODE = 8
    UNSUPPORTED_NODE_ATTR = 9
    UNSUPPORTED_NODE_INPUT = 10
    UNSUPPORTED_NODE_DATATYPE = 11
    UNSUPPORTED_NODE_DYNAMIC = 12
    UNSUPPORTED_NODE_SHAPE = 13
    REFIT_FAILED = 14

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


class HardwareCompatibilityLevel(Number):
    """On which GPUs an engine runs."""

    NONE = 0
    AMPERE_PLUS = 1
    SAME_COMPUTE_CAPABILITY = 2


class MemoryPoolType(Number):
    """Memory a build or an engine may use."""

    WORKSPACE = 0
    DLA_MANAGED_SRAM = 1
    DLA_LOCAL_DRAM = 2
    DLA_GLOBAL_DRAM = 3
    TACTIC_DRAM = 4
    TACTIC_SHARED_MEMORY = 5


class NetworkDefinitionCreationFlag(Ordered):
    """Bits of create_network."""

    EXPLICIT_BATCH = 0
    STRONGLY_TYPED = 1
    PREFER_JIT_PYTHON_PLUGINS = 2
    PREFER_AOT_PYTHON_PLUGINS = 3
    # names of releases before 10
    EXPLICIT_PRECISION = 4


class OnnxParserFlag(Number):
    """Switches of OnnxParser."""

    NATIVE_INSTANCENORM = 0
    ENABLE_UINT8_AND_ASYMMETRIC_QUANTIZATION_DLA = 1
    REPORT_CAPABILITY_DLA = 2
    ENABLE_PLUGIN_OVERRIDE = 3
    ADJUST_FOR_DLA = 4


class PreviewFeature(Number):
    """Features to try early."""

    PROFILE_SHARING_0806 = 0
    ALIASED_PLUGIN_IO_10_03 = 1
    RUNTIME_ACTIVATION_RESIZE_10_10 = 2
    MULTIDEVICE_RUNTIME_10_16 = 3
    # names of releases before 10
    FASTER_DYNAMIC_SHAPES_0805 = 4
    DISABLE_EXTERNAL_TACTIC_SOURCES_FOR_CORE_0805 = 5


class ProfilingVerbosity(Number):
    """How much the inspector tells."""

    LAYER_NAMES_ONLY = 0
    NONE = 1
    DETAILED = 2
    # names of releases before 10
    DEFAULT = LAYER_NAMES_ONLY
    VERBOSE = DETAILED


class QuantizationFlag(Ordered):
    """Switches of calibration."""

    CALIBRATE_BEFORE_FUSION = 0


class RuntimePlatform(Number):
    """Where an engine runs."""

    SAME_AS_BUILD = 0
    WINDOWS_AMD64 = 1


class TacticSource(Ordered):
    """Libraries that tactics come from."""

    CUBLAS = 0
    CUBLAS_LT = 1
    CUDNN = 2
    EDGE_MASK_CONVOLUTIONS = 3
    JIT_CONVOLUTIONS = 4


class TilingOptimizationLevel(Number):
    """How hard the builder looks for tilings."""

    NONE = 0
    FAST = 1
    MODERATE = 2
    FULL = 3
