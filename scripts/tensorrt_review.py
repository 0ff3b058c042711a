"""What names of TensorRT's API mean in braze where they do not simply work: reviewed by hand.

Patterns match as in file names, the first that matches counts; a class alone stands for its
members too. "accepted": taken, checked and recorded, without effect on what runs; "refused": an
error in the log, and None or False.
"""

from __future__ import annotations

from typing import Final

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"

_TYPES: Final = "allows a type; networks keep the types they say, so nothing has to change"
_KERNELS: Final = "for kernels or libraries of NVIDIA; braze chooses among its own"
_DLA: Final = "there is no DLA"
_KERNEL: Final = "kernels that plugins bring are not launched; functions in Python are"
_OLD: Final = "plugins tell sizes as IPluginV2DynamicExt does, or as IPluginV3"
_KEPT: Final = "taken; nothing here depends on it"
_MEMORY: Final = "activations lie in memory that the context owns"
_TOLD: Final = "selectors hear of the name of a kernel and its tactic alone"
_CALIBRATION: Final = "calibration is before fusion always"
_OTHER: Final = "a number to compare with; braze reports other kinds"
_FRONT: Final = "a number to compare with; readers are asked to seek from the front"
_HOST: Final = "the host code of an engine is part of braze"

REVIEW: Final[tuple[tuple[str, str, str], ...]] = (
    # --- flags and options of builds ---
    ("BuilderFlag.FP4", ACCEPTED, _TYPES),
    ("BuilderFlag.FP8", ACCEPTED, _TYPES),
    ("BuilderFlag.INT4", ACCEPTED, _TYPES),
    ("BuilderFlag.DEBUG", ACCEPTED, "runs need no synchronization to be debugged"),
    ("BuilderFlag.DIRECT_IO", ACCEPTED, "inputs and outputs are never reformatted"),
    ("BuilderFlag.DISABLE_COMPILATION_CACHE", ACCEPTED, "there is no compilation cache"),
    ("BuilderFlag.DISTRIBUTIVE_INDEPENDENCE", ACCEPTED, "sums have one order, whatever runs"),
    ("BuilderFlag.EXCLUDE_LEAN_RUNTIME", ACCEPTED, _HOST),
    ("BuilderFlag.VERSION_COMPATIBLE", ACCEPTED, _HOST),
    ("BuilderFlag.SAFETY_SCOPE", ACCEPTED, "there is no safety runtime"),
    ("BuilderFlag.SPARSE_WEIGHTS", ACCEPTED, "weights are taken as dense"),
    ("IBuilderConfig.avg_timing_iterations", ACCEPTED, "measurement decides how often it repeats"),
    ("IBuilderConfig.DLA_core", ACCEPTED, _DLA),
    ("IBuilderConfig.hardware_compatibility_level", ACCEPTED, "recorded in the engine"),
    ("IBuilderConfig.l2_limit_for_tiling", ACCEPTED, _KERNELS),
    ("IBuilderConfig.max_aux_streams", ACCEPTED, "contexts choose their streams"),
    ("IBuilderConfig.max_num_tactics", ACCEPTED, "the optimization level decides"),
    ("IBuilderConfig.plugins_to_serialize", ACCEPTED, "libraries of plugins are not loaded"),
    ("IBuilderConfig.profile_stream", ACCEPTED, "tactics are measured on a stream of their own"),
    ("IBuilderConfig.remote_auto_tuning_config", ACCEPTED, "tactics are measured here"),
    ("IBuilderConfig.*_quantization_flag", ACCEPTED, _CALIBRATION),
    ("IBuilderConfig.quantization_flags", ACCEPTED, _CALIBRATION),
    ("IBuilderConfig.*_tactic_sources", ACCEPTED, _KERNELS),
    ("IBuilderConfig.tiling_optimization_level", ACCEPTED, _KERNELS),
    ("IBuilderConfig.set_memory_pool_limit", ACCEPTED, "recorded; kernels take no workspace"),
    ("INormalizationLayer.compute_precision", ACCEPTED, "sums are of float32"),
    ("Builder.max_threads", ACCEPTED, "builds use the processors there are"),
    ("PreviewFeature.ALIASED*", ACCEPTED, "outputs of plugins have memory of their own"),
    ("PreviewFeature.RUNTIME*", ACCEPTED, "sizes of memory follow the shapes always"),
    ("TacticSource*", ACCEPTED, _KERNELS),
    ("TilingOptimizationLevel*", ACCEPTED, _KERNELS),
    ("HardwareCompatibilityLevel*", ACCEPTED, "recorded in the engine"),
    ("QuantizationFlag*", ACCEPTED, _CALIBRATION),
    ("MemoryPoolType.DLA*", ACCEPTED, _DLA),
    ("MemoryPoolType.TACTIC*", ACCEPTED, "recorded; kernels take what they need"),
    ("EngineCapability.SAFETY", REFUSED, "there is no safety runtime"),
    ("EngineCapability.DLA_STANDALONE", REFUSED, _DLA),
    ("DeviceType.DLA", REFUSED, _DLA),
    ("RuntimePlatform.WINDOWS_AMD64", REFUSED, "engines are for the platform they are built on"),
    ("NetworkDefinitionCreationFlag.PREFER_AOT*", ACCEPTED, _KERNEL),
    ("OnnxParserFlag*", ACCEPTED, "no flag changes what is parsed"),
    ("IAlgorithm.timing_msec", ACCEPTED, _TOLD),
    ("IAlgorithm.workspace_size", ACCEPTED, _TOLD),
    ("IAlgorithm.get_algorithm_io_info", ACCEPTED, _TOLD),
    ("IAlgorithmContext.num_*", ACCEPTED, _TOLD),
    ("IAlgorithmContext.get_shape", ACCEPTED, _TOLD),
    ("IAlgorithmIOInfo*", ACCEPTED, _TOLD),
    ("ErrorCode.SUCCESS", ACCEPTED, _OTHER),
    ("ErrorCode.MEM_ALLOC_FAILED", ACCEPTED, _OTHER),
    ("ErrorCode.UNSUPPORTED_GRAPH", ACCEPTED, _OTHER),
    ("ErrorCode.UNSUPPORTED_NODE_ATTR", ACCEPTED, _OTHER),
    ("ErrorCode.UNSUPPORTED_NODE_DYNAMIC", ACCEPTED, _OTHER),
    ("ErrorCode.UNSUPPORTED_NODE_INPUT", ACCEPTED, _OTHER),
    ("ErrorCodeTRT.SUCCESS", ACCEPTED, _OTHER),
    ("ErrorCodeTRT.FAILED_COMPUTATION", ACCEPTED, _OTHER),
    ("ErrorCodeTRT.UNSUPPORTED_STATE", ACCEPTED, _OTHER),
    ("SeekPosition.CUR", ACCEPTED, _FRONT),
    ("SeekPosition.END", ACCEPTED, _FRONT),
    ("APILanguage.CPP", ACCEPTED, "interfaces that scripts implement are Python's"),
    ("LayerType.PLUGIN", ACCEPTED, "of layers that release 10 no longer adds"),
    ("TensorFormat.LINEAR", "", ""),
    ("TensorFormat.*", REFUSED, "inputs and outputs are linear; allow LINEAR among the formats"),
    # --- plugins ---
    ("IExprBuilder.declare_size_tensor", REFUSED, "a plugin tells its sizes before it runs"),
    ("IPluginRegistry.*load_library", REFUSED, "plugins compiled for TensorRT cannot be called"),
    ("IPluginRegistry.deregister_library", ACCEPTED, "no library is ever loaded"),
    ("IPluginRegistry*", "", ""),
    ("IPluginResource*", "", ""),
    ("IPluginV3QuickAOT*", ACCEPTED, _KERNEL),
    ("IPluginV2Ext*", REFUSED, _OLD),
    ("IPluginV2", REFUSED, _OLD),
    ("IPluginV2.num_outputs", "", ""),
    ("IPluginV2.plugin_*", "", ""),
    ("IPluginV2.serial*", "", ""),
    ("IPluginV2.initialize", "", ""),
    ("IPluginV2.*", REFUSED, _OLD),
    ("IPluginV2DynamicExt.clone", ACCEPTED, _KEPT),
    ("IPluginV2DynamicExt.destroy", ACCEPTED, _KEPT),
    ("IPluginV2DynamicExt.terminate", ACCEPTED, _KEPT),
    ("IPluginV2DynamicExt.FORMAT_COMBINATION_LIMIT", ACCEPTED, _KEPT),
    ("IPluginV3.destroy", ACCEPTED, _KEPT),
    ("IPluginV3OneBuild.*FORMAT_COMBINATION_LIMIT", ACCEPTED, _KEPT),
    ("IPluginV3OneBuild.format_combination_limit", ACCEPTED, _KEPT),
    ("IPluginV3OneBuild.metadata_string", ACCEPTED, _KEPT),
    ("IPluginV3OneBuild.timing_cache_id", ACCEPTED, _KEPT),
    ("IPluginV3OneBuildV2.get_aliased_input", ACCEPTED, "outputs have memory of their own"),
    ("PluginArg*", ACCEPTED, _KERNEL),
    ("PluginCreatorVersion*", ACCEPTED, _KERNEL),
    ("QuickPlugin*", ACCEPTED, _KERNEL),
    ("KernelLaunchParams*", ACCEPTED, _KERNEL),
    ("ISymExpr*", ACCEPTED, _KERNEL),
    # --- runs ---
    ("IExecutionContext.nvtx_verbosity", ACCEPTED, "there are no NVTX ranges"),
    ("IExecutionContext.persistent_cache_limit", ACCEPTED, _KERNELS),
    ("IExecutionContext.debug_sync", ACCEPTED, "runs need no synchronization to be debugged"),
    ("IExecutionContext.temporary_allocator", ACCEPTED, _MEMORY),
    ("IExecutionContext.set_aux_streams", ACCEPTED, "contexts choose their streams"),
    (
        "IExecutionContext.set_device_memory",
        ACCEPTED,
        f"its size is checked by each run; {_MEMORY}",
    ),
    ("IGpuAllocator*", ACCEPTED, _MEMORY),
    ("IGpuAsyncAllocator*", ACCEPTED, _MEMORY),
    ("AllocatorFlag*", ACCEPTED, _MEMORY),
    ("Runtime.DLA_core", ACCEPTED, _DLA),
    ("Runtime.engine_host_code_allowed", ACCEPTED, _HOST),
    ("Runtime.max_threads", ACCEPTED, "engines know their threads"),
    ("Runtime.temp*", ACCEPTED, "no temporary files are written"),
    ("TempfileControlFlag*", ACCEPTED, "no temporary files are written"),
    ("Runtime.load_runtime", REFUSED, _HOST),
    ("SerializationFlag.EXCLUDE_LEAN_RUNTIME", ACCEPTED, _HOST),
    ("Refitter.*dynamic_range", REFUSED, "engines have scales in Q/DQ, no ranges of tensors"),
    ("Refitter.max_threads", ACCEPTED, "a refit uses the processors there are"),
)
