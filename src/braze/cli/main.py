"""Entry point of the `braze` command: parse, dispatch, and turn every error into one sentence."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Final, NoReturn

import braze
from braze.core.errors import BrazeError, ConfigError
from braze.core.files import describe_os_error

# exit codes: 0 done, 1 failed, 2 wrong usage, and as a shell reports them: 130 interrupted,
# 141 the reader of standard output is gone
FAILED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141
# command -> its module; imported when used, so that running an engine needs no compiler
COMMANDS: Final = {
    "exec": "braze.cli.execute",
    "build": "braze.cli.build",
    "tune": "braze.cli.tune",
    "inspect": "braze.cli.inspect_engine",
    "check": "braze.cli.check",
    "compare": "braze.cli.compare",
    "stages": "braze.cli.stages",
    "shim": "braze.cli.shim",
    "quantize": "braze.cli.quantize",
    "network": "braze.cli.network",
}
OVERVIEW: Final = """\
usage: braze COMMAND [OPTIONS]

Compile ONNX models to engines and run them.

  exec      build or load an engine, time it, and report (trtexec's options)
  build     compile an ONNX model to an engine file
  tune      choose an engine's tactics anew, by times of the processor or GPU here
  inspect   show the layers, tactics, memory and profiles of an engine file
  check     tell which parts of an ONNX model run, in which precision, and what cannot and why
  compare   compare an engine with a reference, layer by layer
  stages    print a (small) model after every stage of its build
  shim      run a Python program that imports tensorrt, pycuda or cuda
  quantize  write a quantized (Q/DQ) ONNX model, with ranges calibrated from data
  network   build an engine of a network that was made in C++ (braze.hpp calls it)

`braze COMMAND --help` lists the options of a command; `braze --version` prints the version.
"""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}; see `{self.prog} --help`\n")


def make_parser(name: str, module: ModuleType, program: str = "") -> argparse.ArgumentParser:
    """The parser of one command. program: what it is called by, if not by `braze NAME`."""
    parser = _Parser(prog=program or f"braze {name}", description=module.HELP, allow_abbrev=False)
    module.add_arguments(parser)
    parser.set_defaults(run=module.run, called=parser.prog)
    return parser


def import_command(arguments: Sequence[str]) -> ModuleType | None:
    """The module of the command that `arguments` begin with; None when they name no command."""
    if not arguments or arguments[0] not in COMMANDS:
        return None
    return import_module(COMMANDS[arguments[0]])


def main(
    argv: Sequence[str] | None = None,
    program: str = "",
) -> int:
    """Run one command and return the exit code.

    program: what the command is called by, if not by `braze NAME`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments, program)
        print(end="", flush=True)  # a reader that is gone shows here, not while Python ends
    except KeyboardInterrupt:
        name = program or " ".join(["braze", *arguments[:1]])
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # the reader of our output is gone: nothing to tell, and nobody to tell it to
        _discard_output()
        return BROKEN_PIPE
    except OSError as e:
        _discard_output()
        print(f"braze: standard output: {describe_os_error(e)}", file=sys.stderr)
        return FAILED
    return code


def _dispatch(arguments: list[str], program: str) -> int:
    module = import_command(arguments)
    if module is None:
        return _no_command(arguments)
    name = arguments[0]
    command_line = [program, *arguments[1:]] if program else ["braze", *arguments]
    parser = make_parser(name, module, program)
    try:
        args, unknown = parser.parse_known_args(arguments[1:])
        if unknown and name != "exec":  # exec knows why it lacks some of trtexec's options
            parser.error(f"unknown argument {unknown[0]!r}{_hint(parser, unknown[0])}")
    except SystemExit as e:
        if e.code and hasattr(module, "refused"):
            module.refused(command_line)
        return e.code if isinstance(e.code, int) else FAILED
    args.command_line = command_line
    args.unknown = unknown
    return _guarded(args)


def _hint(parser: argparse.ArgumentParser, unknown: str) -> str:
    """The option that was meant, where one is spelt nearly so."""
    from braze.cli.exec_table import nearest

    known = [s for a in parser._actions for s in a.option_strings if s.startswith("--")]
    near = nearest(unknown.split("=", 1)[0], known) if unknown.startswith("--") else ""
    return f", did you mean {near}" if near else ""


def _discard_output() -> None:
    """What is left in the buffer goes nowhere, so that Python can end without another error."""
    with suppress(OSError, ValueError):  # streams that are no files of the system
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _no_command(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in ("-h", "--help"):
        print(OVERVIEW, end="")
        return 0
    if arguments and arguments[0] == "--version":
        print(f"braze {braze.__version__}")
        return 0
    what = f"unknown command {arguments[0]!r}" if arguments else "no command given"
    close = get_close_matches(arguments[0], COMMANDS, 1, 0.7) if arguments else []
    if close:
        print(f"braze: {what}; did you mean {close[0]} (see `braze --help`)", file=sys.stderr)
        return USAGE
    print(f"braze: {what}; use one of {', '.join(COMMANDS)} (see `braze --help`)", file=sys.stderr)
    return USAGE


def _guarded(args: argparse.Namespace) -> int:
    try:
        return int(args.run(args))
    except BrokenPipeError:
        raise
    except Exception as e:
        if isinstance(e, OSError) and e.errno == errno.ENOSPC and e.filename is None:
            raise  # standard output is full: files of ours are named
        if getattr(args, "verbose", False):
            traceback.print_exception(e)
        print(f"{args.called}: {_told(e)}", file=sys.stderr)
        return USAGE if isinstance(e, ConfigError) else FAILED


def _told(error: Exception) -> str:
    """What the user reads: one sentence, and a line more for each of several problems."""
    if isinstance(error, BrazeError):
        first, *problems = error.command.splitlines() or [type(error).__name__]
        return "\n".join([" ".join(first.split()), *(p.rstrip() for p in problems)])
    if isinstance(error, MemoryError):
        return "out of memory; use smaller maximum shapes or fewer streams"
    if isinstance(error, OSError):
        return f"{error.filename or 'file'}: {describe_os_error(error)}"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"internal error ({text}); run with --verbose and report it"
