"""What holds for all tests: the collector of garbage does not look at the tests themselves."""

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
