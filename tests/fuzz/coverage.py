"""What a run of the generator has covered, and the report of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.catalog import ALL_FAMILIES, ANCHORS, FAMILIES, can_meet
from tests.fuzz.checks import Outcome, refusal_kind
from tests.fuzz.content import KINDS
from tests.fuzz.epilogues import FORMS
from tests.fuzz.graphs import Made, epilogue_order


def record(number: int, made: Made, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """One case as plain data for a line of JSON."""
    return {
        "number": number,
        "kind": made.kind,
        "status": outcome.status,
        "reason": outcome.reason,
        "variant": str(outcome.variant),
        "way": outcome.variant.label if outcome.variant else "",
        "pairs": sorted(made.pairs()),
        "epilogues": made.epilogues,
        "missed": made.missed,
        "ops": sorted(made.ops()),
        "content": made.content,
        "reached": sorted(made.reached),
        "templates": sorted(outcome.templates),
        "tactics": sorted(outcome.tactics),
        "refusals": dict(made.refusals),
        "compared": outcome.compared,
        "unsure": outcome.unsure,
        "slots": outcome.slots,
        "refused_data": outcome.refused_data,
        "worst": outcome.worst,
        "seconds": seconds,
    }


@dataclass
class Coverage:
    """Counts over all records so far."""

    graphs: int = 0
    seconds: float = 0.0
    status: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    epilogues: Counter[tuple[str, str]] = field(default_factory=Counter)
    templates: Counter[tuple[str, str]] = field(default_factory=Counter)
    tactics: set[str] = field(default_factory=set)
    ops: Counter[str] = field(default_factory=Counter)
    contents: Counter[tuple[str, str]] = field(default_factory=Counter)  # kind, family
    refused: Counter[str] = field(default_factory=Counter)
    unfit: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    unsure: int = 0
    slots: int = 0
    refused_data: int = 0
    worst: float = 0.0
    wrong: list[Mapping[str, Any]] = field(default_factory=list)
    tests: dict[int, str] = field(default_factory=dict)  # of wrong cases made small

    def add(self, r: Mapping[str, Any]) -> None:
        """Count one record."""
        self.graphs += 1
        self.seconds += r["seconds"]
        self.status[r["status"]] += 1
        self.kinds[r["kind"].split(":")[0]] += 1
        self.ways[r["way"]] += 1
        self.refused.update([refusal_kind(r["reason"])] if r["status"] == "refused" else [])
        self.unfit.update(r["refusals"])
        self.compared += r["compared"]
        self.unsure += r["unsure"]
        self.slots += r["slots"]
        self.refused_data += r["refused_data"]
        if r["status"] == "wrong":
            self.wrong.append(r)
        else:
            self.worst = max(self.worst, r["worst"])
            self.pairs.update(tuple(p) for p in r["pairs"])
            self.epilogues.update(tuple(e) for e in r["epilogues"])
            self.templates.update(tuple(t) for t in r["templates"])
            self.tactics.update(r["tactics"])
            self.ops.update(r["ops"])
            self.contents.update((r["content"], f) for f in r["reached"])

    def uncovered_pairs(self) -> list[tuple[str, str]]:
        """Pairs of families that no right case had."""
        return [pair for pair in possible_pairs() if pair not in self.pairs]

    def uncovered_epilogues(self) -> list[tuple[str, str]]:
        """Anchors and forms that no right case had."""
        return [e for e in possible_epilogues() if e not in self.epilogues]

    def report(self) -> str:
        """Everything, as text."""
        total = max(self.graphs, 1)
        per_second = self.graphs / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.graphs} graphs: " + ", ".join(f"{n} {s}" for s, n in self.status.most_common()),
            f"refused: {100 * self.status['refused'] / total:.1f} %; elements compared: "
            f"{self.compared}, of which unsure (ties, overflow): "
            f"{100 * self.unsure / max(self.compared, 1):.2f} %; outputs whose rows were compared "
            f"bit by bit: {self.slots}; runs of wrong indexes that ended with an error: "
            f"{self.refused_data}; largest error of a right case: {self.worst:.2f} of its "
            f"bound; {per_second:.1f} graphs a second of processor time",
            "kinds: " + _counts(self.kinds),
            "last way built: " + _counts(self.ways),
        ]
        pairs, forms = len(possible_pairs()), len(possible_epilogues())
        lines += [
            f"\npairs of families: {pairs - len(self.uncovered_pairs())} of {pairs}; "
            f"{len(FAMILIES) ** 2 - pairs} more cannot meet (their element types or ranks differ)",
            *_missing(self.uncovered_pairs()),
            f"\nanchor x epilogue form: {forms - len(self.uncovered_epilogues())} of {forms}",
            *_missing(self.uncovered_epilogues()),
            *self._epilogue_table(),
            *self._content_table(),
            "\ntemplates:",
            *_table(self.templates),
            f"\ndifferent tactics taken: {len(self.tactics)}, of the templates "
            + _counts(Counter(t.split("(", 1)[0] for t in self.tactics)),
            f"\nONNX ops: {len(self.ops)}; least often: "
            + ", ".join(f"{o} {n}" for o, n in self.ops.most_common()[:-16:-1]),
        ]
        if self.refused:
            lines += ["\nbuilds refused:", *(f"{n:6} {r}" for r, n in self.refused.most_common(25))]
        if self.unfit:
            unfit = self.unfit.most_common(12)
            lines += ["\nsteps not taken, as refused:", *(f"{n:6} {r}" for r, n in unfit)]
        lines += self._wrong()
        return "\n".join(lines)

    def _epilogue_table(self) -> list[str]:
        """How often each form was right on each anchor."""
        rows = [f"{'':20}" + " ".join(f"{i:>3}" for i in range(len(FORMS)))]
        for anchor in ANCHORS:
            counts = (self.epilogues[anchor, form] for form in FORMS)
            rows.append(f"{anchor:20}" + " ".join(f"{n or '.':>3}" for n in counts))
        return [*rows, "forms: " + ", ".join(f"{i} {f}" for i, f in enumerate(FORMS))]

    def _content_table(self) -> list[str]:
        """How often each kind of content reached each family in a right case."""
        families = sorted({f for _, f in self.contents})
        rows = [f"\ncontent x family: {len(self.contents)} of {len(KINDS) * len(ALL_FAMILIES)}"]
        rows += [f"{'':22}" + " ".join(f"{i:>3}" for i in range(len(families)))]
        for kind in KINDS:
            counts = (self.contents[kind, f] for f in families)
            rows.append(f"{kind:22}" + " ".join(f"{n or '.':>3}" for n in counts))
        return [*rows, "families: " + ", ".join(f"{i} {f}" for i, f in enumerate(families))]

    def _wrong(self) -> list[str]:
        lines = []
        for r in self.wrong:
            lines.append("\n" + headline(r))
            lines += [self.tests[r["number"]]] if r["number"] in self.tests else []
        return lines


def possible_pairs() -> list[tuple[str, str]]:
    """Pairs of families that can meet."""
    return [(p, c) for p in FAMILIES for c in FAMILIES if can_meet(p, c)]


def possible_epilogues() -> list[tuple[str, str]]:
    """Anchors and forms that can follow them: attention has no weight, a vector no second axis."""
    weight, matrix = ("own weight", "two anchors"), ("1 along axis 0", "behind transpose")
    return [
        (a, f)
        for a, f in sorted(epilogue_order())
        if not (a.startswith("attention") and f in weight)
        and not (a == "matmul 1-D" and f in matrix)
    ]


def headline(r: Mapping[str, Any]) -> str:
    """A wrong case in one line."""
    return f"WRONG {r['number']} ({r['kind']}; {r['variant']}): {r['reason'][:300]}"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{k} {n}" for k, n in counter.most_common())


def _missing(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Pairs grouped by their first half."""
    groups: dict[str, list[str]] = defaultdict(list)
    for a, b in pairs:
        groups[a].append(b)
    return [f"  not covered: {a} -> {', '.join(b)}" for a, b in groups.items()]


def _table(counter: Counter[tuple[str, str]]) -> list[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for (a, b), n in sorted(counter.items()):
        groups[a].append(f"{b}: {n}")
    return [f"  {a}: {', '.join(b)}" for a, b in groups.items()]
