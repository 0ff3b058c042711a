"""Inputs for a run: from files, from the content an engine is fixed to, or random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import braze
from braze.cli.contents import Content
from braze.cli.layers import profile_shapes
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
    shapes of the profile, the first one where none is given.

    Raises ShapeError and ProfileError where the engine does not take them: before there are arrays
    of them, which may be of any size.
    """
    plan = engine.plan
    shapes = profile_shapes(plan, profile or 0, "opt")
    shapes.update(expand_names(given, [b.name for b in plan.inputs], "--shapes"))
    arrays = {n: f.data.shape for n, f in files.items() if not isinstance(f.data, bytes)}
    shapes.update({n: shape for n, shape in arrays.items() if n in shapes})
    context = engine.create_context(profile)
    for name, shape in shapes.items():
        context.set_input_shape(name, shape)
    for binding in plan.outputs:
        context.shape(binding.name)
    return shapes


def make_feed(
    plan: Plan,
    shapes: Mapping[str, Shape],
    files: Mapping[str, Content],
    seed: int = 0,
    integers: int = SAFE_INTEGERS,
) -> dict[str, Array]:
    """An array per input; random integers are below `integers`.

    Raises BindingError for a file that names no input.
    """
    unknown = set(files) - {b.name for b in plan.inputs}
    if unknown:
        names = ", ".join(b.name for b in plan.inputs)
        raise BindingError(f"--loadInputs names {sorted(unknown)[0]!r}; the inputs are {names}")
    rng = np.random.default_rng(seed)
    return {
        b.name: _input(b, shapes[b.name], files.get(b.name), rng, integers) for b in plan.inputs
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
