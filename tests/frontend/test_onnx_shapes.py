"""Shapes, symbols and profiles of the graph inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.config import MAX_SIZE
from braze.core.dims import sym
from braze.core.dtypes import F32
from braze.core.errors import BindingError, ProfileError, ShapeError
from braze.frontend.onnx.records import DeclaredDim, ValueRecord
from braze.frontend.onnx.shapes import resolve_shapes


def record(name: str, *shape: DeclaredDim) -> ValueRecord:
    return ValueRecord(name, F32, tuple(shape))


def test_static_inputs_need_no_shapes() -> None:
    result = resolve_shapes([record("x", 1, 3)])
    assert result.types["x"].shape == (1, 3)
    assert result.bounds == {}
    assert result.profiles == ({},)


def test_one_shape_makes_everything_static() -> None:
    result = resolve_shapes([record("x", "N", 3, None)], {"x": (2, 3, 7)})
    assert result.types["x"].shape == (2, 3, 7)
    assert result.bounds == {}


@pytest.mark.parametrize(
    "given",
    [
        np.array([2, 3, 7]),
        [np.int64(2), np.uint8(3), 7],
        np.array([[2, 3, 7]] * 3),
        (np.array([2, 3, 7]), [2, 3, 7], (2, np.array(3), 7)),
        np.array([[[2, 3, 7]] * 3]),
    ],
)
def test_shapes_may_be_arrays(given: Any) -> None:
    x = record("x", "N", 3, None)
    assert resolve_shapes([x], {"x": given}).types["x"].shape == (2, 3, 7)
    assert resolve_shapes([x], dims={"N": np.array([2, 2, 2]), "x_2": np.array(7)}).bounds == {}


def test_ranges_give_symbols_and_fixed_axes_become_ints() -> None:
    x = record("x", "batch", 3, None, "batch")
    shapes = {"x": ((1, 3, 8, 1), (2, 3, 8, 2), (4, 3, 8, 4))}
    result = resolve_shapes([x], shapes)
    assert result.types["x"].shape == (sym("batch"), 3, 8, sym("batch"))
    assert result.bounds == {"batch": (1, 4)}
    assert result.profiles == ({"batch": (1, 2, 4)},)


def test_several_profiles() -> None:
    shapes = {
        "x": [((1, 8), (1, 8), (1, 8)), ((2, 8), (4, 8), (8, 8))],
        "y": ((3,), (3,), (3,)),
    }
    result = resolve_shapes([record("x", None, None), record("y", None)], shapes)
    assert result.types["x"].shape == (sym("x_0"), 8)
    assert result.types["y"].shape == (3,)
    assert result.bounds == {"x_0": (1, 8)}
    assert result.profiles == ({"x_0": (1, 1, 1)}, {"x_0": (2, 4, 8)})


def test_profiles_as_a_list_of_mappings() -> None:
    inputs = [record("x", None, 8), record("y", None)]
    shapes = [
        {"x": (1, 8), "y": (3,)},
        {"x": ((2, 8), (4, 8), (8, 8)), "y": (3,)},
    ]
    result = resolve_shapes(inputs, shapes)
    assert result.types["y"].shape == (3,)
    assert result.profiles == ({"x_0": (1, 1, 1)}, {"x_0": (2, 4, 8)})
    with pytest.raises(ProfileError, match="different inputs"):
        resolve_shapes(inputs, [{"x": (1, 8), "y": (3,)}, {"x": (1, 8)}])
    with pytest.raises(ProfileError, match="list of such mappings"):
        resolve_shapes(inputs, [(1, 8)])


def test_a_name_shared_by_inputs_is_one_symbol() -> None:
    inputs = [record("ids", "b", "s"), record("mask", "b", "s")]
    result = resolve_shapes(inputs, {"ids": ((1, 1), (1, 64), (8, 128))})
    assert result.types["mask"].shape == (sym("b"), sym("s"))
    with pytest.raises(ProfileError, match="axes of one name must agree"):
        resolve_shapes(inputs, {"ids": (1, 16), "mask": (1, 17)})


def test_names_that_are_no_names_stay_apart() -> None:
    inputs = [record("x", "?", "?", "None", "None", "")]
    lo, hi = (1, 2, 3, 4, 5), (2, 4, 6, 8, 10)
    result = resolve_shapes(inputs, {"x": (lo, lo, hi)})
    assert result.types["x"].shape == tuple(sym(f"x_{i}") for i in range(5))


def test_symbol_names_are_identifiers_and_stay_distinct() -> None:
    inputs = [record("x", "a.b", "a:b", "2*n", "if", "max"), record("in.1", None)]
    lo, hi = (1,) * 5, (9,) * 5
    result = resolve_shapes(inputs, {"x": (lo, lo, hi), "in.1": ((1,), (1,), (2,))})
    names = [str(d) for d in result.types["x"].shape + result.types["in.1"].shape]
    assert names == ["a_b", "a_b_2", "d_2_n", "d_if", "d_max", "in_1_0"]
    assert all(n.isidentifier() for n in names)


def test_unknown_rank_takes_the_rank_given() -> None:
    unknown = ValueRecord("x", F32, None)
    result = resolve_shapes([unknown], {"x": ((1, 2), (1, 2), (3, 2))})
    assert result.types["x"].shape == (sym("x_0"), 2)
    with pytest.raises(ProfileError, match="no declared rank"):
        resolve_shapes([unknown])


def test_scalar_inputs() -> None:
    assert resolve_shapes([record("x")]).types["x"].shape == ()
    assert resolve_shapes([record("x")], {"x": ()}).types["x"].shape == ()
    assert resolve_shapes([record("x")], {"x": ((), (), ())}).types["x"].shape == ()


def test_values_tell_the_shape() -> None:
    result = resolve_shapes([record("x", "n")], None, {"x": np.zeros(5)})
    assert result.types["x"].shape == (5,)


@pytest.mark.parametrize(
    ("shape", "guesses"),
    [
        (("n", 3, "h", "w"), {"n": 1, "h": 224, "w": 224}),
        (("n", "s", "t"), {"n": 1, "s": 128, "t": 128}),
        (("n", 2, "d", "h", "w"), {"n": 1, "d": 32, "h": 32, "w": 32}),
        (("n", 2, 8, "h", "w"), {"n": 1, "h": 128, "w": 128}),
        (("n", "a", "b", "c", "d"), {"n": 1, "a": 16, "b": 16, "c": 16, "d": 16}),
        (("n", *"abcdefghijklmnopqr"), {"n": 1, **dict.fromkeys("abcdefghijklmnopqr", 1)}),
        (("n", "n"), {"n": 1}),
    ],
)
def test_many_guessed_sizes_are_small(
    shape: tuple[int | str, ...], guesses: dict[str, int]
) -> None:
    assert resolve_shapes([record("x", *shape)]).guesses == guesses


def test_missing_shapes_may_be_anything_and_are_listed() -> None:
    inputs = [record("x", "N", 3, None), record("y", 2), record("z", "N", "T")]
    free = resolve_shapes(inputs)
    assert free.bounds == dict.fromkeys(("N", "x_2", "T"), (0, MAX_SIZE))
    assert free.profiles == ({name: (0, g, MAX_SIZE) for name, g in free.guesses.items()},)
    assert free.guesses == {"N": 1, "x_2": 128, "T": 128}
    text = str(free.missing)
    assert "input 'x' has dynamic axes 0 (N), 2 (x_2)" in text
    assert "input 'z' has dynamic axes 0 (N), 1 (T)" in text
    assert "shapes={'x': ((1, 3, 1), (1, 3, 1), (8, 3, 8)), 'z': " in text
    assert "'y'" not in text
    assert resolve_shapes(inputs, {"x": (1, 3, 4), "z": (1, 7)}).missing is None
    open_ended = resolve_shapes(inputs, require=False)
    assert open_ended.types["x"].shape == (sym("N"), 3, sym("x_2"))
    assert open_ended.bounds == {}


@pytest.mark.parametrize(
    ("shapes", "error", "text"),
    [
        ({"w": (1, 3)}, BindingError, "'w'"),
        ({"X": (1, 3)}, BindingError, "did you mean 'x'"),
        ({"x": (1, 4)}, ShapeError, "size 3 on axis 1"),
        ({"x": ((1, 3), (1, 3), (1, 4))}, ShapeError, "size 3 on axis 1"),
        ({"x": (1, 3, 1)}, ShapeError, "2 axes"),
        ({"x": ((2, 3), (1, 3), (4, 3))}, ProfileError, "min <= opt <= max"),
        ({"x": ((1, 3), (1,), (4, 3))}, ProfileError, "different ranks"),
        ({"x": (-1, 3)}, ProfileError, r"'x' is \(-1, 3\), .* outside 0\.\.2147483647; give"),
        ({"x": ((-1, 3), (1, 3), (1, 3))}, ProfileError, "0 <= min .*; give others"),
        ({"x": (1 << 40, 3)}, ProfileError, r"outside 0\.\.2147483647"),
        ({"x": "13"}, ProfileError, "must be one shape"),
        ({"x": (True, 3)}, ProfileError, "must be one shape"),
        ({"x": 3}, ProfileError, "must be one shape"),
        ({"x": (1.0, 3)}, ProfileError, "must be one shape"),
        ({"x": np.array([1.0, 3])}, ProfileError, "must be one shape"),
        ({"x": np.array([True, True])}, ProfileError, "must be one shape"),
        ({"x": ((1, 3), (2, 3))}, ProfileError, "must be one shape"),
        ({"x": [((1, 3),) * 3] * 2, "y": [((1,),) * 3] * 3}, ProfileError, "profiles"),
    ],
)
def test_wrong_shapes(shapes, error, text: str) -> None:
    with pytest.raises(error, match=text):
        resolve_shapes([record("x", "n", 3), record("y", None)], shapes)


def test_sizes_by_name() -> None:
    inputs = [record("x", "batch size", 3, None), record("z", "batch size", "T")]
    found = resolve_shapes(inputs, dims={"batch size": (1, 2, 8), "T": 5, "x_2": [1, (2, 3, 4)]})
    assert found.types["z"].shape == (sym("batch_size"), 5)
    assert found.bounds == {"batch_size": (1, 8), "x_2": (1, 4)}
    ranges = [{"batch_size": (1, 2, 8), "x_2": x} for x in ((1, 1, 1), (2, 3, 4))]
    assert list(found.profiles) == ranges
    assert found.missing is None
    with pytest.raises(ProfileError, match=r"'T' the number -2, outside 0\.\..*; give one within"):
        resolve_shapes(inputs, dims={"T": -2})
    with pytest.raises(ProfileError, match=r"got \(2, 1, 3\); give others"):
        resolve_shapes(inputs, dims={"T": (2, 1, 3)})


@pytest.mark.parametrize(
    ("dims", "error", "text"),
    [
        ({"M": 4}, BindingError, "sizes are 'N'"),
        ({"N": (1, 2)}, ProfileError, r"are the 2 numbers \[1, 2\]; give one, \(min, opt, max\)"),
        ({"N": [1, 2, 3, 4]}, ProfileError, "are the 4 numbers"),
        ({"N": (3, 2, 4)}, ProfileError, "min <= opt <= max"),
        ({"N": "4"}, ProfileError, "must be one size"),
        ({"N": 4}, ProfileError, "give it once"),
        ([("N", 4)], ProfileError, "dims must map"),
    ],
)
def test_bad_sizes_by_name(dims: Any, error: type[Exception], text: str) -> None:
    shapes = {"x": (5, 3)} if dims == {"N": 4} else None
    with pytest.raises(error, match=text):
        resolve_shapes([record("x", "N", 3)], shapes, dims=dims)
