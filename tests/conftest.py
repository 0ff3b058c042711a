"""What holds for all tests: what the collector of garbage leaves alone, and who shares a worker."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Twenty thousand tests are some million objects that live as long as the process: the
    collector would go through them every few seconds, for a twelfth of all the time of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one `xdist_group` run on one worker, which builds their engines once.

    pytest-xdist tells its scheduler so by a suffix of the test's name, which it writes where pytest
    looked for it before 9.2 (pytest-dev/pytest-xdist#1386: the groups are lost without a word).
    """
    if not config.getoption("loadgroup", False):
        return
    for item in items:
        groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
        if groups and "@" not in item.nodeid.rpartition("]")[2]:
            from _pytest.nodeid import NodeId

            item._id = NodeId.parse(f"{item.nodeid}@{'_'.join(groups)}")
