"""Engines that call cuBLASLt and cuDNN, run by the native runtime."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.codegen.cuda.driver import find_card
from braze.codegen.cuda.libraries.cublaslt import find_cublaslt
from braze.codegen.cuda.libraries.cudnn import find_cudnn
from braze.core.dtypes import F16
from braze.core.errors import CompileError
from braze.engine.plan import Plan
from braze.engine.steps import LibraryCall
from braze.engine.write import write_file
from braze.runtime.engine import Engine
from tests.codegen.cuda.bounds import bound
from tests.codegen.cuda.forced import forced_plan, two_convolutions, two_products
from tests.gpu.elsewhere import hiding, outcome

CARD = find_card()
pytestmark = pytest.mark.skipif(
    CARD is None or CARD.capability != "sm_90", reason="the plans are for sm_90"
)
Array = np.ndarray[Any, Any]
ROWS = 100
FILES = {"cublaslt": ("libcublasLt.so.12", "libcublasLt.so.13"), "cudnn": ("libcudnn.so.9",)}
TURNS = 6  # of the algorithms that a library offers


def model_of(library: str) -> onnx.ModelProto:
    return two_convolutions() if library == "cudnn" else two_products()


def plan_of(library: str, turn: int) -> Plan:
    """A plan with a call of the library; skips the test without it."""
    here = find_cudnn() if library == "cudnn" else find_cublaslt()
    if here is None:
        pytest.skip(f"there is no {library} here")
    shapes = None if library == "cudnn" else {"x": (ROWS, 64)}
    try:
        plan = forced_plan(library, turn, model_of(library), shapes)
    except CompileError as e:  # not every engine of cuDNN makes a plan
        pytest.skip(str(e))
    assert any(isinstance(s, LibraryCall) and s.library == library for s in plan.steps)
    return plan


def feed_of(plan: Plan, seed: int = 0) -> dict[str, Array]:
    shape = (2, 64, 14, 13) if len(plan.inputs[0].shape) == 4 else (ROWS, 64)
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float16)}


def check(library: str, feed: dict[str, Array], got: Array) -> None:
    """Right by numpy, in float64 from the float16 weights."""
    shapes = {"x": feed["x"].shape}
    want = braze.build(model_of(library), target="reference:float64", shapes=shapes)(feed)["y"]
    # what lies between the two products is rounded: 160 or 96 values of size 0.4 times 0.1 each,
    # where the windows' are thrice that
    bound(F16, 64 * 9, inner=16.0).check(got, want)


@pytest.mark.parametrize("turn", range(TURNS))
@pytest.mark.parametrize("library", FILES)
def test_calls_are_right_in_every_way_to_run(library: str, turn: int, tmp_path: Path) -> None:
    """From the plan and from a file, in several contexts, with graphs and without: one result."""
    plan = plan_of(library, turn)
    feed = feed_of(plan)
    engine = Engine.from_plan(plan)
    first = engine(feed)["y"]
    check(library, feed, first)
    write_file(plan, tmp_path / "net.engine")
    loaded = Engine.load(tmp_path / "net.engine")
    np.testing.assert_array_equal(loaded(feed)["y"], first)
    context = loaded.create_context(extra_streams=1)
    context.set_input_shape("x", feed["x"].shape)
    out = np.zeros_like(first)
    context.bind("x", feed["x"])
    context.bind("y", out)
    for graph in (True, False):
        out[:] = 0
        context.timed(graph=graph)
        np.testing.assert_array_equal(out, first)


@pytest.mark.parametrize("library", FILES)
def test_threads_share_the_library(library: str) -> None:
    """The handle is one for all: each context's calls go to its own stream."""
    plan = plan_of(library, 0)
    engines = [Engine.from_plan(plan), Engine.from_plan(plan)]
    feeds = [feed_of(plan, i) for i in range(4)]
    want = [engines[0](f)["y"] for f in feeds]
    wrong: list[int] = []

    def work(i: int) -> None:
        context = engines[i % 2].create_context()
        for _ in range(50):
            if not np.array_equal(context.run(feeds[i])["y"], want[i]):
                wrong.append(i)

    team = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in team:
        t.start()
    for t in team:
        t.join()
    assert not wrong


@pytest.mark.parametrize("library", FILES)
def test_without_the_library(library: str, tmp_path: Path) -> None:
    """The engine says what is missing; others still run in that process."""
    plan = plan_of(library, 0)
    write_file(plan, tmp_path / "net.engine")
    write_file(forced_plan("matmul"), tmp_path / "own.engine")
    said = outcome(
        "import numpy as np\n"
        "raised(lambda: braze.load(sys.argv[1]))\n"
        "braze.load(sys.argv[2])({'x': np.ones((3, 64), np.float16)})\n",
        tmp_path / "net.engine",
        tmp_path / "own.engine",
        environment=hiding(tmp_path / "hidden", *FILES[library]),
        before="sys.modules['nvidia'] = None",
    )
    assert said.startswith("TargetError") and "is not found here" in said


def test_files_outlive_the_process_that_built(tmp_path: Path) -> None:
    """A plan of cuDNN runs where neither torch nor triton can be imported."""
    plan = plan_of("cudnn", 0)
    write_file(plan, tmp_path / "net.engine")
    feed = feed_of(plan)
    np.save(tmp_path / "x.npy", feed["x"])
    program = (
        "import sys\n"
        "for name in ('torch', 'triton', 'llvmlite', 'onnx'): sys.modules[name] = None\n"
        "import numpy as np, braze\n"
        "y = braze.load(sys.argv[1])({'x': np.load(sys.argv[2])})['y']\n"
        "np.save(sys.argv[3], y)\n"
    )
    files = [str(tmp_path / name) for name in ("net.engine", "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", program, *files], check=True, env=dict(os.environ))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), Engine.from_plan(plan)(feed)["y"])
