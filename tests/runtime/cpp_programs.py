"""C++ programs of tests and examples, compiled against the headers and the runtime of this tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import braze
from braze.runtime.native import LIBRARY_PATH

REPOSITORY = Path(__file__).resolve().parents[2]
INCLUDE = REPOSITORY / "native" / "include"
FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


def compiled(source: Path, program: Path) -> Path:
    """The program of a source file."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    rpath = f"-Wl,-rpath,{LIBRARY_PATH.parent}"
    command = [compiler, *FLAGS, f"-I{INCLUDE}", source, LIBRARY_PATH, rpath, "-o", program]
    subprocess.run(command, check=True, timeout=240)
    return program


def environment(**more: str) -> dict[str, str]:
    """That of a program which finds the braze of these tests by BRAZE_PYTHON, installed or not."""
    source = str(Path(braze.__file__).parents[1])
    return {
        **os.environ,
        "BRAZE_PYTHON": sys.executable,
        "BRAZE_TARGET": "cpu",
        "PYTHONPATH": source,
        **more,
    }


def run(program: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. more: variables of its environment."""
    command = [str(a) for a in (program, *arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment(**more)
    )
