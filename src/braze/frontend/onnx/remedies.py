"""Options that lift refusals: each is tried by importing once more before it is advised.

Sizes are tried as they would be written. The content of an input is not ours to know, so what is
tried there is whether any content makes the refused node known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from braze.core.dims import Dim, evaluate, is_static, symbols
from braze.core.errors import BrazeError
from braze.core.words import Sizes, Words, worded
from braze.frontend.onnx.findings import Finding, NoSuchOpError
from braze.frontend.onnx.shapes import ImportShapes

Corners = tuple[Sizes, Sizes, Sizes]
# shapes and values that come on top of those given -> what an import finds then
Attempt = Callable[[Mapping[str, Any], Mapping[str, Any]], Sequence[Finding]]
_ROUNDS = 3  # an import may ask for more content so often
_OPEN_RANGE = (1, 1, 8)  # for sizes that nothing is known of


@dataclass(frozen=True)
class _Trial:
    """Sizes that were tried: the words before them, and what was not supported with them."""

    advice: str
    shapes: Mapping[str, Corners]
    bad: frozenset[tuple[str, str]]

    def lifts(self, finding: Finding, before: frozenset[tuple[str, str]]) -> bool:
        """Whether the finding goes and no other comes, which might hide it."""
        return _key(finding) not in self.bad and self.bad <= before


def with_remedies(
    findings: Sequence[Finding], resolved: ImportShapes, attempt: Attempt
) -> list[Finding]:
    """The findings, those that options lift with these at the end of their reasons.

    `inputs` keeps the names of those whose content lifts a finding.
    """
    open_ = [f for f in findings if not f.supported and f.error is not NoSuchOpError and f.node]
    if not open_:
        return list(findings)
    before = _bad(findings)
    lifted = _lifted_by_content(open_, resolved, attempt)
    trials, left = [], set(map(_key, open_))
    for trial in _trials(open_, resolved, attempt):
        trials.append(trial)
        left -= {_key(f) for f in open_ if trial.lifts(f, before)}
        if not left:
            break
    tried = {_key(f) for f in open_}
    return [
        f
        if f.supported or _key(f) not in tried
        else _advised(
            replace(f, inputs=lifted.get(_key(f), ())),
            next((t for t in trials if t.lifts(f, before)), None),
        )
        for f in findings
    ]


def _advised(finding: Finding, trial: _Trial | None) -> Finding:
    """The finding with the ways that lift it."""
    texts = worded(lambda words: _advice(finding, trial, words))
    reasons = (finding.reason, finding.command or finding.reason)
    reason, command = (f"{r} ({t})" if t else r for r, t in zip(reasons, texts, strict=True))
    return replace(finding, reason=reason, command=command)


def _advice(finding: Finding, trial: _Trial | None, words: Words) -> str:
    ways = []
    if finding.inputs:
        ways.append(f"pass the content as {words.values(finding.inputs)}")
    if trial is not None:
        ways.append(f"{trial.advice} {words.shapes(trial.shapes)}")
    if ways:
        return f"or {', or '.join(ways)}"
    if finding.contents:
        names = " and ".join(map(repr, sorted(finding.contents)))
        return f"it depends on the content of {names}, which only the run knows"
    return ""


def _lifted_by_content(
    findings: Sequence[Finding], resolved: ImportShapes, attempt: Attempt
) -> dict[tuple[str, str], tuple[str, ...]]:
    """The findings that content of inputs lifts, and which: they go, or turn to what is in it.

    An import with some content may ask for more, as a loop does for its count and its condition.
    """
    lifted: dict[tuple[str, str], tuple[str, ...]] = {}
    asking = {(_key(f), f.reason): set(f.inputs) & set(resolved.types) for f in findings}
    for fill in (0, 1):
        wanted = {finding: set(names) for finding, names in asking.items() if names}
        for _ in range(_ROUNDS):
            names = set[str]().union(*wanted.values())
            found = _found(attempt, {}, _contents(names, fill, resolved)) if names else None
            if found is None:
                break
            left = {(_key(f), f.reason): set(f.inputs) for f in found if not f.supported}
            for finding in [f for f in wanted if f not in left]:
                lifted.setdefault(finding[0], tuple(sorted(wanted.pop(finding))))
            wanted = {f: names | left[f] for f, names in wanted.items() if left[f] - names}
    return lifted


def _contents(names: Iterable[str], fill: int, resolved: ImportShapes) -> dict[str, Any]:
    values = {}
    for name in sorted(names):
        type_ = resolved.types[name]
        shape = tuple(_size(d, resolved, 1) for d in type_.shape)
        values[name] = np.full(shape, fill, type_.dtype.numpy)
    return values


def _trials(
    findings: Sequence[Finding], resolved: ImportShapes, attempt: Attempt
) -> Iterable[_Trial]:
    """Shapes of inputs that might lift findings, the least change first."""
    dynamic = [n for n, type_ in resolved.types.items() if not is_static(type_.shape)]
    blamed = {name for f in findings for name in (*f.contents, *f.sizes)}
    ranged = {name: _shapes(name, resolved) for name in dynamic}
    tried = []
    if resolved.missing is not None and dynamic:
        tried.append(("bound sizes, for example", ranged))
    for names in ([n for n in dynamic if n in blamed], dynamic):
        for corner in (1, 2, 0):
            shapes = {name: (ranged[name][corner],) * 3 for name in names}
            if shapes and all(shapes != other for _, other in tried):
                tried.append(("fix sizes, for example", shapes))
    for advice, shapes in tried:
        found = _found(attempt, shapes, {})
        if found is not None:
            yield _Trial(advice, shapes, _bad(found))


def _shapes(name: str, resolved: ImportShapes) -> Corners:
    low, opt, high = (
        tuple(_size(d, resolved, corner) for d in resolved.types[name].shape) for corner in range(3)
    )
    return low, opt, high


def _size(dim: Dim, resolved: ImportShapes, corner: int) -> int:
    """A size at the min, opt or max of the first profile; where none is given, a small one."""
    profile = resolved.profiles[0]
    known = {name: profile[name] for name in profile if name not in resolved.guesses}
    return evaluate(dim, {s: known.get(s, _OPEN_RANGE)[corner] for s in symbols(dim)})


def _found(
    attempt: Attempt, shapes: Mapping[str, Any], values: Mapping[str, Any]
) -> Sequence[Finding] | None:
    """What an import finds; None where these options are refused as a whole."""
    try:
        return attempt(shapes, values)
    except BrazeError:
        return None


def _bad(findings: Iterable[Finding]) -> frozenset[tuple[str, str]]:
    return frozenset(_key(f) for f in findings if not f.supported)


def _key(finding: Finding) -> tuple[str, str]:
    return finding.node, finding.op_type
