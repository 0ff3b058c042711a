"""Polygraphy as it is published, through `braze shim`; skipped where it is not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
from tests.tensorrt.engines import model, scale_model

for needed in ("polygraphy", "onnxruntime", "onnx_graphsurgeon"):
    pytest.importorskip(needed)

PROFILE = ["--trt-min-shapes", "x:[1,4]", "--trt-opt-shapes", "x:[4,4]", "--trt-max-shapes",
           "x:[8,4]"]  # fmt: skip


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, and the command `polygraphy` as an installation has it."""
    folder = tmp_path_factory.mktemp("polygraphy")
    onnx.save(scale_model(), folder / "m.onnx")
    onnx.save(failing_model(), folder / "bad.onnx")
    command = folder / "bin" / "polygraphy"
    command.parent.mkdir()
    command.write_text(
        f"#!{sys.executable}\nimport sys\nfrom polygraphy.tools import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return folder


def failing_model() -> onnx.ModelProto:
    """Four nodes, one of which braze does not run."""
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], "abs"),
        helper.make_node("Sqrt", ["a"], ["b"], "sqrt"),
        helper.make_node("MaxRoiPool", ["x", "rois"], ["u"], "regions", pooled_shape=[2, 2]),
        helper.make_node("Relu", ["u"], ["r"], "relu"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4])
    outputs = [
        helper.make_tensor_value_info("b", TensorProto.FLOAT, [1, 2, 4, 4]),
        helper.make_tensor_value_info("r", TensorProto.FLOAT, [1, 2, 2, 2]),
    ]
    made = model(nodes, [x], outputs)
    rois = np.array([[0, 0, 0, 3, 3]], np.float32)
    made.graph.initializer.append(numpy_helper.from_array(rois, "rois"))
    return made


def polygraphy(here: Path, *arguments: str, code: int = 0) -> str:
    """What the command prints."""
    paths = [str(Path(braze.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "braze", "shim", "polygraphy", *arguments],
        capture_output=True, text=True, timeout=240, check=False, cwd=here,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(Path(p).absolute()) for p in paths if p),
            "PATH": f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}",
        },
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_run_compares_with_onnx_runtime(here: Path) -> None:
    out = polygraphy(here, "run", "m.onnx", "--trt", "--onnxrt", "--validate")
    assert "All outputs matched" in out
    out = polygraphy(
        here, "run", "m.onnx", "--trt", "--onnxrt", *PROFILE, "--input-shapes", "x:[5,4]",
        "--save-engine", "saved.engine", "--save-inputs", "in.json", "--save-outputs", "out.json",
    )  # fmt: skip
    assert "y [dtype=float32, shape=(5, 3)]" in out
    assert "All outputs matched" in out
    # and the engine on its own, with what was kept
    out = polygraphy(
        here, "run", "--trt", "saved.engine", "--model-type", "engine", "--load-inputs", "in.json",
        "--load-outputs", "out.json",
    )  # fmt: skip
    assert "All outputs matched" in out


def test_every_tensor_is_compared(here: Path) -> None:
    out = polygraphy(
        here, "run", "m.onnx", "--trt", "--onnxrt", "--trt-outputs", "mark", "all",
        "--onnx-outputs", "mark", "all",
    )  # fmt: skip
    for name in "may":
        assert f"Comparing Output: '{name}'" in out
    assert "All outputs matched" in out


def test_int8_by_calibration_and_tactics(here: Path) -> None:
    """By data that Polygraphy makes up; at level 1, where nothing is measured, tactics are told."""
    arguments = ["--int8", "--calibration-cache", "c.cache", "--builder-optimization-level", "1"]
    out = polygraphy(
        here, "run", "m.onnx", "--trt", "--onnxrt", *arguments, *PROFILE, "--atol", "0.05",
        "--save-tactics", "tactics.json",
    )  # fmt: skip
    # sums of 4 products of numbers below 3, each rounded to 1/127 of its range
    assert "All outputs matched" in out
    assert (here / "c.cache").read_text().startswith("TRT-")
    assert json.loads((here / "tactics.json").read_text())["replay"]


def test_inspect_model_and_engine(here: Path) -> None:
    out = polygraphy(here, "inspect", "model", "m.onnx", "--show", "layers")
    assert "mul [Op: MatMul]" in out
    out = polygraphy(
        here, "inspect", "model", "m.onnx", "--display-as=trt", "--show", "layers", "attrs"
    )
    assert "mul [Op: " in out and "y [dtype=float32, shape=(-1, 3)]" in out
    polygraphy(here, "convert", "m.onnx", "-o", "c.engine", *PROFILE, "--fp16")
    out = polygraphy(
        here, "inspect", "model", "c.engine", "--model-type", "engine", "--show", "layers", "attrs"
    )
    assert "Shapes: min=(1, 4), opt=(4, 4), max=(8, 4)" in out
    assert "Format: Row major linear FP32 format" in out
    x = np.ones((8, 4), np.float32)
    assert braze.load(here / "c.engine")({"x": x})["y"].shape == (8, 3)


def test_debug_reduce_finds_the_node_that_fails(here: Path) -> None:
    refusal = polygraphy(here, "run", "bad.onnx", "--trt", code=1)
    assert "MaxRoiPool" in refusal
    polygraphy(
        here, "debug", "reduce", "bad.onnx", "-o", "reduced.onnx", "--mode=bisect",
        "--fail-regex", "MaxRoiPool",
        "--check", "polygraphy", "run", "polygraphy_debug.onnx", "--trt",
    )  # fmt: skip
    assert "MaxRoiPool" in [n.op_type for n in onnx.load(here / "reduced.onnx").graph.node]
    assert len(onnx.load(here / "reduced.onnx").graph.node) < 4
