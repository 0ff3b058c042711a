"""The ways in which one case is built: level, target, forced tactic, sizes fixed or not."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from tests.fuzz.case import Case
from tests.fuzz.forcing import other_targets
from tests.fuzz.inside import KINDS

TURNS: Final = 1 << 20  # a forced tactic is this many times more than a kernel can have


@dataclass(frozen=True)
class Variant:
    """One way to build: level, target, forced tactic, sizes fixed at opt or not, contents of inputs
    bounded or not, and the control flow that nodes are put inside of (see inside.py)."""

    level: int = 1
    target: str = "cpu"
    turn: int | None = None
    fixed: bool = False
    bounded: bool = False
    inside: str = ""

    def __str__(self) -> str:
        return f"{self.label}, number {self.turn}" if self.turn is not None else self.label

    @property
    def label(self) -> str:
        """What coverage counts: everything but which tactic was forced."""
        parts = [f"level {self.level}", self.target]
        parts += ["a forced tactic"] if self.turn is not None else []
        parts += ["sizes fixed"] if self.fixed else []
        parts += ["contents bounded"] if self.bounded else []
        parts += [f"in {self.inside}"] if self.inside else []
        return ", ".join(parts)


# How often each way is taken where a case is built once. What compiles nothing costs a third, and
# what measures costs ten times as much; "isa" is one of this machine's other instruction sets.
ONCE: Final[tuple[tuple[int, Variant], ...]] = (
    (20, Variant(1, "numpy")),
    (4, Variant(0, "numpy")),
    (4, Variant(2, "numpy")),
    (14, Variant(1)),
    (14, Variant(2)),
    (8, Variant(0)),
    (16, Variant(5, turn=0)),
    (4, Variant(1, "isa")),
    (4, Variant(2, "isa")),
    (3, Variant(0, "isa")),
    (8, Variant(5, "isa", turn=0)),
    (1, Variant(3)),
)
FIRST_LATER: Final = 10**9  # numbers from here on have what came later
INSIDE_EVERY: Final = 2  # of those, one is put inside of control flow
BOUNDED_EVERY: Final = 3  # and one has contents of inputs bounded, where there are any
MEASURED_EVERY = 400  # numbers of which one is built at level 4 or 5, measured


def variants(case: Case, number: int, count: int = 2) -> tuple[Variant, ...]:
    """The ways of this number: one, or two of which the first is plain level 1 or 2."""
    found = (once(case, number),) if count == 1 else twice(case, number)
    if number < FIRST_LATER:
        return found
    last = found[-1]
    if number % INSIDE_EVERY == 0:
        last = replace(last, inside=KINDS[number // INSIDE_EVERY % len(KINDS)])
    if number // 10 % BOUNDED_EVERY == 0 and not case.outside and case.contents():
        last = replace(last, bounded=True)
    return (*found[:-1], last)


def once(case: Case, number: int) -> Variant:
    """One way, drawn from the number by the weights of `ONCE`."""
    r = random.Random(f"way {number}")
    if number % MEASURED_EVERY == 7:
        return Variant(r.choice([4, 5]))
    (way,) = r.choices([w for _, w in ONCE], [n for n, _ in ONCE])
    isas, numpy = _others()
    if way.target != "cpu":
        way = replace(way, target=r.choice(isas if way.target == "isa" else numpy))
    if way.turn is not None:
        way = replace(way, turn=r.randrange(TURNS))
    return replace(way, fixed=bool(case.sizes) and r.random() < 0.1)


def twice(case: Case, number: int) -> tuple[Variant, Variant]:
    """Level 1 or 2, and another way: for three in five one that compiles nothing, for the others a
    level, an instruction set or a tactic; measured levels seldom."""
    plain = Variant(1 + number % 2)
    isas, numpy = _others()
    if number % 5 in (1, 3, 4):
        return (plain, Variant(1, numpy[number // 5 % len(numpy)]))
    isa = isas[number // 11 % len(isas)]
    turns = (
        Variant(0), Variant(5, turn=number // 3), Variant(1, isa), Variant(5, turn=number // 7),
        Variant(5, isa, turn=number // 5), Variant(0, isa), Variant(2, isa), Variant(3),
        Variant(5, turn=number // 5 + 1), Variant(0),
    )  # fmt: skip
    extra = turns[number // 2 % len(turns)]
    if number % 100 == 7:
        extra = Variant(4 + number // 100 % 2)
    if case.sizes and number % 4 == 2:
        extra = replace(plain, fixed=True)
    return (plain, extra)


def _others() -> tuple[list[str], list[str]]:
    """The other instruction sets and the other targets that run here; "cpu" where there is none."""
    names = other_targets()
    isas = [t for t in names if t.startswith("cpu:")]
    return isas or ["cpu"], [t for t in names if not t.startswith("cpu:")] or ["cpu"]
