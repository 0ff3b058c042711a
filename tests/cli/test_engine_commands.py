"""`braze exec --loadEngine` and `braze inspect` on an engine file: output, files, exit codes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from braze.cli.layers import own_times
from braze.cli.main import main
from braze.engine.steps import bodies_run
from braze.engine.write import write_file
from braze.runtime.engine import Engine
from tests.runtime.flow_plans import nested_plan
from tests.runtime.plans import chain_plan, chain_reference

LINE = r"^\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[I\] "
QUICK = ["--iterations=3", "--duration=0", "--warmUp=0"]


@pytest.fixture
def engine_file(tmp_path: Path) -> Path:
    """y = x + w + w + w with x [n, 8], n from 1 to 16 and 4 at best."""
    path = tmp_path / "chain.engine"
    write_file(chain_plan(), path)
    return path


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_exec_reports_and_passes(engine_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["exec", f"--loadEngine={engine_file}", "--percentile=50,99", *QUICK])
    out, err = capsys.readouterr()
    assert code == 0
    assert err == ""
    assert out.startswith("&&&& RUNNING TensorRT.trtexec [TensorRT v101300] [braze ")
    assert last_line(out).startswith("&&&& PASSED TensorRT.trtexec [TensorRT v101300] [braze ")
    assert "Input x: 4x8 float32 (random)" in out
    assert re.search(LINE + r"Throughput: [\d.e+]+ qps$", out, re.M)
    latency = LINE + (
        r"Latency: min = \S+ ms, max = \S+ ms, mean = \S+ ms, median = \S+ ms, "
        r"percentile\(50%\) = \S+ ms, percentile\(99%\) = \S+ ms$"
    )
    assert re.search(latency, out, re.M)


def test_exec_runs_the_shapes_and_inputs_given(engine_file: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    (tmp_path / "x.bin").write_bytes(x.tobytes())
    np.save(tmp_path / "x.npy", x)
    want = chain_reference(chain_plan(), x)
    for name in ("x.bin", "x.npy"):
        out = tmp_path / "out.json"
        code = main([
            "exec", f"--loadEngine={engine_file}", "--shapes=x:3x8",
            f"--loadInputs=x:{tmp_path / name}", f"--exportOutput={out}", *QUICK,
        ])  # fmt: skip
        assert code == 0
        (record,) = json.loads(out.read_text())
        assert (record["name"], record["dimensions"]) == ("y", "3x8")
        assert np.float32(record["values"]).tobytes() == want.tobytes()


def test_exec_exports_times_profile_and_layers(engine_file: Path, tmp_path: Path) -> None:
    files = {n: tmp_path / f"{n}.json" for n in ("Times", "Profile", "LayerInfo")}
    options = [f"--export{n}={p}" for n, p in files.items()]
    code = main([
        "exec", f"--loadEngine={engine_file}", "--profilingVerbosity=detailed", *options, *QUICK
    ])  # fmt: skip
    assert code == 0
    times = json.loads(files["Times"].read_text())
    assert len(times) == 3
    assert all(t["endComputeMs"] - t["startComputeMs"] == t["computeMs"] for t in times)
    count, *rows = json.loads(files["Profile"].read_text())
    assert count == {"count": 10}
    assert [r["name"] for r in rows] == ["add_0", "add_1", "add_2"]
    assert sum(r["percentage"] for r in rows) == pytest.approx(100)
    layers = json.loads(files["LayerInfo"].read_text())
    assert layers["Bindings"] == ["x", "y"]
    assert [x["Name"] for x in layers["Layers"]] == ["add_0", "add_1", "add_2"]
    assert layers["Layers"][0]["Origins"] == ["node_0"]
    assert layers["Layers"][0]["Inputs"][0] == {
        "Name": "x", "Location": "Device", "Dimensions": [-1, 8],
        "Format/Datatype": "Row major linear FP32 format",
    }  # fmt: skip
    assert set(layers) == {"Layers", "Bindings"}


def test_a_profile_counts_what_runs_in_a_body_once() -> None:
    engine = Engine.from_plan(nested_plan())
    plan, flags = engine.plan, np.array([True, False, True])
    x = np.ones(9, np.float32)
    feed = {"x": x, "flags": flags, "outer": np.array(3), "inner": np.array(20)}
    spent = engine.profile(feed)
    own = own_times(plan, spent)
    assert sum(own) == sum(spent[: len(plan.steps)]) < sum(spent)
    for step, part, whole in zip(plan.every_step, own, spent, strict=True):
        assert 0 <= part < whole if bodies_run(step) else part == whole


def test_exec_dumps(engine_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dumpOutput", "--dumpProfile", "--dumpLayerInfo", "--dumpOptimizationProfile"]
    assert main(["exec", f"--loadEngine={engine_file}", *options, *QUICK]) == 0
    out = capsys.readouterr().out
    assert "Model input x (profile 0): min=1x8, opt=4x8, max=16x8" in out
    assert "y: (4x8)" in out
    assert re.search(r"Layer$", out, re.M)
    assert re.search(LINE + "add_1$", out, re.M)


def test_exec_several_streams(engine_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", f"--loadEngine={engine_file}", "--infStreams=3", *QUICK]) == 0
    assert re.search(r"Timing trace has (9|\d\d+) queries", capsys.readouterr().out)


def test_exec_only_loads(engine_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", f"--loadEngine={engine_file}", "--skipInference"]) == 0
    assert "Throughput" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--shapes=x:17x8"], 1, "17"),
        (["--shapes=x:2x9"], 1, "9"),
        (["--shapes=z:1x8"], 1, "'z'"),
        (["--loadInputs=z:f.npy"], 1, "'z'"),
        (["--loadInputs=x:no_such_file.npy"], 1, "no_such_file.npy"),
        (["--useDLACore=0"], 2, "DLA"),
        (["--what"], 2, "--what"),
        (["--iteration=3"], 2, "did you mean --iterations?"),
        (["--useProfile=1"], 2, "has 1 profile, number 0; give one"),
    ],
)
def test_exec_failures_are_one_sentence(
    engine_file: Path,
    options: list[str],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["exec", f"--loadEngine={engine_file}", *options, *QUICK]) == code
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert err.startswith("braze exec: ")
    assert words in err
    assert "Traceback" not in err
    # wrong options are told before anything is begun
    assert out == "" or last_line(out).startswith("&&&& FAILED")


def test_wrong_raw_input_size(
    engine_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.bin").write_bytes(b"\0" * 7)
    code = main(["exec", f"--loadEngine={engine_file}", f"--loadInputs=x:{tmp_path / 'x.bin'}"])
    assert code == 1
    assert "7 bytes" in capsys.readouterr().err


def test_pickled_inputs_are_never_loaded(
    engine_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    code = main(["exec", f"--loadEngine={engine_file}", f"--loadInputs=x:{tmp_path / 'x.npy'}"])
    assert code == 1
    assert "x.npy" in capsys.readouterr().err


def test_inspect_text_and_json(engine_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(engine_file)]) == 0
    text = capsys.readouterr().out
    assert "add_1" in text
    assert "lower bound" in text
    assert main(["inspect", str(engine_file), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["Inputs"] == [{"name": "x", "dtype": "float32", "shape": "[n, 8]"}]
    assert data["Profiles"][0]["arena_bytes"] >= data["Profiles"][0]["lower_bound_bytes"] > 0


@pytest.mark.parametrize("command", ["inspect", "exec"])
@pytest.mark.parametrize("content", [None, b"", b"no engine", b"x" * 4096])
def test_files_that_are_no_engines(
    command: str, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.engine"
    if content is not None:
        path.write_bytes(content)
    arguments = ["inspect", str(path)] if command == "inspect" else ["exec", f"--loadEngine={path}"]
    assert main(arguments) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "other.engine" in err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["nonsense"]) == 2
    assert main(["inspect"]) == 2
    assert main(["inspect", "a", "--nonsense"]) == 2
    assert main(["inspect", "a", "--recrod"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("braze") for line in lines)
    assert "did you mean --record;" in lines[-1] and "did you mean" not in lines[-2]
    assert main(["--help"]) == 0
    assert main(["--version"]) == 0
    assert main(["exec", "--help"]) == 0
    assert "--minShapes" in capsys.readouterr().out


def test_running_an_engine_needs_no_compiler(engine_file: Path) -> None:
    code = f"""
import sys
from braze.cli.main import main
assert main(["exec", "--loadEngine={engine_file}", "--iterations=1", "--duration=0"]) == 0
heavy = {{"llvmlite", "onnx", "braze.codegen", "braze.frontend", "braze.ops", "rich"}}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr


def test_a_closed_pipe_is_no_traceback(engine_file: Path) -> None:
    for arguments in (["inspect", str(engine_file), "--json"], ["--help"]):
        reading, writing = os.pipe()
        os.close(reading)
        result = subprocess.run(
            [sys.executable, "-m", "braze", *arguments], stdout=writing, stderr=subprocess.PIPE,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        os.close(writing)
        assert (result.returncode, result.stderr) == (141, "")


START = """
import sys, braze.__main__
print("ready", flush=True)
sys.argv[1:] = ["build", "/dev/stdin", "--output", sys.argv[1]]
sys.exit(braze.__main__.main())
"""


@pytest.mark.parametrize("delay", [0.03, 0.1, 0.2, 0.4])
def test_an_interruption_while_it_starts_is_quiet(delay: float, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START, str(tmp_path / "a.engine")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(delay)  # then it imports, or waits for the model
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert err in ("", "braze build: interrupted\n")


@pytest.mark.parametrize("option", ["--exportOutput", "--exportTimes", "--exportLayerInfo"])
def test_reports_that_cannot_be_written_are_refused_before_the_run(
    option: str, engine_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for target, words in ((tmp_path / "no" / "x", "does not exist"), (tmp_path, "a directory")):
        assert main(["exec", f"--loadEngine={engine_file}", f"{option}={target}", *QUICK]) == 1
        out, err = capsys.readouterr()
        assert words in err
        assert ".tmp" not in err
        assert err.count("\n") == 1
        assert "Starting inference" not in out
    assert main(["exec", f"--loadEngine={engine_file}", f"{option}=", *QUICK]) == 2
