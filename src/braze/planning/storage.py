"""The buffers of a plan under construction: where values lie, and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from braze.core.bounds import bounds
from braze.core.dims import Dim, product
from braze.core.elements import size_of
from braze.core.target import Target
from braze.engine.plan import Buffer, Profile, Weight
from braze.fusion.kernel import Packing
from braze.ir.graph import Graph, RunSize, Value
from braze.planning.late import has_useful_bound
from braze.planning.memory import Lifetime, aligned, lower_bound, plan_offsets
from braze.planning.sizes import SizeTable

Ranges = Mapping[str, tuple[int, int, int]]  # symbol -> (min, opt, max)
Pack = Callable[[np.ndarray[Any, Any], Packing], np.ndarray[Any, Any]]


@dataclass
class Storage:
    """A buffer under construction; `first` and `last` are times of its use (arena only)."""

    kind: str
    bytes: Dim
    name: str
    first: int = 0
    last: int = 0
    offset: int = 0


@dataclass
class Memory:
    """The buffers so far, and what lies where.

    of_value: value that owns bytes -> its buffer; of_run: the sizes that the run gives, by symbol.
    """

    target: Target
    pack: Pack
    sizes: SizeTable
    of_run: Mapping[str, RunSize]
    storages: list[Storage] = field(default_factory=list)
    of_value: dict[Value, int] = field(default_factory=dict)
    weights: list[Weight] = field(default_factory=list)
    weight_data: list[np.ndarray[Any, Any]] = field(default_factory=list)
    _weight_of: dict[tuple[str, Packing | None], int] = field(default_factory=dict)
    _weight_bytes: int = 0

    def new(self, storage: Storage) -> int:
        """The number of a new buffer."""
        self.storages.append(storage)
        return len(self.storages) - 1

    def weight(self, graph: Graph, v: Value, packing: Packing | None) -> int:
        """Buffer of a constant, repacked when a kernel asks for it; equal content is shared."""
        content = graph.constants[v]
        key = (content, packing)
        if key not in self._weight_of:
            array = graph.weights.get(content)
            try:
                data = np.ascontiguousarray(array if packing is None else self.pack(array, packing))
            except MemoryError as e:
                raise MemoryError(f"constant {v.name}: {e}") from None
            offset, size = self._weight_bytes, data.nbytes
            self._weight_bytes += aligned(size)
            dtype = v.dtype if packing is None else packing.dtype
            self.weights.append(Weight(v.name, dtype, tuple(data.shape), offset, size, content))
            self.weight_data.append(data)
            self._weight_of[key] = self.new(Storage("weight", size, v.name, offset=offset))
        return self._weight_of[key]

    def buffers(self) -> tuple[Buffer, ...]:
        """What kernels keep lies in the target's memory; what callers bind, in the host's."""
        return tuple(
            Buffer(
                s.kind,
                self.sizes.index(s.bytes),
                s.offset,
                s.name,
                self.target.space if s.kind in ("arena", "weight") else "host",
            )
            for s in self.storages
        )

    def profile(self, ranges: Ranges) -> Profile:
        """The arena laid out for the largest sizes of a profile."""
        symbols = self.sizes.symbols
        env = {s: (ranges[s][0], ranges[s][2]) for s in symbols}
        arena = [
            i
            for i, s in enumerate(self.storages)
            if s.kind == "arena" and has_useful_bound(s.bytes, self.of_run, env)
        ]
        lives = [
            Lifetime(
                bounds(self.storages[i].bytes, env)[1],
                self.storages[i].first,
                self.storages[i].last,
            )
            for i in arena
        ]
        placed, total = plan_offsets(lives, self.target.alignment)
        least = lower_bound(lives, self.target.alignment)
        offsets = [-1] * len(self.storages)
        for i, at in zip(arena, placed, strict=True):
            offsets[i] = at
        return Profile(tuple(ranges[s] for s in symbols), tuple(offsets), total, least)


def value_bytes(v: Value) -> Dim:
    """Bytes of a tensor."""
    return size_of(product(v.shape), v.dtype)
