"""Targets by name: what is there is found, what is not is refused with a list of what is."""

from __future__ import annotations

import pytest

from braze.codegen.catalog import find_backend, target_names
from braze.codegen.cuda.driver import find_card
from braze.core.errors import ConfigError, TargetError


def test_a_name_gives_its_target_back() -> None:
    for name in target_names():
        if name == "cuda" and find_card() is None:
            with pytest.raises(TargetError, match="such as 'cuda:sm_90'"):
                find_backend(name, 2)
            continue
        backend = find_backend(name, 2)
        assert backend.target.name in (name, find_backend(backend.target.name, 2).target.name)
        assert backend.target.threads <= 2


@pytest.mark.parametrize("target", ["tpu", "cuda:sm_1", "cpu:", "cpu:avx1024", "", None, ["cpu"]])
def test_what_is_not_there_is_refused(target: object) -> None:
    with pytest.raises(ConfigError, match=r"not available; use one of cpu, cpu:avx512, cpu:avx2"):
        find_backend(target, 1)


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_threads_have_limits(threads: int) -> None:
    with pytest.raises(ConfigError, match=r"outside 0\.\.1024; 0 uses all processors"):
        find_backend("cpu:avx2", threads)


def test_a_gpu_that_is_not_here_is_told_in_the_words_of_the_reader() -> None:
    card = find_card()
    other = "sm_80" if card is None or card.capability != "sm_80" else "sm_90"
    with pytest.raises(TargetError) as caught:
        find_backend(f"cuda:{other}", 1).require()
    assert "use `braze.compile` to make an engine" in str(caught.value)
    assert "use `braze build` to write an engine" in caught.value.command
    assert "braze.compile" not in caught.value.command
