"""Memory runs out while a model is built: one sentence says where, at every stage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from onnx.helper import make_node

import braze
from braze.core import parallel
from braze.core.errors import ExecutionError
from tests.e2e.models import make, rand

PLACES = {
    "braze.api.import_network": "stage import (",
    "braze.passes.fold.fold_constants.GraphEditor": "stage passes.fold_constants (",
    "braze.builder.lower_graph": "stage fusion (",
    "braze.codegen.cpu.backend.CpuBackend.tactics": "stage codegen, at region y (MatMul) (",
    "braze.codegen.cpu.backend.CpuBackend.compile": "stage codegen, at region y (MatMul) (",
    "braze.codegen.cpu.backend.CpuBackend.pack": "stage planning (constant w: ",
    "braze.builder.assemble": "stage planning (",
    "braze.runtime.engine.Engine.from_plan": "stage load (",
}


def product(n: int) -> Any:
    """x @ w with a weight of its own content."""
    return make([make_node("MatMul", ["x", "w"], ["y"])], {"x": (1, n)}, ["y"], {"w": rand(n, n)})


@pytest.mark.parametrize("place", PLACES)
def test_each_stage_says_where(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> NoReturn:
        raise MemoryError("Unable to allocate 9.31 GiB")

    monkeypatch.setattr(place, fail)
    with pytest.raises(ExecutionError) as caught:
        braze.build(product(8), threads=1)
    message = str(caught.value)
    assert message.startswith(f"the build ran out of memory in {PLACES[place]}"), message
    assert "9.31 GiB" in message and "free memory, or build on a machine that has more" in message
    assert "\n" not in message


def test_tensors_of_a_measurement_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> NoReturn:
        raise MemoryError("Unable to allocate 9.31 GiB")

    monkeypatch.setattr("braze.codegen.cpu.measure.CpuWorkload.seconds", fail)
    with pytest.raises(ExecutionError, match=r"region y \(MatMul\) can not be measured") as caught:
        braze.build(product(8), threads=1)
    assert "optimization_level=2" in str(caught.value) and "\n" not in str(caught.value)


def test_no_room_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.submit", fail)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    with pytest.raises(MemoryError, match="another thread"):
        parallel.in_parallel(abs, [1, 2], parallel.MIN_BYTES)


def test_errors_of_parallel_work_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    with pytest.raises(RuntimeError, match="own"):
        parallel.in_parallel(_own_error, [1, 2], parallel.MIN_BYTES)


def _own_error(item: int) -> NoReturn:
    raise RuntimeError("own")


BUILD = """
import resource, sys
import braze
from braze.core.errors import ExecutionError
from tests.e2e.models import rand
braze.build(sys.argv[1], threads=1, optimization_level=1)({"x": rand(1, 64)})  # loads what it needs
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (int(sys.argv[3]) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    braze.build(sys.argv[2], threads=1, optimization_level=1)
except ExecutionError as e:
    print("ExecutionError:", e)
else:
    print("built")
"""


# room for nothing, for the file, for its message too; far from what LLVM needs, which would end the
# process
@pytest.mark.parametrize("megabytes", [40, 96, 128])
def test_a_process_with_little_memory(megabytes: int, tmp_path: Path) -> None:
    """A model with 64 MB of weights: whichever allocation fails, the sentence is there."""
    small, large = tmp_path / "small.onnx", tmp_path / "large.onnx"
    for path, n in ((small, 64), (large, 4096)):
        path.write_bytes(product(n).SerializeToString())
    command = [sys.executable, "-c", BUILD, str(small), str(large), str(megabytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ExecutionError: ") and "memory" in done.stdout, done.stdout
