"""Tactics tried in the finished network: a kernel alone is not what it is among its neighbours.

There it finds other caches, overlaps with the launches around it, and may change clocks. So the
kernels that take most of the time get their next best tactics in place of the best, one kernel
after the other, and what makes the whole network faster stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from braze.tuning.select import Candidates
from braze.tuning.timing_cache import TimingCache

SLACK: Final = 1.3  # times the best alone: what is slower will not win among others either
TRIALS: Final = 2  # a kernel
LEAST_SHARE: Final = 0.01  # of the network's time: less is not seen in it
KEEPS: Final = 0.995  # a trial's time by that of what was: above it is noise

Choice = Sequence[int]
# the time of a network with the first choice by that with the second; None: cannot be told
Compare = Callable[[Choice, Choice], "float | None"]


@dataclass(frozen=True, slots=True)
class Swap:
    """Another tactic for one of the kernels."""

    kernel: int
    tactic: int


def swaps(kernels: Sequence[Candidates], uses: Sequence[int], most: int) -> list[Swap]:
    """What is worth a trial, for the kernels that take most time first, `most` of them.

    uses: how often the network runs each kernel. Another template comes before another tile.
    """
    best = [min(k.seconds, default=0.0) for k in kernels]
    share = [seconds * count for seconds, count in zip(best, uses, strict=True)]
    total = sum(share)
    order = sorted(range(len(kernels)), key=lambda i: (-share[i], i))
    found = []
    for i in order[:most]:
        k = kernels[i]
        if len(k.seconds) < 2 or share[i] < LEAST_SHARE * total:
            continue
        first = k.seconds.index(best[i])
        near = [t for t, s in enumerate(k.seconds) if t != first and s <= SLACK * best[i]]
        template = k.tactics[first].template
        near.sort(key=lambda t: (k.seconds[t], t))
        others = [t for t in near if k.tactics[t].template != template]
        chosen = dict.fromkeys([*others[:1], *near])
        found += [Swap(i, t) for t in list(chosen)[:TRIALS]]
    return found


def refined(
    kernels: Sequence[Candidates],
    chosen: Choice,
    wanted: Sequence[Swap],
    compare: Compare,
    cache: TimingCache,
    machine: tuple[str, str, str],
) -> list[int]:
    """`chosen` with the swaps that made the network faster, each tried on what the last ones left.

    machine: what times depend on besides (generator, fingerprint of the target, sizes); ratios are
    kept in `cache`, so that a second build makes the same choice without a trial.
    """
    now = list(chosen)
    generator, fingerprint, sizes = machine
    network = hashlib.blake2b("\n".join(k.text for k in kernels).encode()).hexdigest()
    for swap in wanted:
        trial = list(now)
        trial[swap.kernel] = swap.tactic
        tactics = " ".join(str(k.tactics[t]) for k, t in zip(kernels, now, strict=True))
        text = f"{network} {tactics} swap {swap.kernel}"
        new = str(kernels[swap.kernel].tactics[swap.tactic])
        key = TimingCache.key(generator, text, new, sizes, fingerprint)
        ratio = cache.get(key)
        if ratio is None:
            ratio = compare(trial, now)
            if ratio is None:
                return now
            cache.put(key, ratio)
        if ratio < KEEPS:
            now = trial
    return now
