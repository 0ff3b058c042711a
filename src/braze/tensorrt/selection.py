"""Algorithm selectors of release 10 and before: they hear which tactics a build has chosen."""

from __future__ import annotations

from typing import Any

from braze.core.errors import ConfigError
from braze.engine.plan import Plan
from braze.engine.steps import Launch, LibraryCall
from braze.tensorrt.algorithms import IAlgorithm, IAlgorithmContext, IAlgorithmVariant

_WORD = (1 << 63) - 1


def report(selector: Any, plan: Plan, must_take: bool) -> None:
    """Offer a selector the tactic of each kernel, the only one there is by then, and report all.

    Raises ConfigError where it takes what is not there, or with must_take
    (REJECT_EMPTY_ALGORITHMS) none.
    """
    tactics = {
        s.name: s.tactic
        for s in plan.every_step
        if isinstance(s, (Launch, LibraryCall)) and s.tactic
    }
    contexts = [IAlgorithmContext(name) for name in tactics]
    algorithms = [_algorithm(text) for text in tactics.values()]
    for context, algorithm in zip(contexts, algorithms, strict=True):
        taken = list(selector.select_algorithms(context, [algorithm]))
        if any(t != 0 for t in taken):
            raise ConfigError(
                f"the algorithm selector takes {taken} for {context.name!r}, which has one choice, "
                "number 0; return numbers of what is offered"
            )
        if not taken and must_take:
            raise ConfigError(
                f"the algorithm selector takes no tactic for {context.name!r}; choose by an "
                "editable timing cache"
            )
    selector.report_algorithms(contexts, algorithms)


def _algorithm(text: str) -> IAlgorithm:
    """A tactic by its text, as a number that is the same in every process."""
    template, _, _ = text.partition("(")
    return IAlgorithm(
        IAlgorithmVariant(*(int.from_bytes(t.encode(), "little") % _WORD for t in (template, text)))
    )
