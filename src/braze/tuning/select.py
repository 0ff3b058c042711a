"""Choose a tactic for every kernel of a network: measured, from the timing cache, or the first.

Backends list their tactics best guess first, so that the first is what runs where nothing may be
measured (low optimization levels, or code for another machine). Kernels are measured as a set and
chosen as a set, so that a choice may look at its neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from braze.codegen.backend import Backend, Workload
from braze.codegen.reference.symbols import kernel_symbols
from braze.core.config import Effort
from braze.core.errors import CompileError, ExecutionError
from braze.core.trace import Trace
from braze.core.words import worded
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Kernel, Tactic
from braze.fusion.kernel_text import kernel_text
from braze.fusion.lower import LoweredRegion
from braze.tuning.agreement import Results, bound, computed, disagreeing
from braze.tuning.timing_cache import TimingCache

INFINITE: Final = float("inf")
_POWER: Final = re.compile(r"^ +%\d+ = pow ", re.MULTILINE)
_NUMBER: Final = re.compile(r"^( +%\d+ = const float\d+) .*$", re.MULTILINE)


@dataclass(frozen=True)
class Candidates:
    """One distinct kernel of a network and the tactics that may run it, best guess first.

    first: where the network uses it first; seconds: a measured time for each tactic, or empty.
    """

    first: LoweredRegion
    text: str
    tactics: tuple[Tactic, ...]
    seconds: tuple[float, ...] = ()

    @property
    def kernel(self) -> Kernel:
        return self.first.kernel

    @property
    def place(self) -> str:
        """The kernel in words, for messages."""
        return place(self.first)


def place(low: LoweredRegion) -> str:
    """A kernel in words, for messages."""
    return f"region {low.region.root.name} ({low.region.label})"


@contextmanager
def _room(k: Candidates) -> Iterator[None]:
    """A kernel whose buffers do not fit is the user's error, with a way out."""
    try:
        yield
    except MemoryError:
        raise ExecutionError(
            *worded(
                lambda words: (
                    f"{k.place} can not be measured: its tensors at the opt shapes do not fit "
                    "into memory; use smaller opt shapes, or "
                    f"{words.option('optimization_level', 2)}, which measures nothing"
                )
            )
        ) from None


def timed_text(text: str) -> str:
    """What the time of a kernel depends on: its text without the numbers it computes with, as the
    scales of a quantized network. Powers are the exception: small ones are products."""
    return text if _POWER.search(text) else _NUMBER.sub(r"\1", text)


def _product(k: Candidates) -> object:
    """What products have in common whatever their epilogues are: sizes, types and tactics."""
    kernel = k.kernel
    if not isinstance(kernel, AnchorKernel):
        return k.text
    return kernel.spec, kernel.constant, kernel.output, k.tactics


# which tactic runs each kernel of a network, as indexes of their `tactics`
Choose = Callable[[Sequence[Candidates]], Sequence[int]]


def fastest(kernels: Sequence[Candidates]) -> list[int]:
    """Of each kernel the tactic with the smallest time, the first one where nothing is measured."""
    return [k.seconds.index(min(k.seconds)) if k.seconds else 0 for k in kernels]


@dataclass(frozen=True)
class Launch:
    """One kernel of the finished network: what runs, on which values, and why."""

    lowered: LoweredRegion
    compiled: CompiledKernel
    tactic: Tactic


@dataclass
class Tuner:
    """The steps of one build's choice, each over all kernels; equal kernels are compiled once.

    sizes: the value of every symbol to measure at (the profile's opt values); unsure: symbols whose
    values may not go together, so that kernels with them are not measured.
    """

    backend: Backend
    effort: Effort
    sizes: Mapping[str, int]
    cache: TimingCache
    trace: Trace
    unsure: frozenset[str] = frozenset()
    _compiled: dict[tuple[str, Tactic], CompiledKernel] = field(default_factory=dict)
    _failed: dict[tuple[str, Tactic], CompileError] = field(default_factory=dict)

    def candidates(self, lowered: Sequence[LoweredRegion]) -> list[Candidates]:
        """The distinct kernels in order of first use; raises CompileError for one without code."""
        found: dict[str, Candidates] = {}
        for low in lowered:
            text = kernel_text(low.kernel)
            if text in found:
                continue
            self.trace.place = place(low)
            found[text] = Candidates(low, text, self.backend.tactics(low.kernel, self.effort))
            if not found[text].tactics:
                raise CompileError(
                    f"{found[text].place} has no code for {self.backend.target.name}; "
                    "please report this model"
                )
        return list(found.values())

    @property
    def measures(self) -> bool:
        """Whether the effort and the machine allow to measure."""
        return self.effort.measure and self.backend.can_measure()

    @property
    def sizes_text(self) -> str:
        """The sizes that are measured at, for keys."""
        return ",".join(f"{name}={v}" for name, v in sorted(self.sizes.items()))

    def measure(self, kernels: Sequence[Candidates]) -> list[Candidates]:
        """The same with times, where the effort and the machine allow to measure them."""
        if not self.measures:
            return list(kernels)
        groups: dict[tuple[object, ...], list[Candidates]] = {}
        for k in kernels:
            groups.setdefault((timed_text(k.text), k.tactics), []).append(k)
        with self.trace.stage("codegen.candidates"):
            self._compile_ahead([
                (k.text, k.kernel, t)
                for k, *_ in groups.values()
                for t, key in zip(k.tactics, self._keys(k), strict=True)
                if self._is_choice(k) and self.cache.get(key) is None
            ])
        times: dict[str, Candidates] = {}
        products: dict[object, Candidates] = {}
        for i, (first, *others) in enumerate(groups.values()):
            self.trace.place = first.place
            found = first
            if self._is_choice(first):
                alike = _product(first)
                found = self._measured(self._narrowed(first, products.get(alike)))
                products.setdefault(alike, found)
            times |= dict.fromkeys((k.text for k in (first, *others)), found)
            self.trace.report("measure", i + 1, len(groups))
        return [
            replace(k, tactics=times[k.text].tactics, seconds=times[k.text].seconds)
            for k in kernels
        ]

    def _narrowed(self, k: Candidates, alike: Candidates | None) -> Candidates:
        """Of a product that was timed behind another epilogue (`alike`), those of its tactics that
        were fastest there, and the fastest of each template: they treat epilogues differently. What
        was compiled side by side keeps all: it costs no more than its runs, and on devices the
        epilogue decides too."""
        ahead = any((k.text, t) in self._compiled for t in k.tactics)
        if alike is None or ahead or not self.effort.again:
            return k
        order = sorted(range(len(alike.seconds)), key=alike.seconds.__getitem__)
        templates = {k.tactics[i].template: i for i in reversed(order)}  # the fastest of each
        best = sorted({*order[: self.effort.again], *templates.values()})
        return replace(k, tactics=tuple(k.tactics[i] for i in best))

    def _is_choice(self, k: Candidates) -> bool:
        """Whether times are to decide between the tactics of a kernel."""
        if len(k.tactics) < 2:
            return False
        return not self.unsure or self.unsure.isdisjoint(kernel_symbols(k.kernel))

    def launches(
        self,
        lowered: Sequence[LoweredRegion],
        kernels: Sequence[Candidates],
        chosen: Sequence[int],
        trial: bool = False,
    ) -> list[Launch]:
        """The code of every kernel by its chosen tactic, in execution order.

        trial: it is to be timed and goes into no record.
        """
        tactic_of: dict[str, Tactic] = {}
        for k, index in zip(kernels, chosen, strict=True):
            tactic_of[k.text] = k.tactics[index]
            if k.seconds and not trial:
                self.trace.decide(
                    "tactic",
                    name=k.first.region.root.name,
                    chosen=str(k.tactics[index]),
                    candidates=[str(t) for t in k.tactics],
                )
        self._compile_ahead([(k.text, k.kernel, tactic_of[k.text]) for k in kernels])
        untimed = {k.text: k for k in kernels if not k.seconds}
        out = []
        for i, low in enumerate(lowered):
            self.trace.place = place(low)
            text = kernel_text(low.kernel)
            if text in untimed:
                tactic_of[text] = self._first_with_code(untimed.pop(text), tactic_of[text])
            compiled = self._compile(low.kernel, text, tactic_of[text])
            out.append(Launch(low, compiled, tactic_of[text]))
            if not trial:
                self.trace.report("compile", i + 1, len(lowered))
        return out

    def _first_with_code(self, k: Candidates, chosen: Tactic) -> Tactic:
        """An untimed tactic, or where it does not compile the next one that does."""
        error: CompileError | None = None
        for tactic in k.tactics[k.tactics.index(chosen) :]:
            try:
                self._compile(k.kernel, k.text, tactic)
            except CompileError as e:
                error = error or e
                continue
            if error is not None:
                name, why = k.first.region.root.name, f"{chosen} does not compile: {error}"
                self.trace.decide("fallback", at=name, reason=why)
            return tactic
        assert error is not None
        raise error

    def _compile(self, kernel: Kernel, text: str, tactic: Tactic) -> CompiledKernel:
        key = (text, tactic)
        if key in self._failed:
            raise self._failed[key]
        if key not in self._compiled:
            self._compiled[key] = self.backend.compile(kernel, tactic)
        return self._compiled[key]

    def _compile_ahead(self, wanted: Sequence[tuple[str, Kernel, Tactic]]) -> None:
        """What the backend likes to compile side by side."""
        missing = [w for w in wanted if (w[0], w[2]) not in self._compiled]
        made = self.backend.compile_ahead([(kernel, tactic) for _, kernel, tactic in missing])
        for i, code in made.items():
            text, _, tactic = missing[i]
            if isinstance(code, CompileError):
                self._failed[text, tactic] = code
            else:
                self._compiled[text, tactic] = code

    def _keys(self, k: Candidates) -> list[str]:
        """Timing-cache keys of a kernel's tactics."""
        sizes = self.sizes_text
        generator, machine = self.backend.generator, self.backend.target.fingerprint
        return [TimingCache.key(generator, k.text, str(t), sizes, machine) for t in k.tactics]

    def _measured(self, k: Candidates) -> Candidates:
        keys = self._keys(k)
        known = [self.cache.get(key) for key in keys]
        missing = [i for i, seconds in enumerate(known) if seconds is None]
        for i, seconds in self._timed(k, known).items() if missing else ():
            known[i] = seconds
            if seconds < INFINITE:  # what does not run today may be the machine's fault
                self.cache.put(keys[i], seconds)
        if min(t for t in known if t is not None) == INFINITE:
            failed = [self._failed.get((k.text, t)) for t in k.tactics]
            if failed[-1] is not None and None not in failed:
                raise failed[-1]
            raise ExecutionError(
                f"{k.place} has {len(known)} ways to run and none of them does; "
                "please report this model"
            )
        return replace(k, seconds=tuple(t for t in known if t is not None))

    def _timed(self, k: Candidates, known: Sequence[float | None]) -> dict[int, float]:
        """Seconds of the tactics whose time is not known, by their positions; infinite for those
        that do not compile, do not run, or are wrong."""
        sizes = {**self.sizes, **k.first.places}
        with _room(k):
            work = self.backend.workload(k.kernel, sizes)
        found: dict[int, float] = {}
        results: dict[int, Results] = {}

        def run(i: int) -> None:
            best = min((t for t in (*known, *found.values()) if t is not None), default=INFINITE)
            try:
                compiled = self._compile(k.kernel, k.text, k.tactics[i])
            except CompileError as e:
                self._failed[k.text, k.tactics[i]] = e
                found[i] = INFINITE  # a tactic that does not compile is slower than any other
                return
            with _room(k):  # buffers are made again after a tactic that has spoiled them
                found[i] = work.seconds(compiled, best)
            if found[i] < INFINITE:
                results[i] = work.results()

        for i, seconds in enumerate(known):
            if seconds is None:
                run(i)
        trusted = [i for i, seconds in enumerate(known) if seconds is not None]
        if trusted and len(results) == 1:  # it has nothing else to agree with
            run(trusted[0])
            results = dict(reversed(results.items()))  # where they differ, it is right
        self._refuse_wrong(k, sizes, work, found, results)
        return {i: s for i, s in found.items() if known[i] is None or s == INFINITE}

    def _refuse_wrong(
        self, k: Candidates, sizes: Mapping[str, int], work: Workload, found: dict[int, float],
        results: Mapping[int, Results],
    ) -> None:  # fmt: skip
        """Tactics that are wrong by what the others have left take for ever."""
        order = list(results)
        if len(order) < 2:
            return
        limit = bound(k.kernel, sizes, self.effort.tf32)
        wrong = disagreeing(
            [results[i] for i in order], limit, lambda: computed(k.kernel, sizes, work.inputs)
        )
        for i in (order[w] for w in wrong):
            found[i] = INFINITE
            self.trace.decide(
                "wrong",
                name=k.first.region.root.name,
                tactic=str(k.tactics[i]),
                why="its results are not those of the other tactics, within rounding",
            )
