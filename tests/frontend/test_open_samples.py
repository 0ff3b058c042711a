"""GridSample, Col2Im and RoiAlign where every size is open: as with fixed ones, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.core.errors import BrazeError, ShapeError
from tests.frontend.test_operand_shapes import Array, one

R = np.random.default_rng(11)
X = R.standard_normal((2, 3, 5, 6)).astype(np.float32)
GRID = R.uniform(-1.2, 1.2, (2, 4, 5, 2)).astype(np.float32)
COLUMNS = R.standard_normal((2, 12, 9)).astype(np.float32)
ROIS = np.array([[0, 0, 3, 4], [1, 1, 5, 3]], np.float32)
IMAGE = {"i": np.array([4, 4]), "k": np.array([2, 2])}

# op, inputs by name, constants, names, attributes, and a bad shape of one input with what is said
CASES: list[tuple[str, dict[str, Array], dict[str, Array], str, dict[str, Any], Any]] = [
    ("GridSample", {"x": X, "g": GRID}, {}, "x g", {}, ("g", (2, 4, 5, 3), "coordinates")),
    ("GridSample", {"x": X, "g": GRID}, {}, "x g", {}, ("g", (2, 4, 5, 1), "coordinates")),
    ("Col2Im", {"x": COLUMNS}, IMAGE, "x i k", {}, ("x", (2, 11, 9), "rows that blocks of 4")),
    ("Col2Im", {"x": COLUMNS}, IMAGE, "x i k", {}, ("x", (2, 12, 8), "Col2Im blocks")),
    *(
        (
            "RoiAlign",
            {"x": X, "r": ROIS, "b": np.array([1, 0])},
            {},
            "x r b",
            {"output_height": 2, "output_width": 3, "sampling_ratio": samples},
            ("r", (2, 5), "numbers of each region"),
        )
        for samples in (0, 2)
    ),
]


@pytest.mark.parametrize(("op", "given", "constants", "names", "attributes", "wrong"), CASES)
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_open_sizes(
    op: str,
    given: dict[str, Array],
    constants: dict[str, Array],
    names: str,
    attributes: dict[str, Any],
    wrong: tuple[str, tuple[int, ...], str],
    target: str,
) -> None:
    def proto(feeds: dict[str, Array], dynamic: str) -> onnx.ModelProto:
        return one(op, feeds, constants, names, opset=18, dynamic=dynamic, **attributes)

    options: dict[str, Any] = {"target": target, "optimization_level": 0}
    wanted = braze.build(proto(given, ""), **options)(given)["y"]
    engine = braze.build(proto(given, names), **options)
    np.testing.assert_allclose(engine(given)["y"], wanted, 1e-5, 1e-6)
    name, shape, what = wrong
    bad = {**given, name: np.resize(given[name], shape)}
    with pytest.raises(ShapeError, match=f"'here'.*{what}"):
        engine(bad)
    with pytest.raises(BrazeError, match="'here'"):
        braze.build(proto(bad, ""), **options)
