"""Estimators of scikit-learn, LightGBM and XGBoost, fitted to random data and converted."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

from tests.zoo.net import Array, Net


def _named(text: str, kwargs: Any) -> Any:
    home, _, name = text.partition(":")
    return getattr(importlib.import_module(home), name)(**kwargs)


def make(net: Net, exporter: str, dynamic: bool, feeds: Any, path: Path) -> list[list[Array]]:
    """spec: steps, ("module:class", kwargs) in their order; target, "classes", "numbers", "both"
    (several numbers), "counts" or "none"; options of the converter."""
    spec = net.spec
    rng = np.random.default_rng(3)
    x = rng.standard_normal((120, 8)).astype(np.float32)
    if spec.get("positive"):
        x = np.abs(x)
    score = x @ rng.standard_normal(8) + 0.3 * rng.standard_normal(120)
    targets: dict[str, Any] = {
        "classes": np.digitize(score, [-1.0, 1.0]), "two": (score > 0).astype(np.int64),
        "numbers": score.astype(np.float32), "both": np.stack([score, -score * score], 1),
        "none": None, "counts": np.abs(score).round(),
    }  # fmt: skip
    y = targets[spec.get("target", "classes")]
    steps = [_named(*s) for s in spec["steps"]]
    if len(steps) > 1:
        from sklearn.pipeline import make_pipeline

        model = make_pipeline(*steps)
    else:
        model = steps[0]
    model.fit(x, y) if y is not None else model.fit(x)
    with mock.patch("skl2onnx.common._container.make_node", _make_node):
        onnx.save(_convert(model, spec), str(path))
    return []


def _make_node(*args: Any, **attributes: Any) -> Any:
    """A node whose truth values are numbers: protobuf takes no others, and the converter gives
    some."""
    plain = {
        k: [int(i) if isinstance(i, (bool, np.bool_)) else i for i in v] if type(v) is list else v
        for k, v in attributes.items()
    }
    return onnx.helper.make_node(*args, **plain)


def _convert(model: Any, spec: Any) -> Any:
    tool = spec.get("tool", "sklearn")
    if tool == "sklearn":
        from skl2onnx import convert_sklearn
        from skl2onnx.common.data_types import FloatTensorType

        options = {id(model): dict(spec["options"])} if spec.get("options") else None
        kinds = [("x", FloatTensorType([None, 8]))]
        try:
            return convert_sklearn(model, initial_types=kinds, options=options)
        except (RuntimeError, ValueError):  # some converters know older trees alone
            opsets = {"": 18, "ai.onnx.ml": 3}
            return convert_sklearn(model, initial_types=kinds, options=options, target_opset=opsets)
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType as Floats

    return getattr(onnxmltools, f"convert_{tool}")(model, initial_types=[("x", Floats([None, 8]))])
