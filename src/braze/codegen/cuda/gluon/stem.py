"""Convolutions of a picture whose second launch is a product in Gluon (see triton/stem.py).

The taps along a line of the folded window are channels of one box, so boxes overlap: they are
copied from the cache again for every line of the window, but by tensor maps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from braze.codegen.cuda.gluon.layout import GluonTile
from braze.codegen.cuda.gluon.product import gluon_source
from braze.codegen.cuda.gluon.tactics import gluon_tactics
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.stem import fold_source, folded_kernel
from braze.core.config import Effort
from braze.fusion.kernel import AnchorKernel, Packing, Tactic

TEMPLATE: Final = "gluon_stem"


def stem_tactics(kernel: AnchorKernel, shared_bytes: int, effort: Effort) -> tuple[Tactic, ...]:
    """Tiles of the second launch; none for what is no picture."""
    folded = folded_kernel(kernel)
    if folded is None:
        return ()
    found = gluon_tactics(folded, shared_bytes, effort)
    return tuple(Tactic(TEMPLATE, t.parameters) for t in found)


def gluon_stem_sources(kernel: AnchorKernel, tile: GluonTile) -> tuple[TritonSource, ...]:
    """The launch that folds, and the product, whose left operand is the workspace."""
    folded = folded_kernel(kernel)
    assert folded is not None
    plain = gluon_source(folded, tile)
    ((slot, rows),) = plain.packings
    packings = ((slot, Packing("stem rows", rows.dtype, rows.parameters)),)
    first = fold_source(kernel, folded, packings)
    (_, *tensors, status), (_, kind) = plain.pointers, first.pointers[-2]
    pointers = (("unused", kind), *tensors, ("in0", kind), status)
    known = [f"map{i}" for i in range(len(plain.maps))]
    before, after = (
        f"def {plain.entry}({', '.join([*known, *(name for name, _ in p)])}):"
        for p in (plain.pointers, pointers)
    )
    assert before in plain.text, "the sizes of a picture are known"
    left = replace(plain.maps[0], buffer=len(tensors) + 1)
    second = replace(
        plain, text=plain.text.replace(before, after), pointers=pointers,
        maps=(left, *plain.maps[1:]), scratch_bytes=first.scratch_bytes, packings=packings,
    )  # fmt: skip
    return first, second
