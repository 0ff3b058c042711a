"""Build options: what is refused, and that each level does what the one below does and more."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from braze.core.config import EFFORTS, BuildConfig
from braze.core.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "fp4"}, "precision 'fp4' is not available; use one of fp32"),
        ({"precision": "int8,"}, "precision '' is not available"),
        ({"layer_precisions": (("a*", "int8"),)}, r"precision 'int8' of layer 'a\*'"),
        ({"optimization_level": -1}, r"_level=-1 is outside 0\.\.5; give a number from 0"),
        ({"optimization_level": 6}, r"is outside 0\.\.5; give a number"),
        ({"optimization_level": "3"}, "='3' is a str, not a whole number; give a number"),
        ({"optimization_level": 2.5}, "not a whole number"),
        ({"optimization_level": 2.0}, "=2.0 is a float, not a whole number"),
        ({"timing_cache": 3}, "timing_cache=3 is no path; give a file's"),
        ({"debug": ("a", 1)}, "no text; give tensor names"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BuildConfig(**options)


def test_tf32_changes_one_thing() -> None:
    for level in range(6):
        plain = BuildConfig(optimization_level=level).effort
        rounded = BuildConfig(precision="tf32", optimization_level=level).effort
        assert not plain.tf32 and rounded == replace(plain, tf32=True)


def test_options_that_are_right() -> None:
    config = BuildConfig(optimization_level=5, timing_cache=Path("a"), debug=("x",))
    assert config.effort is EFFORTS[5]
    assert BuildConfig().effort is EFFORTS[3]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.precision = "fp16"  # type: ignore[misc]


def test_every_level_does_at_least_what_the_one_below_does() -> None:
    assert len(EFFORTS) == 6
    for low, high in pairwise(EFFORTS):
        for field in dataclasses.fields(low):
            a, b = getattr(low, field.name), getattr(high, field.name)
            assert set(a) <= set(b) if isinstance(a, tuple) else a <= b, field.name
        assert low != high
