"""Algorithm selectors of release 10 and before: they hear which tactics a build has chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from braze.core.errors import ConfigError
from braze.tensorrt.algorithms import IAlgorithm, IAlgorithmContext, IAlgorithmVariant

_WORD = (1 << 63) - 1


def report(selector: Any, decisions: Sequence[Mapping[str, Any]], must_take: bool) -> None:
    """Offer a selector the tactic of each kernel, the only one there is by then, and report all.

    must_take (REJECT_EMPTY_ALGORITHMS): raises ConfigError where it takes none.
    """
    chosen = [d for d in decisions if d.get("kind") == "tactic"]
    contexts = [IAlgorithmContext(str(d["name"])) for d in chosen]
    algorithms = [_algorithm(d) for d in chosen]
    for context, algorithm in zip(contexts, algorithms, strict=True):
        if not list(selector.select_algorithms(context, [algorithm])) and must_take:
            raise ConfigError(
                f"the algorithm selector takes no tactic for {context.name!r}; choose by an "
                "editable timing cache"
            )
    selector.report_algorithms(contexts, algorithms)


def _algorithm(decision: Mapping[str, Any]) -> IAlgorithm:
    """The chosen tactic; its text as a number, the same in every process."""
    text = str(decision["chosen"])
    template, _, _ = text.partition("(")
    numbers = (int.from_bytes(t.encode(), "little") % _WORD for t in (template, text))
    return IAlgorithm(IAlgorithmVariant(*numbers), float(decision.get("seconds", 0.0)) * 1e3)
