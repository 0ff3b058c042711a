"""The compatibility page says what is so, and what it says works is used in these tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tensorrt_compat as compat
from tensorrt_names import find_stubs, read_names
from tensorrt_review import REVIEW
from tests.tensorrt.used import read_table

HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(not compat.PAGE.exists(), reason="the page is not beside the tests")


def page_names() -> list[compat.Name]:
    return compat.judge(compat.names_of_page(compat.PAGE.read_text(encoding="utf-8")))


def test_the_page_is_what_the_script_makes() -> None:
    names = page_names()
    assert compat.page(names) == compat.PAGE.read_text(encoding="utf-8")
    assert len(names) > 1200 and not [n.text for n in names if n.state == compat.MISSING]


def test_the_page_has_the_names_of_the_stubs() -> None:
    folder = find_stubs()
    if folder is None:
        pytest.skip("tensorrt-stubs is not installed; the page keeps its names")
    names = {k: tuple(sorted(v)) for k, v in read_names(folder).items()}
    assert compat.names_of_page(compat.PAGE.read_text(encoding="utf-8")) == names


def test_every_line_of_the_review_is_about_a_name() -> None:
    texts = [n.text for n in page_names()]
    unused = [p for p, _, _ in REVIEW if not any(compat.fnmatchcase(t, p) for t in texts)]
    assert unused == []


def test_what_works_is_used_in_tests() -> None:
    """By a test that is there; that it still uses the name is checked where it runs."""
    works = {n.text for n in page_names() if n.state == compat.WORKS}
    table = read_table()
    assert sorted(works - set(table)) == [], "python -m tests.tensorrt.used finds who uses them"
    tests = {t.partition("[")[0] for t in table.values()}
    there = {
        f"{p.name}::{name}"
        for p in HERE.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", p.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert sorted(tests - there) == []


def test_most_names_work() -> None:
    names = page_names()
    assert sum(n.state == compat.WORKS for n in names) >= 0.85 * len(names)
