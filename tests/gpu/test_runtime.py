"""The runtime on a real GPU: memory, streams, tensors of other libraries, failures."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import braze
from braze.codegen.cuda.driver import Driver
from braze.runtime.native import LIBRARY_PATH
from tests.gpu.test_engines import DYNAMIC, conv_feed
from tests.meta import small_models

REPOSITORY = Path(__file__).resolve().parents[2]
# what a first run, or a context of a shape seen first, may leave in the driver's own pools
POOLS = 8 << 20


@pytest.fixture(scope="module")
def engine() -> braze.Engine:
    return braze.build(small_models.conv_net(), target="cuda", shapes=DYNAMIC, optimization_level=2)


def free_memory() -> int:
    """Of the whole device: another process that allocates would look like a leak here."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("counts memory of the device, which other workers use too: run it alone")
    gc.collect()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    gpu = Driver()
    gpu.synchronize()
    gpu.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value


def taken_memory() -> int:
    """Of the device, by this process, as the driver's own tool says (whole MiB); where it does not
    know processes, by all of them."""
    gc.collect()
    Driver().synchronize()
    if shutil.which("nvidia-smi"):
        ask = ["nvidia-smi", "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader"]
        said = subprocess.run(ask, capture_output=True, text=True, check=False).stdout
        for line in said.splitlines():
            pid, _, used = line.partition(", ")
            if pid == str(os.getpid()) and used.endswith(" MiB"):
                return int(used.removesuffix(" MiB")) << 20
    return -free_memory()


def test_memory_stays_flat_over_runs_and_shapes(engine: braze.Engine) -> None:
    feeds = [conv_feed(1 + i) for i in range(5)]
    inputs = {n: engine.device_empty((2, 3, 24, 24)) for n in ("x",)}
    for feed in feeds:
        engine(feed)
    engine(inputs)
    before = taken_memory()
    for i in range(500):
        engine(feeds[i % 5])
    for i in range(10_000):
        engine(inputs if i % 10 == 0 else feeds[1])
    assert taken_memory() - before <= POOLS


def test_contexts_give_their_memory_back(engine: braze.Engine) -> None:
    feed = conv_feed(3)
    engine.create_context().run(feed)
    before = taken_memory()
    for _ in range(100):
        engine.create_context(extra_streams=2).run(feed)
    assert taken_memory() - before <= POOLS


@pytest.mark.timeout(900)
def test_builds_give_their_memory_back() -> None:
    """200 builds, of which 5 time what they choose."""
    feed = conv_feed(2)
    for level in (2, 3):
        braze.build(
            small_models.conv_net(), target="cuda", shapes=DYNAMIC, optimization_level=level
        )(feed)
    before = taken_memory()
    for i in range(200):
        level = 3 if i % 40 == 0 else 2
        braze.build(
            small_models.conv_net(), target="cuda", shapes=DYNAMIC, optimization_level=level
        )(feed)
    assert taken_memory() - before <= POOLS


def test_all_ways_to_run_give_the_same_bits(engine: braze.Engine) -> None:
    feed = conv_feed(4)
    want = engine(feed)["y"]
    for extra in (0, 1, 4):
        context = engine.create_context(priority=extra, extra_streams=extra)
        x, y = engine.pinned_empty(feed["x"].shape), engine.pinned_empty(want.shape)
        x[:] = feed["x"]
        context.set_input_shape("x", x.shape)
        context.bind("x", x)
        context.bind("y", y)
        for graph in (True, False):
            for sleep in (True, False):
                y[:] = 0
                times = context.timed(graph=graph, sleep=sleep)
                np.testing.assert_array_equal(y, want)
                assert min(times.h2d, times.enqueue, times.compute, times.d2h) > 0
        y[:] = 0
        context.enqueue(0)
        context.synchronize()
        np.testing.assert_array_equal(y, want)


def test_weights_are_streamed(tmp_path: Path) -> None:
    """A chain of products with a quarter of the weights on the GPU gives the bits of all there."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((512, 512)).astype(np.float32) / 23 for i in range(12)}
    nodes = [
        small_models.helper.make_node("MatMul", [f"t{i}" if i else "x", f"w{i}"], [f"t{i + 1}"])
        for i in range(12)
    ]
    model = small_models.model(nodes, {"x": (1, ["n", 512])}, ["t12"], constants=weights)
    shapes = {"x": ((1, 512), (4, 512), (16, 512))}
    whole = braze.build(model, target="cuda", shapes=shapes, optimization_level=1)
    whole.save(tmp_path / "a.engine")
    few = braze.load(tmp_path / "a.engine", weight_budget=3 << 20)
    for rows in (4, 1, 16, 4):
        x = rng.standard_normal((rows, 512)).astype(np.float32)
        for _ in range(5):
            np.testing.assert_array_equal(few({"x": x})["t12"], whole({"x": x})["t12"])


def test_large_pageable_tensors(engine: braze.Engine) -> None:
    """More than the staging buffers hold, in and out."""
    nodes = [small_models.helper.make_node("Neg", ["x"], ["y"])]
    model = small_models.model(nodes, {"x": (1, [3, 5_000_001])}, ["y"])
    negate = braze.build(model, target="cuda", optimization_level=1)
    x = np.random.default_rng(0).standard_normal((3, 5_000_001)).astype(np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(negate({"x": x})["y"], -x)


def test_tensors_of_torch(engine: braze.Engine) -> None:
    torch: Any = pytest.importorskip("torch")
    feed = conv_feed(3)
    want = engine(feed)["y"]
    x = torch.from_numpy(feed["x"]).cuda()
    y = torch.from_dlpack(engine({"x": x})["y"])
    assert y.is_cuda
    np.testing.assert_array_equal(y.cpu().numpy(), want)
    with pytest.raises(braze.BindingError, match="row-major"):
        engine({"x": x.transpose(2, 3)})
    with pytest.raises(braze.DTypeError, match="float16"):
        engine({"x": x.half()})
    # work that fills the input on another stream is waited for
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        later = x + 1
        got = engine({"x": later})["y"].numpy()
    side.synchronize()
    np.testing.assert_array_equal(got, engine({"x": feed["x"] + 1})["y"])


def test_runs_on_a_stream_of_torch(engine: braze.Engine) -> None:
    torch: Any = pytest.importorskip("torch")
    feed = conv_feed(3)
    want = engine({"x": feed["x"] * 2})["y"]
    context = engine.create_context()
    x = torch.empty((3, 3, 24, 24), device="cuda")
    y = torch.zeros(want.shape, device="cuda")
    context.set_input_shape("x", tuple(x.shape))
    context.bind("x", x)
    context.bind("y", y)
    source = torch.from_numpy(feed["x"]).cuda()
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        torch.mul(source, 2, out=x)
        context.enqueue(side)
        doubled = y + y
    side.synchronize()
    np.testing.assert_array_equal(doubled.cpu().numpy(), want + want)
    context.synchronize()


def test_no_memory_left_is_one_error(engine: braze.Engine) -> None:
    with pytest.raises(braze.ExecutionError, match="no memory left"):
        engine.device_empty((1 << 40,))
    nodes = [small_models.helper.make_node("Neg", ["x"], ["y"])]
    model = small_models.model(nodes, {"x": (1, ["n", 1 << 20])}, ["y"])
    shapes = {"x": ((1, 1 << 20), (1, 1 << 20), (1 << 17, 1 << 20))}
    negate = braze.build(model, target="cuda", shapes=shapes, optimization_level=1)
    context = negate.create_context()
    context.set_input_shape("x", (1 << 17, 1 << 20))  # 512 GiB
    address = engine.pinned_empty((1,)).ctypes.data
    context.bind("x", address, 1 << 39)
    context.bind("y", address + (1 << 40), 1 << 39)
    with pytest.raises(braze.ExecutionError, match="no memory left"):
        context.execute()
    x = np.ones((2, 1 << 20), np.float32)
    np.testing.assert_array_equal(context.run({"x": x})["y"], -x)
    feed = conv_feed(2)
    assert np.isfinite(engine(feed)["y"]).all()


STICKY = """
import sys, braze
engine = braze.load(sys.argv[1])
rows, columns = 4096, 1 << 20
small, large = engine.device_empty((columns,)), engine.device_empty((rows, columns))
for _ in range(2):  # what the caller says of `small` is wrong
    try:
        context = engine.create_context()
        context.set_input_shape("x", (rows, columns))
        context.bind("x", small.address, large.nbytes)
        context.bind("y", large)
        context.execute()
    except braze.ExecutionError as e:
        assert "start a new process" in str(e), e
    else:
        raise SystemExit("no error")
print("alive")
"""


def test_a_lost_device_is_one_error_and_the_process_lives(tmp_path: Path) -> None:
    nodes = [small_models.helper.make_node("Neg", ["x"], ["y"])]
    model = small_models.model(nodes, {"x": (1, ["n", 1 << 20])}, ["y"])
    shapes = {"x": ((1, 1 << 20), (1, 1 << 20), (4096, 1 << 20))}
    negate = braze.build(model, target="cuda", shapes=shapes, optimization_level=1)
    negate.save(tmp_path / "a.engine")
    done = subprocess.run(
        [sys.executable, "-c", STICKY, str(tmp_path / "a.engine")],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "alive" in done.stdout, done.stderr


def test_a_program_in_cpp_runs_an_engine(engine: braze.Engine, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    program, include = tmp_path / "run_engine", REPOSITORY / "native" / "include"
    source = REPOSITORY / "examples" / "cpp" / "run_engine.cc"
    command = [compiler, "-std=c++17", f"-I{include}", source, LIBRARY_PATH, "-o", program]
    rpath = f"-Wl,-rpath,{LIBRARY_PATH.parent}"
    subprocess.run([*command, rpath], check=True, timeout=120)
    engine.save(tmp_path / "a.engine")
    ramp = (np.arange(2 * 3 * 24 * 24) % 256 / 256).astype(np.float32).reshape(2, 3, 24, 24)
    done = subprocess.run(
        [program, tmp_path / "a.engine", "x=2x3x24x24"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got = [float(v) for v in done.stdout.splitlines()[0].split("] ")[1].split()]
    np.testing.assert_allclose(got, engine({"x": ramp})["y"].reshape(-1)[:4], rtol=1e-5)


def test_an_engine_runs_without_the_compiler(engine: braze.Engine, tmp_path: Path) -> None:
    """In a process that can import neither torch nor triton."""
    engine.save(tmp_path / "a.engine")
    feed = conv_feed(2)
    np.save(tmp_path / "x.npy", feed["x"])
    program = (
        "import sys\n"
        "for name in ('torch', 'triton', 'llvmlite', 'onnx'): sys.modules[name] = None\n"
        "import numpy as np, braze\n"
        "y = braze.load(sys.argv[1])({'x': np.load(sys.argv[2])})['y']\n"
        "np.save(sys.argv[3], y)\n"
    )
    files = [str(tmp_path / name) for name in ("a.engine", "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", program, *files], check=True, cwd=REPOSITORY)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), engine(feed)["y"])
