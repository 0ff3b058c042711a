"""Importing graphs: order, scopes, functions, branches, values, and complete error reports."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from braze.core.dims import sym
from braze.core.errors import (
    BindingError,
    BrazeError,
    DTypeError,
    InternalError,
    ModelError,
    ProfileError,
    ShapeError,
    UnsupportedOpError,
)
from braze.frontend.onnx.findings import ImportRefusal
from braze.frontend.onnx.importer import check_model, import_model, import_network
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, Value
from braze.ops.base import OnnxNode
from braze.ops.catalog import IMPORTERS
from braze.ops.evaluator import evaluate
from tests.frontend.onnx_models import FAKES, INT64, Same, Sum2, info, model, tensor

X = info("x", [2, 3])
Y = info("y", [2, 3])


def node(op: str, inputs: list[str], outputs: list[str], name: str = "", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def load(proto, **options) -> Graph:
    return import_model(proto, importers=FAKES, **options)


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def test_file_order_does_not_matter() -> None:
    nodes = [
        node("Add", ["a", "b"], ["y"], "last"),
        node("Relu", ["a"], ["b"], "middle"),
        node("Relu", ["x"], ["a"], "first"),
    ]
    graph = load(model(nodes, [X], [Y]))
    assert [n.origins for n in graph.nodes] == [("first",), ("middle",), ("last",)]
    assert [v.name for n in graph.nodes for v in n.outputs] == ["a", "b", "y"]
    assert [name for name, _ in graph.outputs] == ["y"]


def test_outputs_may_be_constants_and_passed_on_inputs() -> None:
    proto = model(
        [node("Identity", ["x"], ["y"])],
        [X],
        [Y, info("w", [2])],
        initializers=[tensor("w", np.float32([1, 2]))],
    )
    graph = import_model(proto, importers={("", "Identity"): lambda n, g: (n.need(0),)})
    assert graph.outputs[0][1] is graph.inputs[0]
    np.testing.assert_array_equal(graph.constant(graph.outputs[1][1]), np.float32([1, 2]))


@pytest.mark.parametrize("nodes", [[], [node("Relu", ["x"], ["y"])]])
def test_an_output_that_is_an_input_must_be_renamed(nodes: list[onnx.NodeProto]) -> None:
    proto = model(nodes, [X], [Y, X] if nodes else [X])
    with pytest.raises(ModelError, match=r"'x' is also an input.*Identity"):
        load(proto)


def test_dead_nodes_do_not_matter() -> None:
    nodes = [
        node("NoSuchOp", ["x"], ["dead"]),
        node("Relu", ["missing"], ["dead2"]),
        node("Relu", ["x"], ["y"]),
    ]
    assert ops(load(model(nodes, [X], [Y]))) == ["Same"]


def test_cycles_are_named() -> None:
    nodes = [
        node("Add", ["x", "b"], ["a"], "one"),
        node("Relu", ["a"], ["b"], "two"),
        node("Relu", ["b"], ["y"], "after"),
    ]
    with pytest.raises(ModelError, match=r"cycle through .*'one'.*'two'|cycle.*'two'.*'one'") as e:
        load(model(nodes, [X], [Y]))
    assert "after" not in str(e.value)
    with pytest.raises(ModelError, match="cycle through node 'self'"):
        load(model([node("Add", ["x", "y"], ["y"], "self")], [X], [Y]))


@pytest.mark.parametrize(
    ("nodes", "outputs", "text"),
    [
        ([node("Relu", ["nope"], ["y"], "r")], [Y], "'r'.*'nope'"),
        ([node("Relu", ["x"], ["y"], "r")], [info("z", [1])], "output 'z'"),
        ([node("Relu", ["x"], ["y"], "a"), node("Relu", ["x"], ["y"], "b")], [Y], "'a'.*'b'"),
        ([node("Relu", ["x"], ["x"], "r")], [X], "'x' is written by"),
        ([node("Relu", ["x"], ["w"], "r")], [info("w", [1])], "'w' is written by"),
        ([node("Relu", ["x"], ["y"], "r")], [], "no outputs"),
        ([node("Relu", ["x"], ["y"], "r")], [Y, Y], "repeated"),
    ],
)
def test_broken_wiring(nodes, outputs, text: str) -> None:
    weights = [tensor("w", np.float32([1]))]
    with pytest.raises(ModelError, match=text):
        load(model(nodes, [X], outputs, initializers=weights))


def test_duplicate_inputs_are_refused() -> None:
    with pytest.raises(ModelError, match="'x' is empty or given twice"):
        load(model([node("Relu", ["x"], ["y"])], [X, X], [Y]))


def test_initializers_are_constants_whether_listed_as_inputs_or_not() -> None:
    weights = [tensor("w", np.ones((2, 3), np.float32))]
    nodes = [node("Add", ["x", "w"], ["y"])]
    for inputs in ([X], [X, info("w", [2, 3])]):
        graph = load(model(nodes, inputs, [Y], initializers=weights))
        assert [v.name for v in graph.inputs] == ["x"]
        assert [v.name for v in graph.constants] == ["w"]


def test_initializers_listed_as_inputs_can_be_overridden() -> None:
    weights = [tensor("w", np.ones((2, 3), np.float32))]
    proto = model(
        [node("Add", ["x", "w"], ["y"])], [X, info("w", [2, 3])], [Y], initializers=weights
    )
    graph = load(proto, shapes={"w": (2, 3)})
    assert [v.name for v in graph.inputs] == ["x", "w"]
    assert not graph.constants
    other = np.full((2, 3), 5, np.float32)
    graph = load(proto, values={"w": other})
    assert graph.specialized["w"] == (5.0,) * 6
    np.testing.assert_array_equal(graph.constant(graph.nodes[0].inputs[1]), other)


def test_an_initializer_that_is_no_input_cannot_be_given() -> None:
    weights = [tensor("w", np.ones((2, 3), np.float32))]
    proto = model([node("Add", ["x", "w"], ["y"])], [X], [Y], initializers=weights)
    with pytest.raises(BindingError, match="'w'"):
        load(proto, values={"w": np.ones((2, 3), np.float32)})


def test_all_problems_are_reported_at_once() -> None:
    nodes = [
        node("NoSuchOp", ["x"], ["a"], "first"),
        node("Relu", ["a"], ["b"], "poisoned"),
        node("OtherOp", ["b"], ["c"], "second"),
        node("Ceil", ["x"], ["d"], "third"),
        node("Add", ["c", "d"], ["y"], "sum"),
    ]
    with pytest.raises(UnsupportedOpError) as caught:
        load(model(nodes, [X], [Y]))
    text = str(caught.value)
    assert "3 problems" in text
    for part in ("'first'", "NoSuchOp", "'second'", "OtherOp", "'third'", "mode='odd'", "opset 17"):
        assert part in text
    assert "poisoned" not in text and "'sum'" not in text
    assert isinstance(caught.value, ImportRefusal)
    assert [f.node for f in caught.value.findings] == ["first", "second", "third"]


def test_stray_exceptions_are_bugs_of_braze_that_name_the_node() -> None:
    with pytest.raises(InternalError, match=r"'bad' \(Floor\).*KeyError.*surprise") as caught:
        load(model([node("Floor", ["x"], ["y"], "bad")], [X], [Y]))
    assert isinstance(caught.value.__cause__, KeyError)


def test_check_model_lists_every_live_node() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], "good"),
        node("NoSuchOp", ["a"], ["y"], "bad"),
        node("NoSuchOp", ["a"], ["z"], "dead"),
    ]
    dynamic = model(nodes, [info("x", ["n", 3])], [Y])
    findings = check_model(dynamic, importers=FAKES)
    assert [(f.node, f.op_type, f.supported) for f in findings] == [
        ("good", "Relu", True),
        ("bad", "NoSuchOp", False),
        ("", "", False),
    ]
    assert "NoSuchOp" in findings[1].reason
    assert "dynamic axes 0 (n)" in findings[2].reason
    assert findings[:2] == check_model(dynamic, {"x": (2, 3)}, importers=FAKES)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (node("LeakyRelu", ["x"], ["y"], "n", alpha=1), "'alpha' is INT but must be FLOAT"),
        (node("LeakyRelu", ["x"], ["y"], "n", beta=1.0), "'beta' does not exist"),
        (node("Relu", [], ["y"], "n"), "0 inputs"),
        (node("Relu", ["x", "x"], ["y"], "n"), "2 inputs"),
        (node("Add", ["x", ""], ["y"], "n"), "input 1 is missing"),
        (node("Relu", ["x"], ["y", "z"], "n"), "2 outputs"),
        (node("Concat", ["x"], ["y"], "n"), "'axis' is missing"),
    ],
)
def test_nodes_that_break_their_schema(bad, text: str) -> None:
    with pytest.raises(ModelError, match=text) as caught:
        load(model([bad], [X], [Y]))
    assert "node 'n'" in str(caught.value)


def test_inputs_of_one_type_variable_must_agree() -> None:
    proto = model([node("Add", ["x", "i"], ["y"], "mixed")], [X, info("i", [2, 3], INT64)], [Y])
    with pytest.raises(ModelError, match=r"'mixed'.*input 1 is int64 but must be float32"):
        load(proto)


def test_old_new_and_missing_opsets() -> None:
    nodes = [node("Relu", ["x"], ["y"], "n")]
    assert ops(load(model(nodes, [X], [Y], opset=6))) == ["Same"]
    for opset in (0, 29):
        with pytest.raises(UnsupportedOpError, match=f"opset {opset}"):
            load(model(nodes, [X], [Y], opset=opset))
    proto = model(nodes, [X], [Y])
    del proto.opset_import[:]
    with pytest.raises(ModelError, match="no opset"):
        load(proto)


def test_types_braze_lacks_are_refused_only_where_used() -> None:
    text = helper.make_tensor("s", TensorProto.STRING, [1], [b"a"])
    nodes = [node("Relu", ["x"], ["y"], "n")]
    assert ops(load(model(nodes, [X], [Y], initializers=[text]))) == ["Same"]
    with pytest.raises(UnsupportedOpError, match=r"'r'.*initializer 's'.*STRING"):
        load(model([node("Relu", ["s"], ["y"], "r")], [X], [Y], initializers=[text]))
    with pytest.raises(DTypeError, match=r"'t'.*STRING"):
        load(model(nodes, [X, info("t", [1], TensorProto.STRING)], [Y]))


def test_declared_output_type_must_be_what_is_computed() -> None:
    with pytest.raises(DTypeError, match="'y' is declared int64 but is computed as float32"):
        load(model([node("Relu", ["x"], ["y"])], [X], [info("y", [2, 3], INT64)]))


def test_dynamic_axes_become_symbols_with_bounds() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [info("x", ["n", 3])], [Y])
    with pytest.raises(ProfileError):
        load(proto)
    imported = import_network(proto, shapes={"x": ((1, 3), (2, 3), (8, 3))}, importers=FAKES)
    assert imported.graph.outputs[0][1].shape == (sym("n"), 3)
    assert imported.graph.bounds == {"n": (1, 8)}
    assert imported.profiles == ({"n": (1, 2, 8)},)


def test_old_broadcasts_are_aligned_at_their_axis() -> None:
    proto = model(
        [node("Mul", ["x", "c"], ["y"], broadcast=1, axis=1)],
        [info("x", [2, 3, 4]), info("c", [3])],
        [info("y", [2, 3, 4])],
        opset=6,
    )
    graph = import_model(proto)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    c = np.float32([1, 10, 100])
    result = evaluate(graph, {"x": x, "c": c})["y"]
    np.testing.assert_array_equal(result, x * c.reshape(3, 1))
    proto.graph.node[0].attribute[0].i = 3
    assert proto.graph.node[0].attribute[0].name == "axis"
    with pytest.raises(UnsupportedOpError, match="axis 3 does not fit"):
        import_model(proto)


def test_training_mode_of_old_opsets_is_refused() -> None:
    for flag, accepted in ((1, True), (0, False)):
        dropout = node("Dropout", ["x"], ["y"], is_test=flag)
        proto = model([dropout], [X], [Y], opset=6)
        if accepted:
            assert import_model(proto).outputs[0][1].shape == (2, 3)
        else:
            with pytest.raises(UnsupportedOpError, match="too old"):
                import_model(proto)


def shape_needing_model() -> onnx.ModelProto:
    return model([node("Reshape", ["x", "s"], ["y"], "reshape")], [X, info("s", [2], INT64)], [Y])


def test_content_needed_at_build_time_is_asked_for() -> None:
    with pytest.raises(UnsupportedOpError, match=r"values=\{'s': \.\.\.\}") as caught:
        load(shape_needing_model())
    assert isinstance(caught.value, ImportRefusal)
    assert caught.value.findings[0].inputs == ("s",)


def test_values_make_an_input_known_but_keep_it_bound() -> None:
    graph = load(shape_needing_model(), values={"s": np.array([3, 2])})
    assert [v.name for v in graph.inputs] == ["x", "s"]
    assert graph.specialized == {"s": (3, 2)}
    graph = load(shape_needing_model(), values={"s": [3, 2]})
    assert graph.specialized == {"s": (3, 2)}


def test_values_take_the_type_of_the_input() -> None:
    proto = model([node("Add", ["x", "b"], ["y"])], [info("x", [1]), info("b", [1])], [Y])
    assert import_model(proto, values={"b": [0.1]}).specialized == {"b": (float(np.float32(0.1)),)}
    with pytest.raises(DTypeError, match="float64 but the input is float32"):
        import_model(proto, values={"b": np.array([0.1])})
    brain = TensorProto.BFLOAT16
    inputs = [info("x", [1], brain), info("b", [1], brain)]
    proto = model([node("Add", ["x", "b"], ["y"])], inputs, [info("y", [1], brain)])
    bits = np.array([0x3FC0], np.uint16)
    for given in (bits, bits.view(ml_dtypes.bfloat16), [1.5]):
        assert import_model(proto, values={"b": given}).specialized == {"b": (1.5,)}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"q": np.array([3, 2])}, BindingError),
        ({"s": np.array([3, 2, 1])}, ShapeError),
        ({"s": [1.5, 2.0]}, DTypeError),
        ({"s": np.array([3.5, 2.0])}, DTypeError),
    ],
)
def test_wrong_values(values, error) -> None:
    with pytest.raises(error):
        load(shape_needing_model(), values=values)


def test_nodes_of_small_constants_are_folded() -> None:
    weights = [tensor("a", np.float32([1, 2])), tensor("b", np.float32([10, 20]))]
    nodes = [node("Add", ["a", "b"], ["c"]), node("LeakyRelu", ["c"], ["y"], alpha=0.5)]
    graph = load(model(nodes, [X], [info("y", [2])], initializers=weights))
    assert graph.nodes == ()
    np.testing.assert_array_equal(graph.constant(graph.outputs[0][1]), np.float32([11.5, 22.5]))
    large = [tensor("a", np.zeros(2000, np.float32)), tensor("b", np.zeros(2000, np.float32))]
    graph = load(model(nodes, [X], [info("y", [2000])], initializers=large))
    assert ops(graph) == ["Sum2", "Same"]


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
    with pytest.raises(ModelError, match="nested deeper"):
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


def test_if_with_a_runtime_condition_is_refused() -> None:
    choose = helper.make_node(
        "If",
        ["c"],
        ["y"],
        name="choose",
        then_branch=branch("t", "Relu", "x"),
        else_branch=branch("e", "Relu", "x"),
    )
    proto = model([choose], [X, info("c", [], TensorProto.BOOL)], [Y])
    with pytest.raises(UnsupportedOpError, match=r"'choose'.*values=\{'c'"):
        load(proto)
    assert ops(load(proto, values={"c": True})) == ["Same"]


def test_absent_optional_inputs_and_outputs() -> None:
    proto = model([node("Dropout", ["x", "", ""], ["y", ""], "d")], [X], [Y])
    seen = []

    def dropout(n, g):
        seen.append((n.inputs[1:], n.num_outputs))
        return (g.add1(Same(), n.need(0)),)

    import_model(proto, importers={("", "Dropout"): dropout})
    assert seen == [((None, None), 2)]


def test_errors_are_braze_errors_only() -> None:
    for source in (b"\x00" * 64, b"\xff" * 64, bytes(range(256))):
        with pytest.raises(BrazeError):
            load(source)
