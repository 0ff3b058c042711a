"""Importing graphs: order, wiring, initializers, schemas, and complete error reports."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from braze.core.config import MAX_SIZE
from braze.core.dims import sym
from braze.core.errors import (
    BindingError,
    BrazeError,
    DTypeError,
    InternalError,
    ModelError,
    UnsupportedOpError,
)
from braze.core.trace import Trace
from braze.frontend.onnx.findings import ImportRefusal
from braze.frontend.onnx.importer import check_model, import_model, import_network
from tests.frontend.onnx_models import (
    FAKES,
    INT64,
    Same,
    X,
    Y,
    info,
    load,
    model,
    node,
    ops,
    tensor,
)


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
    ]
    assert "NoSuchOp" in findings[1].reason
    assert findings == check_model(dynamic, {"x": (2, 3)}, importers=FAKES)


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
    free = import_network(proto, importers=FAKES)
    assert free.graph.bounds == {"n": (0, MAX_SIZE)}
    assert free.profiles == ({"n": (0, 1, MAX_SIZE)},)
    imported = import_network(proto, shapes={"x": ((1, 3), (2, 3), (8, 3))}, importers=FAKES)
    assert imported.graph.outputs[0][1].shape == (sym("n"), 3)
    assert imported.graph.bounds == {"n": (1, 8)}
    assert imported.profiles == ({"n": (1, 2, 8)},)


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


@pytest.mark.parametrize("declared", [[2, 4], [2, 3, 1], [6], []])
def test_a_declared_output_shape_that_is_wrong_is_noted_and_ignored(declared: list[int]) -> None:
    proto = model([node("Relu", ["x"], ["y"], "n")], [X], [info("y", declared)])
    trace = Trace()
    graph = import_model(proto, trace=trace)
    assert graph.outputs[0][1].shape == (2, 3)
    (note,) = [d["text"] for d in trace.decisions if d["kind"] == "note"]
    assert note.startswith(f"graph output 'y' is declared with shape {declared} but")
    assert [f.reason for f in check_model(proto) if f.supported and f.reason] == [note]


@pytest.mark.parametrize("declared", [[2, 3], ["n", 3], [-1, 3], [None, None], None])
def test_declared_output_shapes_that_fit_are_not_noted(declared: list[int] | None) -> None:
    trace = Trace()
    import_model(model([node("Relu", ["x"], ["y"], "n")], [X], [info("y", declared)]), trace=trace)
    assert all(d["kind"] != "note" for d in trace.decisions)


def test_a_symbol_contradicts_no_declared_size() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [info("x", ["n", 3])], [info("y", [1, 3])])
    trace = Trace()
    import_model(proto, shapes={"x": ((1, 3), (2, 3), (4, 3))}, trace=trace)
    assert all(d["kind"] != "note" for d in trace.decisions)
