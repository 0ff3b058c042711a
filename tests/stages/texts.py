"""The texts of all stages of a build, as they are kept in `golden/`."""

from __future__ import annotations

import re
from pathlib import Path

import braze
from braze.core.trace import Trace
from tests.stages.models import StageModel
from tests.stages.plan_text import plan_text

FOLDER = Path(__file__).parent / "golden"
LEVELS = (0, 2)  # without fusion, and all that is decided without measuring
STAGES = ("optimised", "regions", "kernels")
_HASH = re.compile(r"\b[0-9a-f]{32}\b")


def golden_path(name: str) -> Path:
    """The file that holds the texts of model `name`."""
    return FOLDER / f"{name}.txt"


def stage_texts(case: StageModel) -> str:
    """All texts of one model: imported once, the other stages for each level.

    The target is fixed, so that every machine prints the same.
    """
    sections: list[tuple[str, str]] = []
    for level in LEVELS:
        trace = Trace(dump=True)
        plan = braze.compile(
            case.model, shapes=case.shapes, target="cpu:avx2", threads=2, optimization_level=level,
            trace=trace,
        )  # fmt: skip
        texts = dict(trace.stages)
        if not sections:
            sections.append(("imported", texts["import"]))
        sections += [(f"level {level}: {stage}", texts[stage]) for stage in STAGES]
        sections.append((f"level {level}: plan", plan_text(plan)))
    first: dict[str, str] = {}
    lines = []
    for title, text in sections:
        same = first.setdefault(text, title)
        shown = _numbered(text).rstrip() if same == title else f"as {same}"
        lines.append(f"==== {title}\n{shown}\n")
    return "\n".join(lines)


def _numbered(text: str) -> str:
    """Content hashes by first appearance: equal ones stay equal, values of folds stay out."""
    numbers: dict[str, str] = {}
    return _HASH.sub(lambda m: numbers.setdefault(m[0], f"w{len(numbers)}"), text)
