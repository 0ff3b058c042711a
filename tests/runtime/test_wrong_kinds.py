"""Arguments of the wrong kind, in turn for every parameter of the public functions: whatever is
refused is a BrazeError of one sentence."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from onnx import TensorProto, helper

import braze
from braze.engine import read
from braze.quantization.face import QuantizeOptions
from braze.quantization.recipe import Recipe
from braze.runtime import Engine
from braze.runtime.context import ExecutionContext
from tests.meta.small_models import conv_net, model
from tests.runtime.plans import chain_plan

WRONG: Final[tuple[Any, ...]] = (
    6, -1, 10**30, 1.5, float("nan"), "a", "\ud800", b"a", None, object(), [5], [[None]],
    [("c", "fp16")], {5: "fp16"}, {"x": object()}, np.ones(3), print,
)  # fmt: skip
X = np.ones((1, 8), np.float32)


def bound(engine: Engine) -> ExecutionContext:
    context = engine.create_context()
    context.set_input_shape("x", (1, 8))
    context.bind("x", X)
    context.bind("y", np.empty((1, 8), np.float32))
    return context


NET = {"model": conv_net(), "shapes": {"x": (1, 3, 24, 24)}, "optimization_level": 0}
PRODUCT = model(
    [helper.make_node("MatMul", ["x", "w"], ["y"])],
    {"x": (TensorProto.FLOAT, [1, 4])},
    ["y"],
    {"w": np.ones((4, 4), np.float32)},
)
INPUTS = {"inputs": {"x": X}}
CALLS: Final[dict[str, tuple[Callable[[Engine], Callable[..., object]], dict[str, Any]]]] = {
    "compile": (lambda e: braze.compile, NET),
    "read_file": (lambda e: read.read_file, {"path": "nosuch.engine"}),
    "read from_bytes": (lambda e: read.from_bytes, {"data": b"none"}),
    "recipe": (lambda e: Recipe, {}),
    "quantize": (lambda e: braze.quantize, {"model": PRODUCT, "data": []}),
    "load": (lambda e: Engine.load, {"path": "nosuch.engine"}),
    "from_bytes": (lambda e: Engine.from_bytes, {"data": b"none"}),
    "from_plan": (lambda e: Engine.from_plan, {"plan": chain_plan()}),
    "call": (lambda e: e.__call__, INPUTS),
    "profile": (lambda e: e.profile, INPUTS),
    "create_context": (lambda e: e.create_context, {}),
    "device_empty": (lambda e: e.device_empty, {"shape": (1,)}),
    "pinned_empty": (lambda e: e.pinned_empty, {"shape": (1,)}),
    "save": (lambda e: e.save, {}),
    "run": (lambda e: e.create_context().run, INPUTS),
    "context profile": (lambda e: e.create_context().profile, INPUTS),
    "set_input_shape": (
        lambda e: e.create_context().set_input_shape, {"name": "x", "shape": (1, 8)},
    ),
    "shape": (lambda e: e.create_context().shape, {}),
    "bind": (lambda e: e.create_context().bind, {"name": "x", "memory": X}),
    "execute": (lambda e: bound(e).execute, {}),
    "timed": (lambda e: bound(e).timed, {}),
    "enqueue": (lambda e: bound(e).enqueue, {}),
}  # fmt: skip


def arguments() -> Iterator[tuple[str, str]]:
    engine = Engine.from_plan(chain_plan())
    for call, (function, _) in CALLS.items():
        names = list(inspect.signature(function(engine)).parameters)
        if call == "quantize":
            names.remove("options")
            names += QuantizeOptions.__annotations__
        yield from ((call, name) for name in names)


@pytest.mark.parametrize(("call", "name"), list(arguments()))
def test_wrong_kinds_are_refused_in_a_sentence(
    call: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some are names of files
    function, given = CALLS[call]
    engine = Engine.from_plan(chain_plan())
    for wrong in WRONG:
        try:
            function(engine)(**{**given, name: wrong})
        except braze.BrazeError as e:
            assert "\n" not in str(e), (wrong, str(e))
    assert os.listdir(tmp_path) in ([], ["a"])


@pytest.mark.parametrize("given", ["a", [("c", "fp16")], {5: "fp16"}, {"c": 5}, {"c": np.ones(2)}])
def test_layer_precisions_of_another_kind(given: Any) -> None:
    with pytest.raises(braze.ConfigError, match="layer"):
        braze.build(conv_net(), layer_precisions=given)


@pytest.mark.parametrize("given", [5, [["y"]], None])
def test_debug_names_of_another_kind(given: Any) -> None:
    with pytest.raises(braze.ConfigError, match=r"debug=.*names of tensors"):
        Engine.from_plan(chain_plan())({"x": X}, debug=given)
