"""Run a Python program, a file or a module, as `python` would, with the stand-ins in place."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from braze.core.errors import ConfigError, FileError
from braze.shim.finder import install

HERE: Final = Path(__file__).resolve()


def run_module(name: str, arguments: Sequence[str]) -> int:
    """`python -m name arguments`; returns the exit code."""
    sys.path.insert(0, os.getcwd())

    def program() -> object:
        return runpy.run_module(name, run_name="__main__", alter_sys=True)

    return _run(program, name, arguments)


def run_script(script: str, arguments: Sequence[str]) -> int:
    """`python script arguments`; a name without a folder is also one of a command.

    Commands are looked up in PATH, and beside the interpreter, whose packages may bring them.
    """
    path = _find(script)
    sys.path.insert(0, str(Path(path).resolve().parent))
    return _run(lambda: runpy.run_path(path, run_name="__main__"), path, arguments)


def _run(program: Callable[[], object], name: str, arguments: Sequence[str]) -> int:
    install()
    _for_children()
    sys.argv = [name, *arguments]
    try:
        program()
    except SystemExit as e:
        return _exit_code(e.code)
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        _print_error(e)
        return 1
    return 0


def _for_children() -> None:
    """Let Python programs that the program starts have the stand-ins too."""
    package = HERE.parents[1]
    paths = [str(HERE.parent / "site"), str(package.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)


def _exit_code(code: object) -> int:
    """What Python makes of the argument of sys.exit."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 255
    print(code, file=sys.stderr)
    return 1


def _print_error(error: BaseException) -> None:
    """The program's traceback without the frames that started it."""
    trace = error.__traceback__
    while trace is not None and _is_starter(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace or error.__traceback__)


def _is_starter(file: str) -> bool:
    return Path(file).resolve() == HERE or file in ("<frozen runpy>", runpy.__file__)


def _beside(script: str) -> str | None:
    """A command of an environment that is not activated, so that PATH has it not."""
    return shutil.which(script, path=os.path.dirname(sys.executable))


def _find(script: str) -> str:
    if os.path.exists(script):
        return script
    found = None if os.sep in script else shutil.which(script) or _beside(script)
    if found is None:
        raise FileError(f"{script}: there is no such file; give a Python script, or -m MODULE")
    with open(found, "rb") as file:
        first = file.readline(200)
    if not (first.startswith(b"#!") and b"python" in first):
        raise ConfigError(f"{found} is no Python script; `braze shim` runs Python programs")
    return found
