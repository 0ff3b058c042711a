"""`braze exec` as trtexec: its log, its exit codes, its files, and the example commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import braze
from braze.cli.exec_options import Accuracy
from braze.cli.exec_outputs import loss
from braze.cli.main import main as braze_main
from braze.cli.trtexec import main
from tests.tensorrt.engines import scale_model, scale_reference

QUICK = ["--iterations=3", "--duration=0", "--warmUp=0"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model.onnx, whose input is called input, to work in."""
    made = scale_model()
    made.graph.node[0].input[0] = made.graph.input[0].name = "input"
    onnx.save(made, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_commands(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = ["--onnx=model.onnx", "--saveEngine=model.engine", "--fp16", *QUICK]
    assert main([*build, "--shapes=input:1x4"]) == 0
    dynamic = [
        "--onnx=model.onnx", "--minShapes=input:1x4", "--optShapes=input:8x4",
        "--maxShapes=input:16x4", "--saveEngine=model_dynamic.engine", "--fp16", *QUICK,
    ]  # fmt: skip
    assert main(dynamic) == 0
    assert (here / "model.engine").exists() and (here / "model_dynamic.engine").exists()
    out = capsys.readouterr().out
    assert "[I] Precision: FP32+FP16" in out
    assert "[I] Input build shape (profile 0): input=1x4+8x4+16x4" in out
    assert main(["--loadEngine=model_dynamic.engine", "--shapes=input:3x4", "--fp16", *QUICK]) == 0


def test_the_log_has_trtexecs_form(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--onnx=model.onnx", "--shapes=input:2x4", "--avgRuns=2", *QUICK]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    about = r"TensorRT\.trtexec \[TensorRT v101300\] \[braze [\d.]+\] # .*--onnx=model\.onnx.*"
    assert re.fullmatch(f"&&&& RUNNING {about}", first)
    assert re.fullmatch(f"&&&& PASSED {about}", last)
    stamp = re.compile(r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[IWVE]\] ?")
    assert all(stamp.match(line) for line in lines)
    texts = [stamp.sub("", line) for line in lines]
    titles = [t for t in texts if t.startswith("===")]
    assert titles == [f"=== {t} ===" for t in (
        "Model Options", "Build Options", "System Options", "Inference Options",
        "Reporting Options", "Device Information", "Trace details", "Performance summary",
    )]  # fmt: skip
    numbers = r"min = \S+ ms, max = \S+ ms, mean = \S+ ms, median = \S+ ms, "
    numbers += r"percentile\(90%\) = \S+ ms, percentile\(95%\) = \S+ ms, percentile\(99%\) = \S+ ms"
    for wanted in (
        "Model: model.onnx", "Precision: FP32", "Iterations: 3", r"Duration: 0s \(\+ 0ms warm up\)",
        "Percentiles: 90,95,99", "Selected Device ID: 0", r"TensorRT version: 10\.13\.0",
        r"Finished parsing network model\. Parse time: \S+", r"Engine built in \S+ sec\.",
        r"Created engine with size: \S+ MiB", "Starting inference",
        r"Warmup completed \d+ queries over 0 ms", r"Timing trace has \d+ queries over \S+ s",
        "Trace averages of 2 runs:",
        r"Average on 2 runs - GPU latency: \S+ ms - Host latency: \S+ ms \(enqueue \S+ ms\)",
        r"Throughput: \S+ qps", f"Latency: {numbers}", f"Enqueue Time: {numbers}",
        f"H2D Latency: {numbers}", f"GPU Compute Time: {numbers}", f"D2H Latency: {numbers}",
        r"Total Host Walltime: \S+ s", r"Total GPU Compute Time: \S+ s",
    ):  # fmt: skip
        assert any(re.fullmatch(wanted, t) for t in texts), wanted


def test_exports(here: Path) -> None:
    files = {n: here / f"{n}.json" for n in ("Times", "Profile", "LayerInfo", "Output")}
    x = np.random.default_rng(3).standard_normal((2, 4)).astype(np.float32)
    x.tofile(here / "x.bin")
    assert main([
        "--onnx=model.onnx", "--shapes=input:2x4", "--loadInputs=input:x.bin",
        "--profilingVerbosity=detailed", *(f"--export{n}={p}" for n, p in files.items()), *QUICK,
    ]) == 0  # fmt: skip
    read = {n: json.loads(p.read_text()) for n, p in files.items()}
    assert set(read["Times"][0]) == {
        "startEnqMs", "endEnqMs", "startH2dMs", "endH2dMs", "startComputeMs", "endComputeMs",
        "startD2hMs", "endD2hMs", "h2dMs", "computeMs", "d2hMs", "latencyMs",
    }  # fmt: skip
    assert read["Profile"][0] == {"count": 10}
    assert set(read["Profile"][1]) == {"name", "timeMs", "averageMs", "medianMs", "percentage"}
    assert set(read["LayerInfo"]) == {"Layers", "Bindings"}
    assert read["LayerInfo"]["Bindings"] == ["input", "y"]
    (output,) = read["Output"]
    assert output["name"] == "y" and output["dimensions"] == "2x3"
    # float32 sums of five numbers below 10
    np.testing.assert_allclose(
        np.float32(output["values"]).reshape(2, 3), scale_reference(x), rtol=1e-5, atol=1e-5
    )


def test_layers_are_names_unless_detailed(here: Path) -> None:
    build = ["--onnx=model.onnx", "--shapes=input:2x4", "--skipInference", "--exportLayerInfo=l"]
    assert main(build) == 0
    assert all(isinstance(x, str) for x in json.loads((here / "l").read_text())["Layers"])
    assert main([*build, "--profilingVerbosity=none"]) == 0
    assert json.loads((here / "l").read_text())["Layers"] == ["0"]


def test_exit_codes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--onnx=model.onnx", "--made-up"]) == 1
    assert capsys.readouterr().out.startswith("&&&& FAILED TensorRT.trtexec")
    assert main(["--onnx=none.onnx"]) == 1
    assert main([]) == 0  # prints the help
    assert braze_main(["exec", "--onnx=model.onnx", "--made-up"]) == 2
    capsys.readouterr()
    # numbers out of range are told by the parser, before anything has begun
    assert main(["--onnx=model.onnx", "--iterations=-5"]) == 1
    assert braze_main(["exec", "--onnx=model.onnx", "--iterations=-5"]) == 2
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("&&&& FAILED TensorRT.trtexec") and first.endswith("--iterations=-5")
    assert second.endswith("# braze exec --onnx=model.onnx --iterations=-5")


def test_python_m_braze_tensorrt(here: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "braze.tensorrt", "--onnx=model.onnx", "--shapes=input:1x4",
         "--builderOptimizationLevel=1", *QUICK],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(braze.__file__).parent.parent)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "&&&& PASSED TensorRT.trtexec" in result.stdout


@pytest.mark.parametrize("columns", [62, 80, 200])
def test_the_help_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(os.environ, "COLUMNS", str(columns))
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= columns
    for group in ("model and engine:", "inference:", "report:", "refused, with the reason:"):
        assert group in out


def test_outputs_against_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.ones((2, 4), np.float32)
    np.save(here / "x.npy", x)
    np.save(here / "y.npy", scale_reference(x).astype(np.float32))
    run = ["--onnx=model.onnx", "--shapes=input:2x4", "--loadInputs=input:x.npy", *QUICK]
    assert main([*run, "--loadRefOutputs=y:y.npy"]) == 0
    assert "Accuracy of output y: l1 loss = " in capsys.readouterr().out
    np.save(here / "y.npy", scale_reference(x).astype(np.float32) + 1)
    assert main([*run, "--loadRefOutputs=y:y.npy", "--accuracyAlgorithm=lInf"]) == 1
    assert "differ from --loadRefOutputs" in capsys.readouterr().err
    assert main([*run, "--loadRefOutputs=z:y.npy"]) == 1


def test_losses() -> None:
    a, b = np.float32([1, 2, 3, 4]), np.float32([1, 2, 3, 6])

    def of(algorithm: str) -> float:
        return loss(Accuracy(algorithm=algorithm), a, b)

    assert of("l0") == 0.25
    assert of("l1") == 0.5
    assert of("l2") == 1.0
    assert of("lInf") == 2.0
    # 1 - 38 / sqrt(30 * 50)
    assert of("cos") == pytest.approx(1 - 38 / 1500**0.5)
    assert loss(Accuracy(algorithm="cos"), a, a) == pytest.approx(0, abs=1e-12)


def test_raw_bindings_and_debug_tensors(here: Path) -> None:
    assert main([
        "--onnx=model.onnx", "--shapes=input:2x4", "--builderOptimizationLevel=0",
        "--markDebug=m", "--saveDebugTensors=m:m.raw", "--saveAllDebugTensors=numpy,raw,summary",
        "--dumpRawBindingsToFile", *QUICK,
    ]) == 0  # fmt: skip
    x = np.fromfile(here / "input.input.2.4.Float.raw", np.float32).reshape(2, 4)
    y = np.fromfile(here / "y.output.2.3.Float.raw", np.float32).reshape(2, 3)
    m = np.fromfile(here / "m.raw", np.float32).reshape(2, 3)
    np.testing.assert_array_equal(np.load(here / "m.npy"), m)
    np.testing.assert_array_equal(np.maximum(m + 1, 0), y)
    np.testing.assert_allclose(y, scale_reference(x), rtol=1e-5, atol=1e-5)


def test_profiles_loading_and_versions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([
        "--onnx=model.onnx", "--profile=0", "--optShapes=input:2x4", "--profile=1",
        "--minShapes=input:3x4", "--optShapes=input:4x4", "--maxShapes=input:5x4",
        "--saveEngine=e", "--skipInference", "--dumpOptimizationProfile",
    ]) == 0  # fmt: skip
    assert "Model input input (profile 1): min=3x4, opt=4x4, max=5x4" in capsys.readouterr().out
    assert main(["--loadEngine=e", "--useProfile=1", *QUICK]) == 0
    assert "Input input: 4x4" in capsys.readouterr().out
    assert main(["--loadEngine=e", "--timeDeserialize"]) == 0
    assert "average time = " in capsys.readouterr().out
    assert main(["--loadEngine=e", "--getPlanVersionOnly"]) == 0
    assert "Plan was created with braze version: " in capsys.readouterr().out
    assert main(["--onnx=model.onnx", "--getPlanVersionOnly"]) == 1


def test_a_timing_cache_that_misses(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = ["--onnx=model.onnx", "--shapes=input:2x4", "--skipInference", "--timingCacheFile=c"]
    assert main([*build, "--errorOnTimingCacheMiss"]) == 1
    assert "tactics were timed" in capsys.readouterr().err
    assert main([*build, "--errorOnTimingCacheMiss"]) == 0
    assert main([*build, "--inputIOFormats=int8:chw"]) == 1
    out, err = capsys.readouterr()
    assert "which is float32 in the model" in err and "\ntrtexec: --inputIO" in err
    assert out.count("&&&& FAILED") == 1 and "# trtexec --onnx=model.onnx" in out.splitlines()[-1]


def test_inputs_and_outputs_of_other_types(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    formats = ["--inputIOFormats=fp16:chw", "--outputIOFormats=fp16:chw"]
    build = ["--onnx=model.onnx", "--minShapes=input:1x4", "--optShapes=input:2x4"]
    build += ["--maxShapes=input:4x4", "--saveEngine=e"]
    for more in ([], ["--refit"], ["--fp16"]):
        assert main([*build, *formats, *more, "--skipInference"]) == 0
        engine = braze.Engine.load("e")
        kinds = {str(b.dtype) for b in (*engine.plan.inputs, *engine.plan.outputs)}
        assert kinds == {"float16"}
        x = np.linspace(-2, 2, 12, dtype=np.float16).reshape(3, 4)
        (y,) = engine({"input": x}).values()
        wanted = scale_reference(x.astype(np.float32))
        if more == ["--fp16"]:  # products of halves: 4 of at most 2 * 3, rounded to 11 bits each
            np.testing.assert_allclose(y, wanted, atol=4 * 6 * 2**-11)
        else:  # the model computes in float32, and the result is rounded once
            np.testing.assert_array_max_ulp(y, wanted.astype(np.float16), 1)
    assert main([*build, "--outputIOFormats=bf16:chw", *QUICK]) == 0
    engine = braze.Engine.load("e")
    assert str(engine.plan.inputs[0].dtype) == "float32"
    assert str(engine.plan.outputs[0].dtype) == "bfloat16"


def test_refits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = ["--onnx=model.onnx", "--minShapes=input:1x4", "--optShapes=input:2x4"]
    build += ["--maxShapes=input:4x4", "--saveEngine=e", "--skipInference", "--refit"]
    assert main([*build, "--builderOptimizationLevel=1", "--dumpRefit"]) == 0
    out = capsys.readouterr().out
    assert "[I] Refit: Enabled" in out
    assert "=== Refittable Weights ===" in out and "[I] w: 12 FLOAT" in out
    other = onnx.load("model.onnx")
    for tensor in other.graph.initializer:
        doubled = 2 * onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(doubled, tensor.name))
    onnx.save(other, "other.onnx")
    x = np.ones((3, 4), np.float32)
    np.save("x.npy", x)
    run = ["--loadInputs=input:x.npy", "--exportOutput=y.json", *QUICK]
    refit = ["--loadEngine=e", "--onnx=other.onnx", "--refitFromOnnx", "--timeRefit"]
    assert main([*refit, "--shapes=input:3x4", *run]) == 0
    assert "Engine refitted in " in capsys.readouterr().out
    got = np.float32(json.loads(Path("y.json").read_text())[0]["values"]).reshape(3, 3)
    # twice the weights and the constant is twice the result, exactly; sums of five numbers
    np.testing.assert_allclose(got, 2 * scale_reference(x), rtol=1e-5, atol=1e-5)
    assert main(["--onnx=model.onnx", "--shapes=input:2x4", "--saveEngine=p", *QUICK]) == 0
    assert main(["--loadEngine=p", "--onnx=other.onnx", "--refitFromOnnx", *QUICK]) == 1
    assert "build it with --refit" in capsys.readouterr().err
    assert main(["--onnx=model.onnx", "--refitFromOnnx", *QUICK]) == 1


def test_stripped_engines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = ["--onnx=model.onnx", "--shapes=input:3x4", "--builderOptimizationLevel=1", *QUICK]
    x = np.ones((3, 4), np.float32)
    np.save("x.npy", x)
    run = ["--loadInputs=input:x.npy", "--exportOutput=y.json"]
    assert main([*build, *run, "--stripWeights", "--saveEngine=s"]) == 0
    out = capsys.readouterr().out
    assert "[I] Strip weights: Enabled" in out and "[I] Refit: Disabled" in out
    assert "what is run here has those of the model" in out
    first = Path("y.json").read_text()
    assert main([*build, "--skipInference", "--saveEngine=w", "--refit"]) == 0
    assert Path("s").stat().st_size < Path("w").stat().st_size
    assert main(["--loadEngine=s", *QUICK]) == 1
    assert "--refitFromOnnx --onnx=FILE" in capsys.readouterr().err
    assert main(["--loadEngine=s", "--skipInference", "--dumpRefit"]) == 0
    out = capsys.readouterr().out
    assert "[I] w: 12 FLOAT" in out and "weights left out" in out
    refit = ["--loadEngine=s", "--onnx=model.onnx", "--refitFromOnnx"]
    assert main([*refit, *run, *QUICK]) == 0
    assert Path("y.json").read_text() == first
    assert main([*build, "--skipInference", "--stripAllWeights", "--saveEngine=a"]) == 0
    out = capsys.readouterr().out
    assert "[I] Strip weights: Enabled" in out and "[I] Refit: Enabled" in out
    other = onnx.load("model.onnx")
    other.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.ones((2, 2), np.float32), other.graph.initializer[0].name)
    )
    onnx.save(other, "small.onnx")
    assert main(["--loadEngine=a", "--onnx=small.onnx", "--refitFromOnnx", *QUICK]) == 1
    assert "12 numbers, and 4 are given" in capsys.readouterr().err
