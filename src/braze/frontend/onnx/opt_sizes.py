"""What the model assumes of sizes, at the opt shapes that the caller gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from braze.core.dims import Dim, substitute
from braze.core.errors import ProfileError
from braze.ir.graph import SizeGuard
from braze.ir.run_sizes import Range


def check_opt_sizes(
    guards: Iterable[SizeGuard], profiles: Sequence[Mapping[str, Range]], guessed: Iterable[str]
) -> None:
    """Raise ProfileError where the opt shapes of a profile are such that no run could have them.

    Sizes that were guessed, and those of the run, tell nothing.
    """
    unknown = frozenset(guessed)
    for number, profile in enumerate(profiles):
        opt: dict[str, Dim] = {name: r[1] for name, r in profile.items() if name not in unknown}
        for g in guards:
            lhs, rhs = substitute(g.lhs, opt), substitute(g.rhs, opt)
            if isinstance(lhs, int) and isinstance(rhs, int) and lhs != rhs:
                raise ProfileError(
                    f"{g.what}, but they are {lhs} and {rhs} at the opt shapes of profile "
                    f"{number}; give shapes for which they are"
                )
