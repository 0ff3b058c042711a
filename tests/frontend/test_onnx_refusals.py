"""What cannot run is refused at import: clearly, by name, and all of it at once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from braze.core.errors import ModelError, ShapeError, UnsupportedOpError
from braze.frontend.onnx.findings import ImportRefusal
from braze.frontend.onnx.importer import check_model, import_model, import_network
from braze.ir.builder import MAX_BYTES
from braze.ir.graph import Graph
from tests.frontend.onnx_models import FLOAT, INT64, info, model, tensor

X = info("x", [2, 3])
ANY = info("y", None)
node = helper.make_node


def refused(proto: onnx.ModelProto | bytes | Path, error: type[Exception], **options) -> str:
    with pytest.raises(error) as caught:
        import_model(proto, **options)
    return str(caught.value)


# ---- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["\x00", "a\x1fb", "\x7f", "new\nline"])
def test_control_characters_in_names(bad: str) -> None:
    text = refused(model([node("Relu", ["x"], ["y"], name=bad)], [X], [ANY]), ModelError)
    assert "node number 0" in text and repr(bad) in text and "control character" in text
    made = [node("Relu", ["x"], [bad], name="first"), node("Relu", [bad], ["y"])]
    text = refused(model(made, [X], [ANY]), ModelError)
    assert "node 'first' (Relu)" in text and repr(bad) in text
    text = refused(model([node("Relu", ["x"], ["y"])], [X, info(bad, [1])], [ANY]), ModelError)
    assert repr(bad) in text


@pytest.mark.parametrize("bad", [b"\xff\xfe\xfd", b"\xed\xa0\x80"])  # the second is a surrogate
def test_names_that_are_not_utf8(bad: bytes) -> None:
    data = model([node("Relu", ["x"], ["y"], name="qqq")], [X], [ANY]).SerializeToString()
    text = refused(data.replace(b"qqq", bad), ModelError)
    assert "node number 0" in text and "UTF-8" in text and repr(bad) in text


def test_names_in_other_scripts_are_fine() -> None:
    graph = import_model(model([node("Relu", ["x"], ["é 名/:0"])], [X], [info("é 名/:0", None)]))
    assert graph.outputs[0][0] == "é 名/:0"


# ---- completeness ---------------------------------------------------------------------------


def test_ops_behind_an_unsupported_op_are_listed() -> None:
    nodes = [
        node("Bar", ["x"], ["a"]),
        node("NonZero", ["a"], ["b"]),
        node("Relu", ["a"], ["c"]),
        node("Compress", ["c", "a"], ["d"]),
        node("Baz", ["d"], ["e"]),
    ]
    outputs = [info("b", None, INT64), info("e", None)]
    text = refused(model(nodes, [X], outputs), UnsupportedOpError)
    listed = [line.split("(")[1].split(")")[0] for line in text.splitlines()[1:]]
    assert listed == ["Bar", "Baz"]


@pytest.mark.parametrize("known", [True, False])
def test_ops_in_branches_that_are_not_entered_are_listed(known: bool) -> None:
    nested = helper.make_graph(
        [node("If", ["c"], ["o"], "inner", then_branch=branch("t", "Qux"),
              else_branch=branch("e", "Relu"))],
        "n", [], [info("o", None)],
    )  # fmt: skip
    nodes = [] if known else [node("Bar", ["x"], ["b"]), node("Greater", ["b", "b"], ["c"])]
    nodes.append(node("If", ["c"], ["y"], "outer", then_branch=nested,
                      else_branch=branch("e", "Baz")))  # fmt: skip
    inputs = [X, info("c", [], TensorProto.BOOL)] if known else [X]
    text = refused(model(nodes, inputs, [ANY]), UnsupportedOpError)
    assert "outer/inner/Qux" in text and "outer/Baz" in text and "Relu" not in text


def test_a_branch_that_sizes_may_rule_out_is_not_told_with_missing_sizes() -> None:
    nodes = [
        node("Size", ["x"], ["s"]),
        node("Greater", ["s", "two"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Baz")),
    ]
    two = [tensor("two", np.array(2))]
    proto = model(nodes, [info("x", ["n"])], [ANY], initializers=two)
    assert "(or fix sizes, for example shapes={'x': (8,)})" in refused(proto, UnsupportedOpError)
    import_model(proto, shapes={"x": (8,)})


def test_what_might_still_be_constant_is_not_listed() -> None:
    nodes = [node("Bar", ["w"], ["a"]), node("NonZero", ["a"], ["y"])]
    weights = [tensor("w", np.zeros(3, np.float32))]
    proto = model(nodes, [X], [info("y", None, INT64)], initializers=weights)
    assert "NonZero" not in refused(proto, UnsupportedOpError)
    # the condition is constant, only the data is not
    nodes = [node("Bar", ["x"], ["a"]), node("Compress", ["a", "w"], ["y"], axis=0)]
    weights = [tensor("w", np.array([True, False]))]
    proto = model(nodes, [X], [ANY], initializers=weights)
    assert "Compress" not in refused(proto, UnsupportedOpError)


def test_sizes_that_may_be_anything_are_no_problem_beside_unsupported_ops() -> None:
    nodes = [node("Bar", ["x"], ["a"]), node("NonZero", ["a"], ["y"])]
    proto = model(nodes, [info("x", ["n", 3])], [info("y", None, INT64)])
    text = refused(proto, UnsupportedOpError)
    assert "op Bar" in text and "dynamic" not in text and "shapes=" not in text
    reasons = [f.reason for f in check_model(proto) if not f.supported]
    assert reasons == [text]


def branch(name: str, op: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, ["x"], ["o"])], name, [], [info("o", None)])


def test_what_sizes_may_lift_is_told_with_sizes_that_do() -> None:
    branches = {"then_branch": branch("t", "Relu"), "else_branch": branch("e", "Shape")}
    nodes = [node("If", ["c"], ["y"], **branches)]
    flag = info("c", [], TensorProto.BOOL)
    text = refused(model(nodes, [info("x", ["n"]), flag], [ANY]), UnsupportedOpError)
    assert "values={'c'" in text and "shapes=" not in text
    nodes = [
        node("Size", ["x"], ["s"]),
        node("Greater", ["s", "two"], ["c"]),
        node("If", ["c"], ["y"], **branches),
    ]
    two = [tensor("two", np.array(2))]
    proto = model(nodes, [info("x", ["n"])], [ANY], initializers=two)
    text = refused(proto, UnsupportedOpError)
    assert text.endswith("(or fix sizes, for example shapes={'x': (8,)})")
    import_model(proto, shapes={"x": (8,)})


# ---- shapes ---------------------------------------------------------------------------------


def test_negative_sizes_of_inputs() -> None:
    text = refused(model([node("Relu", ["x"], ["y"])], [info("x", [2, -5])], [ANY]), ModelError)
    assert "'x'" in text and "-5" in text and "axis 1" in text
    proto = model([node("Relu", ["x"], ["y"])], [info("x", [0, -1])], [ANY])
    assert import_model(proto, shapes={"x": (0, 4)}).inputs[0].shape == (0, 4)


HUGE = {
    "Tile": [1 << 20, 1 << 24],
    "Expand": [1 << 39, 2, 3],
    "Pad": [0, 0, 0, 1 << 40],
    "ConstantOfShape": [1 << 20, 1 << 20],
}


@pytest.mark.parametrize("op", HUGE)
def test_huge_results_are_refused_by_name(op: str) -> None:
    inputs = ["s"] if op == "ConstantOfShape" else ["x", "s"]
    sizes = [tensor("s", np.array(HUGE[op]))]
    proto = model([node(op, inputs, ["y"], name="big")], [X], [ANY], initializers=sizes)
    text = refused(proto, ShapeError)
    assert f"node 'big' ({op})" in text and "'y'" in text and "smaller shapes" in text


def test_huge_inputs_are_refused_by_name() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [info("x", [1 << 40])], [ANY])
    assert f"input 'x' would have shape [{1 << 40}]" in refused(proto, ShapeError)


def outer(rows: int, columns: int) -> Graph:
    """x[n, 1] @ z[1, m] with n and m up to `rows` and `columns`."""
    proto = model(
        [node("MatMul", ["x", "z"], ["y"])], [info("x", ["n", 1]), info("z", [1, "m"])], [ANY]
    )
    shapes = {"x": ((1, 1), (1, 1), (rows, 1)), "z": ((1, 1), (1, 1), (1, columns))}
    return import_model(proto, shapes=shapes)


def test_sizes_count_at_the_maximum_of_the_profile() -> None:
    # float32: the first product is MAX_BYTES exactly
    assert MAX_BYTES == 1 << 40
    assert len(outer(1 << 19, 1 << 19).nodes) == 1
    with pytest.raises(ShapeError, match=r"'y' would have shape \[n, m\], up to"):
        outer(1 << 19, (1 << 19) + 1)


def test_loose_bounds_do_not_refuse() -> None:
    """The size n + 1 - n, which interval bounds would call n + 1, is one."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Div", ["s", "two"], ["h"]),
        node("Sub", ["s", "h"], ["d"]),
        node("Sub", ["d", "h"], ["e"]),  # n - 2 * (n // 2): 0 or 1
        node("Concat", ["e", "e", "e"], ["t"], axis=0),
        node("ConstantOfShape", ["t"], ["y"]),
    ]
    proto = model(nodes, [info("x", ["n"])], [ANY], initializers=[tensor("two", np.array([2]))])
    graph = import_model(proto, shapes={"x": ((1,), (8,), (1 << 20,))})
    assert len(graph.outputs) == 1


# ---- types ----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["MatMul", "Pow"])
@pytest.mark.parametrize("kind", ["INT8", "UINT8", "INT16", "UINT16", "INT32", "FLOAT16"])
def test_types_an_op_does_not_take(op: str, kind: str) -> None:
    number = getattr(TensorProto, kind)
    proto = model(
        [node(op, ["x", "x"], ["y"], name="n")],
        [info("x", [3, 3], number)],
        [info("y", None, number)],
    )
    if kind in ("INT32", "FLOAT16"):
        assert len(import_model(proto).nodes) == 1
        return
    text = refused(proto, ModelError)
    assert f"node 'n' ({op})" in text and f"input 0 is {kind.lower()}" in text and "Cast" in text


def test_inputs_of_one_fixed_type() -> None:
    shape = [tensor("s", np.array([3, 2], np.int32))]
    proto = model([node("Reshape", ["x", "s"], ["y"])], [X], [ANY], initializers=shape)
    assert "input 1 is int32" in refused(proto, ModelError)


# ---- external data --------------------------------------------------------------------------


@pytest.mark.parametrize("location", [".", "folder", "fifo"])
def test_external_data_that_is_no_regular_file(tmp_path: Path, location: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    w = TensorProto(name="w", data_type=FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    w.external_data.add(key="location", value=location)
    proto = model([node("Add", ["x", "w"], ["y"])], [X], [ANY], initializers=[w])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    text = refused(path, ModelError)
    assert "'w'" in text and "not a regular file" in text


# ---- ops ------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [(0, 0), (2, 0), (0, 2), (-1, 2)])
def test_attention_without_heads(heads: tuple[int, int]) -> None:
    attributes = {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
    nodes = [node("Attention", ["q", "q", "q"], ["y"], **attributes)]
    proto = model(nodes, [info("q", [2, 4, 6])], [ANY], opset=23)
    assert "heads" in refused(proto, ModelError)
    proto = model([node("Attention", ["q"] * 3, ["y"])], [info("q", [2, 0, 4, 6])], [ANY], opset=23)
    assert "0 query heads" in refused(proto, ModelError)


def mel(bins: int, length: int, rate: int) -> onnx.ModelProto:
    weights = [tensor(k, np.array(v)) for k, v in zip("abc", (bins, length, rate), strict=True)]
    weights += [tensor(k, np.float32(v)) for k, v in zip("de", (0, 4000), strict=True)]
    return model([node("MelWeightMatrix", list("abcde"), ["y"])], [], [ANY], initializers=weights)


def test_mel_weight_matrix_of_absurd_size() -> None:
    import_model(mel(8, 16, 8000))
    for bins, length in ((1 << 30, 1 << 30), (1, 1 << 40), (1 << 24, 1)):
        assert "too large" in refused(mel(bins, length, 16000), UnsupportedOpError)
    assert "rate 0" in refused(mel(8, 16, 0), ModelError)


# ---- types and remedies -----------------------------------------------------------------------

TEXT = helper.make_tensor("t", TensorProto.STRING, [1], [b"a"])
STRING_CONSTANTS = [{"value": TEXT}, {"value_string": "a"}, {"value_strings": ["a", "b"]}]


@pytest.mark.parametrize("attributes", STRING_CONSTANTS, ids=lambda a: next(iter(a)))
def test_string_constants_are_refused_where_they_are_used(attributes: dict[str, object]) -> None:
    text = node("Constant", [], ["c"], "text", **attributes)
    import_model(model([text, node("Relu", ["x"], ["y"])], [X], [ANY]))
    used = [text, node("Concat", ["c", "x"], ["y"], "user", axis=0)]
    message = refused(model(used, [X], [ANY]), UnsupportedOpError)
    assert "node 'user' (Concat)" in message and "STRING" in message
    assert message.count("'text'") == 1


def test_attributes_of_no_number_type_are_unsupported() -> None:
    bad = node("ConstantOfShape", ["s"], ["y"], "fill", value=TEXT)
    proto = model([bad], [], [ANY], initializers=[tensor("s", np.array([2]))])
    message = refused(proto, UnsupportedOpError)
    assert "node 'fill' (ConstantOfShape): attribute 'value' has element type STRING" in message


def resized(scale: list[onnx.NodeProto]) -> onnx.ModelProto:
    """An image [1, 3, h, w] resized by the tensor "scale" that the nodes compute, with the filter
    whose scales must be known."""
    smooth = {"mode": "linear", "antialias": 1}
    nodes = [*scale, node("Resize", ["x", "", "scale"], ["y"], "resize", **smooth)]
    numbers = [tensor("four", np.array([4])), tensor("target", np.float32([1, 3, 8, 8]))]
    return model(nodes, [info("x", [1, 3, "h", "w"])], [ANY], initializers=numbers, opset=18)


PROFILE = {"x": ((1, 3, 4, 4), (1, 3, 8, 8), (1, 3, 64, 64))}


def test_remedy_for_what_depends_on_sizes() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["f"], to=FLOAT),
        node("Div", ["target", "f"], ["scale"]),
    ]
    text = refused(resized(nodes), UnsupportedOpError, shapes=PROFILE)
    assert "shapes={'x': (1, 3, 8, 8)}" in text and "values=" not in text
    import_model(resized(nodes), shapes={"x": (1, 3, 8, 8)})


def test_remedy_for_what_depends_on_an_image() -> None:
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Expand", ["most", "four"], ["scale"]),
    ]
    text = refused(resized(nodes), UnsupportedOpError, shapes=PROFILE)
    assert "content of 'x', which only the run knows" in text and "values=" not in text


def test_remedy_for_what_depends_on_a_parameter() -> None:
    inputs = [X, info("s", [2], INT64), info("b", [2], INT64)]
    proto = model([node("Col2Im", ["x", "s", "b"], ["y"])], inputs, [ANY], opset=18)
    assert "values={'s': ...}" in refused(proto, UnsupportedOpError)


def test_remedy_for_a_condition_on_sizes() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ReduceMax", ["s"], ["most"], keepdims=0),
        node("Greater", ["most", "two"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branch("t", "Relu"), else_branch=branch("e", "Shape")),
    ]
    proto = model(nodes, [info("x", ["n"])], [ANY], initializers=[tensor("two", np.array(2))])
    text = refused(proto, UnsupportedOpError, shapes={"x": ((1,), (2,), (4,))})
    assert "shapes={'x': (4,)}" in text  # the opt size, 2, would take the branch of another type
    import_model(proto, shapes={"x": (4,)})
    import_model(proto, shapes={"x": ((3,), (4,), (5,))})


def listed(op: str, inputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    return model([node(op, [i.name for i in inputs], ["y"], "n")], inputs, [ANY], opset=18)


LISTED = {
    "ReduceSum": ("ax", [info("x", ["a", "b", "c"]), info("ax", ["k"], INT64)]),
    "ConstantOfShape": ("s", [info("s", ["r"], INT64)]),
}


@pytest.mark.parametrize("op", LISTED)
def test_remedies_for_what_depends_on_a_list_of_unknown_length(op: str) -> None:
    name, inputs = LISTED[op]
    proto = listed(op, inputs)
    for given in (None, {name: ((1,), (1,), (8,))}):
        with pytest.raises(ImportRefusal) as caught:
            import_model(proto, shapes=given)
        text = str(caught.value)
        assert [f.inputs for f in caught.value.findings] == [(name,)]
        assert f"or pass the content as values={{'{name}': ...}}" in text
        assert text.endswith(f"or fix sizes, for example shapes={{'{name}': (1,)}})")
        assert f"--shapes={name}:1)" in caught.value.command
    import_model(proto, values={name: [0]})
    import_model(proto, shapes={name: (1,)})


def test_content_that_asks_for_more_content() -> None:
    """The element that an iteration picks is known where all iterations are."""
    m = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
m (float[4] x, int64 trip_count, bool cond) => (float[k, 4] y) {
  twice = Add(x, x)
  both = SequenceConstruct(x, twice)
  y = Loop (trip_count, cond) <
    body = b (int64 i, bool go) => (bool next, float[4] row) {
      next = Identity(go) row = SequenceAt(both, i)
    }
  >
}""")
    with pytest.raises(ImportRefusal) as caught:
        import_model(m)
    assert [f.inputs for f in caught.value.findings] == [("cond", "trip_count")]
    assert "pass the content as values={'cond': ..., 'trip_count': ...}" in str(caught.value)
    import_model(m, values={"cond": True, "trip_count": 2})


def test_no_remedy_where_none_works() -> None:
    inputs = [info("x", ["k", 5, 5])]
    with pytest.raises(ImportRefusal) as caught:
        import_model(model([node("Det", ["x"], ["y"])], inputs, [ANY], opset=16))
    assert "problems" not in str(caught.value) and "shapes=" not in str(caught.value)
    assert [f.inputs for f in caught.value.findings] == [()]


def test_sizes_given_by_name_are_not_advised_against() -> None:
    _, inputs = LISTED["ReduceSum"]
    with pytest.raises(ImportRefusal) as caught:
        import_network(listed("ReduceSum", inputs), dims={"k": (1, 1, 8), "a": 2})
    assert "shapes=" not in str(caught.value)  # they would contradict `dims`
    import_network(listed("ReduceSum", inputs), dims={"k": 1, "a": 2})


@pytest.mark.parametrize(("op", "opset", "kind"), [
    ("Identity", 9, TensorProto.BFLOAT16),  # bfloat16 from 13 on, where T became V
    ("Relu", 9, TensorProto.BFLOAT16),
    ("Clip", 11, TensorProto.INT32),
])  # fmt: skip
def test_types_ahead_of_the_opset_are_those_of_the_newest_version(
    op: str, opset: int, kind: int
) -> None:
    x, y = info("x", [2], kind), info("y", [2], kind)
    proto = model([helper.make_node(op, ["x"], ["y"], "n")], [x], [y], opset=opset)
    assert import_model(proto).outputs


def test_types_that_no_version_has_are_refused() -> None:
    x, y = info("x", [2], TensorProto.BFLOAT16), info("y", [2], TensorProto.BFLOAT16)
    with pytest.raises(ModelError, match=r"'n' \(Shrink\).*bfloat16, which this opset does not"):
        import_model(model([helper.make_node("Shrink", ["x"], ["y"], "n")], [x], [y]))
