#!/usr/bin/env python3
"""Write docs/tensorrt-compat.md: each name of TensorRT's Python API 10.13, and what it does here.

    python scripts/tensorrt_compat.py [--stubs FOLDER] [--check]

The names are those of the stubs (`pip install --target FOLDER tensorrt-stubs==10.13.0.35.1`); what
is not there by its name is missing, what is not in `tensorrt_review.py` works. What became of
NVIDIA's samples is `tensorrt_samples.py`. With --check nothing
is written: exit code 1 says that the page is not what it would be.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import braze.tensorrt
from tensorrt_names import find_stubs, read_names
from tensorrt_review import REVIEW
from tensorrt_samples import SAMPLES, SAMPLES_ARE

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "tensorrt-compat.md"
WORKS: Final = "works"
MISSING: Final = "missing"
STATES: Final = (WORKS, "accepted", "refused", MISSING)


@dataclass(frozen=True)
class Name:
    """A public name: of a class, or of one of its members ("" for the class itself)."""

    owner: str
    member: str
    state: str
    reason: str

    @property
    def text(self) -> str:
        """As scripts write it."""
        return ".".join(p for p in (self.owner, self.member) if p)


def judge(names: Mapping[str, Sequence[str]]) -> list[Name]:
    """The state of each class and each member."""
    found = []
    for owner, members in names.items():
        if owner:
            found.append(_judged(owner, ""))
        found += [_judged(owner, m) for m in members]
    return found


def _judged(owner: str, member: str) -> Name:
    text = ".".join(p for p in (owner, member) if p)
    if not is_there(owner, member):
        return Name(owner, member, MISSING, "")
    for pattern, state, reason in REVIEW:
        if fnmatchcase(text, pattern):
            return Name(owner, member, state or WORKS, reason)
    return Name(owner, member, WORKS, "")


def is_there(owner: str, member: str) -> bool:
    """Whether the package has a name; attributes may be set where objects are made."""
    thing: Any = braze.tensorrt
    for part in owner.split(".") if owner else ():
        thing = getattr(thing, part, None)
        if thing is None:
            return False
    if not member or hasattr(thing, member):
        return True
    if not inspect.isclass(thing):
        return False
    set_here = re.compile(rf"\bself\.{re.escape(member)}\b\s*(:|=)|^    {re.escape(member)}:", re.M)
    bases = [c for c in thing.__mro__ if c.__module__.startswith("braze.")]
    return any(set_here.search(inspect.getsource(c)) for c in bases)


def page(names: Sequence[Name]) -> str:
    """The page."""
    counts = Counter(n.state for n in names)
    rows = [f"| {state} | {counts[state]} | {100 * counts[state] / len(names):.1f} % |"
            for state in STATES]  # fmt: skip
    lines = [
        "# TensorRT's Python API in braze",
        "",
        "Made by `scripts/tensorrt_compat.py` from the names of `tensorrt-stubs` 10.13; edit that.",
        "",
        "`import braze.tensorrt as trt` has these names. *Works*: it does what TensorRT documents;",
        "`tests/tensorrt/used.txt` has a test of each. *Accepted*: it is taken, checked and",
        "recorded, and changes nothing that runs. *Refused*: an error in the log, and None or",
        "False.",
        "",
        f"| of {len(names)} names | | |",
        "|---|---|---|",
        *rows,
        "",
        "Names of releases before and after 10.13 (binding indices, `max_workspace_size`,",
        "attention, caches, ...) are there too, and not counted. On CPUs the output of",
        "`add_kv_cache_update` may be bound where its cache lies, and is copied there when the run",
        "is over; on GPUs it has memory of its own, and `get_aliased_input_tensor` is None.",
        "Mixtures of experts, collectives, RNNv2 layers and the parsers of Caffe and UFF are",
        "refused.",
        "",
        "| class | works | accepted or refused |",
        "|---|---|---|",
    ]
    for owner in dict.fromkeys(n.owner for n in names):
        lines.append(_row(owner, [n for n in names if n.owner == owner]))
    return "\n".join([*lines, "", *_samples()]) + "\n"


def _samples() -> list[str]:
    return [
        "## Public samples",
        "",
        *SAMPLES_ARE.splitlines(),
        "",
        "| sample | result |",
        "|---|---|",
        *(f"| {', '.join(f'`{n}`' for n in names)} | {result} |" for names, result in SAMPLES),
    ]


def _row(owner: str, names: Sequence[Name]) -> str:
    works = ", ".join(n.member for n in names if n.state == WORKS and n.member)
    rest: dict[tuple[str, str], list[str]] = {}
    for n in names:
        if n.state != WORKS:
            rest.setdefault((n.state, n.reason), []).append(n.member or "the class")
    told = "; ".join(
        f"**{state}**{f' ({reason})' if reason else ''}: {', '.join(members)}"
        for (state, reason), members in rest.items()
    )
    return f"| {f'`{owner}`' if owner else 'functions, types'} | {works} | {told} |"


def names_of_page(text: str) -> dict[str, tuple[str, ...]]:
    """The names that a page lists, as `read_names` gives them."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        row = re.fullmatch(r"\| (?:`([\w.]+)`|functions, types) \| (.*?) \| (.*) \|", line)
        if row is None:
            continue
        groups = [row[2], *re.findall(r"\*\*(?: \(.*?\))?: ([\w, ]+)(?:;|$)", row[3])]
        members = {m for g in groups for m in g.split(", ")} - {"", "the class"}
        found[row[1] or ""] = tuple(sorted(members))
    return found


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--stubs", type=Path, help="the folder that the stubs are in")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where it differs")
    options = parser.parse_args()
    folder = options.stubs or find_stubs()
    if folder is None:
        print("tensorrt-stubs is not installed; give its folder with --stubs", file=sys.stderr)
        return 2
    names = judge(read_names(folder))
    text = page(names)
    if options.check:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    counts = Counter(n.state for n in names)
    print(", ".join(f"{state} {counts[state]}" for state in STATES))
    print("\n".join(f"missing: {n.text}" for n in names if n.state == MISSING))
    return 0


if __name__ == "__main__":
    sys.exit(main())
