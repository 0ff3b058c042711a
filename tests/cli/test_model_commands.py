"""Commands that take a model: exec, build, check, compare, stages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import braze
from braze.cli import compare
from braze.cli.main import main
from braze.codegen.cpu.backend import CpuBackend
from braze.frontend.onnx.importer import import_model
from tests.meta.small_models import conv_net, model

STATIC = "--shapes=x:1x3x24x24"
QUICK = ["--iterations=2", "--duration=0", "--warmUp=0", "--builderOptimizationLevel=1"]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "net.onnx"
    path.write_bytes(conv_net().SerializeToString())
    return path


@pytest.fixture
def impossible(tmp_path: Path) -> Path:
    """A model with two ops that do not exist."""
    nodes = [
        helper.make_node("Bogus", ["x"], ["a"], "first", domain="test.domain"),
        helper.make_node("Relu", ["a"], ["b"], "fine"),
        helper.make_node("Fictitious", ["b"], ["y"], "second", domain="test.domain"),
    ]
    m = model(nodes, {"x": (TensorProto.FLOAT, [4])}, ["y"])
    m.opset_import.append(helper.make_opsetid("test.domain", 1))
    path = tmp_path / "impossible.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_exec_builds_saves_and_runs(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "net.engine"
    code = main([
        "exec", f"--onnx={net}", "--minShapes=x:1x3x24x24", "--optShapes=x:2x3x24x24",
        "--maxShapes=x:4x3x24x24", f"--saveEngine={target}", "--threads=1", *QUICK,
    ])  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "&&&& PASSED" in out
    assert "Engine built in" in out
    assert "Input x: float32 [n, 3, 24, 24]" in out  # sizes with names run together with x
    assert "Input x: 2x3x24x24" in out
    assert "compile" in err  # progress lines
    y = braze.load(target)({"x": np.ones((4, 3, 24, 24), np.float32)})["y"]
    assert y.sum(1) == pytest.approx([1] * 4, abs=1e-5)


def test_exec_without_shapes_for_a_dynamic_model(
    net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exec", f"--onnx={net}"]) == 0
    assert "&&&& PASSED" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 50, b"no model at all"])
@pytest.mark.parametrize("command", ["exec", "build", "check", "compare", "stages"])
def test_files_that_are_no_models(
    command: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.onnx"
    if content is not None:
        path.write_bytes(content)
    assert main([command, f"--onnx={path}" if command == "exec" else str(path)]) == 1
    err = capsys.readouterr().err
    assert "odd.onnx" in err
    assert "Traceback" not in err
    assert err.count("\n") == 1


def test_build_writes_beside_the_model(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(net.read_bytes())
    assert main(["build", str(copy), STATIC, "--builderOptimizationLevel=1"]) == 0
    assert (tmp_path / "copy.engine").exists()
    assert "Built" in capsys.readouterr().out


def test_check_lists_ops_and_kernels(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(net), STATIC]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^Conv +2  runs$", out, re.M)
    assert re.search(r"^ +\d+ float32 ", out, re.M)
    assert "can be built" in out


def test_check_works_without_shapes(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(net)]) == 0
    assert "This model can be built" in capsys.readouterr().out


def test_check_names_all_that_cannot_run(
    impossible: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(impossible)]) == 1
    out = capsys.readouterr().out
    for word in ("first", "Bogus", "second", "Fictitious"):
        assert word in out
    assert re.search(r"^test.domain.Bogus +1  1 cannot run$", out, re.M)


@pytest.mark.parametrize("against", ["reference", "onnxruntime"])
def test_compare_agrees(net: Path, against: str, capsys: pytest.CaptureFixture[str]) -> None:
    if against == "onnxruntime":
        pytest.importorskip("onnxruntime")
    arguments = [STATIC, f"--against={against}", "--layers", "--builderOptimizationLevel=1"]
    assert main(["compare", str(net), *arguments]) == 0
    out = capsys.readouterr().out
    assert "The engine agrees" in out
    assert re.search(r"\br1 1x16x24x24", out)
    assert "DIFFERS" not in out


def test_compare_finds_the_first_divergence(
    net: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # a reference whose second convolution is wrong stands in for an engine that is
    true = compare.evaluate

    def wrong(graph: object, feed: object, **options: bool) -> dict[str, np.ndarray]:
        out = true(graph, feed, **options)  # type: ignore[arg-type]
        return {n: a * 1.01 if n in ("c2", "s", "r2", "p", "f", "m", "y") else a
                for n, a in out.items()}  # fmt: skip

    monkeypatch.setattr(compare, "evaluate", wrong)
    assert main(["compare", str(net), STATIC, "--builderOptimizationLevel=1"]) == 1
    out = capsys.readouterr().out
    assert "First divergence: c2 (Conv node 'conv2')" in out


def test_compare_calls_nodes_without_names_as_builds_do(net: Path) -> None:
    model = onnx.load(net)
    for n in model.graph.node:
        n.name = ""
    at = next(i for i, n in enumerate(model.graph.node) if "c2" in n.output)
    assert compare.producer(model, "c2") == f"Conv node 'Conv_{at}'"
    imported = import_model(model, shapes={"x": (1, 3, 24, 24)})
    assert f"Conv_{at}" in {name for n in imported.nodes for name in n.origins}
    assert compare.producer(model, "no such tensor") == "no node"


def test_stages_prints_from_import_to_plan(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stages", str(net), STATIC, "--builderOptimizationLevel=1", "--decisions"]) == 0
    out = capsys.readouterr().out
    titles = re.findall(r"^=== (.+) ===$", out, re.M)
    assert titles[0].startswith("import")
    assert titles[-2:] == ["plan", "decisions"]
    assert "regions" in titles


def test_stages_lists_its_names_for_one_that_is_none(
    net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [STATIC, "--only=foo", "--builderOptimizationLevel=1"]
    assert main(["stages", str(net), *arguments]) == 2
    out, err = capsys.readouterr()
    assert re.search(r"--only=foo .*: import.*, regions, kernels, plan$", err.splitlines()[-1])
    assert out == ""


def test_stages_up_to_kernels_make_no_code(
    net: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuBackend, "compile", None)
    assert main(["stages", str(net), STATIC, "--only=kernels"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^=== (.+) ===$", out, re.M) == ["kernels"]
    assert re.search(r"^\d+ Conv.*: %\S+", out, re.M)


def test_stages_shows_the_code_of_one_kernel(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = ["stages", str(net), STATIC, "--target=cpu:x86-64", "--builderOptimizationLevel=1"]
    assert main([*plain, "--kernel=0", "--ir", "--asm"]) == 0
    out = capsys.readouterr().out
    titles = re.findall(r"^=== (\S+ \S+) .*===$", out, re.M)
    assert titles == ["kernel 0", "ir of", "asm of"]
    assert "define " in out and "ret void" in out
    assert re.search(r"^\s+retq$", out, re.M)
    assert main([*plain, "--kernel=Conv"]) == 0
    texts = capsys.readouterr().out
    assert re.search(r"^conv \(", texts, re.M) and "define " not in texts


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kernel=nothing"], "--kernel=nothing names no kernel"),
        (["--ir"], "name them: --kernel"),
        (["--kernel=0", "--asm", "--target=reference"], "has no listing 'asm'"),
    ],
)
def test_stages_refuses_listings_of_nothing(
    options: list[str], words: str, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stages", str(net), STATIC, *options]) == 2
    assert words in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--output="], 2, "the name of a file is empty"),
        (["--output=no/such/a.engine"], 1, "does not exist; create it"),
        (["--output=."], 1, "is a directory"),
        (["--output=/proc/a.engine"], 1, "/proc/a.engine could not be written: "),
        (["--threads=-1"], 2, "--threads: -1"),
        (["--timingCacheFile=no/such/times"], 1, "does not exist; create it"),
        (["--timingCacheFile=junk"], 1, "delete it"),
    ],
)
def test_build_refuses_what_it_cannot_write(
    options: list[str],
    code: int,
    words: str,
    net: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk").write_text("no cache")
    if not options[0].startswith("--output"):
        options = [*options, "--output=a.engine"]
    assert main(["build", str(net), STATIC, "--builderOptimizationLevel=1", *options]) == code
    err = capsys.readouterr().err
    assert words in err.splitlines()[-1]
    # before a build that takes long
    assert "braze: compile" not in err or "timingCacheFile" in options[0]
    assert ".tmp" not in err
    assert [p.name for p in tmp_path.iterdir()] == ["junk"]


def test_a_missing_model_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nope.onnx"
    for command in ("build", "check", "compare", "stages"):
        assert main([command, str(path)]) == 1
        err = capsys.readouterr().err
        assert err.count("nope.onnx") == 1
        assert "Errno" not in err


@pytest.mark.parametrize(("rows", "most"), [(200, 99), (50, 9), (7, 1)])
def test_compare_feeds_the_largest_integers_a_model_takes(
    rows: int, most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    node = helper.make_node("Gather", ["table", "tokens"], ["y"])
    gather = model([node], {"tokens": (TensorProto.INT64, [64])}, ["y"], {"table": table})
    onnx.save(gather, tmp_path / "gather.onnx")
    assert main(["compare", str(tmp_path / "gather.onnx"), "--builderOptimizationLevel=1"]) == 0
    assert f"Input tokens: 64 int64 (random 0..{most})" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("node", "constant", "shape"),
    [
        (helper.make_node("TopK", ["x", "c"], ["y", "i"]), [500], "1x512"),
        (helper.make_node("Reshape", ["x", "c"], ["y"]), [3, -1, 5], "1x120"),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[200]), None, "1x3x240"),
    ],
)
def test_sizes_that_nobody_gives_are_such_that_the_model_takes(
    node: onnx.NodeProto,
    constant: list[int] | None,
    shape: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sizes = ["b", 3, "n"] if constant is None else ["b", "n"]
    weights = {} if constant is None else {"c": np.array(constant, np.int64)}
    path = tmp_path / "net.onnx"
    onnx.save(model([node], {"x": (TensorProto.FLOAT, sizes)}, ["y"], weights), path)
    assert main(["compare", str(path), "--builderOptimizationLevel=1"]) == 0
    assert f"Input x: {shape} float32" in capsys.readouterr().out
    assert main(["exec", f"--onnx={path}", *QUICK]) == 0
    assert f"Input x: {shape} float32" in capsys.readouterr().out
    # and what is given stays: too small here
    small = shape.rsplit("x", 1)[0]
    assert main(["compare", str(path), f"--shapes=x:{small}x7"]) == 1
    assert main(["build", str(path), "--builderOptimizationLevel=1"]) == 0
    engine = f"--loadEngine={path.with_suffix('.engine')}"
    assert main(["exec", engine, f"--shapes=x:{small}x7", *QUICK[:3]]) == 1


def test_sizes_that_no_guess_fits_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Reshape", ["x", "c"], ["y"])
    weights = {"c": np.array([7919, -1], np.int64)}
    path = tmp_path / "net.onnx"
    onnx.save(model([node], {"x": (TensorProto.FLOAT, ["n"])}, ["y"], weights), path)
    assert main(["compare", str(path), "--builderOptimizationLevel=1"]) == 1
    assert "give those that the model takes as --shapes=x:1" in capsys.readouterr().err
    arguments = ["--shapes=x:15838", "--builderOptimizationLevel=1"]
    assert main(["compare", str(path), *arguments]) == 0


def test_integers_that_no_guess_fits_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Reshape", ["x", "to"], ["y"])
    inputs = {"x": (TensorProto.FLOAT, [6]), "to": (TensorProto.INT64, [2])}
    path = tmp_path / "net.onnx"
    onnx.save(model([node], inputs, ["y"]), path)
    assert main(["compare", str(path), "--builderOptimizationLevel=1"]) == 1
    assert "--loadInputs=to:FILE or --values=to:..." in capsys.readouterr().err
    arguments = ["--values=to:2x3", "--builderOptimizationLevel=1"]
    assert main(["compare", str(path), *arguments]) == 0


def test_compare_reads_bfloat16_as_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Tanh", ["x"], ["y"])
    onnx.save(model([node], {"x": (TensorProto.BFLOAT16, [64])}, ["y"]), tmp_path / "half.onnx")
    arguments = ["--builderOptimizationLevel=1", "--tolerance=0.01"]
    assert main(["compare", str(tmp_path / "half.onnx"), *arguments]) == 0
    assert "Input x: 64 bfloat16 (random)" in capsys.readouterr().out


def test_stages_picks_one(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [STATIC, "--only=regions", "--builderOptimizationLevel=1"]
    assert main(["stages", str(net), *arguments]) == 0
    assert re.findall(r"^=== (.+) ===$", capsys.readouterr().out, re.M) == ["regions"]


def test_values_specialise_an_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("Reshape", ["x", "to"], ["y"], "reshape")
    inputs = {"x": (TensorProto.FLOAT, [6]), "to": (TensorProto.INT64, [2])}
    path, out = tmp_path / "r.onnx", tmp_path / "out.json"
    onnx.save(model([node], inputs, ["y"]), path)
    arguments = [f"--onnx={path}", "--values=to:2x3", f"--exportOutput={out}", *QUICK]
    assert main(["exec", *arguments]) == 0, capsys.readouterr().err
    assert json.loads(out.read_text())[0]["dimensions"] == "2x3"


def test_compare_arrays_judges_shapes_and_special_values() -> None:
    def error(a: list[float], b: list[float]) -> float:
        return compare.compare_arrays("t", np.array(a), np.array(b)).error

    nan, inf = float("nan"), float("inf")
    assert error([1, nan, inf], [1, nan, inf]) == 0
    assert error([1, 2], [1, nan]) == inf
    assert error([1, nan], [1, 2]) == inf
    assert error([1, inf], [1, -inf]) == inf
    assert error([3, 4.5], [3, 4]) == pytest.approx(0.1)
    assert error([0, 0.5], [0, 0]) == 0.5
    assert compare.compare_arrays("t", np.ones(3), np.ones((3, 1))).error == inf
    assert compare.compare_arrays("t", np.ones(0), np.ones(0)).error == 0
