"""Whole networks as onnxruntime's quantizers write them, run by braze beside onnxruntime.

Where sums are integers and scales are applied once, both give the same codes. Elsewhere float
arithmetic in another order may move a number across the middle between two codes; from there on the
codes differ by a step. So outputs are compared in steps of the grid: nearly all are equal, and a
difference is a few steps at most, where an error of a zero point, a scale or a padding is many.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.frontend.onnx.importer import import_network
from braze.ops.evaluator import evaluate
from tests.pairs import pairwise
from tests.quantized.networks import NETWORKS, data

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")
Array = np.ndarray[Any, Any]

STEP = 1 / 64  # of the largest output: two steps of a grid of 128 codes for either sign
U8, S8 = quantization.QuantType.QUInt8, quantization.QuantType.QInt8
S16, S4 = quantization.QuantType.QInt16, quantization.QuantType.QInt4
FORMATS = quantization.QuantFormat


class Reader(quantization.CalibrationDataReader):
    """Four batches of data."""

    def __init__(self, name: str) -> None:
        self.batches = [{"x": data(name, 4, seed)} for seed in range(4)]

    def get_next(self) -> dict[str, Array] | None:
        return self.batches.pop() if self.batches else None


def run_peer(model: onnx.ModelProto, x: Array) -> Array:
    """onnxruntime, every node as it stands."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    return np.asarray(session.run(None, {"x": x})[0])


def check(
    model: onnx.ModelProto, name: str, share: float = 0.9, levels: Sequence[int] = (0, 2)
) -> None:
    """braze's reference and engines give what onnxruntime gives; `share`: of equal elements, to
    float32 rounding."""
    shape = NETWORKS[name][1]
    shapes = {"x": ((1, *shape), (2, *shape), (4, *shape))}
    graph = import_network(model, shapes=shapes).graph
    engines = {
        level: braze.build(model, shapes=shapes, optimization_level=level, threads=2)
        for level in levels
    }
    for batch in (1, 3):
        x = data(name, batch, 9)
        want = run_peer(model, x)
        found = {"reference": evaluate(graph, {"x": x})["y"]}
        found |= {f"level {k}": e({"x": x})["y"] for k, e in engines.items()}
        size = float(np.abs(want).max())
        for way, got in found.items():
            off = np.abs(got.astype(np.float64) - want) / size
            assert off.max() < STEP, (way, off.max())
            assert (off < 1e-5).mean() >= share, (way, (off < 1e-5).mean())


def static(name: str, folder: Path, **options: Any) -> onnx.ModelProto:
    """The network quantized with calibrated ranges."""
    source, target = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(NETWORKS[name][0](), source)
    quantization.quantize_static(source, target, Reader(name), **options)
    return onnx.load(target)


WAYS = {
    "u8s8": {"activation_type": U8, "weight_type": S8},
    "u8u8": {"activation_type": U8, "weight_type": U8},
    "s8s8 per channel": {"activation_type": S8, "weight_type": S8, "per_channel": True},
}


@pytest.mark.parametrize(
    ("name", "way", "form", "level"),
    pairwise(list(NETWORKS), list(WAYS), ["QDQ", "QOperator"], [2, 0]),
)
def test_calibrated(name: str, way: str, form: str, level: int, tmp_path: Path) -> None:
    options = {**WAYS[way], "reduce_range": True}  # onnxruntime without VNNI saturates beyond
    model = static(name, tmp_path, quant_format=getattr(FORMATS, form), **options)
    kinds = {n.op_type for n in model.graph.node}
    assert "QuantizeLinear" in kinds
    assert form == "QDQ" or kinds & {"QLinearConv", "QLinearMatMul"}
    check(model, name, share=0.7 if form == "QDQ" else 0.9, levels=[level])


@pytest.mark.parametrize(("name", "level"), zip(NETWORKS, (2, 0, 2), strict=True))
def test_ranges_of_each_run(name: str, level: int, tmp_path: Path) -> None:
    """DynamicQuantizeLinear with MatMulInteger and ConvInteger."""
    source, target = tmp_path / "float.onnx", tmp_path / "dynamic.onnx"
    onnx.save(NETWORKS[name][0](), source)
    quantization.quantize_dynamic(source, target, reduce_range=True)
    check(onnx.load(target), name, share=0.8, levels=[level])


@pytest.mark.parametrize("kinds", [(S16, S8), (U8, S4)], ids=["16 bits", "4-bit weights"])
def test_other_widths(kinds: tuple[Any, Any], tmp_path: Path) -> None:
    """16-bit activations, and weights below a byte: QuantizeLinear of com.microsoft and of ONNX."""
    activations, weights = kinds
    model = static("layers", tmp_path, quant_format=FORMATS.QDQ, activation_type=activations,
                   weight_type=weights)  # fmt: skip
    check(model, "layers", share=0.5 if activations == S16 else 0.9)
