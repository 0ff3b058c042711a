"""braze.build from an ONNX model to numbers: every stage together, on small networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import braze
from braze.core.errors import (
    BindingError,
    ConfigError,
    DTypeError,
    ProfileError,
    ShapeError,
)
from tests.e2e.models import attention_net, conv_net, make, rand

# float32 sums of at most a few hundred terms of size about one
TOLERANCE = 2e-6


def reference(model: Any, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, inputs)


def error(got: np.ndarray, want: np.ndarray) -> float:
    """Relative L2 distance."""
    want = np.asarray(want, np.float64)
    return float(np.linalg.norm(got - want) / (np.linalg.norm(want) + 1e-30))


NETS = {
    "conv": (conv_net(), {"x": rand(1, 3, 16, 16)}),
    "attention": (attention_net(), {"x": rand(2, 9, 32)}),
}


@pytest.fixture(params=["cpu", "reference"])
def target(request: pytest.FixtureRequest) -> str:
    """What whole-network tests run on."""
    return str(request.param)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("level", [0, 1, 3])
def test_network(name: str, level: int, target: str) -> None:
    model, inputs = NETS[name]
    engine = braze.build(model, target=target, threads=2, optimization_level=level)
    assert error(engine(inputs)["y"], reference(model, inputs)[0]) < TOLERANCE


@pytest.mark.parametrize("isa", ["x86-64", "avx2", "avx512"])
@pytest.mark.parametrize("name", NETS)
def test_every_isa(name: str, isa: str) -> None:
    from braze.runtime.native import host_isa

    order = ["x86-64", "avx2", "avx512"]
    if order.index(isa) > order.index(host_isa()):
        pytest.skip(f"this machine has no {isa}")
    model, inputs = NETS[name]
    engine = braze.build(model, target=f"cpu:{isa}", optimization_level=1)
    assert error(engine(inputs)["y"], reference(model, inputs)[0]) < TOLERANCE


def test_dynamic_shapes_equal_static(target: str) -> None:
    dynamic = braze.build(
        conv_net("n", "h", "w"),
        target=target,
        optimization_level=1,
        shapes={"x": ((1, 3, 8, 8), (1, 3, 16, 16), (4, 3, 40, 48))},
    )
    for shape in [(1, 3, 16, 16), (4, 3, 40, 48), (2, 3, 9, 31), (1, 3, 8, 8)]:
        x = {"x": rand(*shape)}
        static = braze.build(
            conv_net("n", "h", "w"), target=target, optimization_level=1, shapes={"x": shape}
        )
        np.testing.assert_array_equal(dynamic(x)["y"], static(x)["y"])


def test_dynamic_sequence_length(target: str) -> None:
    model = attention_net("seq")
    engine = braze.build(model, target=target, shapes={"x": ((1, 1, 32), (2, 16, 32), (3, 64, 32))})
    for shape in [(1, 1, 32), (3, 64, 32), (2, 17, 32)]:
        x = {"x": rand(*shape)}
        assert error(engine(x)["y"], reference(model, x)[0]) < TOLERANCE
    with pytest.raises(ProfileError, match="x"):
        engine({"x": rand(1, 65, 32)})


def test_save_and_load(tmp_path: Path, target: str) -> None:
    model, inputs = NETS["conv"]
    engine = braze.build(model, target=target, optimization_level=1)
    path = tmp_path / "net.engine"
    engine.save(path)
    again = braze.load(path)
    np.testing.assert_array_equal(again(inputs)["y"], engine(inputs)["y"])
    assert "conv1" in again.inspect()


def test_two_builds_give_the_same_bytes(tmp_path: Path) -> None:
    cache = str(tmp_path / "times.json")
    for name in ("a", "b", "c"):
        braze.build(conv_net(), timing_cache=cache).save(tmp_path / name)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "c").read_bytes()
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_outputs_that_are_inputs_constants_and_twins(target: str) -> None:
    n = helper.make_node
    nodes = [
        n("Identity", ["x"], ["same"]),
        n("Relu", ["x"], ["r"]),
        n("Identity", ["r"], ["twin"]),
        n("Identity", ["w"], ["weight"]),
        n("Flatten", ["x"], ["flat"]),
        n("Flatten", ["r"], ["rflat"]),
    ]
    w = rand(3, seed=3)
    model = make(
        nodes, {"x": [2, 2, 3]}, ["same", "r", "twin", "weight", "flat", "rflat"], {"w": w}
    )
    x = rand(2, 2, 3)
    y = braze.build(model, target=target)({"x": x})
    relu = np.maximum(x, 0)
    want = {
        "same": x,
        "r": relu,
        "twin": relu,
        "weight": w,
        "flat": x.reshape(2, 6),
        "rflat": relu.reshape(2, 6),
    }
    for name, value in want.items():
        np.testing.assert_array_equal(y[name], value)


def test_extra_output_changes_nothing(target: str) -> None:
    model, inputs = NETS["conv"]
    plain = braze.build(model, target=target, optimization_level=1)(inputs)["y"]
    extra = conv_net()
    extra.graph.output.append(helper.make_tensor_value_info("c2", TensorProto.FLOAT, None))
    extra.graph.output.append(helper.make_tensor_value_info("c1", TensorProto.FLOAT, None))
    np.testing.assert_array_equal(
        braze.build(extra, target=target, optimization_level=1)(inputs)["y"], plain
    )


def test_specialised_shape_input(target: str) -> None:
    model = make(
        [helper.make_node("Reshape", ["x", "s"], ["y"], name="r")],
        {"x": [2, 6], "s": [2]},
        ["y"],
        types={"s": TensorProto.INT64},
    )
    shape = np.array([3, 4])
    engine = braze.build(model, target=target, values={"s": shape})
    x = rand(2, 6)
    np.testing.assert_array_equal(engine({"x": x, "s": shape})["y"], x.reshape(3, 4))
    with pytest.raises(braze.core.errors.BrazeError, match="s"):
        engine({"x": x, "s": np.array([4, 3])})
    free = braze.build(model, target=target)
    for rows in (3, 2, 12):
        given = np.array([rows, 12 // rows])
        np.testing.assert_array_equal(free({"x": x, "s": given})["y"], x.reshape(given))


def test_bad_calls(target: str) -> None:
    engine = braze.build(conv_net(), target=target, optimization_level=1)
    x = rand(1, 3, 16, 16)
    with pytest.raises(BindingError, match="x"):
        engine({})
    with pytest.raises(BindingError, match="z"):
        engine({"x": x, "z": x})
    with pytest.raises(DTypeError, match="x"):
        engine({"x": x.astype(np.float64)})
    with pytest.raises(DTypeError, match="x"):
        engine({"x": x.astype(">f4")})
    with pytest.raises(ShapeError, match="x"):
        engine({"x": x[0]})
    with pytest.raises(ShapeError, match="x"):
        engine({"x": rand(1, 3, 16, 17)})
    y = engine({"x": x})["y"]
    wide = rand(1, 3, 16, 32)
    wide[..., ::2] = x
    np.testing.assert_array_equal(engine({"x": wide[..., ::2]})["y"], y)
    np.testing.assert_array_equal(engine({"x": np.asfortranarray(x)})["y"], y)


def test_bad_options() -> None:
    with pytest.raises(ConfigError, match="target"):
        braze.build(conv_net(), target="tpu")
    with pytest.raises(ConfigError, match="precision"):
        braze.build(conv_net(), precision="fp7")
    with pytest.raises(ConfigError, match="optimization_level"):
        braze.build(conv_net(), optimization_level=9)
    with pytest.raises(ConfigError, match="use one of cpu, cpu:avx512, cpu:avx2"):
        braze.build(conv_net(), target="cpu:avx1024")
    with pytest.raises(BindingError, match="nope"):
        braze.build(conv_net(), shapes={"nope": (1,)})
    with pytest.raises(BindingError, match="nothere"):
        braze.build(conv_net(), debug=["nothere"])


def test_zero_size_batch(target: str) -> None:
    engine = braze.build(
        conv_net("n"),
        target=target,
        optimization_level=2,
        shapes={"x": ((0, 3, 16, 16), (1, 3, 16, 16), (2, 3, 16, 16))},
    )
    assert engine({"x": rand(0, 3, 16, 16)})["y"].shape == (0, 5)
    assert engine({"x": rand(2, 3, 16, 16)})["y"].shape == (2, 5)


def test_debug_tensors_of_every_kernel(target: str) -> None:
    model, inputs = NETS["attention"]
    engine = braze.build(model, target=target, optimization_level=1, debug=["*"])
    names = tuple(d.name for d in engine.plan.debug)
    assert len(names) == len(engine.plan.steps) - 1
    found = engine(inputs, debug=names)
    np.testing.assert_array_equal(found["y"], engine(inputs)["y"])
    assert all(np.isfinite(found[n]).all() for n in names)


def test_convolution_over_three_axes() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 6, strides=[1, 2, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["d"], pads=[0, 1, 1, 0, 1, 1]),
        helper.make_node("MaxPool", ["d"], ["y"], kernel_shape=[2, 2, 2]),
    ]
    weights = {
        "w": rand(12, 3, 3, 3, 3, seed=1),
        "b": rand(12, seed=2),
        "v": rand(5, 12, 1, 3, 3, seed=3),
    }
    x = {"x": rand(2, 3, 6, 9, 8)}
    model = make(nodes, {"x": ["n", 3, "d", 9, 8]}, ["y"], weights)
    shapes = {"x": ((1, 3, 2, 9, 8), (2, 3, 6, 9, 8), (2, 3, 9, 9, 8))}
    for level in (0, 2):
        engine = braze.build(model, optimization_level=level, shapes=shapes)
        assert error(engine(x)["y"], reference(model, x)[0]) < TOLERANCE
        # at level 2 both convolutions run on a template
        assert engine.inspect().count("conv(") == (2 if level else 0)
