"""Options of `braze exec`: what is understood, what is refused and how."""

from __future__ import annotations

import pytest

from braze.cli import execute
from braze.cli.callers import GpuOptions
from braze.cli.exec_options import ExecOptions, exec_options
from braze.cli.exec_table import REFUSED, TAKEN, Taken
from braze.cli.exec_values import IoFormat, check_formats
from braze.cli.main import make_parser
from braze.cli.options import TARGETS
from braze.codegen.catalog import target_names
from braze.core.errors import ConfigError

# every option of trtexec 7.0 to 11.1
ALL_OF_TRTEXEC = """
--accuracyAlgorithm --accuracyThreshold --adjustForDLA --allocationStrategy --allowGPUFallback
--allowWeightStreaming --asyncFileReader --atol --avgRuns --avgTiming --batch --best --bf16
--buildDLAStandalone --buildOnly --builderOptimizationLevel --calib --calibProfile --consistency
--continue --cpuOnly --decomposableAttentions --deploy --device --directIO
--distributiveIndependence --dryRun --dumpKernelText --dumpLayerInfo --dumpOptimizationProfile
--dumpOutput --dumpProfile --dumpRawBindingsToFile --dumpRefit --duration --dynamicPlugins
--enablePluginOverride --errorOnTimingCacheMiss --excludeLeanRuntime --explicitBatch
--explicitPrecision --exportLayerInfo --exportOutput --exportProfile --exportTimes --exposeDMA
--fp16 --fp8 --getPlanVersionOnly --hardwareCompatibilityLevel --help --helpBuildRoute
--heuristic --idleTime --ignoreParsedPluginLibs --includeDataTransfers --infStreams
--inputIOFormats --int4 --int8 --iterations --l2LimitForTiling --layerDeviceTypes
--layerOutputTypes --layerPrecisions --leanDLLPath --loadEngine --loadInputs --loadRefOutputs
--markDebug --markUnfusedTensorsAsDebugTensors --maxAuxStreams --maxBatch --maxShapes
--maxShapesCalib --maxTactics --memPoolSize --minShapes --minShapesCalib --minTiming --model
--monitorMemory --nativeInstanceNorm --ni --noBuilderCache --noCompilationCache --noCudaGraph
--noDataTransfers --noSpinWait --noTF32 --nvtxMode --onnx --optShapes --optShapesCalib --output
--outputIOFormats --percentile --persistentCacheRatio --pi --pluginInstanceNorm --plugins
--precisionConstraints --preview --profile --profilingVerbosity --refPair --refit
--refitFromOnnx --remoteAutoTuningConfig --reportCapabilityDLA --restricted --rtol
--runtimePlatform --safe --safetyPlugins --saveAllDebugTensors --saveAllEngines
--saveDebugTensors --saveEngine --separateProfileRun --setBuildRoute --setPluginsToSerialize
--shapes --skipInference --sleepTime --sparsity --staticPlugins --streams --stripAllWeights
--stripWeights --stronglyTyped --tacticSources --tempdir --tempfileControls --threads
--tilingOptimizationLevel --timeDeserialize --timeRefit --timingCacheFile --tuneBuildRouteFile
--tuneBuildRoutes --tuningCacheFile --tuningSearch --tuningTimeOut --uff --uffInput --uffNHWC
--uint8AsymmetricQuantizationDLA --useCudaGraph --useDLACore --useManagedMemory --useProfile
--useRuntime --useSpinWait --vc --verbose --versionCompatible --warmUp --weightStreamingBudget
--weightless --workspace -h -v
"""


def parse(*arguments: str) -> ExecOptions:
    args, unknown = make_parser("exec", execute).parse_known_args(arguments)
    return exec_options(args, unknown)


def test_defaults_are_those_of_trtexec() -> None:
    o = parse("--onnx=m.onnx")
    assert (o.iterations, o.duration_s, o.warmup_ms, o.average_runs) == (10, 3.0, 200.0, 10)
    assert o.percentiles == (90.0, 95.0, 99.0)
    assert o.build["optimization_level"] == 3
    assert o.build["shapes"] is None


def test_profile_shapes() -> None:
    o = parse("--onnx=m", "--minShapes=x:1x8", "--optShapes=x:2x8", "--maxShapes=x:4x8")
    assert o.build["shapes"] == {"x": [((1, 8), (2, 8), (4, 8))]}


def test_several_profiles_in_order() -> None:
    o = parse(
        "--onnx=m", "--profile=0", "--optShapes=x:1", "--profile=1", "--minShapes=x:2",
        "--maxShapes=x:9",
    )  # fmt: skip
    assert o.build["shapes"] == {"x": [((1,), (1,), (1,)), ((2,), (9,), (9,))]}


def test_run_shapes_build_where_no_profile_is_given() -> None:
    assert parse("--onnx=m", "--shapes=x:1x3").build["shapes"] == {"x": (1, 3)}
    o = parse("--onnx=m", "--shapes=x:2", "--optShapes=x:1")
    assert o.build["shapes"] == {"x": [((1,), (1,), (1,))]}
    assert o.shapes == {"x": (2,)}


def test_values_take_the_shape_given_for_them() -> None:
    assert parse("--onnx=m", "--values=a:1x2").build["values"] == {"a": [1, 2]}
    o = parse("--onnx=m", "--shapes=f:scalar,g:1x2", "--values=f:2.5,g:3x4")
    assert o.build["values"] == {"f": 2.5, "g": [[3, 4]]}
    with pytest.raises(ConfigError, match="2 numbers"):
        parse("--onnx=m", "--shapes=f:scalar", "--values=f:1x2")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_options_braze_lacks_are_refused_with_a_reason(name: str) -> None:
    with pytest.raises(ConfigError) as e:
        parse("--onnx=m", f"{name}=1")
    assert str(e.value) == f"{name}: {REFUSED[name]}"


@pytest.mark.parametrize("taken", TAKEN, ids=lambda t: t.name)
def test_options_without_effect_are_taken(taken: Taken) -> None:
    value = taken.values[0] if taken.values else "1"
    o = parse("--onnx=m", f"{taken.name}={value}" if taken.metavar else taken.name)
    assert o.given == ((taken.name, value if taken.metavar else ""),)
    if taken.values:
        with pytest.raises(ConfigError, match=f"^{taken.name}=made-up: "):
            parse("--onnx=m", f"{taken.name}=made-up")


def test_every_option_of_trtexec_is_known() -> None:
    known = {t.name for t in TAKEN} | set(REFUSED)
    known |= {s for a in make_parser("exec", execute)._actions for s in a.option_strings}
    assert not set(ALL_OF_TRTEXEC.split()) - known
    assert not {t.name for t in TAKEN} & set(REFUSED)


def test_a_mistyped_option_is_told_the_nearest() -> None:
    for typed, meant in (
        ("--minshapes=x:1", "--minShapes"),
        ("--saveengine=f", "--saveEngine"),
        ("--refitFromONNX", "--refitFromOnnx"),
        ("--fp61", "--fp16"),
    ):
        with pytest.raises(ConfigError, match=f"did you mean {meant}"):
            parse("--onnx=m", typed)
    with pytest.raises(ConfigError, match="lists the options"):
        parse("--onnx=m", "--zzzzzzzz")
    with pytest.raises(ConfigError, match=r"'--nonsense'; `braze exec --help` lists the options"):
        parse("--onnx=m", "--nonsense")  # which shares letters with --onnx and no more


def test_the_help_lists_every_target() -> None:
    assert ", ".join(target_names()) == TARGETS


def test_formats_are_checked() -> None:
    o = parse("--onnx=m", "--inputIOFormats=fp32:chw,int64:chw+hwc8", "--outputIOFormats=chw")
    assert [f.dtype for f in o.input_formats] == ["float32", "int64"]
    types = {"x": "float32", "i": "int64"}
    check_formats(o.input_formats, types, "--inputIOFormats")
    check_formats((IoFormat("", "chw"),), types, "--inputIOFormats")
    check_formats((), types, "--inputIOFormats")
    with pytest.raises(ConfigError, match="'i', which is int64"):
        check_formats((IoFormat("float32", "fp32:chw"),), types, "--inputIOFormats")
    with pytest.raises(ConfigError, match="3 entries"):
        check_formats((IoFormat("", "chw"),) * 3, types, "--inputIOFormats")
    for text in ("fp32:hwc", "fp99:chw", "fp32:", "chw:fp32"):
        with pytest.raises(ConfigError, match="--inputIOFormats"):
            parse("--onnx=m", f"--inputIOFormats={text}")


def test_threads_with_and_without_a_number() -> None:
    assert parse("--onnx=m", "--threads=3").build["threads"] == 3
    assert parse("--onnx=m", "--threads", "--verbose").build["threads"] == 0
    assert parse("--onnx=m").build["threads"] is None


def test_a_duration_for_ever() -> None:
    assert parse("--onnx=m", "--duration=-1").duration_s == float("inf")


def test_debug_tensors() -> None:
    o = parse("--onnx=m", "--markUnfusedTensorsAsDebugTensors", "--saveDebugTensors=m:m.raw")
    assert o.build["debug"] == ("*",)
    assert o.debug_files == {"m": "m.raw"}
    assert parse("--onnx=m", "--saveAllDebugTensors=raw,summary").debug_formats == (
        "raw", "summary",
    )  # fmt: skip
    with pytest.raises(ConfigError, match="none of summary"):
        parse("--onnx=m", "--saveAllDebugTensors=xml")


def test_precision() -> None:
    assert parse("--onnx=m").build["precision"] == "fp32"
    assert parse("--onnx=m", "--noTF32").build["precision"] == "fp32"
    assert parse("--onnx=m", "--precision=tf32").build["precision"] == "tf32"
    with pytest.raises(ConfigError, match="contradict"):
        parse("--onnx=m", "--precision=tf32", "--noTF32")


def test_weight_budgets() -> None:
    assert parse("--onnx=m").weight_budget is None
    for all_of_them in ("-1", "-2"):
        o = parse("--onnx=m", f"--weightStreamingBudget={all_of_them}")
        assert o.weight_budget is None
    for text, budget in (("30%", 300), ("0.5%", 5), ("1234", 1234), ("0", 0)):
        found = parse("--onnx=m", f"--weightStreamingBudget={text}").weight_budget
        assert found is not None and found.bytes_of(1000) == budget
    for text in ("-3", "101%", "-3%", "12.5", "x", ""):
        with pytest.raises(ConfigError, match="neither bytes, nor a part"):
            parse("--onnx=m", f"--weightStreamingBudget={text}")


def test_how_an_engine_runs_on_a_gpu() -> None:
    assert parse("--onnx=m").gpu == GpuOptions(transfers=True, graph=True, spin=True)
    o = parse("--onnx=m", "--noDataTransfers", "--noCudaGraph", "--useSpinWait")
    assert o.gpu == GpuOptions(transfers=False, graph=False, spin=True)
    assert o.gpu_names == ("--noDataTransfers", "--noCudaGraph", "--useSpinWait")
    with pytest.raises(ConfigError, match="contradict"):
        parse("--onnx=m", "--useSpinWait", "--noSpinWait")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--onnx=m", "--loadEngine=e"],
        ["--loadEngine=e", "--saveEngine=f"],
        ["--loadEngine=e", "--minShapes=x:1"],
        ["--onnx=m", "--madeUp"],
        ["--onnx=m", "--iterations=0"],
        ["--onnx=m", "--duration=-2"],
        ["--onnx=m", "--duration=nan"],
        ["--onnx=m", "--duration=inf"],
        ["--onnx=m", "--percentile=101"],
        ["--onnx=m", "--percentile=a"],
        ["--onnx=m", "--infStreams=0"],
        ["--onnx=m", "--profile=1", "--optShapes=x:1"],
        ["--onnx=m", "--profile=one", "--optShapes=x:1"],
        ["--onnx=m", "--optShapes=x:1", "--optShapes=x:2"],
        ["--onnx=m", "--optShapes=x:1", "--profile=1", "--optShapes=y:2"],
    ],
)
def test_contradictions_are_refused(arguments: list[str]) -> None:
    with pytest.raises((ConfigError, SystemExit)):  # argparse ends the process itself
        parse(*arguments)


@pytest.mark.parametrize(
    "option",
    ["--saveEngine=f", "--values=x:1", "--minShapes=x:1", "--profile=0", "--target=cpu",
     "--precision=fp32", "--builderOptimizationLevel=3", "--timingCacheFile=f", "--markDebug=x"],
)  # fmt: skip
def test_build_options_are_refused_where_an_engine_is_loaded(option: str) -> None:
    name = option.split("=", maxsplit=1)[0]
    with pytest.raises(ConfigError, match=f"^{name}: what belongs to a build .* --loadEngine"):
        parse("--loadEngine=e", option, "--shapes=x:2x8", "--threads=1")


def test_options_are_not_abbreviated() -> None:
    with pytest.raises(ConfigError, match="--iter"):
        parse("--onnx=m", "--iter=5")
