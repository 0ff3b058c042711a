"""These tests give engines addresses of the host, so they build for it where there is a GPU too.

What `used.txt` says a test uses, it uses: see `used.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

os.environ.setdefault("BRAZE_TARGET", "cpu")

import braze.tensorrt as trt
import tensorrt_compat as compat
from tests.tensorrt import used
from tests.tensorrt.plugins import Creator, OldCreator

USES = pytest.StashKey[dict[str, set[str]]]()  # test -> what it used
FAILED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[USES] = {}


@pytest.fixture(scope="session")
def recorder() -> used.Recorder | None:
    """What notes the names that are used; None where the page with them is not there."""
    if not compat.PAGE.exists():
        return None
    return used.Recorder(compat.names_of_page(compat.PAGE.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def promised() -> dict[str, set[str]]:
    """Test -> the names that it must use."""
    found: dict[str, set[str]] = {}
    for name, test in used.read_table().items():
        found.setdefault(test, set()).add(name)
    return found


@pytest.fixture(autouse=True)
def _uses_its_names(
    request: pytest.FixtureRequest,
    recorder: used.Recorder | None,
    promised: dict[str, set[str]],
) -> Iterator[None]:
    if recorder is None:
        yield
        return
    recorder.used.clear()
    yield
    if request.node.stash.get(FAILED, False):
        return
    test = request.node.nodeid.partition("tensorrt/")[2]
    request.config.stash[USES][test] = set(recorder.used)
    missing = promised.get(test, set()) - recorder.used
    if missing and used.WRITE not in os.environ:
        pytest.fail(
            f"this test no longer uses {', '.join(sorted(missing))}, as used.txt says; "
            "use them, or run python -m tests.tensorrt.used"
        )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.stash[FAILED] = not report.passed


def pytest_sessionfinish(session: pytest.Session) -> None:
    if used.WRITE in os.environ:
        used.write_table(session.config.stash[USES])


@pytest.fixture
def creators() -> Iterator[list[Any]]:
    """Registered while a test runs."""
    made = [Creator(), OldCreator()]
    registry = trt.get_plugin_registry()
    for creator in made:
        assert registry.register_creator(creator)
    yield made
    for creator in made:
        assert registry.deregister_creator(creator)
