"""FlexAttention, whose body onnx writes with the graphs of the node in it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import braze
from braze.core.errors import UnsupportedOpError

MODEL = """
<ir_version: 13, opset_import: ["": 26, "ai.onnx.preview": 1]>
flex (float[B, 4, L, 8] q, float[B, 2, S, 8] k, float[B, 2, S, 6] v, float[S] bias, bool[L, S] seen)
    => (float[B, 4, L, 6] y) {
    %s
    y = ai.onnx.preview.FlexAttention (q, k, v) <
        score_mod: graph = add (float[B, H, L, S] s) => (float[B, H, L, S] t) {
            low = Constant <value = float {-1e30}> ()
            biased = Add (s, %s)
            t = Where (seen, biased, low)
        },
        prob_mod: graph = half (float[B, H, L, S] p) => (float[B, H, L, S] r) <float two = {2.0}> {
            r = Div (p, two)
        }
    >
}
"""


def built(line: str = "twice = Add (bias, bias)", name: str = "twice") -> braze.Engine:
    """Modifiers that read tensors around the node: one that is given and one that is computed."""
    model = onnx.parser.parse_model(MODEL % (line, name))
    return braze.build(model, optimization_level=1)


@pytest.mark.parametrize("sizes", [(2, 5, 7), (1, 1, 3)])
def test_modifiers_that_read_outer_tensors_with_shared_heads(sizes: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(1)
    b, rows, keys = sizes
    q, k, v = (
        rng.normal(size=s).astype(np.float32)
        for s in ((b, 4, rows, 8), (b, 2, keys, 8), (b, 2, keys, 6))
    )
    bias, seen = rng.normal(size=keys).astype(np.float32), rng.random((rows, keys)) < 0.7
    found = built()({"q": q, "k": k, "v": v, "bias": bias, "seen": seen})["y"]
    wide, deep = np.repeat(k, 2, 1).astype(np.float64), np.repeat(v, 2, 1).astype(np.float64)
    scores = q @ wide.swapaxes(-1, -2) / np.sqrt(8) + 2 * bias
    scores = np.where(seen, scores, -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) / 2 @ deep
    # float32 products of 8 and softmax: some units of 6e-8 of sums about 1
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_an_outer_tensor_with_a_name_of_the_definition_is_refused() -> None:
    """In the body that name would be another tensor."""
    with pytest.raises(UnsupportedOpError, match=r"reads tensor 'Prob', a name .* rename"):
        built("Prob = Add (bias, bias)", "Prob")
