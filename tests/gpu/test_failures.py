"""What is missing or breaks is one typed error that says how to go on, and the process lives.

Failures that a process cannot take back, or that hide libraries from its loader, have a process of
their own. tests/gpu/test_runtime.py has a device that is lost and memory that ends in a run.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import braze
from braze.codegen.cuda.driver import Driver, find_card
from braze.codegen.cuda.timer import TimedElsewhere, Timer
from braze.codegen.cuda.triton.cubin import compile_cubin
from braze.codegen.cuda.triton.nests import TritonSource
from braze.core.dtypes import F32
from braze.engine.write import write_file
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, load
from braze.fusion.kernel import Code, CompiledKernel, GridLaunch
from tests.gpu.elsewhere import hiding, outcome, with_folder
from tests.gpu.test_engines import DYNAMIC, conv_feed
from tests.gpu.test_runtime import POOLS, free_memory
from tests.meta import small_models

BUILD = """
from tests.meta import small_models
shapes = {"x": ((1, 3, 24, 24), (2, 3, 24, 24), (5, 3, 24, 24))}
build = lambda: braze.build(small_models.conv_net(), target="cuda", shapes=shapes)
"""
LOAD_AND_BUILD = f"raised(lambda: braze.load(sys.argv[1]))\n{BUILD}\nraised(build)\n"
OLD_DRIVER = "int cuDriverGetVersion(int* version) { *version = 11040; return 0; }\n"
# all memory but so much is taken: less than a context, and less than an engine's weights
LITTLE, LESS = 64 << 20, 1 << 20


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an engine that runs here."""
    card = find_card()
    assert card is not None
    target = f"cuda:{card.capability}"
    plan = braze.compile(
        small_models.conv_net(), target=target, shapes=DYNAMIC, optimization_level=2
    )
    path = tmp_path_factory.mktemp("engines") / "net.engine"
    write_file(plan, path)
    return path


def both_say(said: str, load: str, build: str) -> None:
    """The errors of loading an engine and of building one."""
    lines = said.splitlines()
    assert [line.split()[0] for line in lines] == ["TargetError"] * 2, said
    assert load in lines[0] and build in lines[1], said


def test_no_driver(saved: Path, tmp_path: Path) -> None:
    hidden = hiding(tmp_path / "hidden", "libcuda.so.1")
    said = outcome(LOAD_AND_BUILD, saved, environment=hidden)
    both_say(said, "there is no driver for one here", "no NVIDIA driver here")


def test_no_gpu(saved: Path) -> None:
    said = outcome(LOAD_AND_BUILD, saved, environment={"CUDA_VISIBLE_DEVICES": ""})
    both_say(said, "there is none here", "finds no GPU")


def test_an_old_driver(saved: Path, tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source, library = tmp_path / "old.c", tmp_path / "libcuda.so.1"
    source.write_text(OLD_DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True, timeout=60)
    said = outcome(LOAD_AND_BUILD, saved, environment=with_folder(tmp_path))
    both_say(said, "is for CUDA 11.4", "is for CUDA 11.4")


def test_code_of_another_card(tmp_path: Path) -> None:
    card = find_card()
    assert card is not None
    other = "sm_80" if card.capability != "sm_80" else "sm_90"
    plan = braze.compile(small_models.conv_net(), target=f"cuda:{other}", shapes=DYNAMIC)
    write_file(plan, tmp_path / "other.engine")
    before = free_memory_if_alone()
    for _ in range(3):
        with pytest.raises(braze.TargetError, match=f"compute capability {other}"):
            braze.load(tmp_path / "other.engine")
    assert before - free_memory_if_alone() <= POOLS


def test_code_that_the_driver_refuses(saved: Path) -> None:
    plan = braze.load(saved).plan
    broken = replace(plan.modules[-1], code=b"no code of a GPU\0")
    before = free_memory_if_alone()
    for _ in range(3):
        with pytest.raises(braze.CompileError, match="refuses a piece of GPU code"):
            braze.Engine.from_plan(replace(plan, modules=(*plan.modules[:-1], broken)))
    assert before - free_memory_if_alone() <= POOLS
    feed = conv_feed(2)
    assert np.isfinite(braze.load(saved)(feed)["y"]).all()


def free_memory_if_alone() -> int:
    """0 where other workers use memory of the device too."""
    try:
        return free_memory()
    except pytest.skip.Exception:
        return 0


class Filled:
    """All memory of the device but `leave` bytes, while it is entered."""

    def __init__(self, leave: int) -> None:
        self._leave, self._held = leave, list[int]()
        self._driver = Driver()

    def __enter__(self) -> None:
        size = 1 << 38
        while size >= 1 << 20:
            if free_memory() - size < self._leave:
                size //= 2
                continue
            try:
                self._held.append(self._driver.allocate(size))
            except MemoryError:
                size //= 2

    def __exit__(self, *_: object) -> None:
        for address in self._held:
            self._driver.free(address)


def large_product() -> braze.Engine:
    """64 MiB of weights."""
    weights = {"w": np.ones((4096, 4096), np.float32)}
    nodes = [small_models.helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = small_models.model(nodes, {"x": (1, [1, 4096])}, ["y"], constants=weights)
    return braze.build(model, target="cuda", optimization_level=1)


def test_no_memory_for_an_engine(tmp_path: Path) -> None:
    engine, x = large_product(), np.ones((1, 4096), np.float32)
    engine({"x": x})
    engine.save(tmp_path / "net.engine")
    before = free_memory()
    with Filled(32 << 20):
        for _ in range(3):
            with pytest.raises(braze.ExecutionError, match="no memory left"):
                braze.load(tmp_path / "net.engine")
        np.testing.assert_array_equal(engine({"x": x})["y"], 4096.0)
    assert before - free_memory() <= POOLS
    np.testing.assert_array_equal(braze.load(tmp_path / "net.engine")({"x": x})["y"], 4096.0)


@pytest.mark.parametrize("leave", [LITTLE, 1 << 30], ids=["no context", "a context"])
def test_no_memory_while_building(leave: int) -> None:
    """A build that finds no room for what it times says so or does without, and the next works.

    A context of another process does not fit into the first, and fits into the second; what the
    kernels of the network need fits there too.
    """
    before = free_memory()
    with Filled(leave):
        said = outcome(
            f"{BUILD}\ntry:\n    build()\n    print('built')\n"
            "except braze.BrazeError as e:\n    print(type(e).__name__, e)\n"
        )
    print(said)
    assert said.split()[0] in ("built", "ExecutionError", "TargetError"), said
    assert before - free_memory() <= POOLS
    assert outcome(f"{BUILD}\nbuild()\nprint('built')\n") == "built\n"


def test_no_memory_for_what_is_measured() -> None:
    """The opt shapes of a network that is larger than the card."""
    nodes = [small_models.helper.make_node("Neg", ["x"], ["y"])]
    model = small_models.model(nodes, {"x": (1, ["n", 1 << 20])}, ["y"])
    most = (1 << 15, 1 << 20)  # 128 GiB in, and as much out
    shapes = {"x": ((1, 1 << 20), most, most)}
    before = free_memory()
    with pytest.raises(braze.ExecutionError, match="opt shapes do not fit"):
        braze.build(model, target="cuda", shapes=shapes, optimization_level=3)
    assert before - free_memory() <= POOLS
    built = braze.build(model, target="cuda", shapes=shapes, optimization_level=2)
    x = np.ones((2, 1 << 20), np.float32)
    np.testing.assert_array_equal(built({"x": x})["y"], -x)


SPEC = TensorSpec(F32, (4,))
NEST = LoopNest((4,), (), (), (Store(0, (axis(0),), load(0, (axis(0),), F32)),))
KERNEL = LoopKernel((SPEC,), (SPEC,), (NEST,))
BODIES = {
    "right": "    tl.store(in1, tl.load(in0))\n",
    "traps": "    tl.store(in1 + (tl.load(in0).to(tl.int64) * 0 + (1 << 42)), 1.0)\n",
    "hangs": (
        "    x = tl.load(in0, volatile=True)\n"
        "    while x < 2.0:\n"
        "        x = tl.load(in0, volatile=True)\n"
        "    tl.store(in1, x)\n"
    ),
}


def code(name: str) -> CompiledKernel:
    """A kernel that does what BODIES says."""
    card = find_card()
    assert card is not None
    text = f"@triton.jit\ndef nest0(in0, in1, status):\n{BODIES[name]}\n"
    pointers = (("in0", "float32"), ("in1", "float32"), ("status", "int32"))
    cubin = compile_cubin(
        TritonSource("nest0", text, pointers, (), 1, 1, 1), int(card.capability[3:])
    )
    launch = GridLaunch(1, cubin.threads, cubin.shared)
    return CompiledKernel(Code("cubin", cubin.entry, card.capability, cubin.code), (), launch)


@pytest.mark.parametrize("bad", ["traps", "hangs"])
def test_a_bad_candidate_costs_itself_alone(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What spoils the device or never ends is infinitely slow, and the next one is timed."""
    monkeypatch.setattr("braze.codegen.cuda.timer.TIME_LIMIT_S", 5.0)
    work = TimedElsewhere(Timer(), KERNEL, {})
    assert work.seconds(code("right"), float("inf")) < 1e-3
    assert work.seconds(code(bad), float("inf")) == float("inf")
    assert work.seconds(code("right"), float("inf")) < 1e-3
