"""The networks of one build by different tactics, timed against each other on its device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from braze.core.errors import CompileError
from braze.engine.plan import Plan
from braze.fusion.kernel_text import kernel_text
from braze.fusion.lower import LoweredRegion
from braze.tuning.in_place import Choice, refined, swaps
from braze.tuning.race import INFINITE, Load, Racer, made, ratio
from braze.tuning.select import Candidates, Launch, Tuner


@dataclass
class Networks:
    """planned: the plan of some launches; load: the engine of a plan. The last network that was
    timed, and the one before it that it is measured by, stay loaded."""

    tuner: Tuner
    lowered: Sequence[LoweredRegion]
    candidates: Sequence[Candidates]
    planned: Callable[[Sequence[Launch]], Plan]
    load: Load
    racers: dict[tuple[int, ...], Racer] = field(default_factory=dict)

    def refined(self, chosen: Choice) -> list[int]:
        """`chosen` with other tactics where those make the whole network faster."""
        tuner = self.tuner
        if not tuner.measures or not tuner.effort.in_place:
            return list(chosen)
        counts = Counter(kernel_text(low.kernel) for low in self.lowered)
        uses = [counts[k.text] for k in self.candidates]
        wanted = swaps(self.candidates, uses, tuner.effort.in_place)
        backend = tuner.backend
        machine = (backend.generator, backend.target.fingerprint, tuner.sizes_text)
        with tuner.trace.stage("codegen.in_place"):
            done = refined(self.candidates, chosen, wanted, self.compare, tuner.cache, machine)
        self.racers.clear()
        for k, before, after in zip(self.candidates, chosen, done, strict=True):
            if before != after:
                tuner.trace.decide(
                    "in_place",
                    name=k.first.region.root.name,
                    chosen=str(k.tactics[after]),
                    instead_of=str(k.tactics[before]),
                )
        return done

    def compare(self, trial: Choice, base: Choice) -> float | None:
        """The time of one by that of the other; None where networks cannot be timed here."""
        keep = (tuple(trial), tuple(base))
        self.racers = {choice: r for choice, r in self.racers.items() if choice in keep}
        before, after = self._racer(keep[1]), None
        if before is not None:
            after = self._racer(keep[0])
        if before is None:
            return None
        return INFINITE if after is None else ratio(after, before)

    def _racer(self, choice: tuple[int, ...]) -> Racer | None:
        if choice not in self.racers:
            try:
                launches = self.tuner.launches(self.lowered, self.candidates, choice, trial=True)
            except CompileError:
                return None
            racer = made(self.planned(launches), self.load, self.tuner.sizes)
            if racer is None:
                return None
            self.racers[choice] = racer
        return self.racers[choice]
