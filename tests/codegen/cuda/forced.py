"""A small network in float16 whose products run by the template that a test names."""

from __future__ import annotations

from collections.abc import Sequence

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


def two_products() -> onnx.ModelProto:
    """y = relu(x a + b) c + x for x [n, 64]."""
    rng = np.random.default_rng(0)
    sizes = {"a": (64, 160), "b": (160,), "c": (160, 64)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(s) / 8).astype(np.float16), name)
        for name, s in sizes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Relu", ["q"], ["r"]),
        helper.make_node("MatMul", ["r", "c"], ["s"]),
        helper.make_node("Add", ["s", "x"], ["y"]),
    ]
    shape = ["n", 64]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, shape)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def forced_plan(template: str, turn: int = 0) -> Plan:
    """The plan of `two_products` for sm_90, every kernel by its tactic number `turn` of `template`
    where it has any."""

    def choose(kernels: Sequence[Candidates]) -> list[int]:
        found = []
        for k in kernels:
            own = [i for i, t in enumerate(k.tactics) if t.template == template]
            found.append(own[turn % len(own)] if own else 0)
        return found

    imported = import_network(two_products(), shapes=RANGES)
    config = BuildConfig(optimization_level=5)
    backend = find_backend("cuda:sm_90", 1)
    return build_plan(imported.graph, imported.profiles, config, backend, Trace(), choose)
