"""What a family file says of a network, and the arrays it is run with. Imports numpy alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SIZES: tuple[Mapping[str, int], ...] = ({"B": 2, "S": 7}, {"B": 1, "S": 12})


@dataclass(frozen=True)
class Net:
    """One network and the forms it is exported in.

    maker: the function of `tests.zoo.makers` that makes it from `spec`.
    inputs: name -> "kind dim,dim,..."; a dim is a number or a symbol of `sizes`.
        Kinds: float (normal), unit (0 to 1), ids:N (0 to N - 1), ended:N (3 to N - 1, the last is
        2), boxes:N (corners, below N), ones, mask (0 or 1, the first is 1), bool, lengths:N (1 to
        N, falling), long:V and full:V (all of them V).
    sizes: the symbols' values, one mapping for each run; the first is exported with.
    forms: exporter, then "-dynamic", then "+change", a change being one of `makers.changes`.
    """

    name: str
    maker: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    sizes: Sequence[Mapping[str, int]] = SIZES
    forms: Sequence[str] = ("script-dynamic",)


def draw(net: Net, dynamic: bool) -> list[dict[str, Array]]:
    """The inputs of each run: of the first sizes alone, where the export is static."""
    runs = net.sizes if dynamic else net.sizes[:1]
    return [
        {n: _array(text, sizes, np.random.default_rng(7 * i + len(n)))
         for n, text in net.inputs.items()}
        for i, sizes in enumerate(runs)
    ]  # fmt: skip


def dims(text: str) -> list[int | str]:
    """The dims of an input's text."""
    _, _, rest = text.partition(" ")
    return [int(d) if d.isdigit() else d for d in rest.split(",") if d]


def _array(text: str, sizes: Mapping[str, int], rng: np.random.Generator) -> Array:
    kind, _, value = text.split(" ", maxsplit=1)[0].partition(":")
    shape = [d if isinstance(d, int) else sizes[d] for d in dims(text)]
    if kind == "float":
        return rng.standard_normal(shape).astype(np.float32)
    if kind == "unit":
        return rng.random(shape).astype(np.float32)
    if kind == "ids":
        return rng.integers(0, int(value), shape, dtype=np.int64)
    if kind == "ended":
        ids = rng.integers(3, int(value), shape, dtype=np.int64)
        ids[..., -1] = 2
        return ids
    if kind == "boxes":
        corners = rng.integers(0, int(value), (*shape[:-1], 2, 2), dtype=np.int64)
        return np.sort(corners, axis=-2).reshape(shape)
    if kind == "ones":
        return np.ones(shape, np.int64)
    if kind == "mask":
        keep = rng.random(shape) < 0.8
        keep[..., 0] = True
        return np.sort(keep, axis=-1)[..., ::-1].astype(np.int64)
    if kind == "bool":
        return rng.random(shape) < 0.6
    if kind == "lengths":  # long ones first, as packed sequences want them
        return np.sort(rng.integers(1, int(value) + 1, shape, dtype=np.int64))[::-1].copy()
    assert kind in ("long", "full"), f"no kind of input is called {kind}"
    return np.full(shape, float(value), np.int64 if kind == "long" else np.float32)
