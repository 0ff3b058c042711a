"""A case inside of control flow: some of its last nodes become a branch, or the body of a loop.

What it computes stays the same, so that its bounds hold too. Conditions and trip counts are inputs;
the nodes that stay outside make values which a body captures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

Nodes = list[onnx.NodeProto]
TRIPS: Final = 2  # of a loop whose results are stacked
CONDITION, COUNT, TRIPS_GIVEN = "flow_condition", "flow_count", "flow_trips"
_FIRST_SEQUENCE, _FIRST_OPTIONAL, _FIRST_MAP = 11, 15, 17
_node = helper.make_node


@dataclass(frozen=True)
class Flow:
    """Nodes to be put inside of something. outputs: what is needed of them, and its element types.

    `given` collects the further inputs of the model and their values.
    """

    nodes: Nodes
    outputs: Mapping[str, int]
    r: random.Random
    given: dict[str, Any]

    def copies(self, prefix: str) -> tuple[Nodes, dict[str, str]]:
        """The nodes, making values of other names, and those names."""
        names = {name: f"{prefix}{name}" for n in self.nodes for name in n.output if name}
        made = []
        for n in self.nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(n)
            copy.name = f"{prefix}{n.name}"
            copy.input[:] = [names.get(name, name) for name in n.input]
            copy.output[:] = [names.get(name, name) for name in n.output]
            made.append(copy)
        return made, names

    def within(self, nodes: Nodes) -> Flow:
        """Nodes that have the same outputs."""
        return Flow(nodes, self.outputs, self.r, self.given)


def _info(name: str, kind: int = TensorProto.INT64) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [])


def _results(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
    return [onnx.ValueInfoProto(name=name) for name in names]


def _number(name: str, value: int, shape: Sequence[int] = ()) -> onnx.NodeProto:
    tensor = helper.make_tensor(name, TensorProto.INT64, shape, [value])
    return _node("Constant", [], [name], name, value=tensor)


def _branches(flow: Flow) -> Nodes:
    """Both branches compute the same."""
    flow.given[CONDITION] = np.array(flow.r.random() < 0.5)
    graphs = {}
    for key in ("then", "else"):
        copies, names = flow.copies(f"{key}_")
        results = _results([names[o] for o in flow.outputs])
        graphs[f"{key}_branch"] = helper.make_graph(copies, key, [], results)
    return [_node("If", [CONDITION], list(flow.outputs), "flow_if", **graphs)]


def _loop(flow: Flow, until: bool = False) -> Nodes:
    """Every iteration computes the same; the results of the last one are taken. What is carried is
    there because old opsets want something to be. until: it ends by a condition of its own."""
    flow.given[COUNT] = np.array(TRIPS)
    copies, names = flow.copies("body_")
    ends = [
        _number("flow_one", 1),
        _node("Add", ["flow_state", "flow_one"], ["flow_same"], "flow_same"),
        _node("Less", ["flow_same", COUNT], ["flow_next"], "flow_next"),
    ]
    goes_on = [
        _node("Identity", ["flow_going"], ["flow_next"], "flow_next"),
        _node("Identity", ["flow_state"], ["flow_same"], "flow_same"),
    ]
    body = helper.make_graph(
        [*copies, *(ends if until else goes_on)],
        "body",
        [_info("flow_number"), _info("flow_going", TensorProto.BOOL), _info("flow_state")],
        _results(["flow_next", "flow_same", *(names[o] for o in flow.outputs)]),
    )
    stacks = [f"flow_all_{o}" for o in flow.outputs]
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    first = [
        _number("flow_first", 0),
        _node("Constant", [], ["flow_yes"], "flow_yes", value=yes),
    ]
    taken = ["", "flow_yes", "flow_first"] if until else [COUNT, "", COUNT]
    loop = _node("Loop", taken, ["flow_end", *stacks], "flow_loop", body=body)
    return [*(first if until else ()), loop, *_last(flow, stacks)]


def _last(flow: Flow, stacks: Sequence[str], at: int = TRIPS - 1) -> Nodes:
    """One element of each stack."""
    picks = zip(stacks, flow.outputs, strict=True)
    return [
        _number("flow_last", at),
        *(_node("Gather", [s, "flow_last"], [o], f"flow_{o}") for s, o in picks),
    ]


def _until(flow: Flow) -> Nodes:
    return _loop(flow, until=True)


def _carried(flow: Flow) -> Nodes:
    """The results are carried, from those computed before the loop, which may make no trip."""
    flow.given[TRIPS_GIVEN] = np.array(flow.r.choice([0, 1, 2, 3]))
    first, before = flow.copies("first_")
    copies, names = flow.copies("body_")
    going = _node("Identity", ["flow_going"], ["flow_next"], "flow_next")
    carried = [onnx.ValueInfoProto(name=f"flow_old_{o}") for o in flow.outputs]
    for info, kind in zip(carried, flow.outputs.values(), strict=True):
        info.type.tensor_type.elem_type = kind
    body = helper.make_graph(
        [*copies, going],
        "body",
        [_info("flow_number"), _info("flow_going", TensorProto.BOOL), *carried],
        _results(["flow_next", *(names[o] for o in flow.outputs)]),
    )
    given = [TRIPS_GIVEN, "", *(before[o] for o in flow.outputs)]
    return [*first, _node("Loop", given, list(flow.outputs), "flow_loop", body=body)]


def _scan(flow: Flow) -> Nodes:
    """A scan over as many numbers as the run says, either way."""
    flow.given[COUNT] = np.array(TRIPS)
    copies, names = flow.copies("scan_")
    body = helper.make_graph(
        copies, "scan", [_info("flow_slice")], _results([names[o] for o in flow.outputs])
    )
    stacks = [f"flow_all_{o}" for o in flow.outputs]
    ways: dict[str, Any] = {
        "scan_input_directions": [flow.r.choice([0, 1])],
        "scan_output_directions": [flow.r.choice([0, 1]) for _ in flow.outputs],
    }
    return [
        _number("flow_first", 0),
        _number("flow_step", 1),
        _node("Range", ["flow_first", COUNT, "flow_step"], ["flow_numbers"], "flow_numbers"),
        _node("Scan", ["flow_numbers"], stacks, "flow_scan", body=body, num_scan_inputs=1, **ways),
        *_last(flow, stacks, flow.r.randrange(TRIPS)),
    ]


def _appended(flow: Flow) -> Nodes:
    """Each iteration appends its results to sequences."""
    flow.given[COUNT] = np.array(TRIPS)
    copies, names = flow.copies("body_")
    nodes, lists, grown = [*copies], [], []
    nodes.append(_node("Identity", ["flow_going"], ["flow_next"], "flow_next"))
    empties = []
    for o, kind in flow.outputs.items():
        empties.append(_node("SequenceEmpty", [], [f"flow_none_{o}"], f"flow_none_{o}", dtype=kind))
        lists.append(helper.make_tensor_sequence_value_info(f"flow_old_{o}", kind, None))
        added = [f"flow_old_{o}", names[o]]
        nodes.append(_node("SequenceInsert", added, [f"flow_more_{o}"], f"flow_more_{o}"))
        grown.append(f"flow_more_{o}")
    body = helper.make_graph(
        nodes,
        "body",
        [_info("flow_number"), _info("flow_going", TensorProto.BOOL), *lists],
        _results(["flow_next", *grown]),
    )
    lists_made = [f"flow_list_{o}" for o in flow.outputs]
    given = [COUNT, "", *(f"flow_none_{o}" for o in flow.outputs)]
    loop = _node("Loop", given, lists_made, "flow_loop", body=body)
    if flow.r.random() < 0.5:
        at = _number("flow_last", flow.r.choice([0, 1, -1]))
        picks = zip(lists_made, flow.outputs, strict=True)
        taken = [_node("SequenceAt", [s, "flow_last"], [o], f"flow_{o}") for s, o in picks]
        return [*empties, loop, at, *taken]
    stacks = [f"flow_all_{o}" for o in flow.outputs]
    joined = [
        _node("ConcatFromSequence", [s], [a], a, axis=0, new_axis=1)
        for s, a in zip(lists_made, stacks, strict=True)
    ]
    return [*empties, loop, *joined, *_last(flow, stacks)]


def _mapped(flow: Flow) -> Nodes:
    """The body of a SequenceMap over two numbers."""
    flow.given[COUNT] = np.array(TRIPS)
    copies, names = flow.copies("map_")
    results = _results([names[o] for o in flow.outputs])
    body = helper.make_graph(copies, "map", [_info("flow_item")], results)
    lists = [f"flow_list_{o}" for o in flow.outputs]
    picks = zip(lists, flow.outputs, strict=True)
    return [
        _node("SequenceConstruct", [COUNT, COUNT], ["flow_items"], "flow_items"),
        _node("SequenceMap", ["flow_items"], lists, "flow_map", body=body),
        _number("flow_last", flow.r.choice([0, 1, -1, -2])),
        *(_node("SequenceAt", [s, "flow_last"], [o], f"flow_{o}") for s, o in picks),
    ]


def _boxed(flow: Flow) -> Nodes:
    """Results pass through an optional, or a sequence."""
    copies, names = flow.copies("plain_")
    boxes: Nodes = []
    for o in flow.outputs:
        box = f"flow_box_{o}"
        if flow.r.random() < 0.5:
            boxes += [
                _node("Optional", [names[o]], [box], box),
                _node("OptionalGetElement", [box], [o], f"flow_{o}"),
            ]
            continue
        at = f"flow_at_{o}"
        boxes += [
            _node("SequenceConstruct", [names[o], names[o]], [box], box),
            _number(at, flow.r.choice([0, 1, -1])),
            _node("SequenceAt", [box, at], [o], f"flow_{o}"),
        ]
    return [*copies, *boxes]


def _branch_in_loop(flow: Flow) -> Nodes:
    return _loop(flow.within(_branches(flow)))


def _loop_in_branch(flow: Flow) -> Nodes:
    return _branches(flow.within(_loop(flow)))


def _branch_in_scan(flow: Flow) -> Nodes:
    return _scan(flow.within(_branches(flow)))


def _scan_in_loop(flow: Flow) -> Nodes:
    return _carried(flow.within(_scan(flow)))


# name -> (what makes it, the first opset that has its ops)
MAKERS: Final[Mapping[str, tuple[Callable[[Flow], Nodes], int]]] = {
    "if": (_branches, 0),
    "loop": (_loop, 0),
    "scan": (_scan, _FIRST_SEQUENCE),
    "until": (_until, 0),
    "carried": (_carried, 0),
    "appended": (_appended, _FIRST_SEQUENCE),
    "map": (_mapped, _FIRST_MAP),
    "box": (_boxed, _FIRST_OPTIONAL),
    "if in loop": (_branch_in_loop, 0),
    "loop in if": (_loop_in_branch, 0),
    "if in scan": (_branch_in_scan, _FIRST_SEQUENCE),
    "scan in loop": (_scan_in_loop, _FIRST_SEQUENCE),
}
KINDS: Final = tuple(MAKERS)


def inside(
    model: onnx.ModelProto, kind: str, number: int, types: Mapping[str, int]
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model with nodes in control flow of a kind, and what its further inputs are.

    types: ONNX's numbers of the element types of its outputs.
    """
    r = random.Random(f"inside {number}")
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    graph = moved.graph
    nodes = list(graph.node)
    outer, inner = nodes[: (k := r.randrange(len(nodes)))], nodes[k:]
    made = {name for n in inner for name in n.output}
    outputs = {o.name: types[o.name] for o in graph.output if o.name in made}
    opset = next(o.version for o in model.opset_import if not o.domain)
    maker, first = MAKERS[kind]
    if opset < first:
        maker = _loop
    flow = Flow(inner, outputs, r, {})
    made_nodes = maker(flow)
    del graph.node[:]
    graph.node.extend([*outer, *made_nodes])
    for name, value in flow.given.items():
        kind_of = TensorProto.BOOL if value.dtype == np.bool_ else TensorProto.INT64
        graph.input.append(helper.make_tensor_value_info(name, kind_of, []))
    return moved, flow.given
