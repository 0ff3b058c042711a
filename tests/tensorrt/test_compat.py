"""The compatibility page says what is so, and what it says works is used in these tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tensorrt_compat as compat
from tensorrt_names import find_stubs, read_names
from tensorrt_review import REVIEW

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
    source = "\n".join(p.read_text(encoding="utf-8") for p in HERE.glob("*.py"))
    words = set(re.findall(r"\w+", source))
    names = page_names()
    # members of an enum are gone through by its name
    enums = {n.owner for n in names if n.member.isupper()} & words
    unused = [
        n.text
        for n in names
        if n.state == compat.WORKS
        and n.owner.rsplit(".", 1)[-1] not in enums
        and (n.member or n.owner.rsplit(".", 1)[-1]) not in words
    ]
    assert unused == []
