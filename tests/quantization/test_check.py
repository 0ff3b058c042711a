"""`braze check --quantization`: each rule on a network that breaks it, and on one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.cli.main import main
from braze.quantization.check import check_quantization
from tests.quantized.networks import NETWORKS, Net, data


class Trained(Net):
    """A network with Q/DQ nodes, as training writes them."""

    def q(self, tensor: str, scale: Any = 0.05, zero: int = 0, **attributes: Any) -> str:
        """Q and DQ of a tensor."""
        s = self.const(np.asarray(scale, np.float32))
        z = self.const(np.full(np.shape(scale), zero, np.int8))
        codes = self.add("QuantizeLinear", tensor, s, z, **attributes)
        return self.add("DequantizeLinear", codes, s, z, **attributes)

    def conv(self, tensor: str, weight_axis: int | None = 0, scale: Any = None) -> str:
        scale = np.full(8, 0.01) if scale is None else scale
        w = self.weight(8, 8, 1, 1)
        w = w if weight_axis is None else self.q(w, scale, axis=weight_axis)
        return self.add("Conv", tensor, w)

    def said(self, last: str) -> list[str]:
        """Warnings, without the names of nodes."""
        self.add("Identity", last, name="y")
        model = self.model(["n", 8, 4, 4], ["n", 8, "h", "w"])
        return [f"{w.what}; {w.remedy}" for w in check_quantization(model)]


def test_what_braze_writes_is_in_nobodys_way() -> None:
    for name in NETWORKS:
        q = braze.quantize(NETWORKS[name][0](), [data(name, 2)], exclude=["Gemm*"])
        assert check_quantization(q.model) == []
        assert check_quantization(NETWORKS[name][0]()) == []


def test_right_places() -> None:
    n = Trained(0)
    x = n.q("x")
    y = n.add("Relu", n.add("Add", n.conv(x), x))
    y = n.add("MaxPool", n.q(y), kernel_shape=[2, 2])
    assert n.said(n.conv(n.q(y))) == []


@pytest.mark.parametrize(
    ("make", "what", "remedy"),
    [
        (lambda n: n.conv("x"), "weight is quantized and its data is not", "input 'x'"),
        (lambda n: n.conv(n.q("x"), None), "data is quantized and its weight", "to the weight"),
        (lambda n: n.conv(n.q("x"), 1), "run along axis 1", "axis=0"),
        (lambda n: n.conv(n.q("x", np.full(8, 0.1), axis=1)), "for each channel", "one scale"),
        (lambda n: n.add("Relu", n.q(n.conv(n.q("x")))), "and its Relu", "behind Relu"),
        (lambda n: n.add("Add", n.q(n.conv(n.q("x"))), n.q("x")), "and the sum", "other addend"),
        (lambda n: n.add("Add", n.conv(n.q("x")), "x"), "adds floats", "'x' in front of the sum"),
        (lambda n: n.q(n.add("MaxPool", n.q("x", 0.1), kernel_shape=[2, 2]), 0.2), "scales around",
         "one scale"),
        (lambda n: n.q(n.add("Concat", n.q("x", 0.1), n.q("x", 0.2), axis=1), 0.1),
         "scales around", "one scale"),
        (lambda n: n.q(n.add("MaxPool", "x", kernel_shape=[2, 2])), "moves floats", "same scale"),
        (lambda n: n.add("Relu", n.add("AveragePool", n.q("x"), kernel_shape=[2, 2])),
         "in front of it alone", "behind it"),
        (lambda n: n.q(n.add("AveragePool", "x", kernel_shape=[2, 2])), "behind it alone",
         "in front of it"),
        (lambda n: n.q("x", 0.1, zero=3), "zero point is not 0", "symmetrically"),
        (lambda n: n.q("x", -0.1), "not positive", "calibrate"),
        (lambda n: n.add("MatMul", n.q("x"), n.q("x")), "both factors are data", "leave out"),
    ],
)  # fmt: skip
def test_one_thing_in_the_way(make: Any, what: str, remedy: str) -> None:
    n = Trained(1)
    said = n.said(make(n))
    assert any(what in text and remedy in text for text in said), said
    assert len({text.split(";")[0] for text in said}) == 1


def test_a_scale_that_is_computed() -> None:
    n = Trained(2)
    s = n.add("ReduceMax", n.add("Abs", "x"), keepdims=0)
    y = n.add("DequantizeLinear", n.add("QuantizeLinear", "x", s), s)
    assert n.said(y) == [
        "its scale is computed in the run; make the scale a constant of the model"
    ]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = Trained(3)
    n.add("Relu", n.q(n.conv(n.q("x"))), name="y")
    path = tmp_path / "net.onnx"
    onnx.save(n.model([1, 8, 4, 4], [1, 8, 4, 4]), path)
    assert main(["check", str(path), "--quantization"]) == 0
    out = capsys.readouterr().out
    assert "1 place where Q/DQ nodes are in the way" in out and "move the Q/DQ behind" in out
    onnx.save(NETWORKS["layers"][0](), path)
    assert main(["check", str(path), "--quantization", "--shapes=x:1x5x24"]) == 0
    assert "no Q/DQ nodes" in capsys.readouterr().out
