"""OnnxParser: models into networks, which stay open for more layers; and what it says of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import braze
import braze.tensorrt as trt
from tests.tensorrt.networks import floats, new_network, plan_of

W, B = floats(4, 3, 3, 3, seed=1), floats(4, seed=2)


def model_of(nodes: Any, inputs: Any, outputs: Any, weights: Any = (), opset: int = 17) -> Any:
    infos = [
        [helper.make_tensor_value_info(n, t, s) for n, t, s in part] for part in (inputs, outputs)
    ]
    constants = [numpy_helper.from_array(a, n) for n, a in weights]
    graph = helper.make_graph(nodes, "graph", *infos, constants)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("other", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def conv_model(opset: int = 17) -> Any:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    ends = [("x", 1, ["n", 3, 8, 8])], [("y", 1, ["n", 4, 8, 8])]
    return model_of(nodes, *ends, [("w", W), ("b", B)], opset)


def parsed(model: Any, flags: int = 0) -> tuple[Any, Any, Any]:
    network, log = new_network(flags)
    parser = trt.OnnxParser(network, log)
    assert parser.parse(model.SerializeToString()), [str(e) for e in log.errors]
    return network, parser, log


def run(data: Any, **feeds: Any) -> Any:
    return braze.Engine.from_bytes(data)(feeds)


SHAPES = {"x": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}


def test_a_model_becomes_layers() -> None:
    network, parser, _ = parsed(conv_model())
    assert (network.num_layers, network.num_inputs, network.num_outputs) == (2, 1, 1)
    conv, relu = network.get_layer(0), network[1]
    assert (conv.name, conv.type) == ("conv", trt.LayerType.CONVOLUTION)
    assert (relu.name, relu.type) == ("relu", trt.LayerType.ACTIVATION)
    x = network.get_input(0)
    assert (x.name, tuple(x.shape), x.dtype) == ("x", (-1, 3, 8, 8), trt.float32)
    assert x.get_dimension_name(0) == "n" and x.is_network_input
    inner = conv.get_output(0)
    assert inner.name == "c" and tuple(inner.shape) == (-1, 4, 8, 8)
    assert relu.get_input(0) is inner and parser.get_layer_output_tensor("conv", 0) is inner
    assert parser.get_layer_output_tensor("conv", 1) is None
    assert parser.get_layer_output_tensor("none", 0) is None
    assert network.get_output(0).is_network_output
    data, array = plan_of(network, SHAPES), floats(3, 3, 8, 8)
    shapes = {"x": ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))}
    wanted = braze.build(conv_model(), shapes=shapes, optimization_level=1)({"x": array})["y"]
    np.testing.assert_array_equal(run(data, x=array)["y"], wanted)


@pytest.mark.parametrize("opset", [11, 17, 24])
def test_layers_are_added_to_a_parsed_network(opset: int) -> None:
    network, _, log = parsed(conv_model(opset))
    out = network.get_output(0)
    network.unmark_output(out)
    mean = network.add_reduce(out, trt.ReduceOperation.AVG, 0b1100, False)
    top = network.add_topk(mean.get_output(0), trt.TopKOperation.MAX, 2, 0b10)
    normal = network.add_normalization(
        mean.get_output(0),
        network.add_constant((1, 4), np.ones(4, np.float32)).get_output(0),
        network.add_constant((1, 4), np.zeros(4, np.float32)).get_output(0),
        0b10,
    )
    for name, tensor in (("v", top.get_output(0)), ("n", normal.get_output(0))):
        tensor.name = name
        network.mark_output(tensor)
    data, array = plan_of(network, SHAPES), floats(3, 3, 8, 8)
    assert data is not None, log.errors
    engine = braze.build(conv_model(), shapes=SHAPES, optimization_level=1)
    means = engine({"x": array})["y"].mean((2, 3))
    outputs = run(data, x=array)
    np.testing.assert_allclose(outputs["v"], -np.sort(-means, 1)[:, :2], rtol=1e-5)
    normed = (means - means.mean(1, keepdims=True)) / np.sqrt(means.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(outputs["n"], normed, rtol=1e-4, atol=1e-5)


def test_inner_tensors_become_outputs_and_inputs_are_replaced() -> None:
    network, _, _ = parsed(conv_model())
    inner = network[0].get_output(0)
    network.mark_output(inner)
    twice = network.add_elementwise(
        network.get_input(0), network.get_input(0), trt.ElementWiseOperation.SUM
    ).get_output(0)
    network[0].set_input(0, twice)
    array = floats(2, 3, 8, 8)
    outputs = run(plan_of(network, SHAPES), x=array)
    engine = braze.build(conv_model(), shapes=SHAPES, optimization_level=1)
    np.testing.assert_allclose(outputs["y"], engine({"x": array * 2})["y"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.maximum(outputs["c"], 0), outputs["y"])
    assert inner.is_network_output
    network.unmark_output(inner)
    assert not inner.is_network_output


def test_types_of_inputs_and_outputs_are_chosen() -> None:
    network, _, _ = parsed(conv_model())
    network.get_input(0).dtype = trt.float16
    network.get_output(0).dtype = trt.float16
    array = floats(2, 3, 8, 8).astype(np.float16)
    outputs = run(plan_of(network, SHAPES), x=array)
    engine = braze.build(conv_model(), shapes=SHAPES, optimization_level=1)
    wanted = engine({"x": array.astype(np.float32)})["y"].astype(np.float16)
    np.testing.assert_array_equal(outputs["y"], wanted)


def test_attributes_of_nodes_are_read_by_the_class_of_their_layer() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 0, 0, 2], strides=[2, 1]),
        helper.make_node("LeakyRelu", ["c"], ["l"], "leaky", alpha=0.25),
        helper.make_node("MaxPool", ["l"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Transpose", ["p"], ["t"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("Softmax", ["t"], ["s"], "soft", axis=-1),
        helper.make_node("Sub", ["s", "s"], ["d"], "sub"),
        helper.make_node("Sqrt", ["d"], ["y"], "root"),
    ]
    ends = [("x", 1, ["n", 3, 8, 8])], [("y", 1, None)]
    network, _, log = parsed(model_of(nodes, *ends, [("w", W), ("b", B)]))
    conv, leaky, pool, turn, soft, sub, root = (network[i] for i in range(7))
    conv.__class__ = trt.IConvolutionLayer
    assert tuple(conv.pre_padding) == (1, 0) and tuple(conv.post_padding) == (0, 2)
    assert conv.num_output_maps == 4 and tuple(conv.stride_nd) == (2, 1) and conv.kernel.size == 108
    leaky.__class__ = trt.IActivationLayer
    assert leaky.type is trt.ActivationType.LEAKY_RELU and leaky.alpha == 0.25
    pool.__class__ = trt.IPoolingLayer
    assert pool.type is trt.PoolingType.MAX and tuple(pool.window_size_nd) == (2, 2)
    turn.__class__ = trt.IShuffleLayer
    assert list(turn.first_transpose) == [0, 2, 3, 1]
    soft.__class__ = trt.ISoftMaxLayer
    assert soft.axes == 1 << 3
    sub.__class__, root.__class__ = trt.IElementWiseLayer, trt.IUnaryLayer
    assert sub.op is trt.ElementWiseOperation.SUB and root.op is trt.UnaryOperation.SQRT
    leaky.alpha = 0.5
    assert leaky.alpha == 0.25 and "cannot be changed" in log.errors[-1]
    own = {n for n in dir(leaky) if not hasattr(trt.ILayer, n)}
    assert own == {"alpha", "beta"}  # what tools list of a layer


def test_branches_capture_tensors() -> None:
    then = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["t"])], "then", [],
        [helper.make_tensor_value_info("t", 1, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["e"])], "else", [],
        [helper.make_tensor_value_info("e", 1, None)],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], "if", then_branch=then, else_branch=other)
    ends = [("c", TensorProto.BOOL, []), ("x", 1, [3])], [("y", 1, [3])]
    network, _, log = parsed(model_of([node], *ends, [("w", np.ones(3, np.float32))]))
    network.get_input(1).name = "renamed"
    data, x = plan_of(network), floats(3)
    assert data is not None, log.errors
    for held in (True, False):
        got = run(data, c=np.array(held), renamed=x)["y"]
        np.testing.assert_array_equal(got, x + 1 if held else -x)


def test_files_with_data_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(conv_model(), path, save_as_external_data=True, location="data.bin", size_threshold=0)
    # as download caches have it: the data is a link, to a file beside the model behind its own link
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for name in ("model.onnx", "data.bin"):
        (tmp_path / name).rename(blobs / f"blob of {name}")
        (tmp_path / name).symlink_to(blobs / f"blob of {name}")
    for way in ("file", "bytes"):
        network, log = new_network()
        parser = trt.OnnxParser(network, log)
        if way == "file":
            assert parser.parse_from_file(str(path)), log.errors
        else:
            assert parser.parse(path.read_bytes(), str(path)), log.errors
        assert plan_of(network, SHAPES) is not None, log.errors


def test_errors_name_the_node() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "good"),
        helper.make_node("Unheard", ["a"], ["b"], "bad", domain="other"),
        helper.make_node("Relu", ["b"], ["y"], "behind"),
    ]
    model = model_of(nodes, [("x", 1, [2])], [("y", 1, [2])])
    network, log = new_network()
    parser = trt.OnnxParser(network, log)
    assert not parser.parse(model.SerializeToString()) and parser.num_errors == 1
    error = parser.get_error(0)
    assert (error.node(), error.node_name(), error.node_operator()) == (1, "bad", "Unheard")
    assert error.code() is trt.ErrorCode.UNSUPPORTED_NODE and "Unheard" in error.desc()
    assert error.local_function_stack() == [] and error.local_function_stack_size() == 0
    assert isinstance(error.file(), str) and error.func() and error.line() == 1
    assert "bad" in str(error) and "bad" in log.errors[-1]
    parser.clear_errors()
    assert parser.num_errors == 0
    with pytest.raises(IndexError):
        parser.get_error(0)
    assert not parser.supports_model_v2(model.SerializeToString())
    groups = [
        (parser.get_subgraph_nodes(i), parser.is_subgraph_supported(i))
        for i in range(parser.num_subgraphs)
    ]
    assert groups == [([0], True), ([1], False), ([2], True)]
    with pytest.warns(DeprecationWarning):
        assert parser.supports_model(model.SerializeToString()) == (False, groups)
    assert parser.supports_model_v2(conv_model().SerializeToString())
    assert parser.num_subgraphs == 1 and parser.get_subgraph_nodes(0) == [0, 1]


def test_damaged_and_missing_models(tmp_path: Path) -> None:
    network, log = new_network()
    parser = trt.OnnxParser(network, log)
    assert not parser.parse(b"no model") and not parser.parse_from_file(str(tmp_path / "none"))
    codes = [parser.get_error(i).code() for i in range(2)]
    assert codes == [trt.ErrorCode.MODEL_DESERIALIZE_FAILED] * 2
    assert parser.get_error(1).file().endswith("none") and network.num_layers == 0
    for wrong in (None, 3):
        with pytest.raises(TypeError):
            parser.parse(wrong)
        with pytest.raises(TypeError):
            trt.OnnxParser(wrong, log)
    assert parser.parse(conv_model().SerializeToString())
    assert not parser.parse(conv_model().SerializeToString())  # the network is full


def test_operators_and_flags() -> None:
    network, log = new_network()
    parser = trt.OnnxParser(network, log)
    for op in ("Conv", "Loop", "Softmax", "LayerNormalization"):
        assert parser.supports_operator(op)
    assert not parser.supports_operator("Unheard")
    assert parser.get_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM) and parser.flags == 1
    parser.clear_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
    assert parser.flags == 0
    parser.set_flag(trt.OnnxParserFlag.NATIVE_INSTANCENORM)
    assert parser.flags == 1 and parser.get_used_vc_plugin_libraries() == []
    assert trt.get_nv_onnx_parser_version() > 0


def test_initializers_by_address() -> None:
    network, log = new_network()
    parser, zero = trt.OnnxParser(network, log), np.zeros_like(W)
    assert not parser.parse_model_proto() and not parser.load_initializer("w", 0, 0)
    assert parser.load_model_proto(conv_model().SerializeToString())
    assert not parser.load_model_proto(conv_model().SerializeToString())
    assert not parser.load_initializer("none", zero.ctypes.data, zero.nbytes)
    assert not parser.load_initializer("w", zero.ctypes.data, 4)
    assert parser.load_initializer("w", zero.ctypes.data, zero.nbytes)
    assert parser.parse_model_proto()
    outputs = run(plan_of(network, SHAPES), x=floats(1, 3, 8, 8))
    np.testing.assert_allclose(
        outputs["y"], np.broadcast_to(np.maximum(B, 0).reshape(1, 4, 1, 1), (1, 4, 8, 8))
    )


def test_weights_of_old_releases_have_layers_and_roles() -> None:
    _, parser, _ = parsed(conv_model())
    with pytest.warns(DeprecationWarning):
        names, layers, roles = parser.get_refit_map()
    assert names == ["w", "b"] and layers == ["conv"] * 2
    assert roles == [trt.WeightsRole.ANY] * 2
