"""A few hundred steps of loops whose full length is `python -m tests.streams`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.streams.loops import GROWTH, Loop, detect, generate


@pytest.mark.parametrize(("loop", "steps"), [(detect, 400), (generate, 300)])
def test_single_steps_are_one_long_run(loop: Callable[[int], Loop], steps: int) -> None:
    """The bits of one run over all steps, and no memory that grows with them."""
    found = loop(steps)
    assert found.steps == steps
    assert found.differing == 0
    assert found.after - found.before < GROWTH, str(found)
