"""Wrong usage and broken files: exit codes, sentences, and advice in the words of the shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from braze.cli.main import main
from tests.meta.small_models import conv_net, model

STATIC = "--shapes=x:1x3x24x24"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(conv_net().SerializeToString())
    return path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The last line on standard error, progress lines aside."""
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e400", "", "x"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("compare", "--tolerance"), ("compare", "--seed"), ("compare", "--threads"),
        ("build", "--threads"), ("build", "--builderOptimizationLevel"), ("check", "--threads"),
        ("stages", "--builderOptimizationLevel"),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_are_wrong_usage(
    command: str, option: str, value: str, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(net), STATIC, f"{option}={value}"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"braze {command}: argument {option}: ")


OF_EXEC = (
    "--iterations", "--duration", "--warmUp", "--idleTime", "--infStreams", "--avgRuns",
    "--percentile", "--weightStreamingBudget", "--threads", "--builderOptimizationLevel",
)  # fmt: skip
# -1 is a number of trtexec's here: until it is stopped, and as much as fits
MAY_BE_MINUS_ONE = ("--duration", "--weightStreamingBudget")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        (option, value)
        for option in OF_EXEC
        for value in ("nan", "inf", "-1", "1" + "0" * 400, "x")
        if value != "-1" or option not in MAY_BE_MINUS_ONE
    ],
)
def test_numbers_of_exec(
    option: str, value: str, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exec", f"--onnx={net}", STATIC, f"{option}={value}"]) == 2
    assert option in said(capsys)


@pytest.mark.parametrize("spec", ["x:1x3x24x" + "9" * 5000, "x:1x3x24x3000000000", "x:1x3x²x24"])
def test_sizes_that_cannot_be(spec: str, net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(net), f"--shapes={spec}"]) == 2
    assert "--shapes" in said(capsys)


@pytest.mark.parametrize("option", ["--shapes", "--values", "--loadInputs", "--minShapes"])
def test_empty_lists_are_wrong_usage(
    option: str, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(net), f"{option}="]) == 2
    assert option in said(capsys)


@pytest.mark.parametrize("size", [17, 100_000, (1 << 31) - 1])
def test_shapes_that_an_engine_does_not_take_are_refused_before_there_are_arrays(
    size: int, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--minShapes=x:1x3x24x24", "--maxShapes=x:4x3x24x24", f"--shapes=x:{size}x3x24x24"]
    quick = ["--builderOptimizationLevel=0", "--threads=1"]
    for command in (["exec", f"--onnx={net}"], ["compare", str(net)]):
        assert main([*command, *given, *quick]) == 1
        assert str(size) in said(capsys)


def test_shapes_follow_the_input_files(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = net.with_name("x.npy")
    np.save(file, np.ones((3, 3, 24, 24), np.float32))
    given = ["--minShapes=x:1x3x24x24", "--maxShapes=x:4x3x24x24", f"--loadInputs=x:{file}"]
    assert main(["compare", str(net), *given, "--builderOptimizationLevel=0", "--threads=1"]) == 0
    assert f"Input x: 3x3x24x24 float32 ({file})" in capsys.readouterr().out


def test_a_profile_number_is_plain_digits(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(net), "--profile=²", "--optShapes=x:1x3x24x24"]) == 2
    assert "--profile=²" in said(capsys)


@pytest.mark.parametrize("command", ["build", "check", "compare", "stages", "inspect", "tune"])
def test_an_empty_name_is_wrong_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, ""]) == 2
    assert "is empty" in said(capsys)


@pytest.mark.parametrize("name", [".", "/", ".."])
def test_a_folder_is_no_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", name]) == 1
    assert "directory" in said(capsys)


def test_what_a_new_user_may_try(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = net.with_suffix(".engine")
    assert main(["build", str(net), STATIC, "--builderOptimizationLevel=0"]) == 0
    assert main(["build", str(engine)]) == 1  # in place of its model
    assert "is an engine, not an ONNX model; load it" in said(capsys)
    assert main(["exec", str(net)]) == 2
    assert f"name a model --onnx={net}, an engine --loadEngine={net}" in said(capsys)
    assert main(["biuld", str(net)]) == 2
    assert "did you mean build" in said(capsys)
    assert main(["shim"]) == 2
    assert said(capsys).startswith("braze shim: give a Python script")
    missing = net.with_name("no data")
    output = net.with_name("q.onnx")
    assert main(["quantize", str(net), f"--data={missing}", f"-o={output}"]) == 1
    assert "no data does not exist; give a .npy" in said(capsys)
    assert main(["build", str(net), "--shapes=x"]) == 2
    assert "write the name of an input, a colon and" in said(capsys)


def test_a_model_of_texts_and_one_without_ranks(
    net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    for kind, words in (
        (TensorProto.STRING, "type STRING, which braze does not run; cut off what reads it"),
        (TensorProto.FLOAT, "input 'x' has no declared rank: give their min, opt and max"),
    ):
        odd = model([node], {"x": (kind, ["n"])}, ["y"])
        if kind == TensorProto.FLOAT:
            odd.graph.input[0].type.tensor_type.ClearField("shape")
        net.write_bytes(odd.SerializeToString())
        assert main(["check", str(net)]) == 1
        out = capsys.readouterr().out
        assert words in out and out.endswith("This model cannot be built: 1 problem\n")


def test_a_device_is_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "/dev/zero"]) == 1  # which would be read without an end
    assert "device" in said(capsys)


def test_an_engine_never_replaces_its_model(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = net.read_bytes()
    link = net.with_name("link.onnx")
    link.symlink_to(net)
    assert main(["build", str(net), STATIC, f"--output={link}"]) == 2
    assert main(["exec", f"--onnx={net}", STATIC, f"--saveEngine={net}"]) == 2
    assert "overwritten" in said(capsys)
    assert net.read_bytes() == before


def test_two_reports_in_one_file_are_refused(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = net.with_name("out.json")
    arguments = [f"--exportTimes={out}", f"--exportOutput={out}"]
    assert main(["exec", f"--onnx={net}", STATIC, *arguments]) == 2
    assert "named twice" in said(capsys)


@pytest.mark.parametrize("content", [None, b"", b"x", b"\x93NUMPY\x01\x00v\x00{", b"PK\x03\x04"])
@pytest.mark.parametrize("command", ["exec", "compare"])
def test_input_files_are_read_before_the_build(
    command: str, content: bytes | None, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = net.with_name("x.npy")
    if content is not None:
        file.write_bytes(content)
    where = [f"--onnx={net}"] if command == "exec" else [str(net)]
    assert main([command, *where, STATIC, f"--loadInputs=x:{file}"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"braze {command}: input 'x': {file} ")  # no progress before it
    assert err.count("\n") == 1 and "pickle" not in err
    assert ("cannot be read" if content is None else "is not a .npy file of numbers") in err


@pytest.mark.parametrize("content", [np.ones((1, 3, 24, 24)), np.zeros(2, object)])
def test_input_files_of_another_type(
    content: np.ndarray, net: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = net.with_name("x.npy")
    np.save(file, content)
    assert main(["compare", str(net), STATIC, f"--loadInputs=x:{file}"]) == 1
    assert str(file) in said(capsys)


def test_an_internal_error_shows_where_it_was_raised(
    net: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("braze.compile", broken)
    assert main(["build", str(net), STATIC, "--verbose"]) == 1
    err = capsys.readouterr().err
    assert "in broken" in err and "ZeroDivisionError: a bug" in err and "NoneType" not in err
    assert err.splitlines()[-1].startswith("braze build: internal error")


def test_advice_is_in_the_words_of_the_command_line(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    unranked = model([relu], {"x": (TensorProto.FLOAT, [1])}, ["y"])
    unranked.graph.input[0].type.tensor_type.ClearField("shape")
    path = tmp_path / "unranked.onnx"
    path.write_bytes(unranked.SerializeToString())
    assert main(["build", str(path)]) == 1
    assert "--shapes=x:1x3x224x224" in said(capsys)
    assert main(["build", str(net), "--shapes=X:1"]) == 1
    assert "--shapes (or --minShapes" in said(capsys)
    assert main(["inspect", str(net)]) == 1
    assert "braze.build" not in said(capsys)
    smooth = {"mode": "linear", "antialias": 1}  # whose scales must be known
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], "r", **smooth)
    inputs = {"x": (TensorProto.FLOAT, [1, 1, 2, 6]), "s": (TensorProto.FLOAT, [4])}
    path = tmp_path / "resize.onnx"
    proto = model([node], inputs, ["y"])
    proto.opset_import[0].version = 18
    path.write_bytes(proto.SerializeToString())
    for command in ("build", "check"):
        assert main([command, str(path)]) == 1
        captured = capsys.readouterr()
        assert "--values=s:..." in captured.out + captured.err
        assert "values={" not in captured.out + captured.err


def test_several_problems_are_a_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [helper.make_node(f"Bogus{i}", ["x"], [f"y{i}"], f"n{i}", domain="d") for i in (1, 2)]
    proto = model(nodes, {"x": (TensorProto.FLOAT, [4])}, ["y1", "y2"])
    proto.opset_import.append(helper.make_opsetid("d", 1))
    path = tmp_path / "two.onnx"
    path.write_bytes(proto.SerializeToString())
    assert main(["build", str(path)]) == 1
    first, *problems = [
        line for line in capsys.readouterr().err.splitlines() if not line.startswith("braze: ")
    ]
    assert first == "braze build: 2 problems keep this model from being built:"
    assert [p.split()[1] for p in problems] == ["'n1'", "'n2'"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser reads everything")
def test_an_unreadable_input(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = net.with_name("x.bin")
    file.write_bytes(b"")
    file.chmod(0)
    assert main(["compare", str(net), STATIC, f"--loadInputs=x:{file}"]) == 1
    assert "ermission" in said(capsys)


def test_a_full_standard_output_is_one_sentence(net: Path) -> None:
    arguments = ["check", str(net), STATIC, "--verbose", "--builderOptimizationLevel=0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}  # it shows in the middle of the report
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "braze", *arguments], stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=120, env=environment, check=False,
        )  # fmt: skip
    assert process.returncode == 1
    assert process.stderr == "braze: standard output: No space left on device\n"
