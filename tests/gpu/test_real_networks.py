"""Real networks on the GPU, in every precision, against ONNX Runtime in float32.

The bounds are of the relative L2 error of each output. 1e-5: float32 products in three TF32 passes
lose about two bits each, over some hundred layers. 2e-3: TF32 keeps 11 bits of an operand. 1e-2:
float16 products keep 11 bits of an operand and of each result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("PIL")
pytest.importorskip("scipy")
pytest.importorskip("onnxruntime")

import braze
from tests.gpu.half import with_half_products
from tests.models.networks import NETWORKS, model_path, real_feed
from tests.models.test_accuracy import onnxruntime_outputs

Array = np.ndarray[Any, Any]
NAMES = [n.name for n in NETWORKS]
BOUNDS = {"fp32": 1e-5, "tf32": 2e-3}
HALF_BOUND = 1e-2


def shapes(feed: dict[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: x.shape for name, x in feed.items()}


def errors(got: dict[str, Array], want: dict[str, Array]) -> dict[str, float]:
    """Relative L2 error of each output; infinite where it has no number and the other has."""
    found = {}
    for name, w in want.items():
        g, wide = got[name].astype(np.float64), w.astype(np.float64)
        if not np.isfinite(g[np.isfinite(wide)]).all():
            found[name] = float("inf")
            continue
        size = float(np.linalg.norm(wide))
        found[name] = float(np.linalg.norm(g - wide)) / (size if size > 0 else 1.0)
    return found


def check(name: str, got: dict[str, Array], bound: float) -> None:
    """Every output within the bound; of a pitch what its network is sure of, as elsewhere the
    largest of many small numbers decides."""
    want = dict(onnxruntime_outputs(name))
    if name == "swift_f0":
        sure = want["confidence"] > 0.9
        assert sure.any()
        got, want = ({**d, "pitch": d["pitch"][sure]} for d in (got, want))
    found = errors(got, want)
    assert max(found.values()) <= bound, found


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("name", NAMES)
def test_float32(name: str, precision: str) -> None:
    feed = real_feed(name)
    engine = braze.build(
        str(model_path(name)), target="cuda", shapes=shapes(feed), precision=precision,
        optimization_level=2,
    )  # fmt: skip
    check(name, engine(feed), BOUNDS[precision])


@pytest.mark.parametrize("name", NAMES)
def test_float16_products(name: str) -> None:
    feed = real_feed(name)
    engine = braze.build(
        with_half_products(onnx.load(model_path(name))), target="cuda", shapes=shapes(feed),
        optimization_level=2,
    )  # fmt: skip
    check(name, engine(feed), HALF_BOUND)
