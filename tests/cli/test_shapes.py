"""Parsing of trtexec's shape lists."""

from __future__ import annotations

import pytest

from braze.cli.shapes import (
    expand_names,
    parse_dims,
    parse_pairs,
    parse_shapes,
    parse_values,
    profile_ranges,
)
from braze.core.errors import BindingError, ConfigError


def test_shapes_of_several_inputs() -> None:
    got = parse_shapes("x:1x3x224x224,y:scalar,z:0x7", "--shapes")
    assert got == {"x": (1, 3, 224, 224), "y": (), "z": (0, 7)}


def test_last_colon_ends_the_name() -> None:
    assert parse_shapes("input:0:1x3", "--shapes") == {"input:0": (1, 3)}


def test_quotes_keep_commas_in_names() -> None:
    assert parse_shapes("'a,b':1,\"c:1\":2x2", "--shapes") == {"a,b": (1,), "c:1": (2, 2)}


@pytest.mark.parametrize(
    "text", ["x", ":1x3", "x:1x", "x:-1x3", "x:1X3", "x:1x3,", "x:1,x:2", "'x:1", "x:²"]
)
def test_wrong_spellings_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_shapes(text, "--minShapes")


def test_scalars_with_and_without_the_word() -> None:
    assert parse_shapes("x:,y:scalar,z:2", "--shapes") == {"x": (), "y": (), "z": (2,)}


def test_error_names_the_option() -> None:
    with pytest.raises(ConfigError, match="--optShapes"):
        parse_dims("3x", "--optShapes")


def test_values_keep_integers_and_floats_apart() -> None:
    got = parse_values("a:1x-2x3,b:0.5x1e-3", "--values")
    assert got == {"a": (1, -2, 3), "b": (0.5, 0.001)}
    assert all(isinstance(v, int) for v in got["a"])
    with pytest.raises(ConfigError):
        parse_values("a:1xtwo", "--values")


def test_pairs_keep_paths() -> None:
    assert parse_pairs("x:/a/b.npy", "--loadInputs") == {"x": "/a/b.npy"}


def test_patterns_lose_to_plain_names() -> None:
    got = expand_names({"*": (1,), "in_b": (2,)}, ["in_a", "in_b"], "--shapes")
    assert got == {"in_a": (1,), "in_b": (2,)}


def test_unmatched_pattern_lists_the_inputs() -> None:
    with pytest.raises(BindingError, match="in_a, in_b"):
        expand_names({"out*": (1,)}, ["in_a", "in_b"], "--shapes")


@pytest.mark.parametrize(
    ("low", "opt", "high", "expected"),
    [
        ((1,), (2,), (3,), ((1,), (2,), (3,))),
        (None, (2,), None, ((2,), (2,), (2,))),
        ((1,), None, (3,), ((1,), (3,), (3,))),
        ((1,), None, None, ((1,), (1,), (1,))),
        (None, (2,), (3,), ((2,), (2,), (3,))),
    ],
)
def test_left_out_corners_follow_the_given_ones(
    low: tuple[int, ...] | None,
    opt: tuple[int, ...] | None,
    high: tuple[int, ...] | None,
    expected: object,
) -> None:
    def of(shape: tuple[int, ...] | None) -> dict[str, tuple[int, ...]]:
        return {} if shape is None else {"x": shape}

    assert profile_ranges(of(low), of(opt), of(high)) == {"x": expected}
