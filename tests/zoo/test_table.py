"""The page that `tests.zoo` writes, and what it is made from. Exports nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.zoo import table
from tests.zoo.families import GROUPS, load
from tests.zoo.net import Net, draw

RESULTS = (
    {"group": "b", "net": "n", "form": "f", "outcome": "right", "l2": 2e-7, "worst": 1e-6},
    {"group": "b", "net": "n", "form": "f+g", "outcome": "right", "l2": 1e-7, "worst": 3e-6,
     "by": "its own framework"},
    {"group": "b", "net": "m", "form": "f", "outcome": "refused", "error": "OpError: a | b\n c"},
    {"group": "a", "net": "n", "form": "f", "outcome": "wrong",
     "all": {"ONNX Runtime": {"l2": 0.5, "worst": 1.0}}},
)  # fmt: skip


def test_counts_stand_above_rows_in_the_order_of_groups() -> None:
    page = table.write(RESULTS, ("a", "b"), 9)
    assert "4 files of 3 networks were run, of 9 files listed" in page
    assert "| outcome | files | |\n|---|---|---|\n| right | 2 |" in page
    assert "| f | 3 | 1 |\n| g | 1 | 1 |" in page
    assert "| a |  | 1 |  |" in page and "| b | 2 |  | 1 |" in page
    assert page.index("## a") < page.index("| n |  |  | f: wrong,") < page.index("## b")
    row = "| n | f, g | 2e-07 3e-06 | g: beside its own framework |"
    assert page.index("| m |") < page.index(row)


def test_an_error_is_one_cell() -> None:
    page = table.write(RESULTS, ("a", "b"), 9)
    assert "| m |  |  | f: refused, OpError: a / b c |" in page
    assert "| n |  |  | f: wrong, ONNX Runtime 5.0e-01 1.0e+00 |" in page


def test_outcomes_that_nothing_had_have_no_column() -> None:
    assert "crash" not in table.write(RESULTS, ("a", "b"), 9)


@pytest.mark.parametrize("group", GROUPS)
def test_networks_have_names_and_forms_of_their_own(group: str) -> None:
    nets = load(group)
    assert nets and len({n.name for n in nets}) == len(nets)
    assert all(n.forms and len(set(n.forms)) == len(n.forms) for n in nets)
    for net in nets:
        for feed in draw(net, dynamic=True):
            assert set(feed) == set(net.inputs)


def test_inputs_are_what_their_texts_say() -> None:
    texts = {"a": "float B,3", "b": "ids:5 B", "c": "mask B,4", "d": "lengths:6 B", "e": "long:7"}
    net = Net("n", "m", {}, texts, ({"B": 2}, {"B": 3}))
    first, second = draw(net, dynamic=True)
    assert [a.shape for a in second.values()] == [(3, 3), (3,), (3, 4), (3,), ()]
    assert first["a"].dtype == np.float32 and first["b"].max() < 5 and first["e"] == 7
    assert (np.diff(first["c"]) <= 0).all() and first["c"][:, 0].all()
    assert (np.diff(second["d"]) <= 0).all() and second["d"].min() >= 1
    assert len(draw(net, dynamic=False)) == 1
