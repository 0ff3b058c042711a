"""When Winograd's algorithm is used for a convolution, and with which tiles and blocks.

A rule on the sizes decides, never a measurement, up to level 3: rounding differs from the direct
sum, and two builds of one model should agree. Against float64, on normal values, F(2, 3) has about
half the error of the direct sum in float32 and F(4, 3) four times it (2e-6 relative at 128
channels).
"""

from __future__ import annotations

from braze.codegen.cpu.product.tactics import TileChoice, tile_choices
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.dims import ceildiv
from braze.fusion.kernel import AnchorKernel, Tactic
from braze.ops.lowering import ConvSpec

TEMPLATE = "winograd"
_MIN_CHANNELS = 16  # fewer do not pay for the transforms
_MIN_OUTPUTS = 3  # along each axis: smaller outputs leave most of a tile unused
_ASSUMED_TILES = 48
_LARGE_MIN_CHANNELS = 32
_LARGE_MIN_OUTPUTS = 8
_LARGE_MAX_WEIGHTS = 128 * 256  # F(4, 3) makes 36 numbers of each 9: too many to stream beyond


def suits_winograd(spec: ConvSpec) -> bool:
    """Whether the transforms pay: 3x3, stride 1, enough channels and outputs."""
    plain = spec.kernel == (3, 3) and spec.strides == (1, 1) and spec.dilations == (1, 1)
    channels = min(spec.in_channels, spec.out_channels)
    outputs = [size for size in spec.out_spatial if isinstance(size, int)]
    large = all(size >= _MIN_OUTPUTS for size in outputs)
    return plain and spec.groups == 1 and channels >= _MIN_CHANNELS and large


def winograd_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """Tactics for a convolution that `suits_winograd`, best estimate first."""
    spec = kernel.spec
    assert isinstance(spec, ConvSpec)
    sizes = (tile_size(spec),) if effort.transforms == 1 else (4, 2)
    found = [_tactic(spec, target, size, i) for i in range(effort.tactics) for size in sizes]
    return tuple(dict.fromkeys(found))[: effort.tactics]


def tile_size(spec: ConvSpec) -> int:
    """Outputs along each axis of a tile: 4 where channels and outputs are many, weights not."""
    outputs = [size for size in spec.out_spatial if isinstance(size, int)]
    channels = spec.in_channels, spec.out_channels
    wide = min(channels) >= _LARGE_MIN_CHANNELS
    light = channels[0] * channels[1] <= _LARGE_MAX_WEIGHTS
    return 4 if wide and light and all(n >= _LARGE_MIN_OUTPUTS for n in outputs) else 2


def _tactic(spec: ConvSpec, target: CpuTarget, size: int, choice: int) -> Tactic:
    high, wide = (ceildiv(n, size) for n in spec.out_spatial)
    count = spec.batch * high * wide
    tiles = count if isinstance(count, int) else _ASSUMED_TILES
    points = (size + 2) ** 2
    budget = target.l2_bytes // 2 // (points * spec.acc.itemsize)
    most = max(4, min(tiles, budget // spec.in_channels))
    blocks = -(-tiles // most)
    per_block = -(-tiles // blocks)
    # every tile of rows is a whole one here: rows that do not divide the block cost time
    choices = sorted(
        tile_choices(target, spec.acc, per_block, spec.out_channels),
        key=lambda tile: tile.cost * (-(-per_block // tile.rows) * tile.rows) / per_block,
    )
    tile = choices[choice % len(choices)]
    panels = -(-spec.out_channels // (tile.vectors * tile.lanes))
    return Tactic(
        TEMPLATE,
        (
            ("size", size),
            ("rows", tile.rows),
            ("vectors", tile.vectors),
            ("lanes", tile.lanes),
            ("block", -(-per_block // tile.rows)),
            ("group", _group(panels, blocks, per_block * points * spec.acc.itemsize, tile, target)),
        ),
    )


def _group(panels: int, blocks: int, column_bytes: int, tile: TileChoice, target: CpuTarget) -> int:
    """Panels per group: sums fit in cache, and every worker has a few units of work."""
    fitting = target.l2_bytes // 4 // (column_bytes * tile.vectors * tile.lanes)
    group = max(1, min(panels, fitting))
    wanted = 4 * target.threads if target.threads > 1 else 1
    while group > 1 and blocks * -(-panels // group) < wanted:
        group -= 1
    return group
