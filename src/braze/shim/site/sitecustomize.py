"""Puts the stand-ins in place when Python starts, for what a program under `braze shim` starts.

Python imports the first `sitecustomize` on its path; the one that this hides is run too.
"""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_here = Path(__file__).resolve().parent


def _hidden() -> None:
    path = [p for p in sys.path if Path(p or ".").resolve() != _here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


try:
    from braze.shim.finder import install

    install()
except ImportError:  # another Python, which has no braze: it runs as it would without
    pass
_hidden()
