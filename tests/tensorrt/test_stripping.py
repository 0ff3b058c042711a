"""STRIP_PLAN: weights are out of the file, and a refit gives the bits of a fresh build."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import braze
import braze.tensorrt as trt
from braze.cli.main import main as braze_main
from braze.core.errors import EngineFormatError, ExecutionError, ModelError
from braze.engine import schema
from braze.engine.read import from_bytes, read_sections
from braze.engine.write import to_bytes
from braze.frontend.onnx.proto import load_model
from braze.tensorrt.kept import without_weights
from braze.tensorrt.record import KEY
from tests.engine.files import fixed_up
from tests.tensorrt.engines import Log, load
from tests.tensorrt.networks import floats, new_network

Array = np.ndarray[Any, Any]
FLAGS = trt.BuilderFlag
# a convolution with what folds into it, a product that is packed, constants that are added before
# anything runs, a matrix that two nodes read, and a shape
SHAPES = {
    "conv": (16, 8, 3, 3), "gamma": (16,), "beta": (16,), "mean": (16,), "var": (16,),
    "wide": (1024, 64), "one": (64,), "two": (64,), "shared": (64, 64),
}  # fmt: skip


def weights(seed: int) -> dict[str, Array]:
    r = np.random.default_rng(seed)
    made = {n: (r.standard_normal(s) / 8).astype(np.float32) for n, s in SHAPES.items()}
    made["var"] = np.abs(made["var"]) + 1
    return made


def model(seed: int, **changed: Array) -> bytes:
    nodes = [
        helper.make_node("Conv", ["x", "conv"], ["a"], "convolution", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "gamma", "beta", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Reshape", ["c", "flat"], ["d"]),
        helper.make_node("MatMul", ["d", "wide"], ["e"]),
        helper.make_node("Add", ["one", "two"], ["sum"]),
        helper.make_node("Add", ["e", "sum"], ["f"]),
        helper.make_node("MatMul", ["f", "shared"], ["g"]),
        helper.make_node("Relu", ["g"], ["h"]),
        helper.make_node("MatMul", ["h", "shared"], ["y"]),
    ]
    given = {**weights(seed), **changed, "flat": np.int64([1, 1024])}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 8, 8, 8])],
        [helper.make_tensor_value_info("y", 1, [1, 64])],
        [numpy_helper.from_array(a, n) for n, a in given.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = made.SerializeToString()
    return data


def build(data: bytes, *flags: Any) -> bytes:
    network, log = new_network()
    assert trt.OnnxParser(network, log).parse(data)
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    for flag in flags:
        config.set_flag(flag)
    made = network.builder.build_serialized_network(network, config)
    assert log.errors == []
    return bytes(made)


def result(engine: Any) -> bytes:
    out: bytes = engine.core({"x": floats(1, 8, 8, 8)})["y"].tobytes()
    return out


@pytest.fixture(scope="module")
def stripped() -> bytes:
    return build(model(1), FLAGS.STRIP_PLAN)


@pytest.fixture(scope="module")
def fresh() -> bytes:
    """What an engine of the other weights gives."""
    return result(load(build(model(2))))


def test_no_weight_is_in_the_file(stripped: bytes) -> None:
    full = build(model(1), FLAGS.REFIT)
    size = sum(a.nbytes for a in weights(1).values())
    # code, manifest and record: no part grows with the weights
    assert len(stripped) < size // 2 < size < len(full)
    plan = from_bytes(stripped)
    assert plan.stripped and plan.weights and plan.weight_data == ()
    kept = base64.b64decode(plan.record[KEY]["model"])
    for array in weights(1).values():
        for start in range(0, array.nbytes - 16, 16):
            piece = array.tobytes()[start : start + 16]
            assert piece not in stripped and piece not in kept
    assert set(load_model(kept).graph.initializers) == {"flat"}  # it decides what is built


def test_it_does_not_run_before_a_refit(stripped: bytes, tmp_path: Path) -> None:
    log = Log()
    engine = load(stripped)
    with pytest.raises(ExecutionError, match="left out when it was built"):
        engine.core({"x": floats(1, 8, 8, 8)})
    (tmp_path / "e").write_bytes(stripped)
    loaded = braze.load(tmp_path / "e")
    with pytest.raises(ExecutionError, match="refit it before it runs"):
        loaded({"x": floats(1, 8, 8, 8)})
    with pytest.raises(ExecutionError, match="left out"):
        loaded.profile({"x": floats(1, 8, 8, 8)})
    context = trt.Runtime(log).deserialize_cuda_engine(stripped).create_execution_context()
    x, y = floats(1, 8, 8, 8), np.zeros((1, 64), np.float32)
    context.set_tensor_address("x", x.ctypes.data)
    context.set_tensor_address("y", y.ctypes.data)
    assert not context.execute_async_v3(0) and "left out" in log.errors[-1]
    assert not y.any()


@pytest.mark.parametrize("more", [(), ("REFIT",), ("REFIT_IDENTICAL",)])
def test_a_model_gives_them_back(more: tuple[str, ...], fresh: bytes) -> None:
    log = Log()
    engine = load(build(model(1), FLAGS.STRIP_PLAN, *(FLAGS[m] for m in more)))
    context = engine.create_execution_context()  # which goes on
    refitter = trt.Refitter(engine, log)
    assert set(refitter.get_missing_weights()) == set(SHAPES)
    assert len(refitter.get_missing_weights()) == len(SHAPES)  # each once, however many read it
    assert not refitter.refit_cuda_engine()
    assert trt.OnnxParserRefitter(refitter, Log()).refit_from_bytes(model(2))
    assert refitter.get_missing_weights() == [] and engine.refittable
    assert result(engine) == fresh
    x, y = floats(1, 8, 8, 8), np.zeros((1, 64), np.float32)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data]) and y.tobytes() == fresh
    # what is written now has them, and can be refitted in part
    again = load(engine.serialize())
    assert result(again) == fresh and not again.core.plan.stripped
    second = trt.Refitter(again, log)
    assert second.set_named_weights("shared", weights(3)["shared"]) and second.refit_cuda_engine()
    assert result(again) == result(load(build(model(2, shared=weights(3)["shared"]))))


def test_each_by_its_name(stripped: bytes, fresh: bytes) -> None:
    log = Log()
    engine = load(stripped)
    refitter = trt.Refitter(engine, log)
    for name, array in weights(2).items():
        assert not refitter.refit_cuda_engine() and name in log.errors[-1]
        assert refitter.set_named_weights(name, array)
    assert refitter.refit_cuda_engine() and result(engine) == fresh
    # those that came are the first's again: nothing of the build stays
    back = trt.Refitter(engine, log)
    for name, array in weights(1).items():
        assert back.set_named_weights(name, array)
    assert back.refit_cuda_engine() and result(engine) == result(load(build(model(1))))


def test_serialization_leaves_them_out(stripped: bytes, fresh: bytes) -> None:
    log = Log()
    runtime = trt.Runtime(log)
    engine = runtime.deserialize_cuda_engine(build(model(1), FLAGS.REFIT))
    config = engine.create_serialization_config()
    config.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    bare = bytes(engine.serialize_with_config(config))
    assert abs(len(bare) - len(stripped)) < 200 and from_bytes(bare).stripped
    for data in (bare, load(bare).serialize_with_config(config), load(bare).serialize()):
        again = load(data)
        parser = trt.OnnxParserRefitter(trt.Refitter(again, log), log)
        assert parser.refit_from_bytes(model(2)) and result(again) == fresh
    config.clear_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    assert bytes(engine.serialize_with_config(config)) == bytes(engine.serialize())
    plain = runtime.deserialize_cuda_engine(build(model(1)))
    config.set_flag(trt.SerializationFlag.EXCLUDE_WEIGHTS)
    assert plain.serialize_with_config(config) is None and "build it with REFIT" in log.errors[-1]


def layered(*flags: Any, seed: int = 1, mark: str = "") -> bytes:
    """Made of layers: named weights that two of them read, others without a name, an exponent."""
    network, log = new_network()
    r = weights(seed)
    shared, bias, power = r["shared"], r["one"], np.float32([2])
    x = network.add_input("x", trt.float32, (1, 64, 1, 1))
    first = network.add_convolution_nd(x, 64, (1, 1), shared, bias)
    second = network.add_convolution_nd(first.get_output(0), 64, (1, 1), shared, None)
    scale = network.add_scale(second.get_output(0), trt.ScaleMode.UNIFORM, None, None, power)
    first.name, second.name = "first", "second"
    scale.get_output(0).name = "y"
    network.mark_output(scale.get_output(0))
    assert network.set_weights_name(shared, "shared")
    if mark:
        assert network.mark_weights_refittable(mark)
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    for flag in flags:
        config.set_flag(flag)
    data = network.builder.build_serialized_network(network, config)
    assert log.errors == []
    return bytes(data)


def run_layered(engine: Any) -> bytes:
    out: bytes = engine.core({"x": floats(1, 64, 1, 1)})["y"].tobytes()
    return out


def test_weights_of_layers() -> None:
    engine = load(layered(FLAGS.STRIP_PLAN))
    refitter = trt.Refitter(engine, Log())
    assert refitter.get_missing_weights() == ["shared"]
    layers, roles = refitter.get_missing()
    assert sorted(zip(layers, (r.name for r in roles), strict=True)) == [
        ("first", "BIAS"), ("first", "KERNEL"), ("second", "KERNEL"),
    ]  # fmt: skip
    assert refitter.set_named_weights("shared", weights(2)["shared"])  # both of its readers
    assert refitter.get_missing() == (["first"], [trt.WeightsRole.BIAS])
    assert refitter.set_weights("first", trt.WeightsRole.BIAS, weights(2)["one"])
    assert refitter.refit_cuda_engine()
    assert run_layered(engine) == run_layered(load(layered(seed=2)))


def test_only_marked_weights_leave() -> None:
    engine = load(layered(FLAGS.STRIP_PLAN, FLAGS.REFIT_INDIVIDUAL, mark="shared"))
    assert engine.refittable
    assert set(engine.table.record["left_out"]) == {
        e["constant"] for e in engine.table.record["weights"] if e["name"] == "shared"
    }
    refitter = trt.Refitter(engine, Log())
    assert refitter.get_all_weights() == refitter.get_missing_weights() == ["shared"]
    assert refitter.set_named_weights("shared", weights(1)["shared"])
    assert refitter.refit_cuda_engine()
    assert run_layered(engine) == run_layered(load(layered()))


def test_eight_bit_weights_leave_too() -> None:
    w, scale = np.arange(-64, 64, dtype=np.int8).reshape(8, 16), np.float32(0.02)
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["m"]),
         helper.make_node("MatMul", ["x", "m"], ["y"])],
        "g", [helper.make_tensor_value_info("x", 1, [1, 8])],
        [helper.make_tensor_value_info("y", 1, [1, 16])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(scale, "s")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = build(made.SerializeToString(), FLAGS.STRIP_PLAN)
    assert w.tobytes()[:32] not in data
    engine = load(data)
    assert trt.OnnxParserRefitter(trt.Refitter(engine, Log()), Log()).refit_from_bytes(
        made.SerializeToString()
    )
    x = floats(1, 8)
    expected = x @ (w.astype(np.float32) * scale)
    np.testing.assert_allclose(engine.core({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)


def quantized_network(seed: int, *flags: Any) -> bytes:
    """Two convolutions in INT8, by ranges of their tensors."""
    network, log = new_network()
    given = weights(seed)["conv"], weights(seed)["one"][:16]
    x = network.add_input("x", trt.float32, (1, 8, 8, 8))
    first = network.add_convolution_nd(x, 16, (3, 3), *given).get_output(0)
    last = network.add_convolution_nd(first, 16, (3, 3), floats(16, 16, 3, 3)).get_output(0)
    with pytest.warns(DeprecationWarning):
        for tensor, most in ((x, 3.0), (first, 9.0), (last, 30.0)):
            assert tensor.set_dynamic_range(-most, most)
    last.name = "y"
    network.mark_output(last)
    assert network.set_weights_name(given[0], "kernel") and network.set_weights_name(given[1], "b")
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    for flag in (FLAGS.INT8, *flags):
        config.set_flag(flag)
    data = network.builder.build_serialized_network(network, config)
    assert log.errors == []
    return bytes(data)


@pytest.mark.parametrize("flag", ["REFIT", "STRIP_PLAN"])
def test_networks_that_ranges_made_int8(flag: str) -> None:
    """They are quantized again, by the ranges of the build: scales of weights are the new ones'."""
    engine = load(quantized_network(1, FLAGS[flag]))
    assert engine.core.plan.stripped == (flag == "STRIP_PLAN")
    refitter = trt.Refitter(engine, Log())
    assert refitter.get_all_weights() == ["kernel", "b"]
    assert refitter.set_named_weights("kernel", weights(2)["conv"])
    assert refitter.set_named_weights("b", weights(2)["one"][:16])
    if flag == "STRIP_PLAN":
        ((layer,), _) = refitter.get_missing()
        kernel = trt.WeightsRole.KERNEL
        assert refitter.set_weights(layer, kernel, floats(16, 16, 3, 3).reshape(-1))
    assert refitter.refit_cuda_engine()
    assert result(engine) == result(load(quantized_network(2)))
    assert "int8" in {w.dtype.name for w in engine.core.plan.weights}


def test_a_network_without_weights_stays_whole() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g", [helper.make_tensor_value_info("x", 1, [1, 8])],
        [helper.make_tensor_value_info("y", 1, [1, 8])],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = build(made.SerializeToString(), FLAGS.STRIP_PLAN)
    assert not from_bytes(data).stripped
    got = load(data).core({"x": floats(1, 8)})["y"]
    np.testing.assert_array_equal(got, np.maximum(floats(1, 8), 0))


def test_weights_that_do_not_fit(stripped: bytes, tmp_path: Path) -> None:
    log = Log()
    refitter = trt.Refitter(load(stripped), log)
    assert not refitter.set_named_weights("one", weights(1)["one"][:5])
    assert "'one' are 64 of FLOAT" in log.errors[-1]
    other = onnx.load_from_string(model(2, one=np.ones(5, np.float32)))
    parser = trt.OnnxParserRefitter(refitter, log)
    assert not parser.refit_from_bytes(other.SerializeToString())
    assert parser.get_error(0).desc().endswith("does not fit the engine")


def test_what_is_told_of_it(
    stripped: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "e"
    path.write_bytes(stripped)
    assert braze_main(["inspect", str(path)]) == 0
    text = capsys.readouterr().out
    assert "left out (stripped): it runs once it is refitted" in text and "steps: " in text
    assert braze_main(["inspect", str(path), "--json"]) == 0
    assert '"Weights left out": true' in capsys.readouterr().out
    inspector = load(stripped).create_engine_inspector()
    assert "Layers" in inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    assert load(stripped).get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) == sum(
        a.nbytes for a in weights(1).values()
    )


def test_engines_of_the_reference_backend_say_it_too(stripped: bytes) -> None:
    plan = braze.compile(model(1), target="reference", optimization_level=1)
    engine = braze.Engine.from_bytes(to_bytes(replace(plan, stripped=True, weight_data=())))
    with pytest.raises(ExecutionError, match="left out"):
        engine({"x": floats(1, 8, 8, 8)})


def test_damage_is_found(stripped: bytes) -> None:
    """The flag in a section that has content, or in another one."""
    sections = read_sections(memoryview(stripped), "engine")
    weights_at = next(i for i, s in enumerate(sections) if s.stripped)
    assert sections[weights_at].kind == schema.SECTION_KINDS["weights"]
    for index in range(len(sections)):
        data = bytearray(build(model(1)) if index == weights_at else stripped)
        place = schema.HEADER.size + index * schema.SECTION.size + 4
        data[place] |= schema.SECTION_FLAG_STRIPPED
        for read in (from_bytes, braze.Engine.from_bytes):
            with pytest.raises(EngineFormatError):
                read(fixed_up(data))


def test_plans_that_cannot_be_refitted_keep_theirs() -> None:
    with pytest.raises(ModelError, match="build it with REFIT"):
        without_weights(from_bytes(build(model(1))))
