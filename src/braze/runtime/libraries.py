"""Where the libraries of NVIDIA lie that engines for a GPU may call: cuBLASLt and cuDNN.

Python packages bring them into folders that no loader searches; the native runtime is told of these
when it is loaded. Folders of the environment variable come first, there and here.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FOLDERS: Final = "BRAZE_CUDA_LIBRARIES"
PACKAGES: Final = ("cu13", "cublas", "cudnn")  # parts of the package nvidia


def package_folders() -> list[str]:
    """Folders of installed packages that hold libraries of NVIDIA."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(r) for r in (spec.submodule_search_locations or ())] if spec else []
    folders = [root / package / "lib" for root in roots for package in PACKAGES]
    return [str(f) for f in folders if f.is_dir()]


def _candidates(names: tuple[str, ...]) -> Iterator[str]:
    """Files to try, in order; a name without a folder is the loader's to find."""
    given = [f for f in os.environ.get(FOLDERS, "").split(os.pathsep) if f]
    for name in names:
        for folder in (*given, *package_folders()):
            file = Path(folder) / name
            if file.is_file():
                yield str(file)
    yield from names


def open_library(*names: str) -> ctypes.CDLL | None:
    """The first of the files `names` that is found and opens, or None."""
    for file in _candidates(names):
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    return None
