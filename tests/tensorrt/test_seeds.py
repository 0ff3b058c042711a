"""The listings of the documents that describe the system: as they stand, where those are there.

What they do is transcribed in `listings.py`, which runs everywhere.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.cli.main import main as braze_main
from braze.cli.trtexec import main as trtexec
from braze.weights import load_wts
from tests.tensorrt.engines import scale_model, scale_reference

SEEDS = Path(braze.__file__).parents[3] / "shared" / "reference" / "seeds"
# float32 sums of 4 products and a constant, of numbers below 10
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}


def between(start: str, end: str) -> str:
    """The text of the listings from `start` to before `end`."""
    for path in sorted(SEEDS.glob("*.txt")) if SEEDS.is_dir() else ():
        text = path.read_text("utf-8")
        if start in text:
            begin = text.index(start)
            return text[begin : text.index(end, begin)].rstrip() + "\n"
    pytest.skip("the documents are not here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model.onnx, for a batch of 2, to work in."""
    onnx.save(scale_model(2), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shimmed(script: str, *arguments: str) -> str:
    """What a script prints under `braze shim`."""
    Path("script.py").write_text(script)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "braze", "shim", "script.py", *arguments],
        capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(braze.__file__).parent.parent)},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


USE = """
import sys
engine = build_engine("model.onnx", "model.engine", precision=sys.argv[1])
assert engine is not None
"""
RUN = """
x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
np.save("y.npy", inference(load_engine("model.engine"), x))
"""


def test_the_python_listings(here: Path) -> None:
    """For every precision that they know, in one program."""
    build = between("import tensorrt as trt\n\ndef build_engine", "Command Line Conversion")
    run = between("import tensorrt as trt\nimport pycuda.driver", "C++ Inference Workflow")
    precisions = ("fp32", "fp16", "int8")
    uses = [
        USE.replace("sys.argv[1]", f"{p!r}") + RUN.replace("y.npy", f"{p}.npy") for p in precisions
    ]
    shimmed(build + run + "".join(uses))
    x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    for precision in precisions:
        np.testing.assert_allclose(np.load(f"{precision}.npy"), scale_reference(x), **CLOSE)


def test_their_transcription(here: Path) -> None:
    source = Path(__file__).with_name("listings.py").read_text("utf-8")
    shimmed(source + USE + RUN, "fp32")
    x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    np.testing.assert_allclose(np.load("y.npy"), scale_reference(x), **CLOSE)


class Parameter:
    """As much of a tensor of torch as the listing uses."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def cpu(self) -> Parameter:
        return self

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.array


class Model:
    """A model with weights."""

    def state_dict(self) -> dict[str, Parameter]:
        rng = np.random.default_rng(0)
        shapes = {"conv.weight": (2, 3, 3), "conv.bias": (2,), "scale": (1,)}
        return {n: Parameter(rng.standard_normal(s).astype(np.float32)) for n, s in shapes.items()}


def test_the_weights_listing(here: Path) -> None:
    source = between("import torch\nimport struct\n\ndef save_weights", "\n2. Build engine")
    names: dict[str, Any] = {}
    exec(source.replace("import torch\n", ""), names)
    names["save_weights"](Model(), "model.wts")
    got = load_wts("model.wts")
    assert list(got) == list(Model().state_dict())
    for name, parameter in Model().state_dict().items():
        np.testing.assert_array_equal(got[name], parameter.numpy().ravel())


@pytest.mark.parametrize("command_line", [trtexec, lambda a: braze_main(["exec", *a])])
def test_the_commands(command_line: Callable[[list[str]], int], here: Path) -> None:
    made = scale_model()
    made.graph.node[0].input[0] = made.graph.input[0].name = "input"
    text = between("# Static batch size", "Inference Implementation")
    commands = [
        line for line in text.replace("\\\n", " ").splitlines() if line.startswith("trtexec ")
    ]
    assert len(commands) == 2
    for command in commands:
        # the model of the document takes images; that of this test takes rows of 4
        arguments = shlex.split(command.replace("x3x224x224", "x4"))[1:]
        onnx.save(made, "model.onnx")
        assert command_line([*arguments, "--iterations=1", "--duration=0"]) == 0
        built = braze.load(arguments[-2].partition("=")[2])
        x = np.ones((16 if "dynamic" in command else 1, 4), np.float32)
        # --fp16: factors and results of 11 bits, of numbers below 4
        np.testing.assert_allclose(built({"input": x})["y"], scale_reference(x), atol=4e-3)
