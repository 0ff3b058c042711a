"""Refitter and OnnxParserRefitter: equal bits to a fresh build with the new weights."""

from __future__ import annotations

import base64
import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import braze
import braze.tensorrt as trt
from braze.engine.write import to_bytes
from tests.tensorrt.engines import Log, Recorder, load, proto, scale_model, static_engine

OPTIONS: dict[str, Any] = {"optimization_level": 1, "threads": 1}
PROFILES = [{"x": ((1, 4), (2, 4), (4, 4))}]
FLOATS = {"dtype": "FLOAT"}
FIRST = [
    {"name": "w", "layer": "mul", "role": "KERNEL", "count": 12, "constant": "w", **FLOATS},
    {"name": "one", "layer": "add", "role": "BIAS", "count": 3, "constant": "one", **FLOATS},
]
NEW_W = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)
NEW_ONE = np.float32([0.5, -0.5, 2])


@functools.cache
def refittable() -> bytes:
    """scale_model as a builder with BuilderFlag.REFIT leaves it."""
    data = proto(scale_model())
    plan = braze.compile(data, shapes={"x": [PROFILES[0]["x"]]}, **OPTIONS)
    record = {
        "flags": 1 << int(trt.BuilderFlag.REFIT),
        "model": base64.b64encode(data).decode(),
        "weights": FIRST,
        "options": OPTIONS,
        "profiles": PROFILES,
        "name": "scale",
    }
    return to_bytes(replace(plan, record={**plan.record, "tensorrt": record}))


def with_weights(w: Any = None, one: Any = None) -> Any:
    """scale_model with other weights."""
    made = scale_model()
    for tensor in made.graph.initializer:
        new = {"w": w, "one": one}[tensor.name]
        if new is not None:
            tensor.CopyFrom(numpy_helper.from_array(new, tensor.name))
    return made


def run(context: Any) -> np.ndarray[Any, Any]:
    """What a context computes of fixed rows."""
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    y = np.zeros((3, 3), np.float32)
    context.set_input_shape("x", (3, 4))
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    return y


def fresh(made: Any) -> np.ndarray[Any, Any]:
    """What an engine computes that is built of a model."""
    shapes = {"x": [PROFILES[0]["x"]]}
    engine = load(braze.build(proto(made), shapes=shapes, **OPTIONS).to_bytes())
    return run(engine.create_execution_context())


def test_what_can_be_refitted() -> None:
    engine = load(refittable())
    assert engine.refittable
    refitter = trt.Refitter(engine, Log())
    assert refitter.get_all_weights() == ["w", "one"]
    assert refitter.get_all() == (["mul", "add"], [trt.WeightsRole.KERNEL, trt.WeightsRole.BIAS])
    assert refitter.get_missing() == ([], []) and refitter.get_missing_weights() == []
    prototype = refitter.get_weights_prototype("w")
    assert (prototype.dtype, prototype.size) == (trt.float32, 12)
    assert refitter.get_weights_prototype("z").size == -1


def test_new_weights_have_the_bits_of_a_fresh_build() -> None:
    engine = load(refittable())
    context = engine.create_execution_context()
    before = run(context)
    refitter = trt.Refitter(engine, Log())
    assert refitter.set_named_weights("w", NEW_W)
    assert refitter.get_named_weights("w").size == 12
    assert refitter.get_weights_location("w") is trt.TensorLocation.HOST
    assert refitter.refit_cuda_engine()
    after = run(context)  # the context goes on
    assert (before != after).any()
    assert after.tobytes() == fresh(with_weights(NEW_W)).tobytes()
    # what was given stays, in the engine's bytes too
    again = trt.Refitter(load(engine.serialize()), Log())
    assert again.set_weights("add", trt.WeightsRole.BIAS, trt.Weights(NEW_ONE))
    assert again.refit_cuda_engine_async(0)
    result = run(again._engine.create_execution_context())
    assert result.tobytes() == fresh(with_weights(NEW_W, NEW_ONE)).tobytes()


@pytest.mark.parametrize("way", ["file", "bytes", "proto"])
def test_weights_of_another_model(way: str, tmp_path: Path) -> None:
    engine = load(refittable())
    parser = trt.OnnxParserRefitter(trt.Refitter(engine, Log()), Log())
    made = with_weights(NEW_W, NEW_ONE)
    if way == "file":
        onnx.save(made, tmp_path / "new.onnx")
        assert parser.refit_from_file(str(tmp_path / "new.onnx"))
    elif way == "bytes":
        assert parser.refit_from_bytes(proto(made))
    else:
        assert parser.load_model_proto(proto(with_weights(NEW_W)))
        assert parser.load_initializer("one", NEW_ONE.ctypes.data, NEW_ONE.nbytes)
        assert parser.refit_model_proto()
    assert parser.num_errors == 0
    assert run(engine.create_execution_context()).tobytes() == fresh(made).tobytes()


def test_wrong_weights_are_refused() -> None:
    log, recorder = Log(), Recorder()
    refitter = trt.Refitter(load(refittable()), log)
    refitter.error_recorder = recorder
    assert not refitter.set_named_weights("z", NEW_W)
    assert not refitter.set_named_weights("", NEW_W)
    assert not refitter.set_named_weights("w", NEW_ONE)
    assert not refitter.set_named_weights("w", NEW_W.astype(np.float16))
    assert not refitter.set_weights("mul", trt.WeightsRole.BIAS, NEW_ONE)
    assert recorder.num_errors() == len(log.errors) == 5
    assert refitter.get_named_weights("w").size == 0
    assert not refitter.unset_named_weights("w")
    assert refitter.set_named_weights("w", np.full((4, 3), np.nan, np.float32))
    assert not refitter.refit_cuda_engine()
    assert "NaN" in log.errors[-1]
    refitter.weights_validation = False
    assert refitter.refit_cuda_engine()
    with pytest.raises(TypeError, match="build it with"):
        trt.Refitter(load(static_engine()), log)


def test_models_that_do_not_fit() -> None:
    parser = trt.OnnxParserRefitter(trt.Refitter(load(refittable()), Log()), Log())
    assert not parser.refit_from_bytes(b"no model")
    assert not parser.refit_from_file("none.onnx")
    assert not parser.refit_from_bytes(proto(with_weights(one=np.float32([1, 2, 3, 4][:1]))))
    assert not parser.refit_model_proto()
    assert parser.num_errors == 4
    other = with_weights(NEW_W, NEW_ONE)
    for node, tensor in zip(other.graph.node, other.graph.initializer, strict=False):
        node.input[1] = tensor.name = f"other_{tensor.name}"
    assert not parser.refit_from_bytes(proto(other))
    assert parser.get_error(4).desc().endswith("none of the engine's weights by their names")
    for i in range(4):
        assert parser.get_error(i).code() is trt.ErrorCode.REFIT_FAILED
    assert "no model is loaded" in parser.get_error(3).desc()
    parser.clear_errors()
    assert parser.num_errors == 0


def test_weights_of_layers_by_their_roles() -> None:
    """Of every role that layers have; the engine computes with what it was given last."""
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (1, 2, 1, 1))
    ones = np.ones(2, np.float32)
    conv = network.add_convolution_nd(x, 2, (1, 1), np.eye(2, dtype=np.float32), ones)
    mode = trt.ScaleMode.CHANNEL
    scale = network.add_scale(conv.get_output(0), mode, ones, ones, None)
    constant = network.add_constant((1, 2, 1, 1), ones)
    total = network.add_elementwise(
        scale.get_output(0), constant.get_output(0), trt.ElementWiseOperation.SUM
    )
    for layer, name in ((conv, "conv"), (scale, "scale"), (constant, "constant")):
        layer.name = name
    y = total.get_output(0)
    y.name = "y"
    network.mark_output(y)
    config = builder.create_builder_config()
    config.builder_optimization_level = 1
    config.set_flag(trt.BuilderFlag.REFIT)
    engine = load(builder.build_serialized_network(network, config))
    refitter, role = trt.Refitter(engine, log), trt.WeightsRole
    found = set(zip(*refitter.get_all(), strict=True))
    assert found == {
        ("conv", role.KERNEL), ("conv", role.BIAS), ("scale", role.SHIFT), ("scale", role.SCALE),
        ("constant", role.CONSTANT),
    }  # fmt: skip
    new = {
        ("conv", role.KERNEL): np.float32([[2, 0], [0, 2]]), ("conv", role.BIAS): 3 * ones,
        ("scale", role.SCALE): 5 * ones, ("scale", role.SHIFT): 7 * ones,
        ("constant", role.CONSTANT): 11 * ones,
    }  # fmt: skip
    for (layer, kind), array in new.items():
        assert refitter.set_weights(layer, kind, trt.Weights(array)), log.errors
    assert refitter.refit_cuda_engine(), log.errors
    a, out = np.float32([1, -2]), np.zeros(2, np.float32)
    assert engine.create_execution_context().execute_v2([a.ctypes.data, out.ctypes.data])
    # small integers: exact
    np.testing.assert_array_equal(out, (a * 2 + 3) * 5 + 7 + 11)


@pytest.mark.parametrize("flag", ["REFIT", "REFIT_IDENTICAL", "STRIP_PLAN"])
def test_engines_of_a_builder(flag: str) -> None:
    """Parsed, built with a flag, given the weights of another model."""
    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    assert parser.parse(proto(scale_model()))
    config = builder.create_builder_config()
    config.builder_optimization_level = 1
    config.set_flag(getattr(trt.BuilderFlag, flag))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (2, 4), (4, 4))
    config.add_optimization_profile(profile)
    engine = load(builder.build_serialized_network(network, config))
    assert engine.refittable
    refitter = trt.Refitter(engine, log)
    assert set(refitter.get_all_weights()) == {"w", "one"} and refitter.logger is log
    assert set(refitter.get_all()[1]) == {trt.WeightsRole.ANY}  # what nodes read has no roles
    made = with_weights(NEW_W, NEW_ONE)
    context = engine.create_execution_context()
    assert trt.OnnxParserRefitter(refitter, log).refit_from_bytes(proto(made))
    assert run(context).tobytes() == fresh(made).tobytes()
    assert log.errors == []
