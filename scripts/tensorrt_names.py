"""The names of TensorRT's Python API, read from the stubs of release 10.13.

The stubs are a file of type hints; it is no valid Python in places, so it is read line by line.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Final

PACKAGE: Final = "tensorrt-stubs"
_MODULE: Final = "tensorrt_bindings/tensorrt.pyi"
_FACE: Final = "tensorrt/__init__.pyi"
_CLASS: Final = re.compile(r"( *)class (\w+)")
_MEMBER: Final = re.compile(r"( *)(?:def (\w+)\(|(\w+)\s*:)")
# of enums and pybind11: every class has them
_COMMON: Final = {"name", "value", "__members__"}
# Python's own modules, loop variables and helpers that the package lets show
_NO_API: Final = {
    "attr", "common_enter", "common_exit", "ctypes", "os", "sys", "tensorrt", "tensorrt_libs",
    "value", "warnings",
}  # fmt: skip


def find_stubs() -> Path | None:
    """The folder that the stubs are installed in, or None."""
    try:
        found = metadata.distribution(PACKAGE).locate_file("")
    except metadata.PackageNotFoundError:
        return None
    return Path(str(found))


def read_names(folder: Path) -> dict[str, tuple[str, ...]]:
    """Class -> its public members, "" -> what is no class; nested classes as Outer.Inner."""
    found = _members((folder / _MODULE).read_text(encoding="utf-8"))
    face = (folder / _FACE).read_text(encoding="utf-8")
    listed = re.search(r"__all__ = \[(.*?)\]", face, re.DOTALL)
    names = re.findall(r"'(\w+)'", listed.group(1)) if listed else []
    outside = [n for n in names if n not in found and n not in _NO_API]
    return {"": tuple(sorted(outside)), **dict(sorted(found.items()))}


def _members(text: str) -> dict[str, tuple[str, ...]]:
    text = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    members: dict[str, set[str]] = {}
    open_: list[tuple[int, str]] = []  # indentation and name of the classes a line is in
    for line in text.splitlines():
        opened = _CLASS.match(line)
        if opened:
            depth = len(opened.group(1))
            open_ = [c for c in open_ if c[0] < depth]
            name = ".".join([*(c[1].rsplit(".", 1)[-1] for c in open_), opened.group(2)])
            members[name] = set()
            open_.append((depth, name))
            continue
        found = _MEMBER.match(line)
        if not found:
            continue
        depth = len(found.group(1))
        open_ = [c for c in open_ if c[0] < depth]
        name = found.group(2) or found.group(3)
        if open_ and depth == open_[-1][0] + 4 and not name.startswith("_"):
            members[open_[-1][1]].add(name)
    return {name: tuple(sorted(m - _COMMON if _is_enum(m) else m)) for name, m in members.items()}


def _is_enum(members: set[str]) -> bool:
    return _COMMON - {"__members__"} <= members and any(m.isupper() for m in members)
