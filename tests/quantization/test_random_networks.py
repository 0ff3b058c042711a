"""A few random quantized networks; `python -m tests.quantization.random_networks` runs more."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.case import Case
from tests.fuzz.ways import Variant
from tests.quantization import random_networks
from tests.quantization.random_networks import PARTLY, fault, make, way


@pytest.mark.parametrize("number", range(9000, 9006))
def test_a_random_quantized_network_has_the_bits_of_integer_arithmetic(number: int) -> None:
    assert fault(number) in ("", PARTLY)


def test_numbers_cover_nodes_types_and_ways() -> None:
    cases = [make(n) for n in range(25)]
    ops = {s.op for c in cases for s in c.steps}
    assert {"Conv", "MatMul", "Add", "Concat", "MaxPool", "Relu", "Clip", "Transpose"} <= ops
    types = {t.dtype for c in cases for t in c.constants.values()}
    assert {"uint8", "int8", "int32", "float32"} <= types
    assert any(c.sizes for c in cases) and any(len(c.outputs) > 1 for c in cases)
    assert {way(n).level for n in range(25)} == {1, 2, 5}


def test_one_other_code_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is off by one unit in one element, which the float meaning may allow."""
    honest = random_networks._built

    def off(case: Case, variant: Variant) -> tuple[object, bool]:
        engine, whole = honest(case, variant)

        def run(feed: object) -> dict[str, np.ndarray]:
            found = {k: a.copy() for k, a in engine(feed).items()}
            first = next(iter(found.values()))
            first.reshape(-1)[0] = np.nextafter(first.reshape(-1)[0], np.float32(9))
            return found

        return (engine if variant.target == "reference" else run), whole

    monkeypatch.setattr(random_networks, "_built", off)
    monkeypatch.setattr(random_networks, "way", lambda number: Variant(1))
    # some have products that are not made of integers, where nothing is compared
    found = (fault(n) for n in range(9000, 9020))
    assert any("has other bits than integers give in 1 of" in text for text in found)
