"""`braze shim`: run a Python program that imports tensorrt and pycuda or cuda on braze."""

from __future__ import annotations

import argparse

from braze.core.errors import ConfigError
from braze.shim.program import run_module, run_script

HELP = (
    "run a Python program with tensorrt, pycuda and cuda as braze provides them: "
    "`braze shim SCRIPT [ARGUMENTS]` or `braze shim -m MODULE [ARGUMENTS]`"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the program; all that follows it is its own."""
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE ...",
        help="a module, as `python -m` runs it, and its arguments")  # fmt: skip
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="SCRIPT ...",
        help="the program and its arguments")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run it; the exit code is the program's."""
    if args.module is not None:
        if not args.module:
            raise ConfigError("-m needs the name of a module")
        return run_module(args.module[0], args.module[1:])
    if not args.program:
        raise ConfigError("give a Python script, or -m and a module, and its arguments")
    return run_script(args.program[0], args.program[1:])
