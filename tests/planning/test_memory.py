"""The memory planner never overlaps live buffers and never beats the lower bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
