"""No sequence of calls crashes the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import braze

REPOSITORY = Path(__file__).resolve().parents[2]


def test_random_calls() -> None:
    """In a process of its own, as what it looks for would end this one."""
    paths = [str(Path(braze.__file__).parent.parent), str(REPOSITORY)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.tensorrt.random_use", "3000", "1", "2"],
        capture_output=True, text=True, timeout=200, check=False, cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        runs, good = map(int, line.split())
        assert runs > 300 and good > 20
