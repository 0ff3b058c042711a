"""The form of a recurrence's kernel: how units, rows and weights are cut, and where states lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from braze.codegen.cpu.product.scratch import Scratch
from braze.core.dims import Dim, ceildiv
from braze.fusion.kernel import Packing
from braze.ops.lowering import RecurrenceSpec
from braze.ops.recurrent.cells import stage_gates

PANELS = "recurrent_panels"  # the kind of packing
_SYNC_BYTES = 128  # two cache lines of each worker (workers.py)


@dataclass(frozen=True, slots=True)
class Form:
    """A tile is `vectors` vectors of `lanes` hidden units, of each gate, for `rows` rows.

    The weights of a tile lie together: [stage][direction][tile][k][gate of the stage][unit].
    """

    spec: RecurrenceSpec
    rows: int
    vectors: int
    lanes: int

    @property
    def units(self) -> int:
        """Hidden units of a tile."""
        return self.vectors * self.lanes

    @property
    def tiles(self) -> int:
        """Tiles of a direction."""
        return -(-self.spec.hidden // self.units)

    @property
    def padded(self) -> int:
        """Elements of a state row."""
        return self.tiles * self.units

    @property
    def directions(self) -> int:
        return len(self.spec.reverse)

    @property
    def groups(self) -> Dim:
        """Groups of rows."""
        return ceildiv(self.spec.batch, self.rows)

    @property
    def tasks(self) -> Dim:
        """Tiles of one stage of a step; workers share them."""
        return self.groups * (self.directions * self.tiles)

    @property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """The gates of each stage."""
        return stage_gates(self.spec)

    def panel_elements(self, stage: int) -> int:
        """Elements of the weights of one tile in a stage."""
        return self.spec.hidden * len(self.stages[stage]) * self.units

    def stage_start(self, stage: int) -> int:
        """Elements in front of a stage's weights."""
        each = self.directions * self.tiles
        return sum(self.panel_elements(s) * each for s in range(stage))

    @property
    def packing(self) -> Packing:
        """How constant weights are laid out."""
        values = (
            ("gates", self.spec.gates),
            ("first", len(self.stages[0])),
            ("units", self.units),
        )
        return Packing(PANELS, self.spec.acc, values)


@dataclass(frozen=True, slots=True)
class Places:
    """Byte offsets in the scratch of the first worker, which all share.

    The first `_SYNC_BYTES` of every worker's scratch are its own part of the agreement on who does
    what. h: two copies, of this step and the next; others None where there are none.
    """

    h: Dim
    c: Dim | None
    z: Dim | None
    rh: Dim | None
    panels: Dim | None
    used: Dim

    @staticmethod
    def of(form: Form, packed: bool) -> Places:
        """Room for all states, and for weights that are packed in each run."""
        spec = form.spec
        scratch = Scratch(1, _SYNC_BYTES)
        state = spec.batch * (form.directions * form.padded * spec.acc.itemsize)
        two = len(form.stages) == 2
        h = scratch.take(state * 2)
        c = scratch.take(state) if spec.cell == "lstm" else None
        z, rh = (scratch.take(state) if two else None for _ in range(2))
        total = form.stage_start(len(form.stages)) * spec.acc.itemsize
        panels = None if packed else scratch.take(total)
        return Places(h, c, z, rh, panels, scratch.used)


def pack_panels(array: NDArray[Any], p: dict[str, int]) -> NDArray[Any]:
    """[direction, gate and unit, k] -> the layout of `Form`, padded with zeros."""
    count, wide, hidden = array.shape
    gates, units = p["gates"], p["units"]
    assert wide == gates * hidden, array.shape
    tiles = -(-hidden // units)
    full = np.zeros((count, gates, tiles * units, hidden), array.dtype)
    full[:, :, :hidden] = array.reshape(count, gates, hidden, hidden)
    cut = full.reshape(count, gates, tiles, units, hidden).transpose(0, 2, 4, 1, 3)
    parts = (cut[..., : p["first"], :], cut[..., p["first"] :, :])
    return np.concatenate([part.reshape(-1) for part in parts])
