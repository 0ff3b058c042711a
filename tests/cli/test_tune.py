"""`braze tune`: the same model, shapes and options again, with tactics that are timed here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.cli.main import main
from braze.cli.tune import options_of
from braze.codegen.cuda.driver import find_card
from braze.engine.read import read_file
from braze.engine.write import write_file
from tests.meta import small_models

SHAPES = {"x": [((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8)), ((5, 3, 8, 8),) * 3]}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(small_models.conv_net(4, 8), path)
    return path


def built(model: Path, path: Path, **options: Any) -> Path:
    write_file(braze.compile(str(model), **options), path)
    return path


def test_an_engine_is_tuned_in_place(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = built(model, tmp_path / "a.engine", target="cpu:x86-64", optimization_level=1,
                 shapes=SHAPES)  # fmt: skip
    cache = tmp_path / "a.times"
    command = ["tune", str(path), f"--onnx={model}", f"--timingCacheFile={cache}"]
    assert main(command) == 0
    assert "Tuned" in capsys.readouterr().out
    plan = read_file(path)
    assert plan.record["optimization_level"] == 3 and cache.exists()
    ranges = [p.ranges for p in plan.profiles]
    assert ranges == [((1, 2, 4),), ((5, 5, 5),)]
    x = np.random.default_rng(0).standard_normal((3, 3, 8, 8)).astype(np.float32)
    want = braze.build(str(model), target="reference", shapes=SHAPES)({"x": x})["y"]
    np.testing.assert_allclose(braze.load(path)({"x": x})["y"], want, rtol=1e-5, atol=1e-6)


def test_a_model_with_inputs_of_other_ranks_is_another(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = built(model, tmp_path / "a.engine", optimization_level=0)
    before = path.read_bytes()
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    flat = small_models.model([node], {"x": (onnx.TensorProto.FLOAT, ["n"])}, ["y"])
    onnx.save(flat, tmp_path / "flat.onnx")
    assert main(["tune", str(path), f"--onnx={tmp_path / 'flat.onnx'}"]) == 2
    assert "give the model that the engine was built from" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_open_sizes_and_a_level_of_its_own(model: Path, tmp_path: Path) -> None:
    path = built(model, tmp_path / "a.engine", optimization_level=0)
    out = tmp_path / "b.engine"
    before = path.read_bytes()
    command = ["tune", str(path), f"--onnx={model}", f"-o{out}", "--builderOptimizationLevel=4"]
    assert main(command) == 0
    assert path.read_bytes() == before
    tuned = read_file(out)
    assert tuned.record["optimization_level"] == 4
    assert tuned.profiles[0].ranges == read_file(path).profiles[0].ranges


def test_options_are_those_of_the_engine(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Expand", ["x", "to"], ["e"]),
        onnx.helper.make_node("Neg", ["e"], ["f"]),
        onnx.helper.make_node("Exp", ["f"], ["y"]),
    ]
    inputs = {"x": (onnx.TensorProto.FLOAT, [1, 4]), "to": (onnx.TensorProto.INT64, [2])}
    model = small_models.model(nodes, inputs, ["y"])
    plan = braze.compile(
        model, values={"to": np.array([3, 4])}, precision="tf32", optimization_level=5
    )
    options = options_of(plan)
    np.testing.assert_array_equal(options.pop("values")["to"], [3, 4])
    assert options == {
        "target": "cpu", "precision": "tf32", "optimization_level": 5, "debug": (),
        "shapes": {"x": [((1, 4),) * 3], "to": [((2,),) * 3]},
    }  # fmt: skip


def test_what_is_refused(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = built(model, tmp_path / "a.engine", optimization_level=1)
    before = path.read_bytes()
    other = tmp_path / "other.onnx"
    node = onnx.helper.make_node("Neg", ["x"], ["z"])
    onnx.save(small_models.model([node], {"x": (1, ["n", 3, 8, 8])}, ["z"]), other)
    assert main(["tune", str(path), f"--onnx={other}"]) == 2
    assert "other outputs" in capsys.readouterr().err
    assert path.read_bytes() == before
    if find_card() is None:
        pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
        engine = built(model, tmp_path / "g.engine", target="cuda:sm_90", optimization_level=1)
        assert main(["tune", str(engine), f"--onnx={model}"]) == 1
        assert "needs an NVIDIA GPU" in capsys.readouterr().err


def test_bounds_of_contents_are_kept(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Expand", ["x", "to"], ["e"]),
             onnx.helper.make_node("Exp", ["e"], ["y"])]  # fmt: skip
    inputs = {"x": (onnx.TensorProto.FLOAT, [1, "n"]), "to": (onnx.TensorProto.INT64, [2])}
    model = tmp_path / "net.onnx"
    onnx.save(small_models.model(nodes, inputs, ["y"]), model)
    bounds = [([1, 1], [3, 1], [8, 1]), ([2, 1], [20, 1], [32, 1])]
    path = built(model, tmp_path / "a.engine", optimization_level=1, values={"to": bounds},
                 dims={"n": [(1, 2, 4), (5, 6, 7)]})  # fmt: skip
    assert main(["tune", str(path), f"--onnx={model}", f"-o{tmp_path / 'b.engine'}"]) == 0
    before, after = read_file(path), read_file(tmp_path / "b.engine")
    assert options_of(after)["values"]["to"] == bounds
    assert [p.ranges for p in after.profiles] == [p.ranges for p in before.profiles]
