"""The Python interface used wrongly gives typed errors of one sentence; and what copies do."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import braze
from braze.core import errors
from braze.runtime import Engine
from tests.meta.small_models import conv_net, model
from tests.runtime.plans import chain_plan


def build(**options: Any) -> braze.Engine:
    return braze.build(conv_net(), **{"shapes": {"x": (1, 3, 24, 24)}, **options})


def engine() -> Engine:
    return Engine.from_plan(chain_plan())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: engine()(None), braze.BindingError),
        (lambda: engine()([np.ones((1, 8), np.float32)]), braze.BindingError),
        (lambda: engine()({"x": [[1.0], [1.0, 2.0]]}), braze.DTypeError),
        (lambda: engine()({"x": np.ones((1, 8), np.float32)}, workers=-1), braze.ConfigError),
        (lambda: braze.load(None), braze.FileError),  # type: ignore[arg-type]
        (lambda: Engine.load("x", threads="all"), braze.ConfigError),  # type: ignore[arg-type]
        (lambda: Engine.from_bytes(None), braze.EngineFormatError),  # type: ignore[arg-type]
        (lambda: build(threads="x"), braze.ConfigError),
        (lambda: build(threads=-1), braze.ConfigError),
        (lambda: build(threads=1.5), braze.ConfigError),
        (lambda: build(shapes=5), braze.ConfigError),
        (lambda: build(shapes=[(1, 3)]), braze.BrazeError),
        (lambda: build(values=5), braze.ConfigError),
        (lambda: build(timing_cache=5), braze.ConfigError),
        (lambda: build(debug=5), braze.ConfigError),
        (lambda: build(debug=(5,)), braze.ConfigError),
        (lambda: build(target=["cpu"]), braze.ConfigError),
        (lambda: build(threads=True), braze.ConfigError),
        (lambda: build(optimization_level=True), braze.ConfigError),
        (lambda: build(optimization_level="3"), braze.ConfigError),
        (lambda: build(progress=5), braze.ConfigError),
        (lambda: build(trace=5), braze.ConfigError),
        (lambda: build(values={"x": [[1], [2, 3]]}), braze.DTypeError),
        (lambda: build(values={"x": np.zeros((1, 3, 24, 24), object)}), braze.DTypeError),
        (lambda: build(values={"x": np.full((1, 3, 24, 24), "a")}), braze.DTypeError),
        (lambda: Engine.from_plan(5), braze.EngineFormatError),  # type: ignore[arg-type]
    ],
)
def test_misuse(call: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error) as e:
        call()
    assert "\n" not in str(e.value)


def test_zero_threads_are_all_of_them() -> None:
    assert build(threads=0, optimization_level=0).threads == build(optimization_level=0).threads


def test_whole_numbers_of_numpy_are_taken() -> None:
    engine = build(threads=np.int64(1), optimization_level=np.int32(0))
    assert engine.threads == 1
    assert engine.plan.record["optimization_level"] == 0


def test_an_engine_in_memory_with_gaps() -> None:
    data = np.repeat(np.frombuffer(engine().to_bytes(), np.uint8), 2)
    assert Engine.from_bytes(memoryview(data)[::2]).threads == engine().threads


def test_every_error_class_is_public_and_needs_no_compiler() -> None:
    names = {n for n, c in vars(errors).items() if isinstance(c, type)}
    assert names <= set(braze.__all__)
    assert all(getattr(braze, n) is getattr(errors, n) for n in names)
    code = "import braze, sys; braze.BrazeError; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_engines_are_pickled_and_copied(duplicate: Callable[[Engine], Engine]) -> None:
    first = Engine.from_plan(chain_plan(), threads=1)
    x = np.ones((3, 8), np.float32)
    expected = first({"x": x})["y"]
    second = duplicate(first)
    del first
    assert second.threads == 1
    assert second({"x": x})["y"].tobytes() == expected.tobytes()


def test_bfloat16_outputs_are_arrays_of_ml_dtypes() -> None:
    negate = helper.make_node("Neg", ["x"], ["y"])
    made = braze.build(model([negate], {"x": (TensorProto.BFLOAT16, [4])}, ["y"]))
    x = np.array([1.5, -2.0, 0.0, 256.0], ml_dtypes.bfloat16)
    y = made({"x": x})["y"]
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(np.float32), [-1.5, 2.0, -0.0, -256.0])
    bound = np.empty(4, ml_dtypes.bfloat16)
    context = made.create_context()
    context.set_input_shape("x", (4,))
    context.bind("x", x)
    context.bind("y", bound)
    context.execute()
    assert bound.tobytes() == y.tobytes()
    with pytest.raises(braze.BindingError, match="contiguous"):
        context.bind("y", np.empty(8, ml_dtypes.bfloat16)[::2])


X = np.ones((2, 8), np.float32)


class Unwilling:
    """Something that fails to become an array."""

    def __array__(self, *_args: object, **_options: object) -> np.ndarray:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (X.tolist(), "numpy.asarray(..., 'float32')"),
        (1.5, "numpy.asarray(..., 'float32')"),
        ("a name", "is str, which holds no numbers"),
        (b"bytes", "is bytes, which holds no numbers"),
        (None, "is NoneType, which holds no numbers"),
        ({"x": X}, "is dict, which holds no numbers"),
        (["a", "b"], "is list, which holds no numbers"),
        (X.astype(object), "is an array of object, which holds no numbers"),
        (np.array("2020", "M8[D]"), "is an array of datetime64[D], which holds no numbers"),
        (X.astype(">f4"), "byte order"),
        (X.astype(np.float64), "array.astype('float32')"),
        (Unwilling(), "not today"),
        (np.ma.masked_less(X * np.arange(8, dtype=np.float32), 1), "array.filled(number)"),
    ],
)
def test_inputs_that_are_no_arrays_of_the_type(value: object, words: str) -> None:
    with pytest.raises(braze.DTypeError) as e:
        engine()({"x": value})
    assert words in str(e.value) and "\n" not in str(e.value)


def test_an_array_that_masks_nothing_is_an_array() -> None:
    masked = np.ma.masked_less(X, 0)
    np.testing.assert_array_equal(engine()({"x": masked})["y"], engine()({"x": X})["y"])


def test_values_with_masked_elements() -> None:
    whole = np.ones((1, 3, 24, 24), np.float32)
    with pytest.raises(braze.DTypeError, match="filled"):
        build(values={"x": np.ma.masked_less(whole, 2)})


def test_an_option_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"no option 'shape'; did you mean 'shapes'"):
        build(shape={"x": (1, 3, 24, 24)})
    with pytest.raises(TypeError, match=r"braze.build has no option 'foo' .its options are target"):
        build(foo=1)
    with pytest.raises(braze.ConfigError, match="no option 'foo'"):
        build(foo=1)


def test_no_inputs_at_all_name_those_there_are() -> None:
    with pytest.raises(braze.BindingError, match="missing: \\['x'\\]"):
        engine()()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda e: e.create_context("a"), braze.ConfigError),
        (lambda e: e.create_context(2**32), braze.ConfigError),
        (lambda e: e.create_context(priority=1.5), braze.ConfigError),
        (lambda e: e.create_context().set_input_shape("x", "ab"), braze.ShapeError),
        (lambda e: e.create_context().set_input_shape("x", None), braze.ShapeError),
        (lambda e: e.create_context().set_input_shape("x", (1.0, 8)), braze.ShapeError),
        (lambda e: e.create_context().set_input_shape("x", (2, 2**64 + 8)), braze.ShapeError),
        (lambda e: e.create_context().bind("x", -64, 64), braze.BindingError),
        (lambda e: e.create_context().bind("x", 64, -1), braze.BindingError),
        (lambda e: e.create_context().bind("x", 64, "all"), braze.BindingError),
        (lambda e: e.create_context().bind("x", 2**64, 64), braze.BindingError),
        (lambda e: e.device_empty("ab"), braze.ShapeError),
        (lambda e: e.device_empty((-1,)), braze.ShapeError),
        (lambda e: e.device_empty((2**62, 2)), braze.ExecutionError),
        (lambda e: e.pinned_empty((2, 3.5)), braze.ShapeError),
        (lambda e: e({"x": X}, debug=[3]), braze.BindingError),
        (lambda e: e({"x": X}, debug="odd"), braze.BindingError),
        (lambda e: Engine.from_bytes(e.to_bytes(), weight_budget="1"), braze.ConfigError),
        (lambda e: Engine.from_bytes(e.to_bytes(), weight_budget=2**63), braze.ConfigError),
        (lambda e: Engine("chain.engine"), braze.EngineFormatError),
        (lambda e: braze.build(""), braze.FileError),
        (lambda e: braze.build("/dev/zero"), braze.FileError),
    ],
)
def test_wrong_arguments_of_engines(
    call: Callable[[Engine], object], error: type[Exception]
) -> None:
    with pytest.raises(error) as e:
        call(engine())
    assert "\n" not in str(e.value)


def test_an_empty_path_is_called_so() -> None:
    with pytest.raises(braze.FileError, match="the path of the model is empty"):
        braze.build("")


def test_repr_tells_what_an_engine_takes_and_runs_on() -> None:
    e = Engine.from_plan(chain_plan())
    assert repr(e) == "<braze.Engine x: float32[n, 8] -> y: float32[n, 8] on x86-64 cpu>"
    assert repr(build(target="reference")).endswith("on reference>")


def test_a_refusal_with_all_its_problems_is_pickled() -> None:
    nodes = [helper.make_node("Bogus", ["x"], ["y"], "n", domain="d")]
    proto = model(nodes, {"x": (TensorProto.FLOAT, [4])}, ["y"])
    proto.opset_import.append(helper.make_opsetid("d", 1))
    with pytest.raises(braze.UnsupportedOpError) as e:
        braze.build(proto)
    again = pickle.loads(pickle.dumps(e.value))
    assert type(again) is type(e.value) and str(again) == str(e.value)
    assert [f.node for f in again.findings] == ["n"]
