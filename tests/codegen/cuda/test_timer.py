"""Kernels that hang, die or fail cost themselves alone; a stand-in plays the child."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

import pytest

from braze.codegen.cuda import timer
from braze.codegen.cuda.timer import TimedElsewhere, Timer
from braze.core.dtypes import F32
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, load
from braze.fusion.kernel import Code, CompiledKernel, GridLaunch

# what a kernel does is its entry's name; "large" is a workload of that many elements
CHILD = """
import os, pickle, sys, time
from braze.codegen.cuda.timer import Open, Reply
opened = None
while True:
    try:
        request = pickle.load(sys.stdin.buffer)
    except EOFError:
        break
    if isinstance(request, Open):
        opened = request
        large = request.sizes.get("n", 0) > 1000
        reply = Reply(no_memory=True) if large else Reply()
    else:
        entry = request.compiled.code.entry
        if entry == "hangs":
            time.sleep(100)
        if entry == "dies":
            os._exit(3)
        reply = Reply(error="wrong address") if entry == "fails" else Reply(float(os.getpid()))
        assert opened is not None
    pickle.dump(reply, sys.stdout.buffer)
    sys.stdout.buffer.flush()
"""
SPEC = TensorSpec(F32, (4,))
NEST = LoopNest((4,), (), (), (Store(0, (axis(0),), load(0, (axis(0),), F32)),))
KERNEL = LoopKernel((SPEC,), (SPEC,), (NEST,))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Timer:
    monkeypatch.setattr(timer, "COMMAND", (sys.executable, "-c", CHILD))
    monkeypatch.setattr(timer, "TIME_LIMIT_S", 1.0)
    return Timer()


def code(entry: str) -> CompiledKernel:
    return CompiledKernel(Code("cubin", entry, "sm_90", b""), (), GridLaunch(1, 32, 0))


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("fault", ["hangs", "dies", "fails"])
def test_a_fault_is_refused_and_the_next_kernel_timed(stand_in: Timer, fault: str) -> None:
    work = TimedElsewhere(stand_in, KERNEL, {})
    first = work.seconds(code("good"), float("inf"))
    begin = time.monotonic()
    assert work.seconds(code(fault), 1.0) == float("inf")
    assert time.monotonic() - begin < 10
    assert is_gone(int(first))
    second = work.seconds(code("good"), 1.0)
    assert second not in (first, float("inf"))


def test_one_child_serves_all_kernels_and_ends_with_its_timer(stand_in: Timer) -> None:
    one, two = (TimedElsewhere(stand_in, KERNEL, {"n": n}) for n in (1, 2))
    times = {w.seconds(code("good"), 1.0) for w in (one, two, one)}
    assert len(times) == 1
    stand_in.close()
    assert is_gone(int(times.pop()))


def test_too_large_tensors_are_a_memory_error(stand_in: Timer) -> None:
    with pytest.raises(MemoryError):
        TimedElsewhere(stand_in, KERNEL, {"n": 5000})
    assert TimedElsewhere(stand_in, KERNEL, {"n": 1}).seconds(code("good"), 1.0) > 0


def test_builds_side_by_side_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits while another times, not for ever, and not where there is no room for a lock."""
    from braze.codegen.cuda import timer_process

    with timer_process.turn(str(tmp_path)):
        pass
    (lock,) = tmp_path.iterdir()
    monkeypatch.setattr(timer_process, "TURN_LIMIT_S", 0.3)
    for held, least, most in ((True, 0.3, 5.0), (False, 0.0, 0.2)):
        with lock.open("a") as other:
            if held:
                fcntl.flock(other, fcntl.LOCK_EX)
            start = time.monotonic()
            with timer_process.turn(str(tmp_path)):
                assert least <= time.monotonic() - start <= most
    with pytest.raises(OSError, match="mine"), timer_process.turn(str(tmp_path / "nowhere")):
        raise OSError("mine")
