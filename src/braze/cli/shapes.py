"""Shape, value and file lists of the command line: `name:1x3x224x224,other:scalar`.

The spelling is trtexec's, so its command lines carry over. A name may hold colons (the last one
ends it) and be quoted when it holds commas; `*` in a name stands for any text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from braze.core.config import MAX_SIZE, ShapeRange
from braze.core.errors import BindingError, ConfigError

Shape = tuple[int, ...]
V = TypeVar("V")


def split_list(text: str) -> list[str]:
    """Split at commas that stand outside single or double quotes; the quotes are dropped."""
    parts, current, quote = [], "", ""
    for ch in text:
        if quote:
            quote, current = ("", current) if ch == quote else (quote, current + ch)
        elif ch in "'\"":
            quote = ch
        elif ch == ",":
            parts.append(current)
            current = ""
        else:
            current += ch
    if quote:
        raise ConfigError(f"{text!r} has an opening {quote} without a closing one")
    return [*parts, current]


def parse_pairs(text: str | None, option: str, *, empty: bool = False) -> dict[str, str]:
    """`name:rest,name:rest` as a dict; raises ConfigError for an empty or repeated name.

    Of an option that is not given (None) nothing. empty: there may be nothing after the colon.
    """
    out: dict[str, str] = {}
    for item in () if text is None else split_list(text):
        name, colon, rest = item.rpartition(":")
        if not colon or not name or not (rest or empty):
            raise ConfigError(
                f"{option}: {item!r} is not of the form name:value; write the name of an input, a "
                "colon and what it is given"
            )
        if name in out:
            raise ConfigError(f"{option}: {name!r} is given twice")
        out[name] = rest
    return out


def parse_dims(text: str, option: str, *, signed: bool = False) -> Shape:
    """`1x3x224x224` as a tuple, `scalar` or nothing as (); raises ConfigError for all else.

    signed: they may be the content of an input, and below zero.
    """
    if text in ("", "scalar"):
        return ()
    parts = text.split("x")
    digits = [p.removeprefix("-") if signed else p for p in parts]
    if not all(p.isascii() and p.isdigit() for p in digits):
        raise ConfigError(f"{option}: {text!r} is not a shape; write sizes as in 1x3x224x224")
    if any(len(p.lstrip("0")) > len(str(MAX_SIZE)) or int(p) > MAX_SIZE for p in digits):
        raise ConfigError(f"{option}: {text!r} holds a size above {MAX_SIZE}; give a smaller one")
    return tuple(int(p) for p in parts)


def parse_shapes(text: str | None, option: str, *, signed: bool = False) -> dict[str, Shape]:
    """The value of --shapes and its kin: name (or pattern) -> shape, or (signed) content."""
    pairs = parse_pairs(text, option, empty=True)
    return {n: parse_dims(v, option, signed=signed) for n, v in pairs.items()}


def parse_values(text: str, option: str) -> dict[str, tuple[int | float, ...]]:
    """`name:1x2x0.5` as name -> numbers: the content an input is fixed to."""
    out: dict[str, tuple[int | float, ...]] = {}
    for name, rest in parse_pairs(text, option).items():
        try:
            out[name] = tuple(int(v) if _is_int(v) else float(v) for v in rest.split("x"))
        except ValueError:
            raise ConfigError(f"{option}: {rest!r} is not of the form 1x2x0.5") from None
    return out


def _is_int(text: str) -> bool:
    return text.lstrip("+-").isdigit()


def expand_names(given: Mapping[str, V], names: Iterable[str], option: str) -> dict[str, V]:
    """Replace patterns by the input names they match; a plain name wins over a pattern.

    Raises BindingError when an entry matches no input.
    """
    known = list(names)
    out: dict[str, V] = {}
    for pattern in sorted(given, key=lambda p: "*" in p):
        hits = [n for n in known if n == pattern or ("*" in pattern and fnmatchcase(n, pattern))]
        if not hits:
            raise BindingError(
                f"{option}: the model has no input {pattern!r}; its inputs are {', '.join(known)}"
            )
        for n in hits:
            out.setdefault(n, given[pattern])
    return out


def profile_ranges(
    low: Mapping[str, Shape], opt: Mapping[str, Shape], high: Mapping[str, Shape]
) -> dict[str, ShapeRange]:
    """Join --minShapes, --optShapes and --maxShapes into (min, opt, max) per name.

    What is left out follows the others: min falls back to opt, then max; max to opt, then min;
    opt to max, then min.
    """
    out: dict[str, ShapeRange] = {}
    for name in dict.fromkeys([*low, *opt, *high]):
        lo, mid, hi = low.get(name), opt.get(name), high.get(name)
        given = [s for s in (mid, hi, lo) if s is not None]
        out[name] = (
            lo if lo is not None else given[0],
            given[0],
            hi if hi is not None else given[0],
        )
    return out
