"""Tests that need an NVIDIA GPU: `python -m pytest tests/gpu` on a machine that has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from braze.codegen.cuda.driver import find_card


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a GPU these tests are skipped, and say so."""
    if find_card() is not None:
        return
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="there is no NVIDIA GPU here"))
