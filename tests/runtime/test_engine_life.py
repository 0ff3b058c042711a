"""Engines among threads and processes: sharing, forks, memory that is freed, idleness."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

import braze
from braze.runtime import Engine, context, device, loaded, stream
from braze.runtime.device import Buffer
from braze.runtime.stream import Event, Stream
from tests.runtime.plans import (
    chain_plan,
    chain_reference,
    rows,
)


def test_many_threads_share_an_engine_and_a_context() -> None:
    plan = chain_plan(num_steps=5)
    engine = Engine.from_plan(plan)
    shared = engine.create_context()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            x = rows(1 + seed)
            expected = chain_reference(plan, x).tobytes()
            for i in range(150):
                call = shared.run if i % 2 else engine
                assert call({"x": x}, workers=i % 3)["y"].tobytes() == expected  # type: ignore[operator]
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_memory_is_freed_with_the_last_user() -> None:
    gc.disable()
    try:
        engine = Engine.from_plan(chain_plan())
        engine({"x": rows(4)})
        loaded = weakref.ref(engine.loaded)
        context = engine.create_context()
        del engine
        assert context.run({"x": rows(4)})["y"].shape == (4, 8)
        del context
        assert loaded() is None
    finally:
        gc.enable()


def test_the_plan_keeps_its_memory_alive() -> None:
    plan = Engine.from_plan(chain_plan()).plan
    gc.collect()
    assert bytes(plan.weight_data[0]) == chain_plan().weight_data[0].tobytes()


def test_an_idle_engine_uses_no_cpu() -> None:
    engine = Engine.from_plan(chain_plan(num_steps=50))
    for _ in range(20):
        engine({"x": rows(16)}, workers=2)
    time.sleep(0.01)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.02


def _child(engine: Engine, queue: Any) -> None:
    queue.put(engine({"x": rows(6)}, workers=2)["y"].tobytes())


def test_a_forked_child_can_go_on() -> None:
    plan = chain_plan(num_steps=4)
    engine = Engine.from_plan(plan)
    engine({"x": rows(6)}, workers=2)
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    child = fork.Process(target=_child, args=(engine, queue))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert queue.get() == chain_reference(plan, rows(6)).tobytes()
    assert (
        engine({"x": rows(6)}, workers=2)["y"].tobytes() == chain_reference(plan, rows(6)).tobytes()
    )


def test_the_runtime_needs_no_compiler(tmp_path: Path) -> None:
    path = tmp_path / "a.engine"
    Engine.from_plan(chain_plan()).save(path)
    script = f"""
import sys
for name in ("llvmlite", "onnx", "triton", "torch"):
    sys.modules[name] = None
import numpy as np
from braze.runtime import Engine
engine = Engine.load({str(path)!r})
assert engine({{"x": np.ones((2, 8), np.float32)}})["y"].shape == (2, 8)
engine.inspect()
loaded = [m for m in sys.modules if m.startswith("braze.")]
assert all(m.split(".")[1] in ("core", "engine", "runtime") for m in loaded), loaded
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(braze.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=60)


def test_what_outlives_the_names_of_its_module_is_freed_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the interpreter sets them to None while objects are left."""
    engine = Engine.from_plan(chain_plan(num_steps=1))
    left: list[object] = [engine.create_context(), Stream(), Event(), engine]
    left.append(Buffer(engine.loaded, 64))
    del engine
    failures: list[str] = []
    for module in (context, device, loaded, stream):
        monkeypatch.setattr(module, "c_void_p", None)
    monkeypatch.setattr(sys, "unraisablehook", lambda e: failures.append(str(e.exc_value)))
    left.clear()
    gc.collect()
    assert not failures
