"""Device memory, DLPack, `__cuda_array_interface__` and streams, on the stub driver."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from braze.core.errors import TargetError
from tests.runtime.device_checks import CHECKS, engine

REPOSITORY = Path(__file__).resolve().parents[2]
NATIVE = REPOSITORY / "native" / "tests"
pytestmark = pytest.mark.xdist_group("the stub driver")  # one worker compiles it


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub driver; each check has a process of its own, since a process has one driver."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    out = tmp_path_factory.mktemp("stub") / "libcuda.so.1"
    sources = [*sorted((NATIVE / "cuda_stub").glob("*.cc")), NATIVE / "kernels.cc"]
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"]
    command = [compiler, *flags, f"-I{NATIVE / 'cuda_stub'}", *map(str, sources)]
    subprocess.run([*command, "-Wl,-soname,libcuda.so.1", "-o", out], check=True, timeout=240)
    return out


@pytest.mark.parametrize("name", CHECKS)
def test_on_the_stub(name: str, stub: Path) -> None:
    command = [sys.executable, "-m", "tests.runtime.device_checks", str(stub), name]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_a_driver_an_engine_of_a_gpu_is_one_error() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is an NVIDIA driver here")
    with pytest.raises(TargetError, match=r"no driver for one here \(libcuda.so.1\)"):
        engine()
