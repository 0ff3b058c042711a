"""precision="int8": quantization as a step of a build."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import braze
from braze.cli.main import main
from braze.codegen.cpu.backend import cpu_backend
from braze.core.trace import Trace
from braze.quantization.options import Options
from braze.quantization.recipe import Recipe
from braze.quantization.table import write_table
from braze.quantization.thresholds import Method
from tests.quantized.networks import NETWORKS, data

FEEDS = [data("pictures", 4, seed) for seed in range(3)]
SHAPES = {"x": (3, 3, 18, 20)}
X = data("pictures", 3, 9)


def built(precision: object, calibration: object, **options: object) -> braze.Engine:
    return braze.build(
        NETWORKS["pictures"][0](), precision=precision, calibration=calibration, shapes=SHAPES,
        optimization_level=2, threads=1, **options,
    )  # type: ignore[arg-type]  # fmt: skip


def test_one_go_is_quantize_and_build() -> None:
    trace = Trace()
    recipe = Recipe(FEEDS, Options(method=Method("minmax"), exclude=("Gemm*",)))
    got = built("int8", recipe, trace=trace)({"x": X})["y"]
    model = braze.quantize(NETWORKS["pictures"][0](), FEEDS, method="minmax", exclude=["Gemm*"])
    same = braze.build(model.model, shapes=SHAPES, optimization_level=2, threads=1)
    assert np.array_equal(got, same({"x": X})["y"])
    found = {d["at"]: (d["runs"], d["why"]) for d in trace.decisions if d["kind"] == "precision"}
    assert ("float32", "not quantized: excluded") in found.values()
    assert ("int8", "quantized in the model") in found.values()
    assert "quantize" in trace.seconds


def test_data_caches_and_best(tmp_path: Path) -> None:
    float_ = built("fp32", None)({"x": X})["y"]
    outputs = {}
    write_table(braze.quantize(NETWORKS["pictures"][0](), FEEDS).table, tmp_path / "ranges.txt")
    np.save(tmp_path / "data.npy", np.concatenate(FEEDS))
    for name, precision, calibration in (
        ("feeds", "int8", FEEDS), ("array", "int8", np.concatenate(FEEDS)),
        ("cache", "int8", tmp_path / "ranges.txt"),
        ("file", {"int8", "fp16"}, tmp_path / "data.npy"),
        ("best", "best", iter(FEEDS)),
    ):  # fmt: skip
        outputs[name] = built(precision, calibration)({"x": X})["y"]
        error = np.linalg.norm(outputs[name] - float_) / np.linalg.norm(float_)
        assert 1e-3 < error < 0.05, name
    # "best" has what is not quantized in a half type where the processor multiplies that
    narrow = cpu_backend("", 1).preferences.halves
    assert bool(narrow) or np.array_equal(outputs["feeds"], outputs["best"])


def test_layers_that_are_overridden_are_not_quantized() -> None:
    trace = Trace()
    built("int8,fp16", FEEDS, layer_precisions={"Conv_0": "fp32", "Gemm*": "fp16"}, trace=trace)
    found = {d["at"]: d["why"] for d in trace.decisions if d["kind"] == "precision"}
    assert found["Conv_0"] == "not quantized: excluded"
    integers = [d for d in trace.decisions if d["kind"] == "precision" and d["runs"] == "int8"]
    assert len(integers) == 2  # a depthwise window is summed in floats, exactly
    assert "quantized in the model; no kernel: computed in float32" in found.values()
    assert any(at.startswith("MatMul") and why.startswith("asked for Gemm*")
               for at, why in found.items())  # fmt: skip


def test_what_is_missing_or_too_much_is_one_sentence() -> None:
    with pytest.raises(braze.ConfigError, match="precision=int8 needs data") as raised:
        built("int8", None)
    assert "--calibData" in raised.value.command
    with pytest.raises(braze.ConfigError, match="quantizes nothing"):
        built("fp16", FEEDS)
    with pytest.raises(braze.ConfigError, match="int8 and fp8"):
        built("int8,fp8", FEEDS)


def test_a_quantized_model_runs_as_it_is() -> None:
    model = braze.quantize(NETWORKS["pictures"][0](), FEEDS).model
    plain = braze.build(model, shapes=SHAPES, optimization_level=1, threads=1)
    trace = Trace()
    asked = braze.build(model, shapes=SHAPES, optimization_level=1, threads=1, precision="int8",
                        trace=trace)  # fmt: skip
    assert np.array_equal(plain({"x": X})["y"], asked({"x": X})["y"])
    assert any("quantized already" in d.get("text", "") for d in trace.decisions)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(NETWORKS["pictures"][0](), path)
    np.save(tmp_path / "data.npy", FEEDS[0])
    options = [str(path), "--shapes=x:1x3x18x20", "--builderOptimizationLevel=1"]
    target = tmp_path / "net.engine"
    assert main(["build", *options, "--int8", "--fp16", f"--calibData={tmp_path / 'data.npy'}",
                 "-o", str(target)]) == 0  # fmt: skip
    assert braze.load(target).plan.record["precision"] == "fp16,int8"
    assert main(["check", *options, "--precision=bf16", "--layerPrecisions=Gemm*:fp32"]) == 0
    assert "bfloat16" in capsys.readouterr().out
    for wrong in (["--precision=fp4"], ["--layerPrecisions=a"], ["--layerPrecisions=a:int8"],
                  ["--calib=a", "--calibData=b"], ["--int8"]):  # fmt: skip
        assert main(["build", *options, *wrong]) == 2
