"""The Python API of TensorRT 10.13, with names of releases before and after, over braze.

`import braze.tensorrt as trt` in place of `import tensorrt as trt`. What belongs to the compiler
is imported when it is first named, so that scripts which only run engines do not need it.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

from braze.tensorrt import enums
from braze.tensorrt.dims import (
    DimensionType,
    Dims,
    Dims2,
    Dims3,
    Dims4,
    DimsCHW,
    DimsHW,
    DimsNCHW,
    Permutation,
)
from braze.tensorrt.dtypes import nptype, volume
from braze.tensorrt.enums import *  # noqa: F403
from braze.tensorrt.enums import DataType
from braze.tensorrt.logger import ILogger, Logger
from braze.tensorrt.weights import IHostMemory, Weights

__version__ = "10.13.0.35"

# module -> the names that it holds, imported when one of them is asked for
_HOMES: Final[dict[str, tuple[str, ...]]] = {
    "algorithms": (
        "IAlgorithm",
        "IAlgorithmContext",
        "IAlgorithmIOInfo",
        "IAlgorithmSelector",
        "IAlgorithmVariant",
    ),
    "builder": ("Builder",),
    "calibrators": (
        "IInt8Calibrator",
        "IInt8EntropyCalibrator",
        "IInt8EntropyCalibrator2",
        "IInt8LegacyCalibrator",
        "IInt8MinMaxCalibrator",
    ),
    "config": ("IBuilderConfig",),
    "layer": ("ILayer",),
    "layers_gone": (
        "CaffeParser",
        "IBlobNameToTensor",
        "IDistCollectiveLayer",
        "IMoELayer",
        "IRNNv2Layer",
        "RNNDirection",
        "RNNGateType",
        "RNNInputMode",
        "RNNOperation",
        "UffInputOrder",
        "UffParser",
    ),
    "layers_attention": (
        "IAttention",
        "IAttentionBoundaryLayer",
        "IAttentionInputLayer",
        "IAttentionOutputLayer",
        "IKVCacheUpdateLayer",
        "IRotaryEmbeddingLayer",
    ),
    "layers_constant": ("IConstantLayer", "IFillLayer"),
    "layers_convolution": ("IConvolutionLayer", "IDeconvolutionLayer", "IFullyConnectedLayer"),
    "layers_flow": (
        "IConditionLayer",
        "IIfConditional",
        "IIfConditionalBoundaryLayer",
        "IIfConditionalInputLayer",
        "IIfConditionalOutputLayer",
        "IIteratorLayer",
        "ILoop",
        "ILoopBoundaryLayer",
        "ILoopOutputLayer",
        "IRecurrenceLayer",
        "ITripLimitLayer",
    ),
    "layers_index": (
        "IGatherLayer",
        "INMSLayer",
        "INonZeroLayer",
        "IOneHotLayer",
        "IReverseSequenceLayer",
        "IScatterLayer",
        "ITopKLayer",
    ),
    "layers_moves": (
        "IAssertionLayer",
        "IConcatenationLayer",
        "IShapeLayer",
        "IShuffleLayer",
        "ISqueezeLayer",
        "IUnsqueezeLayer",
    ),
    "layers_norm": (
        "ILRNLayer",
        "INormalizationLayer",
        "IRaggedSoftMaxLayer",
        "IScaleLayer",
        "ISoftMaxLayer",
    ),
    "layers_plugin": ("IPluginV2Layer", "IPluginV3Layer"),
    "layers_pointwise": (
        "IActivationLayer",
        "ICastLayer",
        "IElementWiseLayer",
        "IIdentityLayer",
        "IParametricReLULayer",
        "ISelectLayer",
        "IUnaryLayer",
    ),
    "layers_pooling": ("IPaddingLayer", "IPoolingLayer"),
    "layers_quant": ("IDequantizeLayer", "IDynamicQuantizeLayer", "IQuantizeLayer"),
    "layers_reduce": (
        "ICumulativeLayer",
        "IEinsumLayer",
        "IMatrixMultiplyLayer",
        "IReduceLayer",
    ),
    "layers_resize": ("IGridSampleLayer", "IResizeLayer"),
    "layers_slice": ("ISliceLayer",),
    "network": ("INetworkDefinition",),
    "optimization_profile": ("IOptimizationProfile",),
    "parser": ("OnnxParser", "get_nv_onnx_parser_version"),
    "parser_error": ("ParserError",),
    "plugin_fields": (
        "DimsExprs",
        "DynamicPluginTensorDesc",
        "FallbackString",
        "IDimensionExpr",
        "IExprBuilder",
        "ISymExpr",
        "ISymExprs",
        "KernelLaunchParams",
        "NodeIndices",
        "PluginField",
        "PluginFieldCollection",
        "PluginFieldCollection_",
        "PluginTensorDesc",
        "SubGraphCollection",
    ),
    "plugins": (
        "IPluginCapability",
        "IPluginCreator",
        "IPluginCreatorInterface",
        "IPluginCreatorV3One",
        "IPluginCreatorV3Quick",
        "IPluginResource",
        "IPluginResourceContext",
        "IPluginV3",
        "IPluginV3OneBuild",
        "IPluginV3OneBuildV2",
        "IPluginV3OneCore",
        "IPluginV3OneRuntime",
        "IPluginV3QuickAOTBuild",
        "IPluginV3QuickBuild",
        "IPluginV3QuickCore",
        "IPluginV3QuickRuntime",
    ),
    "plugins_v2": (
        "IPluginV2",
        "IPluginV2DynamicExt",
        "IPluginV2DynamicExtBase",
        "IPluginV2Ext",
    ),
    "plugin_registry": (
        "IPluginRegistry",
        "get_builder_plugin_registry",
        "get_plugin_registry",
        "init_libnvinfer_plugins",
    ),
    "tensor": ("ITensor",),
    "timing_cache": ("ITimingCache", "TimingCacheKey", "TimingCacheValue"),
    "allocator": ("IGpuAllocator", "IGpuAsyncAllocator", "IOutputAllocator"),
    "context": ("IExecutionContext",),
    "debug": ("IDebugListener",),
    "engine": ("ICudaEngine",),
    "inspector": ("EngineInspector",),
    "profiler": ("IProfiler", "Profiler"),
    "progress": ("IProgressMonitor",),
    "recorder": ("IErrorRecorder",),
    "refit": ("OnnxParserRefitter", "Refitter"),
    "runtime": ("Runtime",),
    "runtime_config": ("IRuntimeConfig", "ISerializationConfig"),
    "stream_io": ("IStreamReader", "IStreamReaderV2", "IStreamWriter"),
    "versioned": ("IVersionedInterface", "InterfaceInfo"),
}
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

float32 = DataType.FLOAT
float16 = DataType.HALF
bfloat16 = DataType.BF16
int8 = DataType.INT8
int32 = DataType.INT32
int64 = DataType.INT64
bool = DataType.BOOL
uint8 = DataType.UINT8
fp8 = DataType.FP8
int4 = DataType.INT4
fp4 = DataType.FP4
e8m0 = DataType.E8M0

__all__ = [
    "DimensionType",
    "Dims",
    "Dims2",
    "Dims3",
    "Dims4",
    "DimsCHW",
    "DimsHW",
    "DimsNCHW",
    "IHostMemory",
    "ILogger",
    "Logger",
    "Permutation",
    "Weights",
    "bfloat16",
    "bool",
    "e8m0",
    "float16",
    "float32",
    "fp4",
    "fp8",
    "int4",
    "int8",
    "int32",
    "int64",
    "nptype",
    "uint8",
    "volume",
]
__all__ += [*enums.__all__, *_HOME_OF]  # noqa: PLE0604 - strings, all


def __getattr__(name: str) -> Any:
    """Import the home of a name when it is first asked for."""
    if name == "plugin":  # a module of this package, which TensorRT's imports by itself
        return importlib.import_module("braze.tensorrt.plugin")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tensorrt' has no attribute {name!r}")
    home = importlib.import_module(f"braze.tensorrt.{_HOME_OF[name]}")
    globals()[name] = getattr(home, name)
    return globals()[name]


def __dir__() -> list[str]:
    """All names, those not imported yet too."""
    return sorted({*globals(), *_HOME_OF})
