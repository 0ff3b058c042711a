"""trtexec's options that `braze exec` takes without doing anything, and those it refuses, and why.

An option is taken where what it asks for holds anyway or is but a permission; it is refused where
leaving it out of account would change what is built, computed or measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final


@dataclass(frozen=True, slots=True)
class Taken:
    """An option without effect. metavar: of its value ("" for a flag); why: what holds instead.

    values: those that are taken, if not all; otherwise: why others are refused.
    """

    name: str
    metavar: str
    why: str
    values: tuple[str, ...] = ()
    otherwise: str = ""


_CALIBRATION: Final = "the network that is calibrated takes any shapes"
_TACTICS: Final = "tactics are chosen among braze's own"
_STREAMS: Final = "a run uses its own stream"
_DLA: Final = "there is no DLA; leave the option out"
_SAFE: Final = "there is no safety runtime; leave the option out"
_PLUGINS: Final = (
    "plugin libraries are built for TensorRT; `braze check` tells which ops run without them"
)
_ROUTES: Final = "build routes do not exist; --builderOptimizationLevel=5 tries more tactics"

TAKEN: Final = (
    Taken("--int4", "", "weights of 4 bits are those of the model"),
    Taken("--noTF32", "", "float32 products keep their 24 bits unless --precision=tf32 is given"),
    Taken("--stronglyTyped", "", "types of the model are kept unless a precision is given"),
    Taken("--minShapesCalib", "SPEC", _CALIBRATION),
    Taken("--optShapesCalib", "SPEC", _CALIBRATION),
    Taken("--maxShapesCalib", "SPEC", _CALIBRATION),
    Taken("--calibProfile", "K", _CALIBRATION),
    Taken("--layerOutputTypes", "SPEC", "a layer gives the type that it computes in"),
    Taken("--sparsity", "MODE", "no kernel uses sparsity", ("disable", "enable"),
          "weights are not changed to be sparse; prune the model"),
    Taken("--explicitBatch", "", "shapes always have their batch"),
    Taken("--explicitPrecision", "", "types of the model are kept unless a precision is given"),
    Taken("--nativeInstanceNorm", "", "normalizations are braze's own"),
    Taken("--ni", "", "normalizations are braze's own"),
    Taken("--pluginInstanceNorm", "", "normalizations are braze's own"),
    Taken("--pi", "", "normalizations are braze's own"),
    Taken("--enablePluginOverride", "", "no plugin is loaded"),
    Taken("--distributiveIndependence", "", "equal rows always have equal bits"),
    Taken("--decomposableAttentions", "NAMES", "attention that is not one kernel is several"),
    Taken("--workspace", "MiB", "memory of a run is planned, and no more than it needs"),
    Taken("--memPoolSize", "SPEC", "memory of a run is planned, and no more than it needs"),
    Taken("--asyncFileReader", "", "engine files are mapped into memory"),
    Taken("--excludeLeanRuntime", "", "engines hold no runtime"),
    Taken("--useRuntime", "NAME", "there is one runtime", ("full",),
          "there is one runtime, the full one"),
    Taken("--hardwareCompatibilityLevel", "MODE", "it is the default", ("none",),
          "what an engine runs on is said by --target, e.g. cpu:avx2 or cuda:sm_80"),
    Taken("--runtimePlatform", "NAME", "it is the default", ("SameAsBuild",),
          "engines are built for the system they are built on"),
    Taken("--allowWeightStreaming", "", "every engine of a GPU can stream its weights"),
    Taken("--tempdir", "DIR", "no temporary files are made"),
    Taken("--tempfileControls", "SPEC", "no temporary files are made"),
    Taken("--avgTiming", "N", "how often a tactic is timed follows its time"),
    Taken("--minTiming", "N", "how often a tactic is timed follows its time"),
    Taken("--tacticSources", "SPEC", _TACTICS),
    Taken("--maxTactics", "N", "--builderOptimizationLevel says how many tactics are timed"),
    Taken("--noCompilationCache", "", "the timing cache holds no code"),
    Taken("--heuristic", "", "--builderOptimizationLevel=2 chooses tactics without timing them"),
    Taken("--preview", "SPEC", "there are no preview features"),
    Taken("--maxAuxStreams", "N", _STREAMS),
    Taken("--tilingOptimizationLevel", "N", "tiles are chosen with the tactics"),
    Taken("--l2LimitForTiling", "BYTES", "tiles are chosen with the tactics"),
    Taken("--monitorMemory", "", "the log tells the memory of the engine"),
    Taken("--directIO", "", "inputs and outputs are never reformatted"),
    Taken("--allowGPUFallback", "", "there is no DLA to fall back from"),
    Taken("--layerDeviceTypes", "SPEC", "there is one device"),
    Taken("--exposeDMA", "", "copies are part of every run"),
    Taken("--useManagedMemory", "", "memory of inputs and outputs is the host's or the GPU's"),
    Taken("--separateProfileRun", "", "layers are always timed in runs of their own"),
    Taken("--persistentCacheRatio", "RATIO", "the cache of the device is left to it"),
    Taken("--allocationStrategy", "NAME", "memory is made for the shapes of a run",
          ("static", "profile", "runtime"), "it is static, profile or runtime"),
    Taken("--ignoreParsedPluginLibs", "", "no plugin is loaded"),
    Taken("--device", "N", "it is the default", ("0",),
          "an engine runs on the first GPU it sees; choose with CUDA_VISIBLE_DEVICES"),
)  # fmt: skip

REFUSED: Final = {
    "--deploy": "Caffe models are not read; convert the model to ONNX",
    "--model": "Caffe models are not read; convert the model to ONNX",
    "--output": "outputs are those of the ONNX model; mark them there",
    "--uff": "UFF models are not read; convert the model to ONNX",
    "--uffInput": "UFF models are not read; convert the model to ONNX",
    "--uffNHWC": "UFF models are not read; convert the model to ONNX",
    "--batch": "implicit batch does not exist in ONNX; give the batch in --shapes",
    "--maxBatch": "implicit batch does not exist in ONNX; give the batch in --maxShapes",
    "--uint8AsymmetricQuantizationDLA": _DLA,
    "--reportCapabilityDLA": _DLA,
    "--adjustForDLA": _DLA,
    "--useDLACore": _DLA,
    "--buildDLAStandalone": _DLA,
    "--versionCompatible": "an engine says which versions read it; build it again for others",
    "--vc": "an engine says which versions read it; build it again for others",
    "--leanDLLPath": "there is one runtime, this one; leave the option out",
    "--safe": _SAFE,
    "--restricted": _SAFE,
    "--consistency": _SAFE,
    "--dumpKernelText": "with safe engines only; `braze stages --kernel=NAME --asm` prints kernels",
    "--remoteAutoTuningConfig": "tactics are timed on this machine; leave the option out",
    "--cpuOnly": "with safe engines only; --target=cuda:sm_90 builds without a GPU",
    "--plugins": _PLUGINS,
    "--staticPlugins": _PLUGINS,
    "--dynamicPlugins": _PLUGINS,
    "--setPluginsToSerialize": _PLUGINS,
    "--safetyPlugins": _PLUGINS,
    "--tuneBuildRoutes": _ROUTES,
    "--tuneBuildRouteFile": _ROUTES,
    "--tuningSearch": _ROUTES,
    "--tuningCacheFile": _ROUTES,
    "--tuningTimeOut": _ROUTES,
    "--saveAllEngines": _ROUTES,
    "--dryRun": _ROUTES,
    "--continue": _ROUTES,
    "--helpBuildRoute": _ROUTES,
    "--setBuildRoute": _ROUTES,
}


def nearest(name: str, known: list[str]) -> str:
    """The known option that a mistyped one was most likely meant to be; "" where none is near."""
    lower = {k.lower(): k for k in known}
    # with less, --nonsense is near --onnx
    found = get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
    return lower[found[0]] if found else ""
