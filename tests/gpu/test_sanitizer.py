"""compute-sanitizer finds nothing in one small kernel of every family, nor in the runtime."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FOUND = 9


@pytest.mark.timeout(900)
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_every_family_is_clean(tool: str) -> None:
    program = shutil.which("compute-sanitizer")
    if program is None:
        pytest.skip("compute-sanitizer, a part of the CUDA toolkit, is not here")
    done = subprocess.run(
        [program, "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, "-m",
         "tests.gpu.families"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = done.stdout[-4000:] + done.stderr[-2000:]
    if "Device not supported" in said:
        pytest.skip("compute-sanitizer does not work on this machine")
    assert done.returncode == 0, said
    assert "runtime: right" in done.stdout, said
