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
    ],
)
def test_misuse(call: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error) as e:
        call()
    assert "\n" not in str(e.value)


def test_zero_threads_are_all_of_them() -> None:
    assert build(threads=0, optimization_level=0).threads == build(optimization_level=0).threads


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
