"""Tactics that were the fastest on a card, shipped for builds where nothing can be timed.

`tables/sm_90.json` has, for kernels of networks that were tuned there, the best tactic that needs
no library: {"revision": .., "kernels": {hash of the kernel's text: [template, parameters]}}. What
is not in it gets the best estimate, as does everything where tactics have another revision.
`scripts/gpu_table.py` writes it on a machine with the card.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from braze.fusion.kernel import Kernel, Tactic
from braze.fusion.kernel_text import kernel_text

FOLDER = "tables"


def table_key(text: str) -> str:
    """The name of a kernel in a table, of its text."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def entry(tactic: Tactic) -> list[object]:
    """A tactic as a table has it."""
    return [tactic.template, dict(tactic.parameters)]


@cache
def shipped_table(capability: str, revision: int) -> Mapping[str, Tactic]:
    """The tactics of a card by the names of kernels; empty where none are shipped."""
    file = files("braze.codegen.cuda") / FOLDER / f"{capability}.json"
    if not file.is_file():
        return {}
    found = json.loads(file.read_text())
    if found["revision"] != revision:
        return {}
    kernels = found["kernels"]
    return {key: Tactic(name, tuple(p.items())) for key, (name, p) in kernels.items()}


def shipped_tactic(kernel: Kernel, table: Mapping[str, Tactic]) -> tuple[Tactic, ...]:
    """What the table has for a kernel, if anything."""
    found = table.get(table_key(kernel_text(kernel))) if table else None
    return () if found is None else (found,)
