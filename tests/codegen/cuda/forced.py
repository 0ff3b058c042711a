"""Small networks in float16 whose products run by the template that a test names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from braze.builder import build_plan
from braze.codegen.catalog import find_backend
from braze.core.config import BuildConfig
from braze.core.trace import Trace
from braze.engine.plan import Plan
from braze.frontend.onnx.importer import import_network
from braze.tuning.select import Candidates

RANGES = {"x": ((1, 64), (100, 64), (300, 64))}


def half_model(
    nodes: Sequence[Any], sizes: dict[str, tuple[int, ...]], shape: Sequence[int | str]
) -> onnx.ModelProto:
    """From x to y, both of one shape; sizes: of the weights, whose values are normal / 8."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.standard_normal(s) / 8).astype(np.float16), name)
        for name, s in sizes.items()
    ]
    half = onnx.TensorProto.FLOAT16
    ends = [[helper.make_tensor_value_info(name, half, shape)] for name in "xy"]
    graph = helper.make_graph(list(nodes), "small", *ends, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def two_products() -> onnx.ModelProto:
    """y = relu(x a + b) c + x for x [n, 64]."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["s"]),
        helper.make_node("Add", ["s", "x"], ["y"]),
    ]
    return half_model(nodes, {"a": (64, 160), "b": (160,), "c": (160, 64)}, ["n", 64])


def two_convolutions() -> onnx.ModelProto:
    """y = conv(relu(conv(x) + bias)) + x for x [2, 64, 14, 13], windows of 3 x 3 and 1 x 1."""
    nodes = [
        helper.make_node("Conv", ["x", "a", "b"], ["p"], pads=[1] * 4),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Conv", ["r", "c"], ["s"]),
        helper.make_node("Add", ["s", "x"], ["y"]),
    ]
    sizes = {"a": (96, 64, 3, 3), "b": (96,), "c": (64, 96, 1, 1)}
    return half_model(nodes, sizes, [2, 64, 14, 13])


def forced_plan(
    template: str,
    turn: int = 0,
    model: onnx.ModelProto | None = None,
    shapes: Any = None,
) -> Plan:
    """The plan of `model` (`two_products` at RANGES) for sm_90, every kernel by its tactic number
    `turn` of `template` where it has any."""

    def choose(kernels: Sequence[Candidates]) -> list[int]:
        found = []
        for k in kernels:
            own = [i for i, t in enumerate(k.tactics) if t.template == template]
            found.append(own[turn % len(own)] if own else 0)
        return found

    if model is None:
        model, shapes = two_products(), RANGES
    imported = import_network(model, shapes=shapes or {})
    config = BuildConfig(optimization_level=5)
    backend = find_backend("cuda:sm_90", 1)
    return build_plan(imported.graph, imported.profiles, config, backend, Trace(), choose)
