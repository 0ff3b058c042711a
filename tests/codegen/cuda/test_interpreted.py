"""Runs the files interpreted*.py with Triton's interpreter on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
HERE = Path(__file__).parent


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(f.name for f in HERE.glob("interpreted*.py")))
def test_templates_agree_with_the_reference(name: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(
        [*command, str(HERE / name)],
        env=environment, cwd=HERE.parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
