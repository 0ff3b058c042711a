"""`braze shim`: programs run as Python would run them, with the stand-ins in place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import braze
from braze.core.errors import FileError
from braze.shim.program import _find

SOURCE = str(Path(braze.__file__).parent.parent)


def shim(
    here: Path, *arguments: str, python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """`braze shim` in a folder."""
    return subprocess.run(
        [sys.executable, *python, "-m", "braze", "shim", *arguments],
        capture_output=True, text=True, timeout=120, check=False, cwd=here,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )  # fmt: skip


def test_imports_come_to_braze(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        """
import ctypes, importlib.util, sys
assert importlib.util.find_spec("tensorrt") is not None
import tensorrt as trt, tensorrt_bindings
from tensorrt import Logger, Runtime
assert trt.__name__ == "braze.tensorrt" and trt is tensorrt_bindings
assert sys.modules["tensorrt"] is trt
import pycuda.driver, pycuda.autoinit
from pycuda import autoprimaryctx, driver as pycuda_driver
from cuda import cudart, cuda as driver, nvrtc
from cuda.bindings import runtime
import cuda.bindings.driver, cuda.cudart
assert cudart is runtime is cuda.bindings.runtime and driver.cuInit(0)[0] == 0
lib = ctypes.CDLL("libcudart.so.12")
stream = ctypes.c_void_p()
assert lib.cudaStreamCreate(ctypes.byref(stream)) == 0
assert trt.Runtime is Runtime and trt.Logger.WARNING is Logger.Severity.WARNING
libc = ctypes.CDLL(None)
assert libc.abs(-3) == 3 and isinstance(libc, ctypes.CDLL)
print(pycuda.driver.Device(0).name(), __name__, sys.argv)
"""
    )
    done = shim(tmp_path, "script.py", "--flag", "-m", "x")
    assert done.stderr == ""
    assert done.stdout == "braze host device __main__ ['script.py', '--flag', '-m', 'x']\n"
    assert done.returncode == 0


def test_modules_run_too(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(
        "import sys, tensorrt\nfrom . import other\nprint(tensorrt.__version__, sys.argv[1:])\n"
    )
    (tmp_path / "package" / "other.py").write_text("")
    done = shim(tmp_path, "-m", "package", "--version", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "10.13.0.35 ['--version', '2']\n"


@pytest.mark.parametrize(
    ("code", "status", "stderr"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('no luck')", 1, "no luck\n"),
        ("raise SystemExit(256 + 3)", 3, ""),
    ],
)
def test_exit_codes(tmp_path: Path, code: str, status: int, stderr: str) -> None:
    (tmp_path / "script.py").write_text(code)
    done = shim(tmp_path, "script.py")
    assert (done.returncode, done.stderr, done.stdout) == (status, stderr, "")


def test_a_traceback_is_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("def f():\n    raise ValueError('mine')\n\n\nf()\n")
    done = shim(tmp_path, "script.py")
    assert done.returncode == 1
    first, second, *_, last = done.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert second.endswith('script.py", line 5, in <module>')
    assert last == "ValueError: mine"


def test_wrong_use(tmp_path: Path) -> None:
    for arguments, words in (
        ([], "give a Python script"),
        (["-m"], "-m needs the name"),
        (["none.py"], "none.py: there is no such file"),
    ):
        done = shim(tmp_path, *arguments)
        assert done.returncode in (1, 2)
        assert words in done.stderr and done.stderr.count("\n") == 1


def test_what_the_path_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\nimport tensorrt\nprint('ran')\n")
    tool.chmod(0o755)
    shell = tmp_path / "bin" / "shell"
    shell.write_text("#!/bin/sh\necho no\n")
    shell.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    assert shim(tmp_path, "tool").stdout == "ran\n"
    assert "is no Python script" in shim(tmp_path, "shell").stderr


def test_what_lies_beside_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "environment" / "tool"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tool.parent / "python"))
    assert _find("tool") == str(tool)
    with pytest.raises(FileError, match="no such file"):
        _find("another-tool")


def test_children_are_shimmed_and_keep_their_own_start(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('own start')\n")
    (tmp_path / "script.py").write_text(
        "import os, subprocess, sys\n"
        "os.environ['PYTHONPATH'] += os.pathsep + 'own'\n"
        "code = 'import tensorrt, pycuda.driver; print(tensorrt.__name__)'\n"
        "subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    done = shim(tmp_path, "script.py")
    assert done.stderr == ""
    assert done.stdout == "own start\nbraze.tensorrt\n"
