"""Refits: an engine with other weights is the engine that is built of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import braze
import braze.tensorrt as trt
from braze.frontend.onnx.proto import load_model
from braze.tensorrt.onnx_proto import to_proto
from braze.tensorrt.rebuild import rebuild
from braze.tensorrt.record import KEY
from tests.tensorrt.networks import floats, new_network
from tests.tensorrt.plugins import Old

W, B = floats(4, 3, 3, 3, seed=1), floats(4, seed=2)
W2, B2 = floats(4, 3, 3, 3, seed=3), floats(4, seed=4)


def network_of(kernel: Any, bias: Any) -> Any:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (1, 3, 8, 8))
    conv = network.add_convolution_nd(x, 4, (3, 3), kernel, bias)
    conv.name = "conv"
    scale = network.add_scale(
        conv.get_output(0), trt.ScaleMode.CHANNEL, bias, None, None
    )  # the bias again
    assert network.set_weights_name(kernel, "kernel") and network.set_weights_name(bias, "bias")
    out = scale.get_output(0)
    out.name = "y"
    network.mark_output(out)
    return network


def build(network: Any, *flags: Any) -> Any:
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    for flag in flags:
        config.set_flag(flag)
    return network.builder.build_serialized_network(network, config)


def run(plan: Any) -> Any:
    return braze.Engine.from_plan(plan)({"x": floats(1, 3, 8, 8)})["y"]


def test_a_rebuilt_engine_is_a_fresh_one() -> None:
    data = build(network_of(W, B), trt.BuilderFlag.REFIT)
    record = braze.Engine.from_bytes(data).plan.record[KEY]
    entries = {(e["layer"], e["role"]): e for e in record["weights"]}
    kernel, bias = entries["conv", "KERNEL"], entries["conv", "BIAS"]
    assert (kernel["name"], kernel["dtype"], kernel["count"]) == ("kernel", "FLOAT", 108)
    (shift,) = (e for (layer, role), e in entries.items() if role == "SHIFT")
    assert shift["name"] == bias["name"] == "bias" and shift["constant"] != bias["constant"]
    plan = rebuild(record, {kernel["constant"]: W2.reshape(-1), bias["constant"]: B2})
    fresh = braze.Engine.from_bytes(build(network_of(W2, B2), trt.BuilderFlag.REFIT)).plan
    np.testing.assert_array_equal(run(plan), run(fresh))
    assert not np.array_equal(run(plan), run(braze.Engine.from_bytes(data).plan))
    again = rebuild(plan.record[KEY], {})
    np.testing.assert_array_equal(run(again), run(plan))


def test_engines_that_are_not_for_it_keep_no_model() -> None:
    record = braze.Engine.from_bytes(build(network_of(W, B))).plan.record[KEY]
    assert "model" not in record and "weights" not in record


def test_only_marked_weights_are_refitted() -> None:
    network = network_of(W, B)
    assert not network.mark_weights_refittable("none")
    assert network.mark_weights_refittable("kernel")
    assert network.are_weights_marked_refittable("kernel")
    data = build(network, trt.BuilderFlag.REFIT_INDIVIDUAL)
    record = braze.Engine.from_bytes(data).plan.record[KEY]
    assert [e["name"] for e in record["weights"]] == ["kernel"]
    assert network.unmark_weights_refittable("kernel")
    assert not network.are_weights_marked_refittable("kernel")


def test_names_of_weights() -> None:
    network = network_of(W, B)
    other = floats(3)
    assert not network.set_weights_name(trt.Weights(other), "other")
    assert not network.set_weights_name(trt.Weights(B), "kernel")  # the name is taken
    assert network.set_weights_name(W, None) and network.set_weights_name(B, "kernel")


def test_parsed_weights_have_the_names_of_the_model() -> None:
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm")], "g",
        [helper.make_tensor_value_info("x", 1, [2, 3])],
        [helper.make_tensor_value_info("y", 1, [2, 4])],
        [numpy_helper.from_array(floats(3, 4), "w"), numpy_helper.from_array(B, "b")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    network, log = new_network()
    assert trt.OnnxParser(network, log).parse(model.SerializeToString())
    record = braze.Engine.from_bytes(build(network, trt.BuilderFlag.REFIT)).plan.record[KEY]
    names = {e["name"]: e["constant"] for e in record["weights"]}
    assert set(names) == {"w", "b"}
    x = floats(2, 3, seed=5)
    plan = rebuild(record, {names["b"]: np.zeros(4, np.float32)})
    got = braze.Engine.from_plan(plan)({"x": x})["y"]
    np.testing.assert_allclose(got, x @ floats(3, 4), rtol=1e-5, atol=1e-6)


def test_a_refitter_uses_it() -> None:
    logger = trt.Logger(trt.Logger.ERROR)
    engine = trt.Runtime(logger).deserialize_cuda_engine(
        build(network_of(W, B), trt.BuilderFlag.REFIT)
    )
    refitter = trt.Refitter(engine, logger)
    assert "kernel" in refitter.get_all_weights()
    assert refitter.set_named_weights("kernel", trt.Weights(W2))
    assert refitter.set_weights("conv", trt.WeightsRole.BIAS, B2)
    assert refitter.refit_cuda_engine()
    fresh = braze.Engine.from_bytes(build(network_of(W2, B2))).plan
    refitted = braze.Engine.from_bytes(bytes(engine.serialize())).plan
    np.testing.assert_array_equal(run(refitted), run(fresh))


def test_models_survive_the_way_there_and_back() -> None:
    then = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["t"])], "then", [],
        [helper.make_tensor_value_info("t", 1, [2])],
        [numpy_helper.from_array(np.ones(2, np.float32), "w")],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["a"], "if", then_branch=then, else_branch=then),
        helper.make_node("Twice", ["a"], ["b"], "f", domain="own"),
        helper.make_node("Cast", ["b"], ["y"], "cast", to=onnx.TensorProto.FLOAT16),
    ]
    function = helper.make_function(
        "own", "Twice", ["p"], ["q"], [helper.make_node("Add", ["p", "p"], ["q"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    values = [("c", onnx.TensorProto.BOOL, []), ("x", 1, ["n"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(*v) for v in values],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, ["n"])],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=8)
    record = load_model(model)
    again = load_model(to_proto(record).SerializeToString())
    onnx.checker.check_model(to_proto(record))
    assert again.opsets == record.opsets and again.functions == record.functions
    assert again.graph.inputs == record.graph.inputs
    assert [n.op_type for n in again.graph.nodes] == ["If", "Twice", "Cast"]
    np.testing.assert_array_equal(
        again.graph.nodes[0].subgraphs[0].initializers["w"].array, np.ones(2, np.float32)
    )


def refittable(network: Any) -> set[str]:
    data = build(network, trt.BuilderFlag.STRIP_PLAN)
    assert data is not None, network.builder.logger.errors
    engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(data)
    return set(trt.Refitter(engine, trt.Logger(trt.Logger.ERROR)).get_all_weights())


def test_what_nodes_are_made_of_cannot_be_refitted() -> None:
    """Axes are in the nodes; a size that was read says nothing of the weights before it."""
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    w, axes = floats(3, 4), np.int32([1])
    matrix = network.add_constant((3, 4), w).get_output(0)
    none = trt.MatrixOperation.NONE
    product = network.add_matrix_multiply(x, none, matrix, none).get_output(0)
    where = network.add_constant((1,), axes).get_output(0)
    wide = network.add_unsqueeze(product, where).get_output(0)
    part = network.add_slice(wide, (0, 0, 0), (0, 0, 0), (1, 1, 1))
    part.set_input(2, network.add_shape(wide).get_output(0))
    network.mark_output(part.get_output(0))
    assert network.set_weights_name(w, "w") and network.set_weights_name(axes, "axes")
    assert refittable(network) == {"w"}


def test_what_a_plugin_is_told_at_the_build_cannot_be_refitted(creators: Any) -> None:
    network, _ = new_network()
    x = network.add_input("x", trt.float32, (2, 4))
    scale, table = floats(1, 4), floats(1, 4, seed=3)
    factors = network.add_constant((1, 4), scale).get_output(0)
    scaled = network.add_elementwise(x, factors, trt.ElementWiseOperation.PROD).get_output(0)
    constant = network.add_constant((1, 4), table).get_output(0)
    layer = network.add_plugin_v2([scaled, constant], Old(b"\x03"))
    network.mark_output(layer.get_output(0))
    network.mark_output(network.add_cast(layer.get_output(1), trt.int32).get_output(0))
    assert network.set_weights_name(scale, "scale") and network.set_weights_name(table, "table")
    assert refittable(network) == {"scale"}
