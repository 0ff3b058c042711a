"""Tests of one `xdist_group` are kept together (tests/conftest.py)."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("kept together")
def test_a_group_reaches_the_scheduler(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", False):
        pytest.skip("tests run in one process, or are not shared out by groups")
    assert request.node.nodeid.endswith("@kept together")
