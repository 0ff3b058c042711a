"""`trtexec` and `python -m braze.tensorrt`: `braze exec` with trtexec's name and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from braze.cli.main import USAGE
from braze.cli.main import main as braze_main

NAME = "trtexec"
FAILED = 1  # all that trtexec has, for wrong usage too


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 where it passed, 1 where it failed."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    code = braze_main(["exec", *arguments], NAME)
    return FAILED if code == USAGE else code
