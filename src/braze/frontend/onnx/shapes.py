"""Input shapes of a build: symbols for dynamic axes and their ranges in each profile."""

from __future__ import annotations

import difflib
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, Interval, sym
from braze.core.dtypes import DType
from braze.core.errors import BindingError, DTypeError, ProfileError, ShapeError
from braze.core.words import Sizes, worded
from braze.frontend.onnx.contents import Bounded, split_values
from braze.frontend.onnx.open_sizes import Dims, as_lists, bind_dims, open_sizes, parse_dims
from braze.frontend.onnx.records import ValueRecord
from braze.ir.graph import TensorType
from braze.ir.run_sizes import Range

Triple = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
# one shape, (min, opt, max), or a list of these triples (one a profile)
ShapeOption = Sequence[Any]
# by input name, or a sequence of such mappings, one a profile
Shapes = Union[Mapping[str, ShapeOption], Sequence[Mapping[str, ShapeOption]]]

# what exporters write for "any size"; two such axes are not the same symbol
_NO_NAME = {"", "?", "None", "none", "unknown", "dynamic"}


@dataclass(frozen=True, slots=True)
class ImportShapes:
    """Types of the graph inputs, and what their symbols may be.

    types: input name -> type (inputs of types braze lacks are absent); bounds: (min, max) of each
    symbol over all profiles; profiles: (min, opt, max) of each symbol, one mapping a profile;
    guesses: what sizes that are not given are taken for where kernels are measured; missing: how
    to give those sizes, None where all are given; fixed: contents of inputs; contents: the symbols
    of the elements of inputs whose content is bounded.
    """

    types: Mapping[str, TensorType]
    bounds: Mapping[str, Interval]
    profiles: tuple[Mapping[str, Range], ...]
    guesses: Mapping[str, int]
    missing: ProfileError | None
    fixed: Mapping[str, Any]
    contents: Mapping[str, tuple[str, ...]]


def merge_profiles(shapes: Shapes | None) -> dict[str, ShapeOption]:
    """`shapes` as one mapping; a sequence of mappings becomes lists with an entry a profile.

    Raises ProfileError when the mappings do not name the same inputs.
    """
    if shapes is None or isinstance(shapes, Mapping):
        return dict(shapes or {})
    profiles = list(shapes)
    if not all(isinstance(p, Mapping) for p in profiles):
        raise ProfileError(
            f"shapes must map input names to shapes, or be a list of such mappings, not {shapes!r}"
        )
    merged: dict[str, ShapeOption] = {}
    for p in profiles:
        if set(p) != set(profiles[0]):
            raise ProfileError(
                f"profiles name different inputs ({sorted(p)} and {sorted(profiles[0])}); every "
                "profile must name the same ones"
            )
    for name in profiles[0] if profiles else ():
        triples = [parse_option(name, p[name]) for p in profiles]
        if any(len(t) != 1 for t in triples):
            raise ProfileError(f"shapes of input {name!r}: a profile holds one shape or one range")
        merged[name] = [t[0] for t in triples]
    return merged


def resolve_shapes(
    inputs: Sequence[ValueRecord],
    shapes: Shapes | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    dims: Dims | None = None,
    require: bool = True,
) -> ImportShapes:
    """Give every input axis a size or a bounded symbol.

    shapes: input name -> one shape, (min, opt, max), or a list of (min, opt, max), one a profile;
    or a sequence of such mappings, one a profile.
    values: input name -> content, or (min, opt, max) contents, whose shape counts as the input's
    shape. Axes that share a name share a symbol; a symbol with one possible value becomes that
    value. dims: sizes by symbol. Sizes that are not given may be anything; with `require` False
    they have no bounds.
    Raises BindingError for unknown names, ShapeError for a size that contradicts the model and
    ProfileError for inputs of unknown rank and contradictory sizes.
    """
    names = [i.name for i in inputs]
    options: dict[str, tuple[Triple, ...]] = {}
    for name, option in merge_profiles(shapes).items():
        check_input_name(name, names, "shapes")
        options[name] = parse_option(name, option)
    fixed, bounded = split_values(inputs, values or {})
    for name, content in fixed.items():
        shape = _content_shape(name, content)
        options.setdefault(name, ((shape, shape, shape),))
    for name, content in bounded.items():
        own = (content.shape,) * 3
        if any(triple != own for triple in options.setdefault(name, (own,))):
            raise ShapeError(
                f"values of input {name!r} have shape {list(content.shape)} but shapes gives it "
                "another; leave it out of shapes"
            )
    by_name = parse_dims(dims)
    ranged = {name: b.profiles for name, b in bounded.items() if len(b.profiles) > 1}
    num_profiles = _num_profiles({**options, **by_name, **ranged})
    axes, symbols = _name_axes(inputs, options)
    profiles: tuple[dict[str, Range], ...] = tuple({} for _ in range(num_profiles))
    for record in inputs:
        for p, ranges in enumerate(profiles):
            if record.name in options:
                given = options[record.name]
                triple = given[p if len(given) > 1 else 0]
                _bind(record.name, axes[record.name], triple, ranges)
    bind_dims(by_name, symbols, profiles)
    missing = _missing_sizes(inputs, axes, profiles[0])
    unranked = any(axes[i.name] is None for i in inputs if isinstance(i.dtype, DType))
    if require and unranked and missing is not None:
        raise missing
    guesses = open_sizes(inputs, axes, profiles) if require else {}
    contents = _bind_contents(bounded, axes, profiles)
    return _collect(inputs, axes, profiles, guesses, missing, fixed, contents)


def _bind_contents(
    bounded: Mapping[str, Bounded],
    axes: Mapping[str, tuple[int | str, ...] | None],
    profiles: Sequence[dict[str, Range]],
) -> dict[str, tuple[str, ...]]:
    """A symbol for every element that is bounded, with its range in each profile."""
    taken = {d: d for sizes in axes.values() for d in sizes or () if isinstance(d, str)}
    found = {}
    for name, content in bounded.items():
        found[name] = tuple(
            _unique(f"{name}_{i}", f"\0{name}[{i}]", taken)
            for i in range(len(content.profiles[0]))
        )
        for p, ranges in enumerate(profiles):
            given = content.profiles[p if len(content.profiles) > 1 else 0]
            ranges.update(zip(found[name], given, strict=True))
    return found


def _content_shape(name: str, content: Any) -> tuple[int, ...]:
    try:
        return np.shape(content)
    except (ValueError, TypeError) as e:
        raise DTypeError(f"values of input {name!r} are no array ({e}); give a numpy array") from e


def check_input_name(name: str, names: Iterable[str], option: str) -> None:
    """Raise BindingError unless `name` is one of `names`."""
    known = list(names)
    if name in known:
        return
    folded = {k.casefold(): k for k in known}
    close = difflib.get_close_matches(str(name).casefold(), folded, 1)
    hint = f"; did you mean {folded[close[0]]!r}" if close else ""
    inputs = ", ".join(map(repr, known)) or "none"
    raise BindingError(
        *worded(
            lambda words: (
                f"{words.option(option)} names input {name!r}, but the model's inputs are "
                f"{inputs}{hint}"
            )
        )
    )


def parse_option(name: str, option: ShapeOption) -> tuple[Triple, ...]:
    """The (min, opt, max) triples, one a profile, that a `shapes` entry means."""
    option = as_lists(option)
    if _is_shape(option):
        shape = tuple(int(d) for d in option)
        return (_check_triple(name, (shape, shape, shape)),)
    if _is_triple(option):
        return (_check_triple(name, _triple(option)),)
    if isinstance(option, (list, tuple)) and option and all(_is_triple(o) for o in option):
        return tuple(_check_triple(name, _triple(o)) for o in option)
    raise ProfileError(
        f"shapes of input {name!r} must be one shape, (min, opt, max) shapes, or a list of "
        f"(min, opt, max), not {option!r}"
    )


def _is_shape(option: object) -> bool:
    return isinstance(option, (list, tuple)) and all(
        isinstance(d, (int, np.integer)) and not isinstance(d, bool) for d in option
    )


def _is_triple(option: object) -> bool:
    return isinstance(option, (list, tuple)) and len(option) == 3 and all(map(_is_shape, option))


def _triple(option: Sequence[Sequence[int]]) -> Triple:
    lo, opt, hi = (tuple(int(d) for d in s) for s in option)
    return lo, opt, hi


def _check_triple(name: str, triple: Triple) -> Triple:
    lo, opt, hi = triple
    if not len(lo) == len(opt) == len(hi):
        raise ProfileError(f"shapes of input {name!r}: min, opt and max have different ranks")
    if any(not 0 <= a <= b <= c <= MAX_SIZE for a, b, c in zip(lo, opt, hi, strict=True)):
        if lo == opt == hi:
            raise ProfileError(
                f"the shape of input {name!r} is {lo}, with a size outside 0..{MAX_SIZE}; give a "
                "size within for every axis: min, opt and max where it varies"
            )
        raise ProfileError(
            f"shapes of input {name!r}: need 0 <= min <= opt <= max <= {MAX_SIZE} on every axis, "
            f"got {lo}, {opt}, {hi}; give others"
        )
    return triple


def _num_profiles(options: Mapping[str, tuple[Any, ...]]) -> int:
    counts = {name: len(triples) for name, triples in options.items()}
    most = max(counts.values(), default=1)
    for name, count in counts.items():
        if count not in (1, most):
            raise ProfileError(
                f"shapes of input {name!r} hold {count} profiles but another input has {most}; "
                "give each input one profile or all of them"
            )
    return most


def _name_axes(
    inputs: Sequence[ValueRecord], options: Mapping[str, tuple[Triple, ...]]
) -> tuple[dict[str, tuple[int | str, ...] | None], dict[str, str]]:
    """Size or symbol name of every axis, None for inputs of unknown rank; and what the model calls
    a size -> its symbol."""
    taken: dict[str, str] = {}
    named: dict[str, str] = {}
    axes: dict[str, tuple[int | str, ...] | None] = {}
    for record in inputs:
        declared = record.shape
        if declared is None:
            if record.name not in options:
                axes[record.name] = None
                continue
            declared = (None,) * len(options[record.name][0][0])
        out: list[int | str] = []
        for i, d in enumerate(declared):
            if isinstance(d, int):
                out.append(d)
            elif d is None or d in _NO_NAME or not re.search(r"[^\W\d_]", d, re.ASCII):
                out.append(_unique(f"{record.name}_{i}", f"\0{record.name}\0{i}", taken))
            else:
                named.setdefault(d, _unique(d, d, taken) if d not in named else named[d])
                out.append(named[d])
        axes[record.name] = tuple(out)
    given = {d: d for out in axes.values() for d in out or () if isinstance(d, str)}
    return axes, {**given, **named}


def _unique(text: str, key: str, taken: dict[str, str]) -> str:
    """An identifier made of `text` that stands for `key` alone."""
    base = re.sub(r"\W", "_", text, flags=re.ASCII)
    if not base[0].isalpha() or keyword.iskeyword(base) or base in ("max", "min"):
        base = f"d_{base}"
    name, count = base, 1
    while taken.setdefault(name, key) != key:
        count += 1
        name = f"{base}_{count}"
    return name


def _bind(
    name: str, axes: tuple[int | str, ...] | None, triple: Triple, ranges: dict[str, Range]
) -> None:
    assert axes is not None
    if len(triple[0]) != len(axes):
        raise ShapeError(
            f"input {name!r} has {len(axes)} axes in the model but is given the shape {triple[1]}; "
            "give a size for every axis"
        )
    for i, (axis, *given) in enumerate(zip(axes, *triple, strict=True)):
        lo, opt, hi = given
        if isinstance(axis, int):
            if (lo, opt, hi) != (axis, axis, axis):
                raise ShapeError(
                    f"input {name!r} has size {axis} on axis {i} in the model but is given "
                    f"{lo if lo == hi else (lo, opt, hi)}; only dynamic axes can be chosen"
                )
        elif ranges.setdefault(axis, (lo, opt, hi)) != (lo, opt, hi):
            raise ProfileError(
                f"input {name!r}, axis {i}: the model names this size {axis}, which another axis "
                f"gives {ranges[axis]} but this one {(lo, opt, hi)}; axes of one name must agree"
            )


def _missing_sizes(
    inputs: Sequence[ValueRecord],
    axes: Mapping[str, tuple[int | str, ...] | None],
    ranges: Mapping[str, Range],
) -> ProfileError | None:
    """Which sizes are not given and how to give them; None where all are."""
    problems: list[str] = []
    example: dict[str, tuple[Sizes, Sizes, Sizes]] = {}
    for record in inputs:
        sizes = axes[record.name]
        if not (record.dtype is None or isinstance(record.dtype, DType)):
            continue
        if sizes is None:
            problems.append(f"input {record.name!r} has no declared rank")
            example[record.name] = ((1, 3, 224, 224),) * 3
            continue
        missing = [i for i, d in enumerate(sizes) if isinstance(d, str) and d not in ranges]
        if missing:
            text = ", ".join(f"{i} ({sizes[i]})" for i in missing)
            problems.append(f"input {record.name!r} has dynamic axes {text}")
            known, most = (
                tuple(d if isinstance(d, int) else ranges.get(d, (1, 1, 8))[end] for d in sizes)
                for end in (0, 2)
            )
            example[record.name] = (known, known, most)
    if not problems:
        return None
    return ProfileError(
        *worded(
            lambda words: (
                f"{'; '.join(problems)}: give their min, opt and max sizes, for example "
                f"{words.shapes(example)}"
            )
        )
    )


def _collect(
    inputs: Sequence[ValueRecord],
    axes: Mapping[str, tuple[int | str, ...] | None],
    profiles: tuple[dict[str, Range], ...],
    guesses: Mapping[str, int],
    missing: ProfileError | None,
    fixed_contents: Mapping[str, Any],
    contents: Mapping[str, tuple[str, ...]],
) -> ImportShapes:
    bounds = {
        name: (min(p[name][0] for p in profiles), max(p[name][2] for p in profiles))
        for name in profiles[0]
    }
    elements = {s for symbols in contents.values() for s in symbols}
    fixed = {n: lo for n, (lo, hi) in bounds.items() if lo == hi and n not in elements}
    types: dict[str, TensorType] = {}
    for record in inputs:
        sizes = axes[record.name]
        if sizes is not None and isinstance(record.dtype, DType):
            shape: tuple[Dim, ...] = tuple(
                d if isinstance(d, int) else fixed.get(d, sym(d)) for d in sizes
            )
            types[record.name] = TensorType(record.dtype, shape)
    free = [name for name in bounds if name not in fixed]
    return ImportShapes(
        types=types,
        bounds={name: bounds[name] for name in free},
        profiles=tuple({name: p[name] for name in free} for p in profiles),
        guesses=guesses,
        missing=missing,
        fixed=fixed_contents,
        contents=contents,
    )
