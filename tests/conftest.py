"""What holds for all tests: what the collector of garbage leaves alone, and who shares a worker."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest

from tests.shared_code import shares, sharing


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Twenty thousand tests are some million objects that live as long as the process: the
    collector would go through them every few seconds (3 of the 27 s of 114 tests, measured).
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files whose tests share code run on one worker, too."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Scheduler(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if scope == nodeid and shares(nodeid) else scope

    return Scheduler(config, log)


@pytest.fixture(scope="session")
def _compile_once() -> Any:
    from braze.codegen.cpu.backend import CpuBackend

    return sharing(CpuBackend.compile)


@pytest.fixture(autouse=True)
def _shared_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that tests of this worker had compiled before are not compiled anew."""
    if shares(request.node.nodeid):
        from braze.codegen.cpu.backend import CpuBackend

        monkeypatch.setattr(CpuBackend, "compile", request.getfixturevalue("_compile_once"))
