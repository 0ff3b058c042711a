"""A few random quantized networks; `python -m tests.quantization.random_networks` runs more."""

from __future__ import annotations

import numpy as np
import pytest

from tests.quantization import random_networks
from tests.quantization.random_networks import fault, make, way


@pytest.mark.parametrize("number", range(9000, 9012))
def test_a_random_quantized_network_has_the_bits_of_integer_arithmetic(number: int) -> None:
    assert fault(number) == ""


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
    honest = random_networks.build

    def off(*given: object) -> tuple[object, object]:
        engine, chosen = honest(*given)  # type: ignore[arg-type]

        def run(feed: object) -> dict[str, np.ndarray]:
            found = {k: a.copy() for k, a in engine(feed).items()}  # type: ignore[arg-type]
            first = next(iter(found.values()))
            first.reshape(-1)[0] = np.nextafter(first.reshape(-1)[0], np.float32(9))
            return found

        return run, chosen

    monkeypatch.setattr(random_networks, "build", off)
    assert "has other bits than integers give in 1 of" in fault(9000)
