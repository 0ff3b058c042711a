"""Published models import, with static and with dynamic shapes; others say exactly what is missing.

BRAZE_MODELS and BRAZE_BENCH name the folders of the fetched models.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from braze.core.errors import UnsupportedOpError
from braze.frontend.onnx.importer import import_network
from braze.ir.verify import verify
from braze.ops.move.shape import Shape

# input -> (min, max) shape
DYNAMIC = {
    "dnsmos_p808": {"input_1": ((1, 900, 120), (3, 900, 120))},
    "magika_v3_3": {"bytes": ((1, 2048), (3, 2048))},
    "minilm_l6_w8": {"input_ids": ((1, 2), (4, 128))},
    "mtcnn_onet": {"input_3": ((1, 48, 48, 3), (5, 48, 48, 3))},
    "mtcnn_pnet": {"input_1": ((1, 12, 12, 3), (2, 100, 120, 3))},
    "mtcnn_rnet": {"input_2": ((1, 24, 24, 3), (5, 24, 24, 3))},
    "opennsfw_resnet50": {"input:0": ((1, 224, 224, 3), (2, 224, 224, 3))},
    "ppocr_cls": {"x": ((1, 3, 48, 192), (2, 3, 48, 192))},
    "ppocrv4_det": {"x": ((1, 3, 32, 32), (1, 3, 736, 736))},
    "ppocrv4_rec": {"x": ((1, 3, 48, 32), (2, 3, 48, 640))},
    "swift_f0": {"audio": ((1, 2000), (1, 32000))},
}
STATIC = [
    "bert_base", "convnext_t", "gpt2", "mobilenetv2", "resnet18", "resnet50", "vit_b16",
]  # fmt: skip


def find(name: str) -> Path:
    for variable in ("BRAZE_MODELS", "BRAZE_BENCH"):
        path = Path(os.environ.get(variable) or "missing") / f"{name}.onnx"
        if path.is_file():
            return path
    pytest.skip(f"{name}.onnx is in neither BRAZE_MODELS nor BRAZE_BENCH")


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_models(name: str) -> None:
    path = find(name)
    shapes = {k: (lo, lo, hi) for k, (lo, hi) in DYNAMIC[name].items()}
    dynamic = import_network(path, shapes=shapes)
    assert dynamic.graph.bounds
    assert set(dynamic.profiles[0]) == set(dynamic.graph.bounds)
    static = import_network(path, shapes={k: lo for k, (lo, _) in DYNAMIC[name].items()})
    assert not static.graph.bounds and not static.graph.guards
    for imported in (dynamic, static):
        verify(imported.graph)
        # shape arithmetic has folded: no node reads a shape any more
        assert not any(isinstance(n.op, Shape) for n in imported.graph.nodes)
    assert len(static.graph.nodes) <= len(dynamic.graph.nodes)


@pytest.mark.parametrize("name", STATIC)
def test_static_models(name: str) -> None:
    imported = import_network(find(name))
    verify(imported.graph)
    assert not imported.graph.bounds and not imported.graph.guards


def test_a_condition_given_by_value_selects_its_branch() -> None:
    path = find("silero_vad")
    shapes = {"input": (1, 576), "state": (2, 1, 128)}
    with pytest.raises(UnsupportedOpError, match=r"values=\{'sr': \.\.\.\}"):
        import_network(path, shapes=shapes)
    # what is left is the recurrent network inside the branch
    with pytest.raises(UnsupportedOpError, match="LSTM") as caught:
        import_network(path, shapes=shapes, values={"sr": np.array(16000)})
    assert "condition" not in str(caught.value)
