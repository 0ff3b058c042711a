"""`braze quantize`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from braze.cli.main import main
from braze.quantization.table import read_table
from tests.quantized.networks import NETWORKS, data


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(NETWORKS["pictures"][0](), path)
    np.save(tmp_path / "data.npy", data("pictures", 6))
    return path


def test_a_model_is_written_and_told_about(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, cache = tmp_path / "q.onnx", tmp_path / "cache"
    code = main([
        "quantize", str(net), f"--data={tmp_path / 'data.npy'}", "-o", str(target), "--samples=3",
        "--method=minmax", f"--saveCalib={cache}", "--exclude=Gemm*", "--verbose", "--correctBias",
        "--threads=1",
    ])  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "4 layers, " in out and " from 3 feeds" in out
    assert ": excluded" in out and "Note: 4 biases corrected" in out
    assert "calibrate 3/3" in err
    kinds = [n.op_type for n in onnx.load(target).graph.node]
    assert kinds.count("QuantizeLinear") > 4
    assert "x" in read_table(cache).ranges
    again = tmp_path / "again.onnx"
    options = [f"--calib={cache}", "-o", str(again), "--exclude=Gemm*"]
    assert main(["quantize", str(net), *options]) == 0
    capsys.readouterr()
    assert main(["check", str(again), "--shapes=x:1x3x18x20"]) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--data"),
        (["--data=absent"], "absent"),
        (["--data=.", "--pictureSize=9"], "--pictureSize"),
        (["--data=.", "--mean=1,2"], "--mean"),
        (["--data=.", "--std=0"], "--std"),
        (["--data=.", "--ops=Relu"], "Relu"),
        (["--calib=absent"], "absent"),
    ],
)
def test_wrong_usage_is_one_sentence(
    options: list[str], said: str, net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quantize", str(net), "-o", str(tmp_path / "q.onnx"), *options]) in (1, 2)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("braze quantize: ") and said in last


def test_outputs_without_a_shape_get_the_one_that_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = NETWORKS["pictures"][0]()
    model.graph.output[0].type.tensor_type.ClearField("shape")
    np.save(tmp_path / "data.npy", data("pictures", 2))
    onnx.save(model, tmp_path / "net.onnx")
    cache, target = tmp_path / "cache", tmp_path / "q.onnx"
    arguments = ["quantize", str(tmp_path / "net.onnx"), f"-o={target}", "--threads=1"]
    given = [f"--data={tmp_path / 'data.npy'}", f"--saveCalib={cache}"]
    assert main([*arguments, *given]) == 0, capsys.readouterr().err
    (output,) = onnx.load(target).graph.output
    sizes = [d.WhichOneof("value") and d.dim_value for d in output.type.tensor_type.shape.dim]
    assert len(sizes) == 2 and sizes[0] is None and sizes[1] > 0
    # with ranges known nothing runs, and a model may have ops that braze has no meaning for
    model.graph.node.add(op_type="Bogus", domain="odd", input=["x"], output=["z"])
    model.graph.output.add(name="z").type.tensor_type.elem_type = 1
    model.opset_import.add(domain="odd", version=1)
    onnx.save(model, tmp_path / "net.onnx")
    assert main([*arguments, f"--calib={cache}"]) == 1
    assert "output 'y' has no shape" in (err := capsys.readouterr().err), err
    assert "declare it in the float model" in err
