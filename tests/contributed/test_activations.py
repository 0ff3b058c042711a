"""Gelu and its relatives of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from tests.contributed.peer import compare, node_model

FORMS: list[tuple[str, bool, dict[str, Any]]] = [
    ("Gelu", False, {}), ("BiasGelu", True, {}), ("FastGelu", False, {}), ("FastGelu", True, {}),
    ("QuickGelu", False, {}), ("QuickGelu", False, {"alpha": 0.7}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("op", "biased", "attributes"), FORMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_activations(
    op: str, biased: bool, attributes: dict[str, Any], dtype: str, dynamic: bool
) -> None:
    r = np.random.default_rng(3)
    inputs = [r.uniform(-4, 4, (2, 3, 8)).astype("f4")]
    inputs += [r.uniform(-1, 1, 8).astype("f4")] * biased
    compare(op, inputs, dtype, symbols={0: (0, 1)} if dynamic else None, tolerance=4, **attributes)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "why"),
    [
        ("BiasGelu", [np.ones((2, 3), "f4")], {}, "1 inputs but the op takes 2 to 2"),
        ("BiasGelu", [np.ones((2, 3), "f4"), np.ones((2, 3), "f4")], {}, "must be a vector"),
        ("BiasGelu", [np.ones((2, 3), "f4"), np.ones(2, "f4")], {}, "vector of 3"),
        ("BiasGelu", [np.ones((2, 3), "f4"), np.ones(3, "f2")], {}, "element types"),
        ("Gelu", [np.ones((2, 3), "i4")], {}, "not floating point"),
        ("QuickGelu", [np.ones((2, 3), "f4")], {"beta": 1.0}, "'beta' does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(
    op: str, inputs: list[Any], attributes: dict[str, Any], why: str
) -> None:
    with pytest.raises(BrazeError, match=why):
        import_network(node_model(op, inputs, **attributes))
