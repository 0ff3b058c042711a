"""Programs in a process of their own, where libraries are hidden or a device is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# `raised` prints the error of a call; anything but an error of braze ends the program badly
PRELUDE = """
import sys, braze
def raised(call):
    try:
        call()
    except braze.BrazeError as e:
        print(type(e).__name__, str(e).replace(chr(10), " "))
    else:
        raise SystemExit("no error")
"""


def hiding(folder: Path, *libraries: str) -> dict[str, str]:
    """An environment in which the loader finds these libraries, and that they are none."""
    folder.mkdir(exist_ok=True)
    for name in libraries:
        (folder / name).write_text("hidden\n")
    return with_folder(folder)


def with_folder(folder: Path) -> dict[str, str]:
    """An environment whose loader looks here first."""
    others = os.environ.get("LD_LIBRARY_PATH", "")
    return {"LD_LIBRARY_PATH": f"{folder}:{others}" if others else str(folder)}


def outcome(
    program: str,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    before: str = "",
) -> str:
    """What the program prints; it must come to its end. before: runs before braze is imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{before}\n{PRELUDE}\n{program}", *map(str, arguments)],
        cwd=REPOSITORY, env={**os.environ, **(environment or {})}, capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout
