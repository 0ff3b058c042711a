"""What specs of anchors are made of: operands, and the order of sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from braze.core.dims import Dim, Shape, product

# How an anchor sums: `acc` is the type of products and sums. k is cut into blocks of `block`
# terms; a block is one accumulator per output that takes its products in ascending k from zero,
# and blocks are added in ascending order. No tile, batch slot or worker changes that order, so
# none changes a bit.
SUM_BLOCK: Final = 256


@dataclass(frozen=True, slots=True)
class Operand:
    """How an anchor reads input `slot` (or writes its output, slot 0).

    strides: elements per step along each logical axis of the anchor; offset in elements. Strides
    of 0 broadcast. The last logical axis has stride 1 unless a template says otherwise.
    """

    slot: int
    strides: tuple[Dim, ...]
    offset: Dim = 0


Operands = dict[str, tuple[Operand, Shape]]  # by the name of a spec's field


def row_major_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Elements per step along each axis of a contiguous tensor."""
    return tuple(product(shape[i + 1 :]) for i in range(len(shape)))
