"""From a number to a case. Numbers count through the forced pairs, the epilogues and the extremes,
so that every stretch of numbers covers a known part of them; the rest is drawn from the number."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

from tests.fuzz.case import Case, Fill
from tests.fuzz.catalog import ALL_FAMILIES, ANCHORS, FAMILIES, Family
from tests.fuzz.content import strewn
from tests.fuzz.epilogues import FORMS
from tests.fuzz.extremes import EXTREMES
from tests.fuzz.sketch import Ref, Sketch, Unfit
from tests.fuzz.ways import FIRST_LATER

PAIRS_A_GRAPH = 5
EPILOGUES_A_GRAPH = 3
EXTREME_EVERY = 8
CONTENT_EVERY, CONTENT_OF = 5, (1, 3)  # numbers modulo 5 whose leaves hold content of some kind
ATTEMPTS = 14
OPSETS = (24, 24, 24, 24, 24, 24, 23, 26, 22, 20, 17, 13)


@dataclass
class Made:
    """A case and what it is there for."""

    case: Case
    kind: str
    families: dict[str, str] = field(default_factory=dict)  # value name -> family
    epilogues: list[tuple[str, str]] = field(default_factory=list)
    missed: list[tuple[str, ...]] = field(default_factory=list)  # forced, but nothing fitted
    refusals: Counter[str] = field(default_factory=Counter)
    content: str = ""  # the kind of content.py
    reached: set[str] = field(default_factory=set)  # families whose steps see it

    def pairs(self) -> set[tuple[str, str]]:
        """The (producer, consumer) families that meet in the case."""
        return {
            (self.families[i], self.families[s.outputs[0]])
            for s in self.case.steps for i in s.inputs
            if i in self.families and s.outputs[0] in self.families
        }  # fmt: skip

    def ops(self) -> set[str]:
        """ONNX op names in the case."""
        return {s.op for s in self.case.steps}


@functools.cache
def pair_circuit(later: bool = False) -> tuple[str, ...]:
    """Families in an order in which every pair stands next to each other once (an Euler circuit of
    the complete graph with loops), shuffled once for all so that neighbours vary."""
    r, names = random.Random(5), list(ALL_FAMILIES if later else FAMILIES)
    left = {a: r.sample(names, len(names)) for a in names}
    stack, circuit = [names[0]], []
    while stack:
        if left[stack[-1]]:
            stack.append(left[stack[-1]].pop())
        else:
            circuit.append(stack.pop())
    return tuple(reversed(circuit))


@functools.cache
def epilogue_order() -> tuple[tuple[str, str], ...]:
    """Every anchor with every form, shuffled once for all."""
    axes = {f: int(f[-1]) for f in FORMS if "axis" in f}
    both = [(a, f) for a in ANCHORS for f in FORMS if axes.get(f, -1) < max(ANCHORS[a][1], 1)]
    random.Random(6).shuffle(both)
    return tuple(both)


def make(number: int) -> Made:
    """The case of this number: always the same one."""
    if number % EXTREME_EVERY == EXTREME_EVERY - 1:
        turn = number // EXTREME_EVERY
        name = list(EXTREMES)[turn % len(EXTREMES)]
        return Made(EXTREMES[name](random.Random(number)), f"extreme: {name}")
    return _Grower(number).make()


class _Grower:
    """One sketch on its way to a case."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.families = FAMILIES if number < FIRST_LATER else ALL_FAMILIES
        r = random.Random(number)
        opset = 9 if number % 40 == 17 else r.choice(OPSETS)
        symbolic = r.random() < 0.4
        sizes = {}
        if symbolic:
            top = r.choice([2, 4, 5, 9])
            sizes["n"] = (1, r.randint(1, top), top)
            low, high = r.choice([1, 2, 4]), r.choice([9, 17, 33])
            sizes["s"] = (low, r.randint(low, high), high)
            sizes["t"] = (r.choice([1, 3]), 6, r.choice([7, 20]))
        self.s = Sketch(number, opset, sizes)
        self.r = self.s.r
        # all axes dynamic now and then, else mostly the first one
        self.dynamic = self.r.choice([0.2, 0.2, 0.5, 1.0]) if symbolic else 0.0
        self.special = number % 23 == 5
        self.made = Made(Case((), {}, ()), "symbolic" if symbolic else "static")
        self.outputs: list[Ref] = []

    def make(self) -> Made:
        self._walk()
        self._epilogues()
        for _ in range(self.r.randint(0, 3)):
            self._grow()
        self._choose_outputs()
        self.made.case = self.s.finish(self.outputs)
        kept = {o for step in self.made.case.steps for o in step.outputs}
        self.made.families = {k: f for k, f in self.made.families.items() if k in kept}
        if self.number % CONTENT_EVERY in CONTENT_OF:
            self._add_content()
        self.made.refusals = self.s.refusals
        return self.made

    def _add_content(self) -> None:
        made, shapes = self.made, {v.name: v.sample.shape for v in self.s.made}
        found = strewn(made.case, shapes, random.Random(f"content {self.number}"))
        made.case, made.content = found.case, found.kind
        reached = found.reached()
        made.reached = {f for v, f in made.families.items() if v in reached}

    # ------------------------------------------------------------------ parts

    def _walk(self) -> None:
        """The forced pairs of this number, in one chain where the values fit."""
        circuit = pair_circuit(self.number >= FIRST_LATER)
        count = len(circuit) - 1
        turn = self.number - self.number // EXTREME_EVERY  # extremes take no pairs
        first = turn * PAIRS_A_GRAPH % count
        names = [circuit[(first + k) % count] for k in range(PAIRS_A_GRAPH + 1)]
        at: Ref | None = None
        for p, c in itertools.pairwise(names):
            reached = None if at is None else self._try(c, at, 6)
            if reached is None:
                reached = self._pair(p, c)
            if reached is None:
                self.made.missed.append((p, c))
            at = reached

    def _pair(self, p: str, c: str) -> Ref | None:
        """A fresh input, then a step of p, then one of c."""
        for _ in range(ATTEMPTS):
            state = self.s.snapshot()
            x = self.input(self.families[p], self.families[c])
            middle = self._try(p, x, 2)
            y = None if middle is None else self._try(c, middle, 3)
            if y is not None:
                return y
            self.s.restore(state)
        return None

    def _try(
        self, family: str, x: Ref, attempts: int, labels: list[str] | None = None
    ) -> Ref | None:
        """A step of the family (one of `labels`) on `x`, or None when nothing fits."""
        labels = labels or list(self.families[family].makers)
        for _ in range(attempts):
            state = self.s.snapshot()
            try:
                y = self.families[family].makers[self.r.choice(labels)](self.s, x)
            except Unfit:
                self.s.restore(state)
                continue
            for step in self.s.steps[state[2] :]:
                self.made.families.update(dict.fromkeys(step.outputs, family))
            return y
        return None

    def _epilogues(self) -> None:
        order = epilogue_order()
        turn = self.number - self.number // EXTREME_EVERY
        for k in range(EPILOGUES_A_GRAPH):
            anchor, form = order[(turn * EPILOGUES_A_GRAPH + k) % len(order)]
            maker, rank = ANCHORS[anchor]
            for _ in range(ATTEMPTS):
                state = self.s.snapshot()
                self.s.last_weight = None  # not that of another anchor
                try:
                    x = self.input(Family("anchor", {}, (rank,)), shaped=anchor)
                    y = maker(self.s, x)
                    self.outputs += FORMS[form](self.s, y, x, maker)
                except Unfit:
                    self.s.restore(state)
                    continue
                self.made.epilogues.append((anchor, form))
                break
            else:
                self.made.missed.append((anchor, form))

    def _grow(self) -> None:
        """A step of any family, or any op, on any earlier value."""
        if not self.s.made:
            return
        family, labels = self.r.choice(list(self.families)), None
        if self.r.random() < 0.5:  # rare ops of large families get their turn too
            family, label = self.r.choice(
                [(f, m) for f, members in self.families.items() for m in members.makers]
            )
            labels = [label]
        if self._try(family, self.r.choice(self.s.made[-8:]), 2, labels) is None:
            self._try(family, self.input(self.families[family]), 2, labels)

    def _choose_outputs(self) -> None:
        """What nothing reads, and now and then an intermediate value."""
        read = {i for step in self.s.steps for i in step.inputs}
        made = {o for step in self.s.steps for o in step.outputs}
        for v in self.s.made:
            if v.name in made and (v.name not in read or self.r.random() < 0.12):
                self.outputs.append(v)
        if not self.outputs:  # nothing fitted: a graph has an output all the same
            self.outputs.append(self.s.add1("Identity", self.input(self.families["unary"])))

    # ------------------------------------------------------------------ inputs

    def input(self, family: Family, then: Family | None = None, shaped: str = "") -> Ref:
        """A fresh graph input that suits the families, or the anchor `shaped`."""
        r = self.r
        ranks = family.ranks
        if then is not None and r.random() < 0.6:
            common = tuple(k for k in ranks if k in then.ranks)
            # most families take other ranks than their usual ones too, where the next one asks
            ranks = common or (ranks if family.fixed_rank else then.ranks)
        rank = r.choice(ranks)
        dtype = r.choice(family.dtypes)
        if dtype == "float32" and r.random() < 0.16:
            dtype = r.choice(["float16", "bfloat16", "float64", "float64", "int64", "int32"])
        shape: list[int | str] = [self._size(k, rank) for k in range(rank)]
        if shaped == "square" or (family.square and rank >= 2 and r.random() < 0.5):
            shape[-1] = shape[-2] = r.choice([1, 2, 3, 8, 17])
        if shaped == "conv wide":
            shape[1:] = [r.choice([16, 17, 32, 33]), r.randint(3, 13), r.randint(3, 13)]
        names = ["n", "s", "t"]
        for k in range(rank):
            is_channel = rank >= 3 and k == 1
            chance = self.dynamic * (0.15 if is_channel else 1.0)
            if self.s.sizes and (r.random() < chance or (k == 0 and r.random() < 0.7)):
                shape[k] = "n" if k == 0 else r.choice(names[1:])
        if len({d for d in shape if isinstance(d, str)}) < sum(isinstance(d, str) for d in shape):
            shape = self._distinct(shape)
        kind = "special" if self.special and dtype.startswith("float") else r.choice(
            ["uniform"] * 6 + ["spread", "positive"]
        )  # fmt: skip
        fills = {"spread": Fill("spread"), "positive": Fill("uniform", 0.1, 0.9),
                 "special": Fill("special")}  # fmt: skip
        fill = fills.get(kind) if dtype.startswith(("float", "bfloat")) else None
        return self.s.input(dtype, shape, fill)

    def _distinct(self, shape: list[int | str]) -> list[int | str]:
        """Each symbol once, so that transposes cannot hide."""
        seen: set[str] = set()
        out: list[int | str] = []
        for d in shape:
            out.append(self.r.choice([2, 5]) if d in seen else d)
            if isinstance(d, str):
                seen.add(d)
        return out

    def _size(self, axis: int, rank: int) -> int:
        """Mostly small; one axis in ten passes vector widths, and now and then a block of k."""
        r = self.r
        if rank >= 3 and axis == 1:
            return r.choice([1, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16, 17])
        if axis == 0 and rank >= 3:
            return r.choice([1, 1, 1, 2, 3])
        roll = r.random()
        if roll < 0.02 and rank <= 3:
            return r.choice([257, 300, 520])
        if roll < 0.15:
            return r.choice([16, 17, 24, 31, 33, 48, 64, 70] if rank <= 3 else [16, 17, 20])
        return r.randint(1, 9)
