"""Functions of a model, bodies of schemas, and the branches of If."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from braze.core.errors import (
    ModelError,
    UnsupportedOpError,
)
from braze.frontend.onnx.importer import import_model
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import OnnxNode
from braze.ops.catalog import IMPORTERS
from tests.frontend.onnx_models import FAKES, Same, Sum2, X, Y, info, load, model, node, ops, tensor


def function(name: str, nodes, inputs, outputs, attributes=(), defaults=()) -> onnx.FunctionProto:
    return helper.make_function(
        "local",
        name,
        inputs,
        outputs,
        nodes,
        [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)],
        list(attributes),
        list(defaults),
    )


def ref(op: str, inputs, outputs, key: str, outer: str, kind=onnx.AttributeProto.FLOAT):
    made = node(op, inputs, outputs)
    made.attribute.add(name=key, ref_attr_name=outer, type=kind)
    return made


def test_functions_are_expanded_with_attributes_and_defaults() -> None:
    inner = function("Inner", [ref("LeakyRelu", ["a"], ["b"], "alpha", "slope")], ["a"], ["b"],
                     ["slope"])  # fmt: skip
    call = node("Inner", ["p"], ["q"], domain="local")
    call.attribute.add(name="slope", ref_attr_name="k", type=onnx.AttributeProto.FLOAT)
    outer = function(
        "Outer",
        [call, node("Add", ["q", "p"], ["r"])],
        ["p"],
        ["r"],
        [],
        [helper.make_attribute("k", 0.25)],
    )
    nodes = [
        node("Outer", ["x"], ["m"], "one", domain="local", k=0.75),
        node("Outer", ["m"], ["y"], "two", domain="local"),
    ]
    proto = model(nodes, [X], [Y], functions=[outer, inner], domains=[("local", 1)])
    graph = load(proto)
    assert [n.op for n in graph.nodes] == [Same(0.75), Sum2(), Same(0.25), Sum2()]
    assert graph.nodes[0].origins == ("one/Inner_0/LeakyRelu_0",)
    assert [v.name for n in graph.nodes for v in n.outputs] == ["one/q", "m", "two/q", "y"]
    missing = model([node("Inner", ["x"], ["y"], "n", domain="local")], [X], [Y],
                    functions=[inner], domains=[("local", 1)])  # fmt: skip
    with pytest.raises(ModelError, match=r"'n'.*'slope' is missing"):
        load(missing)


def test_absent_optional_reference_is_an_absent_attribute() -> None:
    body = [ref("LeakyRelu", ["a"], ["b"], "alpha", "slope")]
    optional = function("F", body, ["a"], ["b"])
    nodes = [node("F", ["x"], ["y"], domain="local")]
    proto = model(nodes, [X], [Y], functions=[optional], domains=[("local", 1)])
    assert [n.op for n in load(proto).nodes] == [Same(0.0)]


def test_a_function_that_calls_itself_is_refused() -> None:
    loop = function("F", [node("F", ["a"], ["b"], domain="local")], ["a"], ["b"])
    nodes = [node("F", ["x"], ["y"], "n", domain="local")]
    with pytest.raises(ModelError, match=r"nested deeper than 40 \(in n/F_0/…\); a function may"):
        load(model(nodes, [X], [Y], functions=[loop], domains=[("local", 1)]))


def test_exponential_functions_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braze.frontend.onnx.nodes.MAX_NODES", 5000)
    functions = [function("F0", [node("Relu", ["a"], ["b"])], ["a"], ["b"])]
    for i in range(1, 30):
        calls = [
            node(f"F{i - 1}", ["a"], ["c"], domain="local"),
            node(f"F{i - 1}", ["c"], ["b"], domain="local"),
        ]
        functions.append(function(f"F{i}", calls, ["a"], ["b"]))
    nodes = [node("F29", ["x"], ["y"], domain="local")]
    with pytest.raises(ModelError, match="expands to more than"):
        load(model(nodes, [X], [Y], functions=functions, domains=[("local", 1)]))


def test_ops_without_importer_use_the_body_of_their_schema() -> None:
    importers = {k: v for k, v in FAKES.items() if k != ("", "LeakyRelu")}
    proto = model([node("LessOrEqual", ["x", "x"], ["y"], "n")], [X], [Y], opset=16)
    with pytest.raises(UnsupportedOpError) as caught:
        import_model(proto, importers=importers)
    # the body is Less, Equal, Or: its missing ops are what is reported
    assert "Less" in str(caught.value) and "'n" in str(caught.value)


def test_an_importer_that_refuses_leaves_no_guard_behind() -> None:
    def start_and_refuse(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        x = n.need(0)
        g.unify(x.shape[0], 2, "a guess of a fused form")
        g.add1(Same(), x)
        raise n.unsupported("no fused form")

    importers = {**IMPORTERS, ("", "HardSwish"): start_and_refuse}
    proto = model([node("HardSwish", ["x"], ["y"])], [info("x", ["n", 3])], [Y], opset=14)
    graph = import_model(proto, importers=importers, shapes={"x": ((1, 3), (2, 3), (8, 3))})
    # the body of the op took over
    assert "Same" not in ops(graph) and len(graph.nodes) > 1
    assert not graph.guards


def branch(name: str, op: str, source: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, [source], [name])], name, [], [info(name, [2, 3])])


@pytest.mark.parametrize("taken", [True, False])
def test_if_with_a_constant_condition_is_the_branch_it_takes(taken: bool) -> None:
    choose = helper.make_node(
        "If",
        ["c"],
        ["y"],
        name="choose",
        then_branch=branch("t", "Relu", "mid"),
        else_branch=branch("e", "LeakyRelu", "w"),
    )
    weights = [tensor("c", np.array(taken)), tensor("w", np.ones((40, 50), np.float32))]
    # the branch reads `mid`, which a later node in the file makes
    nodes = [choose, node("Relu", ["x"], ["mid"], "maker")]
    graph = load(model(nodes, [X], [Y], initializers=weights))
    origins = [n.origins[0] for n in graph.nodes]
    assert origins == (["maker", "choose/Relu_0"] if taken else ["choose/LeakyRelu_0"])
    assert len(graph.constants) == (0 if taken else 1)
    assert graph.outputs[0][1].name == "y"


def test_branches_of_two_types_need_a_condition_that_is_known() -> None:
    choose = helper.make_node(
        "If",
        ["c"],
        ["y"],
        name="choose",
        then_branch=branch("t", "Relu", "x"),
        else_branch=branch("e", "Shape", "x"),
    )
    proto = model([choose], [X, info("c", [], TensorProto.BOOL)], [Y])
    with pytest.raises(UnsupportedOpError, match=r"'choose'.*values=\{'c'"):
        import_model(proto)
    assert ops(import_model(proto, values={"c": True})) == ["Relu"]
