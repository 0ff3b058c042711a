"""Ways to build a case: what each of them changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.fuzz.case import FEW, Case, Fill, Step, Tensor
from tests.fuzz.checks import check
from tests.fuzz.forcing import build
from tests.fuzz.graphs import FIRST_LATER, make
from tests.fuzz.ways import Variant, variants

ROWS = Case(
    steps=(Step("Tile", ("x", "times"), ("y",)),),
    inputs={
        "x": Tensor("float32", ("n", 3), seed=1),
        "times": Tensor("int64", (2,), Fill("integers", 0, 3), 2),
    },
    outputs=("y",),
    sizes={"n": (1, 2, 4)},
)


def test_contents_that_decide_sizes_are_bounded_by_what_runs_draw() -> None:
    bounds = ROWS.contents()
    assert [corner.tolist() for corner in bounds["times"]] == [[0, 0], [1, 1], [3, 3]]
    for level in range(4):
        for target in ("cpu", "reference"):
            outcome = check(ROWS, ways=(Variant(level, target, bounded=True),))
            assert outcome.status == "right", outcome.reason
    engine, _ = build(import_network(ROWS.model(), shapes=ROWS.shapes(), values=bounds), 1)
    with pytest.raises(BrazeError, match=r"'times' holds 4 at element 1, outside 0\.\.3"):
        engine(ROWS.feed(ROWS.env(1)) | {"times": np.array([1, 4])})


@pytest.mark.parametrize(
    "tensor",
    [
        Tensor("float32", (2,), Fill("integers", 0, 3)),
        Tensor("int64", ("n",), Fill("integers", 0, 3)),
        Tensor("int64", (0,), Fill("integers", 0, 3)),
        Tensor("int64", (FEW + 1,), Fill("integers", 0, 3)),
        Tensor("int64", (2,), values=(1, 2)),
        Tensor("int64", (2,), Fill("integers", 0, 3, strewn=("max",))),
    ],
)
def test_other_contents_are_not(tensor: Tensor) -> None:
    assert replace(ROWS, inputs={"times": tensor}).contents() == {}


def test_later_numbers_have_bounded_contents() -> None:
    """A third of those that have any, in control flow and without."""
    cases = [(n, make(n).case) for n in range(FIRST_LATER, FIRST_LATER + 400)]
    ways = [(n, c, variants(c, n, 1)[-1]) for n, c in cases]
    bounded = [(n, way) for n, _, way in ways if way.bounded]
    assert 8 < len(bounded) < 100 and len({bool(way.inside) for _, way in bounded}) == 2
    assert all(c.contents() and not c.outside for n, c, way in ways if way.bounded)
