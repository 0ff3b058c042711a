"""Options in the words of Python and of the command line."""

from __future__ import annotations

import copy
import pickle

import pytest

from braze.cli.shapes import parse_shapes
from braze.core.errors import BrazeError, ProfileError
from braze.core.words import COMMAND, OPEN, PYTHON, worded


def test_shapes() -> None:
    one, two = ((1, 3),) * 3, ((1,), (2,), (4,))
    assert PYTHON.shapes({"x": one}) == "shapes={'x': (1, 3)}"
    assert PYTHON.shapes({"x": two}) == "shapes={'x': ((1,), (2,), (4,))}"
    assert COMMAND.shapes({"x": one, "s": ((),) * 3}) == "--shapes=x:1x3,s:scalar"
    assert COMMAND.shapes({"x": two}) == "--minShapes=x:1 --optShapes=x:2 --maxShapes=x:4"
    assert COMMAND.shapes({"x": ((1, OPEN),) * 3}) == "--shapes=x:1x..."


def test_names_that_the_command_line_must_quote() -> None:
    text = COMMAND.shapes({"a,b": ((1, 2),) * 3, "c:d": ((3,),) * 3})
    assert parse_shapes(text.removeprefix("--shapes="), "--shapes") == {"a,b": (1, 2), "c:d": (3,)}


def test_options_and_values() -> None:
    assert PYTHON.option("optimization_level", 2) == "optimization_level=2"
    assert COMMAND.option("optimization_level", 2) == "--builderOptimizationLevel=2"
    assert (PYTHON.option("values"), COMMAND.option("values")) == ("values", "--values")
    assert PYTHON.values(["a", "b"]) == "values={'a': ..., 'b': ...}"
    assert COMMAND.values(["a", "b"]) == "--values=a:...,b:..."


@pytest.mark.parametrize("duplicate", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_errors_keep_both_sentences(duplicate) -> None:
    error = duplicate(ProfileError(*worded(lambda words: f"give {words.option('threads', 2)}")))
    assert (str(error), error.command) == ("give threads=2", "give --threads=2")
    assert type(error) is ProfileError
    plain = duplicate(BrazeError("no option"))
    assert (str(plain), plain.command) == ("no option", "no option")
