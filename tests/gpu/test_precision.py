"""precision="fp16", "bf16", "int8", "fp8" and sets of them on the GPU, against float64.

Bounds are of the relative L2 error. Half types: 32 roundings over a dozen layers. int8, fp8: what
the same Q/DQ network gives on the CPU (tests/quantization/test_quantized_models.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
from braze.frontend.onnx.importer import import_network
from braze.ops.evaluator import evaluate
from tests.quantized.networks import NETWORKS, data

BOUNDS: dict[str, float] = {
    "fp16": 32 * 2.0**-11, "bf16": 32 * 2.0**-8, "int8": 0.05, "fp8": 0.08, "int8,fp16": 0.05,
    "int8,bf16": 0.1, "best": 0.05,
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("precision", BOUNDS)
def test_small_networks(name: str, precision: str) -> None:
    model, x = NETWORKS[name][0](), data(name, 3, 9)
    want = evaluate(import_network(model).graph, {"x": x}, float64=True)["y"]
    quantizes = {"int8", "fp8", "best"} & set(precision.split(","))
    calibration: Any = [data(name, 4, seed) for seed in range(4)] if quantizes else None
    engine = braze.build(model, target="cuda", precision=precision, calibration=calibration,
                         shapes={"x": x.shape}, optimization_level=2)  # fmt: skip
    got = np.asarray(engine({"x": x})["y"], np.float64)
    error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    assert 1e-5 < error < BOUNDS[precision]
    runs = {d["runs"] for d in engine.plan.record["decisions"] if d["kind"] == "precision"}
    if "fp16" in precision.split(","):
        assert "float16" in runs or name != "attention"
    if precision == "int8":
        assert "int8" in runs


@pytest.mark.parametrize("level", [1, 3])
def test_unsigned_codes_are_padded_rightly(level: int) -> None:
    """Their zeros are -128 where signed bytes are multiplied, and boxes are padded with zeros. An
    engine of the CPU gives the same codes but for a rounding between them."""
    feeds = [{"x": data("pictures", 4, seed)} for seed in range(4)]
    model = braze.quantize(NETWORKS["pictures"][0](), feeds, activations="u8").model
    x = data("pictures", 3, 9)
    got, want = (
        np.float64(braze.build(model, target=target, shapes={"x": x.shape},
                               optimization_level=level)({"x": x})["y"])
        for target in ("cuda", "cpu")
    )  # fmt: skip
    assert np.linalg.norm(got - want) < 1e-3 * np.linalg.norm(want)
