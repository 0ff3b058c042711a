"""How people write the options of a build: as arguments of Python, and on the command line.

An error that advises an option is worded for both (`worded`), and whoever shows it takes the words
of its reader: `str(error)` is for Python, `error.command` for the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, Union

Sizes = tuple[Union[int, str], ...]  # a text stands for a size that the reader must fill in
OPEN: Final = "..."


class Words(Protocol):
    """One way to write options."""

    def option(self, name: str, value: object = None) -> str:
        """An option by its name in Python, alone or with a value."""

    def shapes(self, shapes: Mapping[str, tuple[Sizes, Sizes, Sizes]]) -> str:
        """Min, opt and max shapes of inputs; one shape where they are equal."""

    def values(self, names: Iterable[str]) -> str:
        """Contents of inputs, left open."""


class _Python:
    def option(self, name: str, value: object = None) -> str:
        return name if value is None else f"{name}={value}"

    def shapes(self, shapes: Mapping[str, tuple[Sizes, Sizes, Sizes]]) -> str:
        entries = []
        for name, corners in shapes.items():
            low, opt, high = (_tuple_text(c) for c in corners)
            shape = low if low == opt == high else f"({low}, {opt}, {high})"
            entries.append(f"{name!r}: {shape}")
        return f"shapes={{{', '.join(entries)}}}"

    def values(self, names: Iterable[str]) -> str:
        return f"values={{{', '.join(f'{name!r}: {OPEN}' for name in names)}}}"


class _Command:
    # those that are not spelt --name
    _NAMES: Final = {
        "shapes": "--shapes (or --minShapes, --optShapes, --maxShapes)",
        "optimization_level": "--builderOptimizationLevel",
        "timing_cache": "--timingCacheFile",
        "debug": "--markDebug",
        "calibration": "--calibData",
        "layer_precisions": "--layerPrecisions",
    }

    def option(self, name: str, value: object = None) -> str:
        spelt = self._NAMES.get(name, f"--{name}")
        return spelt if value is None else f"{spelt}={value}"

    def shapes(self, shapes: Mapping[str, tuple[Sizes, Sizes, Sizes]]) -> str:
        def listed(corner: int) -> str:
            return ",".join(f"{_quoted(n)}:{_cross_text(s[corner])}" for n, s in shapes.items())

        if all(low == opt == high for low, opt, high in shapes.values()):
            return f"--shapes={listed(0)}"
        return f"--minShapes={listed(0)} --optShapes={listed(1)} --maxShapes={listed(2)}"

    def values(self, names: Iterable[str]) -> str:
        return f"--values={','.join(f'{_quoted(name)}:{OPEN}' for name in names)}"


PYTHON: Final[Words] = _Python()
COMMAND: Final[Words] = _Command()


def worded(sentence: Callable[[Words], str]) -> tuple[str, str]:
    """A sentence for Python and for the command line: the arguments of a BrazeError."""
    return sentence(PYTHON), sentence(COMMAND)


def shown(value: object) -> str:
    """What a caller passed, on one line and not too long for a sentence."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}..."


def _tuple_text(sizes: Sizes) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _cross_text(sizes: Sizes) -> str:
    return "x".join(map(str, sizes)) or "scalar"


def _quoted(name: str) -> str:
    return f'"{name}"' if "," in name or "'" in name else name
