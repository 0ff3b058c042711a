"""The memory planner never overlaps live buffers and never beats the lower bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braze.planning import memory
from braze.planning.memory import Lifetime, aligned, lower_bound, plan_offsets

lifetimes = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 12),
    ),
    max_size=40,
)


@given(lifetimes)
def test_live_buffers_never_overlap(buffers: list[Lifetime]) -> None:
    offsets, total = plan_offsets(buffers)
    for i, a in enumerate(buffers):
        assert offsets[i] % 64 == 0
        assert offsets[i] + aligned(a.bytes) <= total
        for j, b in enumerate(buffers[:i]):
            if a.overlaps(b):
                apart = (
                    offsets[i] + aligned(a.bytes) <= offsets[j]
                    or offsets[j] + aligned(b.bytes) <= offsets[i]
                )
                assert apart, (a, offsets[i], b, offsets[j])


@given(lifetimes)
def test_total_is_at_least_the_largest_live_set(buffers: list[Lifetime]) -> None:
    assert plan_offsets(buffers)[1] >= lower_bound(buffers)


def test_disjoint_lifetimes_share_memory() -> None:
    buffers = [Lifetime(1000, 0, 1), Lifetime(1000, 2, 3), Lifetime(1000, 4, 5)]
    assert plan_offsets(buffers)[1] == aligned(1000) == lower_bound(buffers)


def test_chain_needs_two_buffers() -> None:
    chain = [Lifetime(640, i, i + 1) for i in range(10)]
    assert plan_offsets(chain)[1] == 1280


def test_lower_bound_counts_only_live_buffers() -> None:
    assert lower_bound([Lifetime(64, 0, 3), Lifetime(128, 1, 1), Lifetime(256, 2, 2)]) == 320
    assert lower_bound([]) == 0


@given(lifetimes)
def test_each_buffer_lies_in_the_lowest_gap(buffers: list[Lifetime]) -> None:
    """The method by its definition: every placed buffer is looked at."""
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].bytes, buffers[i].first, i))
    offsets, _ = plan_offsets(buffers)
    for place, i in enumerate(order):
        spans = [
            (offsets[j], offsets[j] + aligned(buffers[j].bytes))
            for j in order[:place]
            if buffers[j].overlaps(buffers[i])
        ]
        size = aligned(buffers[i].bytes)
        gaps = [
            at
            for at in (0, *(end for _, end in spans))
            if all(at + size <= start or end <= at for start, end in spans)
        ]
        assert offsets[i] == min(gaps)


def test_only_steps_of_a_lifetime_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of 2,000 kernels: work grows with the buffers, not with their square."""
    seen = 0
    beside = memory._Placed.beside

    def counted(placed: memory._Placed, life: Lifetime) -> list[tuple[int, int]]:
        nonlocal seen
        found = list(beside(placed, life))
        seen += len(found)
        return found

    monkeypatch.setattr(memory._Placed, "beside", counted)
    plan_offsets([Lifetime(640, i, i + 1) for i in range(2000)])
    assert seen <= 4000


def test_alignment_is_the_targets() -> None:
    buffers = [Lifetime(100, 0, 1), Lifetime(1, 0, 1), Lifetime(300, 1, 1)]
    offsets, total = plan_offsets(buffers, 256)
    assert all(at % 256 == 0 for at in offsets)
    assert total == lower_bound(buffers, 256) == 1024
