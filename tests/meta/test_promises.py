"""Promises about the program as a whole: numbers, threads, interruptions, idleness."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import braze
from braze.core.errors import (
    BrazeError,
    EngineFormatError,
    ExecutionError,
    UnsupportedOpError,
)
from tests.meta.small_models import conv_net, model

Array = np.ndarray[Any, Any]
FLOAT, INT64, INT32, UINT8, INT8 = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.INT32,
    TensorProto.UINT8,
    TensorProto.INT8,
)


OneNode = Callable[..., braze.Engine]


@pytest.fixture(params=["cpu", "reference"])
def one_node(request: pytest.FixtureRequest) -> OneNode:
    """Makes an engine of one node, for each target."""

    def build(op: str, inputs: dict[str, tuple[int, list[int]]], **attributes: Any) -> braze.Engine:
        node = helper.make_node(op, list(inputs), ["y"], name="only", **attributes)
        return braze.build(model([node], inputs, ["y"]), target=request.param, threads=2)

    return build


# ---------------------------------------------------------------- integers, NaN, indexes


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("kind", [INT64, INT32])
def test_integers_wrap_and_stay_exact(one_node: OneNode, op: str, kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    top = np.iinfo(dtype).max
    a = np.array([top, top - 1, 2**24 + 1, -top, 3, (1 << 53) + 1 if kind == INT64 else 5], dtype)
    b = np.array([1, top, 3, 7, -top - 1, 1], dtype)
    with np.errstate(over="ignore"):
        want = {"Add": a + b, "Sub": a - b, "Mul": a * b}[op]
    got = one_node(op, {"a": (kind, [6]), "b": (kind, [6])})({"a": a, "b": b})["y"]
    assert got.dtype == want.dtype
    assert got.tolist() == want.tolist()


def test_integer_division_truncates(one_node: OneNode) -> None:
    a = np.array([7, -7, 7, -7], np.int32)
    b = np.array([2, 2, -2, -2], np.int32)
    got = one_node("Div", {"a": (INT32, [4]), "b": (INT32, [4])})({"a": a, "b": b})["y"]
    assert got.tolist() == [3, -3, -3, 3]


def test_bytes_wrap(one_node: OneNode) -> None:
    a, b = np.array([250, 3], np.uint8), np.array([10, 5], np.uint8)
    got = one_node("Add", {"a": (UINT8, [2]), "b": (UINT8, [2])})({"a": a, "b": b})["y"]
    assert got.tolist() == [4, 8]


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Abs"])
def test_nan_goes_through(one_node: OneNode, op: str) -> None:
    x = np.array([np.nan, 1.0] * 20, np.float32)
    got = one_node(op, {"x": (FLOAT, [40])})({"x": x})["y"]
    assert np.isnan(got).tolist() == [True, False] * 20


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_extremes_propagate_nan(one_node: OneNode, op: str) -> None:
    a = np.array([np.nan, 1, np.inf, -np.inf], np.float32)
    b = np.array([1, np.nan, 0, 0], np.float32)
    got = one_node(op, {"a": (FLOAT, [4]), "b": (FLOAT, [4])})({"a": a, "b": b})["y"]
    want = {"Max": np.maximum, "Min": np.minimum}[op](a, b)
    assert np.array_equal(got, want, equal_nan=True)


def test_reductions_keep_nan_and_infinity(one_node: OneNode) -> None:
    x = np.ones((4, 50), np.float32)
    x[1, 7], x[2, 0], x[3, 3] = np.nan, np.inf, -np.inf
    engine = one_node("ReduceMax", {"x": (FLOAT, [4, 50])}, axes=[1], keepdims=0)
    assert np.array_equal(engine({"x": x})["y"], x.max(1), equal_nan=True)


def test_infinity_minus_infinity(one_node: OneNode) -> None:
    a = np.array([np.inf, -np.inf, np.inf], np.float32)
    b = np.array([np.inf, -np.inf, -np.inf], np.float32)
    got = one_node("Sub", {"a": (FLOAT, [3]), "b": (FLOAT, [3])})({"a": a, "b": b})["y"]
    assert np.isnan(got[:2]).all()
    assert got[2] == np.inf


@pytest.mark.parametrize("index", [5, -6, 2**40, -(2**62)])
def test_an_index_out_of_range_raises(one_node: OneNode, index: int) -> None:
    engine = one_node("Gather", {"x": (FLOAT, [5, 3]), "i": (INT64, [2])}, axis=0)
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    good = engine({"x": x, "i": np.array([4, -5])})["y"]
    assert good.tolist() == x[[4, 0]].tolist()
    with pytest.raises(ExecutionError):
        engine({"x": x, "i": np.array([0, index])})
    # and the engine still works afterwards
    assert engine({"x": x, "i": np.array([4, -5])})["y"].tolist() == good.tolist()


# ---------------------------------------------------------------- right or refused


def test_all_unsupported_ops_are_listed_at_once() -> None:
    nodes = [
        helper.make_node("NoSuchOp", ["x"], ["a"], "first", domain="test.domain"),
        helper.make_node("Relu", ["a"], ["b"], "fine"),
        helper.make_node("AlsoMissing", ["b"], ["y"], "second", domain="test.domain"),
    ]
    m = model(nodes, {"x": (FLOAT, [4])}, ["y"])
    m.opset_import.append(helper.make_opsetid("test.domain", 1))
    with pytest.raises(UnsupportedOpError) as e:
        braze.build(m)
    for word in ("first", "NoSuchOp", "second", "AlsoMissing"):
        assert word in str(e.value)
    assert "fine" not in str(e.value)


def test_a_precision_that_does_not_exist_yet_is_refused() -> None:
    with pytest.raises(BrazeError, match="fp4"):
        braze.build(conv_net(), precision="fp4", shapes={"x": (1, 3, 24, 24)})


# ---------------------------------------------------------------- threads


def test_eight_threads_on_one_engine() -> None:
    shapes = {"x": ((1, 3, 24, 24), (2, 3, 24, 24), (4, 3, 24, 24))}
    engine = braze.build(conv_net(), shapes=shapes, threads=2)
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1 + k % 4, 3, 24, 24), np.float32)} for k in range(8)]
    want = [engine(f)["y"].tobytes() for f in feeds]
    wrong: list[str] = []

    def work(first: int) -> None:
        try:
            for k in range(200):
                i = (first + k) % len(feeds)
                if engine(feeds[i])["y"].tobytes() != want[i]:
                    wrong.append(f"feed {i} differs in thread {first}")
                    return
        except Exception as e:
            wrong.append(repr(e))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    cache = str(tmp_path / "timing.cache")
    files = []
    for k in range(3):
        engine = braze.build(
            conv_net(), shapes={"x": (1, 3, 24, 24)}, threads=2, timing_cache=cache
        )
        engine.save(tmp_path / f"{k}.engine")
        files.append((tmp_path / f"{k}.engine").read_bytes())
    # the first build measures and fills the cache; from then on nothing is left to chance
    assert files[1] == files[2]
    assert files[0] == files[1]


# ---------------------------------------------------------------- interruptions and damage

# tests that run in the background of a script inherit an ignored SIGINT; this program must not
BUILD_AND_SAVE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import braze, onnx
model = onnx.load(sys.argv[1])
print("ready", flush=True)
while True:
    braze.build(model, shapes={"x": (1, 3, 24, 24)}, threads=1).save(sys.argv[2])
    print("saved", flush=True)
"""


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_build_leaves_no_half_engine(tmp_path: Path, signal_number: int) -> None:
    source, target = tmp_path / "model.onnx", tmp_path / "model.engine"
    source.write_bytes(conv_net(64).SerializeToString())
    rng = np.random.default_rng(int(signal_number))
    x = np.ones((1, 3, 24, 24), np.float32)
    for attempt in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", BUILD_AND_SAVE, str(source), str(target)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if attempt % 2:
            process.stdout.readline()  # the second time round, so that a file is overwritten
        time.sleep(float(rng.uniform(0, 0.5)))
        process.send_signal(signal_number)
        process.wait(timeout=60)
        process.stdout.close()
        if target.exists():
            assert np.isfinite(braze.load(target)({"x": x})["y"]).all()
        if signal_number == signal.SIGINT:
            # an interruption, unlike a kill, also gets to remove what is half done
            assert {p.name for p in tmp_path.iterdir()} <= {source.name, target.name}


def test_a_killed_save_leaves_nothing_for_long(tmp_path: Path) -> None:
    engine = braze.build(conv_net(), shapes={"x": (1, 3, 24, 24)}, threads=1)
    target = tmp_path / "model.engine"
    program = """
import os, signal, sys
import braze
os.fsync = lambda _fd: os.kill(os.getpid(), signal.SIGKILL)
braze.load(sys.argv[1]).save(sys.argv[2])
"""
    engine.save(tmp_path / "source.engine")
    for _ in range(2):
        arguments = [str(tmp_path / "source.engine"), str(target)]
        killed = subprocess.run(
            [sys.executable, "-c", program, *arguments], timeout=60, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        # the second one removed what the first one left
        assert sum(p.suffix == ".tmp" for p in tmp_path.iterdir()) == 1
        assert not target.exists()
    engine.save(target)
    assert {p.name for p in tmp_path.iterdir()} == {"source.engine", "model.engine"}


def test_damaged_engines_are_refused_or_right(tmp_path: Path) -> None:
    engine = braze.build(conv_net(), shapes={"x": (1, 3, 24, 24)}, threads=1)
    path = tmp_path / "good.engine"
    engine.save(path)
    data = path.read_bytes()
    x = np.random.default_rng(0).standard_normal((1, 3, 24, 24), np.float32)
    want = engine({"x": x})["y"]
    rng = np.random.default_rng(1)
    damaged = tmp_path / "bad.engine"
    refused = 0
    for k in range(300):
        raw = bytearray(data)
        if k % 3 == 0:
            raw = raw[: int(rng.integers(0, len(raw)))]
        else:
            for _ in range(1 + k % 4):
                raw[int(rng.integers(0, len(raw)))] ^= int(rng.integers(1, 256))
        damaged.write_bytes(raw)
        try:
            got = braze.load(damaged)({"x": x})["y"]
        except BrazeError:
            refused += 1
            continue
        # only the record, which is for people, may change unnoticed
        assert got.tobytes() == want.tobytes()
    assert refused > 250


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"not an engine", b"BRAZE" * 1000])
def test_other_files_are_no_engines(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(EngineFormatError):
        braze.load(path)


# ---------------------------------------------------------------- idleness


def test_an_idle_engine_uses_no_cpu() -> None:
    engine = braze.build(conv_net(), shapes={"x": (1, 3, 24, 24)}, threads=2)
    feed = {"x": np.ones((1, 3, 24, 24), np.float32)}
    spent = []
    for _ in range(5):
        for _ in range(20):
            engine(feed)
        time.sleep(0.001)  # workers may spin for tens of microseconds, not for a millisecond
        before = time.process_time()
        time.sleep(0.2)
        spent.append(time.process_time() - before)
    # the least of five: the interpreter and other libraries may wake up now and then
    assert min(spent) < 0.001
