"""A case inside of control flow: some of its last nodes become a branch, or the body of a loop.

What it computes stays the same, so that its bounds hold too. The condition and the trip count are
inputs; the nodes that stay outside make values which a body captures.
"""

from __future__ import annotations

import random
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

TRIPS: Final = 2  # of a loop
KINDS: Final = ("if", "loop")
CONDITION, COUNT = "flow_condition", "flow_count"


def inside(model: onnx.ModelProto, kind: str, number: int) -> tuple[onnx.ModelProto, Any]:
    """The model with nodes in control flow of a kind, and what its further inputs are."""
    r = random.Random(f"inside {number}")
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    graph = moved.graph
    nodes = list(graph.node)
    outer, inner = nodes[: (k := r.randrange(len(nodes)))], nodes[k:]
    made = {name for n in inner for name in n.output}
    outputs = [o.name for o in graph.output if o.name in made]
    if kind == "if":
        flow, feed = _branches(inner, outputs), {CONDITION: np.array(r.random() < 0.5)}
    else:
        flow, feed = _loop(inner, outputs), {COUNT: np.array(TRIPS)}
    del graph.node[:]
    graph.node.extend([*outer, *flow])
    for name, value in feed.items():
        kind_of = TensorProto.BOOL if value.dtype == np.bool_ else TensorProto.INT64
        graph.input.append(helper.make_tensor_value_info(name, kind_of, []))
    return moved, feed


def _renamed(nodes: list[onnx.NodeProto], prefix: str) -> tuple[list[onnx.NodeProto], Any]:
    """Copies of nodes that make values of other names, and those names."""
    names = {name: f"{prefix}{name}" for n in nodes for name in n.output if name}
    copies = []
    for n in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(n)
        copy.name = f"{prefix}{n.name}"
        copy.input[:] = [names.get(name, name) for name in n.input]
        copy.output[:] = [names.get(name, name) for name in n.output]
        copies.append(copy)
    return copies, names


def _infos(names: list[str]) -> list[onnx.ValueInfoProto]:
    return [onnx.ValueInfoProto(name=name) for name in names]


def _branches(nodes: list[onnx.NodeProto], outputs: list[str]) -> list[onnx.NodeProto]:
    """Both branches compute the same."""
    graphs = {}
    for key in ("then", "else"):
        copies, names = _renamed(nodes, f"{key}_")
        results = _infos([names[o] for o in outputs])
        graphs[f"{key}_branch"] = helper.make_graph(copies, key, [], results)
    return [helper.make_node("If", [CONDITION], outputs, "flow", **graphs)]


def _loop(nodes: list[onnx.NodeProto], outputs: list[str]) -> list[onnx.NodeProto]:
    """Every iteration computes the same; the results of the last one are taken. What is carried is
    there because old opsets want something to be."""
    copies, names = _renamed(nodes, "body_")
    passed_on = [
        helper.make_node("Identity", ["flow_going"], ["flow_next"], "flow_next"),
        helper.make_node("Identity", ["flow_state"], ["flow_same"], "flow_same"),
    ]
    body = helper.make_graph(
        [*copies, *passed_on],
        "body",
        [
            helper.make_tensor_value_info("flow_number", TensorProto.INT64, []),
            helper.make_tensor_value_info("flow_going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("flow_state", TensorProto.INT64, []),
        ],
        _infos(["flow_next", "flow_same", *(names[o] for o in outputs)]),
    )
    stacked = [f"flow_all_{o}" for o in outputs]
    index = helper.make_tensor("last", TensorProto.INT64, [], [TRIPS - 1])
    last = helper.make_node("Constant", [], ["flow_last"], "flow_last", value=index)
    return [
        helper.make_node("Loop", [COUNT, "", COUNT], ["flow_end", *stacked], "flow", body=body),
        last,
        *(
            helper.make_node("Gather", [s, "flow_last"], [o], f"flow_{o}")
            for s, o in zip(stacked, outputs, strict=True)
        ),
    ]
