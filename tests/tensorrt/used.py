"""Which test uses which name of the API: `python -m tests.tensorrt.used [FILES]` writes used.txt.

A name is used where code of a test calls the method (and it returns), reads or sets the attribute,
or where braze calls a method that a test wrote; where a value of an enum goes into such a call or
comes out of it; and where an object of a class is made, given or got. To name it is no use.

Every test that used.txt lists must go on using its names: `conftest.py` checks it in each run.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import braze.tensorrt as trt

HERE: Final = Path(__file__).parent
TABLE: Final = HERE / "used.txt"
WRITE: Final = "BRAZE_WRITE_USED"
TESTS: Final = str(HERE.parent) + os.sep
# numbers of these are bits of a mask, which is how they are given
MASKS: Final = ("NetworkDefinitionCreationFlag", "TensorFormat")
# what holds values, and is looked through
HOLDERS: Final = (list, tuple, set, frozenset)
# what calls __init__ of loggers, which check that it was called
MAKER: Final = type(trt.ILogger).__call__.__code__


def read_table() -> dict[str, str]:
    """Name -> the test that uses it."""
    lines = TABLE.read_text(encoding="utf-8").splitlines() if TABLE.exists() else []
    return dict(line.split(" ", 1) for line in lines)


def _resolved(owner: str) -> Any:
    thing: Any = trt
    for part in owner.split("."):
        thing = getattr(thing, part)
    return thing


class Recorder:
    """Notes what is used, from when it is installed on."""

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self.used: set[str] = set()
        self.classes: dict[type, list[str]] = defaultdict(list)  # also under several names
        self.members: dict[str, set[type]] = defaultdict(set)  # member -> classes that have it
        self.values: dict[int, list[str]] = defaultdict(list)  # id of a value -> its names
        for owner, members in names.items():
            if owner:
                self._add_class(owner, members)
        for name in names.get("", ()):
            value = getattr(trt, name)
            if callable(value) and not isinstance(value, enum.Enum):
                setattr(trt, name, self._function(name, value))
            else:
                self.values[id(value)].append(name)
        self._hook()

    def _add_class(self, owner: str, members: Iterable[str]) -> None:
        cls = _resolved(owner)
        self.classes[cls].append(owner)
        for member in members:
            self.members[member].add(cls)
            value, held = getattr(cls, member, None), inspect.getattr_static(cls, member, None)
            if isinstance(held, (staticmethod, classmethod)):
                own = staticmethod(self._function(f"{owner}.{member}", value))
                setattr(cls, member, own)
            elif isinstance(held, property) and issubclass(cls, enum.Enum):
                setattr(cls, member, property(self._function(f"{owner}.{member}", held.fget)))
            elif isinstance(value, enum.Enum):
                self.values[id(value)].append(f"{owner}.{member}")

    def _hook(self) -> None:
        for cls in self.classes:
            if issubclass(cls, enum.Enum):
                if cls.__name__ in MASKS:
                    cls.__int__ = cls.__index__ = self._counter()  # type: ignore[attr-defined]
                continue
            cls.__init__ = self._made(cls.__init__)  # type: ignore[misc]
            if any(base in self.classes for base in cls.__mro__[1:]):
                continue  # what it inherits is hooked
            cls.__getattribute__ = self._reader()  # type: ignore[method-assign, assignment]
            cls.__setattr__ = self._writer()  # type: ignore[method-assign, assignment]

    # ---- what stands in for the API's own ---------------------------------------------------

    def _function(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            result = function(*args, **named)
            if from_a_test():
                self.used.add(name)
                self.saw(*args, *named.values(), result)
            return result

        return call

    def _counter(self) -> Callable[[Any], int]:
        def __int__(value: Any) -> int:
            if from_a_test():
                self.saw(value)
            return int(value.value)

        return __int__

    def _made(self, init: Callable[..., None]) -> Callable[..., None]:
        def __init__(it: Any, *args: Any, **named: Any) -> None:
            if init is not object.__init__:  # which takes no arguments that __new__ has taken
                init(it, *args, **named)
            if from_a_test():
                self.saw(it, *args, *named.values())

        return __init__

    def _reader(self) -> Callable[[Any, str], Any]:
        def __getattribute__(it: Any, name: str) -> Any:
            value = object.__getattribute__(it, name)
            if name not in self.members:
                return value
            if callable(value):
                code = getattr(getattr(value, "__func__", None), "__code__", None)
                of_test = code is not None and code.co_filename.startswith(TESTS)
                return self._method(it, name, value) if of_test or from_a_test() else value
            if from_a_test():
                self.touched(it, name)
                self.saw(value)
            return value

        return __getattribute__

    def _writer(self) -> Callable[[Any, str, Any], None]:
        def __setattr__(it: Any, name: str, value: Any) -> None:
            object.__setattr__(it, name, value)
            if name in self.members and from_a_test():
                self.touched(it, name)
                self.saw(value)

        return __setattr__

    def _method(self, it: Any, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            result = method(*args, **named)
            self.touched(it, name)
            self.saw(*args, *named.values(), result)
            return result

        return call

    # ---- what is noted ----------------------------------------------------------------------

    def touched(self, it: Any, member: str) -> None:
        """A member of an object was called, read or set."""
        self.saw(it)
        having = self.members[member]
        for cls in type(it).__mro__:
            if cls in having:
                self.used.update(f"{owner}.{member}" for owner in self.classes[cls])

    def saw(self, *values: Any) -> None:
        """Values went into a call, or came out."""
        for value in values:
            self.used.update(self.values.get(id(value), ()))
            for cls in type(value).__mro__:
                self.used.update(self.classes.get(cls, ()))
            if type(value) in HOLDERS:
                self.saw(*value)


def from_a_test() -> bool:
    """Whether the caller of the function that asks is code of a test."""
    caller = sys._getframe(2)
    if caller.f_code is MAKER and caller.f_back is not None:
        caller = caller.f_back
    return caller.f_code.co_filename.startswith(TESTS)


def chosen(uses: Mapping[str, set[str]]) -> dict[str, str]:
    """Name -> of the tests that use it, the one that uses least beside it."""
    found: dict[str, str] = {}
    for test in sorted(uses, key=lambda t: (len(uses[t]), t)):
        for name in uses[test]:
            found.setdefault(name, test)
    return found


def write_table(uses: Mapping[str, set[str]]) -> None:
    """Write what the tests that ran use; the rows of files of which none ran stay."""
    files = {test.partition("::")[0] for test in uses}
    kept: dict[str, set[str]] = defaultdict(set)
    for name, test in read_table().items():
        if test.partition("::")[0] not in files:
            kept[test].add(name)
    rows = {**chosen({**uses}), **chosen(kept)}
    text = "".join(f"{name} {rows[name]}\n" for name in sorted(rows))
    TABLE.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Run the tests, all or those of some files, and write the table."""
    importlib.import_module("braze.tensorrt.plugin")
    os.environ[WRITE] = "1"
    return int(pytest.main([*(arguments or [str(HERE)]), "-p", "no:xdist"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
