"""Every stage of a dozen small models prints what it printed before.

A change that means to move a stage updates the texts with `python -m tests.stages.update` and
shows them in its diff; a change that means to move none leaves them alone.
"""

from __future__ import annotations

import difflib

import pytest

from tests.stages.models import MODELS
from tests.stages.texts import FOLDER, golden_path, stage_texts

MOST_LINES = 120


@pytest.mark.parametrize("name", MODELS)
def test_stages_are_as_kept(name: str) -> None:
    path = golden_path(name)
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    made = stage_texts(MODELS[name]())
    if kept != made:
        pytest.fail(_difference(name, kept, made), pytrace=False)


def test_no_text_without_a_model() -> None:
    assert {p.stem for p in FOLDER.glob("*.txt")} == set(MODELS)


def _difference(name: str, kept: str, made: str) -> str:
    """The changed lines, each group under the title of its section."""
    lines = [f"the stages of {name} changed; if they should: python -m tests.stages.update {name}"]
    old, new = _sections(kept), _sections(made)
    for title in dict.fromkeys([*old, *new]):
        diff = list(difflib.unified_diff(old.get(title, []), new.get(title, []), n=1, lineterm=""))
        if diff:
            lines += ["", f"==== {title}", *diff[2:]]
    more = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"... {more} more lines"] if more > 0 else [])])


def _sections(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for part in text.split("==== ")[1:]:
        title, *lines = part.splitlines()
        found[title] = lines
    return found


def test_a_difference_shows_section_and_lines() -> None:
    kept = "==== regions\na\nb\nc\n\n==== kernels\nsame\n"
    shown = _difference("net", kept, kept.replace("b", "d"))
    assert "==== regions" in shown and "-b" in shown and "+d" in shown
    assert "kernels" not in shown
