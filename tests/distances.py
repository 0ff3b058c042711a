"""How far two tensors are from each other, for tests of whole networks.

Two figures, because either hides what the other shows: the relative L2 error does not see one wrong
element among 400,000, and the worst element alone does not see that all are slightly off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Distance:
    """l2: norm of the difference as a part of the norm of `want`; worst: the largest
    |got - want| / (|want| + rms), rms the root mean square of `want`: an element is measured by
    itself where it is large and by its tensor where it is small (a sum that cancels is no better
    known than its terms). Both are infinite for another shape, or where NaN and infinities are
    not where they belong; `place` is the index of the worst element.
    """

    l2: float
    worst: float
    place: tuple[int, ...] = ()

    def within(self, l2: float, worst: float) -> bool:
        """Whether both figures are at most these."""
        return self.l2 <= l2 and self.worst <= worst


FAR = Distance(float("inf"), float("inf"))


def distance(got: Array, want: Array) -> Distance:
    """The distance of `got` from `want`, in float64; integers and bools count as numbers."""
    if got.shape != want.shape:
        return FAR
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    alike = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    if not alike or not np.isfinite(a[finite]).all():
        return FAR
    if not finite.any():
        return Distance(0.0, 0.0)
    difference = np.where(finite, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)), 0.0)
    size = np.where(finite, np.abs(b), 0.0)
    norm, rms = float(np.linalg.norm(size)), float(np.sqrt(np.mean(size[finite] ** 2)))
    l2 = float(np.linalg.norm(difference))
    relative = difference / (size + rms) if rms > 0 else difference
    place = np.unravel_index(int(np.argmax(relative)), relative.shape)
    at = tuple(int(i) for i in place)
    return Distance(l2 / norm if norm > 0 else l2, float(relative[place]), at)


def assert_close(
    got: Mapping[str, Array], want: Mapping[str, Array], l2: float, worst: float
) -> None:
    """The outputs of `want` are all in `got`, and each is within both bounds."""
    assert set(want) <= set(got)
    far = {n: d for n in want if not (d := distance(got[n], want[n])).within(l2, worst)}
    assert far == {}, f"further than l2 {l2:g}, worst element {worst:g}"
