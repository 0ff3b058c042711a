"""A model whose data lies elsewhere, as one message: whatever edits models reads it so."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from braze.cli.main import main
from braze.core.errors import ModelError
from braze.frontend.onnx.whole import whole_model

WEIGHT = np.arange(64, dtype=np.float32).reshape(8, 8) / 64


def product() -> onnx.ModelProto:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "product")]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """As download caches have it: model and data are links into a folder of blobs."""
    blobs, shown = tmp_path / "blobs", tmp_path / "shown"
    blobs.mkdir()
    shown.mkdir()
    onnx.save(product(), blobs / "aaaa", save_as_external_data=True, location="w.bin",
              size_threshold=0)  # fmt: skip
    (blobs / "w.bin").rename(blobs / "bbbb")
    for name, blob in (("model.onnx", "aaaa"), ("w.bin", "bbbb")):
        os.symlink(os.path.relpath(blobs / blob, shown), shown / name)
    return shown / "model.onnx"


def test_data_behind_links_is_read_in(linked: Path) -> None:
    (tensor,) = whole_model(linked).graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), WEIGHT)
    assert not tensor.external_data and not tensor.HasField("data_location")
    # and as ever, not what lies outside
    (linked.parent.parent / "blobs" / "bbbb").rename(linked.parent.parent / "bbbb")
    (linked.parent / "w.bin").unlink()
    os.symlink("../bbbb", linked.parent / "w.bin")
    with pytest.raises(ModelError, match="leaves the model's folder"):
        whole_model(linked)


def test_tensors_of_attributes_bodies_and_functions_are_read_in(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())

    def constant(name: str) -> onnx.NodeProto:
        tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[4], data_location=1, name=name)
        tensor.external_data.add(key="location", value="w.bin")
        return helper.make_node("Constant", [], [name], value=tensor)

    body = helper.make_graph([constant("in body")], "body", [], [])
    nodes = [constant("in main"), helper.make_node("If", ["c"], ["y"], then_branch=body)]
    model = helper.make_model(helper.make_graph(nodes, "net", [], []))
    opsets = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("f", "f", [], ["z"], [constant("z")], opsets))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    got = whole_model(path)
    main_graph, inner = got.graph.node[0], got.graph.node[1].attribute[0].g.node[0]
    for node in (main_graph, inner, got.functions[0].node[0]):
        np.testing.assert_array_equal(numpy_helper.to_array(node.attribute[0].t), [0, 1, 2, 3])


def test_a_message_without_a_path_says_how_to_go_on(linked: Path) -> None:
    with pytest.raises(ModelError, match=r"'w\.bin'; pass the model as a path"):
        whole_model(linked.read_bytes())
    model = product()
    assert whole_model(model) is model


@pytest.mark.parametrize(
    "command",
    [
        ["compare", "--layers", "--builderOptimizationLevel=1"],
        ["check", "--quantization"],
        ["quantize", "--data=data.npy", "-o=q.onnx", "--threads=1"],
    ],
)
def test_commands_read_data_behind_links(
    command: list[str],
    linked: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(linked.parent)
    np.save("data.npy", np.ones((2, 8), np.float32))
    name, *options = command
    assert main([name, "model.onnx", *options]) == 0, capsys.readouterr().err
