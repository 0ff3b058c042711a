"""Inputs for a run: from files, from the content an engine is fixed to, or random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import braze
from braze.cli.contents import Content
from braze.cli.fitting import fitting
from braze.cli.layers import profile_contents, profile_shapes
from braze.cli.report import shape_string
from braze.cli.shapes import Shape, expand_names
from braze.core.dtypes import BOOL, DType
from braze.core.errors import BindingError
from braze.engine.plan import Binding, Plan

Array = np.ndarray[Any, Any]
# 0 and 1 are valid as indexes and masks nearly anywhere
SAFE_INTEGERS = 2


def run_shapes(
    engine: braze.Engine,
    given: Mapping[str, Shape],
    files: Mapping[str, Content],
    profile: int | None = None,
) -> dict[str, Shape]:
    """Shapes of one run: those of .npy files, those given (names may be patterns), else the opt
    shapes of the profile, the first one where none is given. Sizes that a build guessed give way to
    others where the engine takes those only.

    Raises ShapeError and ProfileError where the engine does not take them: before there are arrays
    of them, which may be of any size.
    """
    plan = engine.plan
    shapes = profile_shapes(plan, profile or 0, "opt")
    told = expand_names(given, [b.name for b in plan.inputs], "--shapes")
    contents = _told_contents(plan, given)
    known = {n: shape for n, shape in told.items() if n not in contents}
    arrays = {n: f.data.shape for n, f in files.items() if not isinstance(f.data, bytes)}
    known |= {n: shape for n, shape in arrays.items() if n in shapes}
    context = engine.create_context(profile)

    def check(shapes: Mapping[str, Shape]) -> None:
        for name, shape in shapes.items():
            context.set_input_shape(name, shape)
        for binding in plan.outputs:
            context.shape(binding.name)

    return dict(fitting(plan, shapes | known, frozenset(known), check))


def _told_contents(plan: Plan, given: Mapping[str, Shape]) -> dict[str, Shape]:
    """What --shapes says of inputs whose content is bounded, or fixed: as many numbers as they
    hold, which are not the shape of one that is fixed.
    """
    rows = {b.name: b for b in plan.inputs}
    own = profile_shapes(plan, 0, "opt")
    found = {}
    for name, numbers in expand_names(given, list(rows), "--shapes").items():
        row = rows[name]
        if len(numbers) == len(row.content or row.value) > 0 and (
            row.content or numbers != own[name]
        ):
            found[name] = numbers
    return found


def bounded_contents(
    plan: Plan,
    shapes: Mapping[str, Shape],
    given: Mapping[str, Shape],
    files: Mapping[str, Content],
    profile: int | None = None,
) -> dict[str, Array]:
    """Contents that --shapes tells, and of inputs that profiles bound: those of the files, else the
    opt ones of the profile, where none is given of the first that all the others fit.
    """
    rows = {b.name: b for b in plan.inputs}
    found = {
        name: np.array(numbers, rows[name].dtype.numpy).reshape(shapes[name])
        for name, numbers in _told_contents(plan, given).items()
    }
    bounded = {name: b for name, b in rows.items() if b.content}
    read = files.keys() & (found.keys() | bounded.keys())
    found |= {name: files[name].array(rows[name].dtype, shapes[name]) for name in read}
    for k in range(len(plan.profiles)) if profile is None else ():
        if _fits(plan, k, shapes, found):
            profile = k
            break
    best = profile_contents(plan, profile or 0, "opt") if bounded else {}
    made = {
        name: np.array(best[name], b.dtype.numpy).reshape(shapes[name])
        for name, b in bounded.items()
    }
    return made | found


def _fits(
    plan: Plan, profile: int, shapes: Mapping[str, Shape], contents: Mapping[str, Array]
) -> bool:
    numbers = {n: a.ravel().tolist() for n, a in contents.items()}
    for given, corner in ((shapes, profile_shapes), (numbers, profile_contents)):
        low, high = corner(plan, profile, "min"), corner(plan, profile, "max")
        for name in low.keys() & given.keys():
            inside = zip(low[name], given[name], high[name], strict=False)  # a run checks the rest
            if not all(a <= n <= b for a, n, b in inside):
                return False
    return True


def make_feed(
    plan: Plan,
    shapes: Mapping[str, Shape],
    files: Mapping[str, Content],
    bounded: Mapping[str, Array],
    seed: int = 0,
    integers: int = SAFE_INTEGERS,
) -> dict[str, Array]:
    """An array per input; random integers are below `integers`. bounded: see `bounded_contents`.

    Raises BindingError for a file that names no input.
    """
    unknown = set(files) - {b.name for b in plan.inputs}
    if unknown:
        names = ", ".join(b.name for b in plan.inputs)
        raise BindingError(f"--loadInputs names {sorted(unknown)[0]!r}; the inputs are {names}")
    rng = np.random.default_rng(seed)
    return {
        b.name: bounded[b.name]
        if b.name in bounded
        else _input(b, shapes[b.name], files.get(b.name), rng, integers)
        for b in plan.inputs
    }


def input_lines(
    plan: Plan,
    feed: Mapping[str, Array],
    files: Mapping[str, Content],
    integers: int = SAFE_INTEGERS,
) -> list[str]:
    """One line an input: its shape, type and where its content comes from."""
    lines = []
    for b in plan.inputs:
        source = "fixed" if b.value else f"random 0..{integers - 1}" if b.dtype.is_int else "random"
        if b.content:
            source = f"values {shape_string(feed[b.name].ravel().tolist())}"
        what = f"{shape_string(feed[b.name].shape)} {b.dtype}"
        source = files[b.name].path if b.name in files else source
        lines.append(f"Input {b.name}: {what} ({source})")
    return lines


def _input(
    binding: Binding, shape: Shape, file: Content | None, rng: np.random.Generator, integers: int
) -> Array:
    if file is not None:
        return file.array(binding.dtype, shape)
    if binding.value:
        return np.array(binding.value, binding.dtype.numpy).reshape(shape)
    return random_array(binding.dtype, shape, rng, integers)


def random_array(
    dtype: DType, shape: Shape, rng: np.random.Generator, integers: int = SAFE_INTEGERS
) -> Array:
    """Normal floats, and integers from 0 to `integers` - 1."""
    if dtype is BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_float:
        return np.asarray(rng.standard_normal(shape), dtype.numpy)
    return np.asarray(rng.integers(0, integers, shape), dtype.numpy)
