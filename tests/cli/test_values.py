"""Bounds of contents on the command line: `--minShapes=n:1` of an input whose values are sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.cli.main import main
from braze.cli.shape_inputs import with_values
from tests.meta import small_models

QUICK = ["--iterations=1", "--duration=0", "--warmUp=0", "--threads=1"]
BUILD = ["--builderOptimizationLevel=1"]
INT, FLOAT = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
FIRST = ["--minShapes=x:1x1x4,n:1", "--optShapes=x:2x1x4,n:3", "--maxShapes=x:4x1x4,n:8"]
SECOND = ["--minShapes=x:5x1x4,n:2", "--optShapes=x:5x1x4,n:20", "--maxShapes=x:9x1x4,n:32"]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y: each row of x as many times as the scalar n says."""
    node = onnx.helper.make_node
    nodes = [node("Reshape", ["n", "one"], ["v"]), node("Concat", ["v", "one"], ["t"], axis=0),
             node("Expand", ["x", "t"], ["e"]), node("Abs", ["e"], ["y"])]  # fmt: skip
    inputs = {"x": (FLOAT, ["b", 1, 4]), "n": (INT, [])}
    path = tmp_path_factory.mktemp("values") / "n.onnx"
    onnx.save(small_models.model(nodes, inputs, ["y"], {"one": np.array([1])}), path)
    return path


@pytest.fixture(scope="module")
def engine(net: Path) -> Path:
    path = net.with_suffix(".engine")
    options = ["--profile=0", *FIRST, "--profile=1", *SECOND, f"-o{path}", *BUILD, "--threads=1"]
    assert main(["build", str(net), *options]) == 0
    return path


def fed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Of the log of a command, what inputs were given."""
    lines = [x.split("] ")[-1] for x in capsys.readouterr().out.splitlines()]
    found = [x.removeprefix("Input ").split(": ") for x in lines if x.startswith("Input ")]
    return {name: what for name, what in found if "(" in what}


@pytest.mark.parametrize(
    ("options", "shape", "values"),
    [
        ([], "2x3x4", 3),
        (["--useProfile=1"], "5x20x4", 20),
        (["--shapes=x:3x1x4,n:7"], "3x7x4", 7),
        (["--shapes=x:7x1x4"], "7x20x4", 20),
        (["--shapes=x:9x1x4,n:2"], "9x2x4", 2),
        (["--loadInputs=n:{n}"], "2x6x4", 6),
    ],
)
def test_runs_hold_what_the_profiles_allow(
    engine: Path, options: list[str], shape: str, values: int, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(engine.with_name("n.npy"), np.array(6))
    out = engine.with_name("out.json")
    given = [o.format(n=engine.with_name("n.npy")) for o in options]
    assert main(["exec", f"--loadEngine={engine}", f"--exportOutput={out}", *given, *QUICK]) == 0
    source = str(engine.with_name("n.npy")) if "{n}" in "".join(options) else f"values {values}"
    assert fed(capsys)["n"] == f"scalar int64 ({source})"
    assert json.loads(out.read_text())[0]["dimensions"] == shape


def test_values_outside_are_refused(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, words in (("n:9", "'n' holds 9 at element 0, outside 1..8"), ("n:-1", "holds -1")):
        assert main(["exec", f"--loadEngine={engine}", f"--shapes=x:2x1x4,{given}", *QUICK]) == 1
        assert words in capsys.readouterr().err
    np.save(engine.with_name("two.npy"), np.array([6, 6]))
    files = f"--loadInputs=n:{engine.with_name('two.npy')}"
    assert main(["exec", f"--loadEngine={engine}", files, *QUICK]) == 1
    assert "input 'n'" in capsys.readouterr().err


def test_reports_tell_the_bounds(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["exec", f"--loadEngine={engine}", "--dumpOptimizationProfile", "--skipInference"]
    assert main(run) == 0
    said = capsys.readouterr().out
    assert "Model input n (profile 1) (values): min=2, opt=20, max=32" in said
    assert "Input n: int64 scalar, its values within the profiles" in said
    assert main(["inspect", str(engine), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["Profiles"]
    assert first["values"] == {"min": {"n": [1]}, "opt": {"n": [3]}, "max": {"n": [8]}}
    assert second["values"]["max"] == {"n": [32]} and second["shapes"]["max"]["n"] == []
    assert main(["inspect", str(engine)]) == 0
    assert "n_0 2..20..32" in capsys.readouterr().out


def test_one_value_for_all_runs(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--shapes alone says what every run holds; the comparison is fed that."""
    for shapes, n in ((["--shapes=x:2x1x4,n:5"], "fixed"), (FIRST, "values 3")):
        assert main(["compare", str(net), *shapes, *BUILD, "--threads=1"]) == 0
        assert fed(capsys)["n"] == f"scalar int64 ({n})"
    wrong = ["--optShapes=x:2x1x4,n:5", "--shapes=n:6"]
    assert main(["exec", f"--onnx={net}", *wrong, *BUILD, *QUICK]) == 1
    assert "'n'" in capsys.readouterr().err
    assert main(["check", str(net), *FIRST]) == 0
    assert "This model can be built" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("dims", "kind", "given", "expected"),
    [
        ([2], INT, [((1, 2), (3, 4), (5, 6))], [([1, 2], [3, 4], [5, 6])]),
        ([2], INT, (-1, 3), [([-1, 3],) * 3]),
        ([1], INT, [((1,), (1,), (2,))] * 2, [([1], [1], [2])] * 2),
        ([1], INT, [((1,),) * 3], None),  # its shape
        ([2], INT, (2,), None),
        ([2], INT, [((1, 2, 3),) * 3], None),  # neither; the build says so
        (["k"], INT, (2, 3), None),
        ([2, 2], INT, (2, 2), None),
        ([2], FLOAT, (1, 2), None),
        ([], INT, (), None),
    ],
)
def test_shapes_that_are_values(dims: list[Any], kind: int, given: Any, expected: Any) -> None:
    node = onnx.helper.make_node("Abs", ["s"], ["y"])
    model = small_models.model([node], {"s": (kind, dims)}, ["y"])
    keywords = with_values(model, {"shapes": {"s": given}, "values": None})
    if expected is None:
        assert keywords == {"shapes": {"s": given}, "values": None}
    else:
        assert keywords == {"shapes": None, "values": {"s": expected}}
        shape = braze.compile(model, optimization_level=0, **keywords).inputs[0]
        assert shape.value or shape.content
