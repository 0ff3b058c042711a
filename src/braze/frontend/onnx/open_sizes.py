"""Sizes of inputs that are given by their names, and those that are not given at all."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Union

import numpy as np

from braze.core.config import MAX_SIZE
from braze.core.dtypes import DType
from braze.core.errors import BindingError, ProfileError
from braze.frontend.onnx.records import ValueRecord
from braze.ir.run_sizes import Range

# one size, (min, opt, max), or a list of (min, opt, max), one a profile, by the name of the size
Dims = Mapping[str, Union[int, Sequence[Any]]]
Axes = Mapping[str, "tuple[int | str, ...] | None"]

_BATCH: Final = 1
_PICTURE: Final = 224  # a side of a picture: the last axes of a tensor of four
_LENGTH: Final = 128  # of a sequence: any other
_PLACES_LOG2: Final = 16  # of a tensor in which more than two sizes are guessed: about a picture


def parse_dims(dims: Dims | None) -> dict[str, tuple[Range, ...]]:
    """The (min, opt, max) of each named size, one a profile; raises ProfileError."""
    if dims is not None and not isinstance(dims, Mapping):
        raise ProfileError(f"dims must map names of sizes to (min, opt, max), not {dims!r}")
    return {name: _ranges(name, as_lists(option)) for name, option in (dims or {}).items()}


def as_lists(option: Any) -> Any:
    """Sizes with arrays, on any level, as the lists of their elements."""
    if isinstance(option, np.ndarray):
        return option.tolist()
    if isinstance(option, (list, tuple)):
        return [as_lists(o) for o in option]
    return option


def _ranges(name: str, option: Any) -> tuple[Range, ...]:
    if _is_size(option):
        return (_range(name, (option, option, option)),)
    if isinstance(option, (list, tuple)) and len(option) == 3 and all(map(_is_size, option)):
        return (_range(name, option),)
    if isinstance(option, (list, tuple)) and len(option) > 1 and all(map(_is_size, option)):
        raise ProfileError(
            f"dims of size {name!r} are the {len(option)} numbers {option!r}; give one, (min, opt, "
            "max), or a list of (min, opt, max), one for each profile"
        )
    if isinstance(option, (list, tuple)) and option:
        return tuple(r for o in option for r in _ranges(name, o))
    raise ProfileError(
        f"dims of size {name!r} must be one size, (min, opt, max), or a list of these, not "
        f"{option!r}"
    )


def _is_size(x: object) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


def _range(name: str, given: Sequence[int]) -> Range:
    low, opt, high = (int(x) for x in given)
    if low == opt == high and not 0 <= low <= MAX_SIZE:
        raise ProfileError(
            f"dims gives size {name!r} the number {low}, outside 0..{MAX_SIZE}; give one within, or"
            " leave it out where it may be any"
        )
    if not 0 <= low <= opt <= high <= MAX_SIZE:
        raise ProfileError(
            f"dims of size {name!r}: need 0 <= min <= opt <= max <= {MAX_SIZE}, got "
            f"{(low, opt, high)}; give others"
        )
    return low, opt, high


def bind_dims(
    dims: Mapping[str, tuple[Range, ...]],
    names: Mapping[str, str],
    profiles: Sequence[dict[str, Range]],
) -> None:
    """Put named sizes into the profiles. names: what the model calls a size -> its symbol.

    Raises BindingError for a name that the model does not have, ProfileError for a size that
    `shapes` gives in another way.
    """
    for given, ranges in dims.items():
        if given not in names:
            close = difflib.get_close_matches(str(given), names, 1)
            hint = f"; did you mean {close[0]!r}" if close else ""
            raise BindingError(
                f"dims names size {given!r}, but the model's sizes are "
                f"{', '.join(map(repr, names)) or 'all fixed'}{hint}"
            )
        for p, profile in enumerate(profiles):
            wanted = ranges[p if len(ranges) > 1 else 0]
            if profile.setdefault(names[given], wanted) != wanted:
                raise ProfileError(
                    f"size {given!r} is {wanted} in dims but shapes gives "
                    f"{profile[names[given]]}; give it once"
                )


def open_sizes(
    inputs: Sequence[ValueRecord], axes: Axes, profiles: Sequence[dict[str, Range]]
) -> dict[str, int]:
    """Let every size that is not given be anything; returns what each is guessed to be."""
    guesses: dict[str, int] = {}
    for record in inputs:
        sizes = axes[record.name]
        if sizes is None or not isinstance(record.dtype, DType):
            continue
        for d, guess in _guessed(sizes, record.dtype, profiles[0]).items():
            guesses[d] = guess
            for ranges in profiles:
                ranges[d] = (0, guess, MAX_SIZE)
    return guesses


def _guessed(
    sizes: Sequence[int | str], dtype: DType, given: Mapping[str, Range]
) -> dict[str, int]:
    """What the sizes of one tensor that are not given are taken for.

    The more of them there are the smaller: a volume of the sides of a sequence would be measured
    for minutes, and tells nothing that one of as many places as a picture does not.
    """
    found = [i for i, d in enumerate(sizes) if isinstance(d, str) and d not in given]
    many = sum(i > 0 for i in found)
    length = min(_LENGTH, 1 << _PLACES_LOG2 // max(1, many))
    guesses: dict[str, int] = {}
    for i in found:
        picture = len(sizes) == 4 and i >= 2 and dtype.is_float
        guess = _BATCH if i == 0 else _PICTURE if picture else length
        guesses.setdefault(str(sizes[i]), guess)
    return guesses
