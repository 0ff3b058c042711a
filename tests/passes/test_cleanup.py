"""Dead code, common subexpressions, constant folding, decomposition, and the pass runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32, I64, DType
from braze.core.errors import UnsupportedOpError, VerifyError
from braze.core.trace import Trace
from braze.ir.graph import Graph, Node, TensorType
from braze.ir.verify import verify
from braze.ops.base import InferContext, Op
from braze.ops.evaluator import evaluate
from braze.ops.index.gather import Gather
from braze.ops.lowering import Decompose, Lowering
from braze.ops.move.concat_split import Split
from braze.ops.move.shape import Expand, Reshape, Shape, SizeTensor, Transpose
from braze.ops.pointwise.activation import Clip
from braze.ops.pointwise.cast import Cast
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.passes.base import PassContext, run_passes
from braze.passes.decompose import decompose
from braze.passes.fold.eliminate_common import eliminate_common
from braze.passes.fold.eliminate_dead import eliminate_dead
from braze.passes.fold.fold_constants import fold_constants
from braze.passes.separate_outputs import separate_outputs
from tests.passes.rule_checks import Net, ops

CTX = PassContext()


def test_dead_nodes_and_constants_go_and_inputs_stay() -> None:
    g = Net()
    x = g.tensor("x", 2)
    g.tensor("unused", 2)
    y = g.op1("neg", x)
    g.op2("add", g.op1("exp", x), 3.0)
    graph = g.finish([("y", y)])
    after = eliminate_dead(graph, CTX)
    verify(after, graph)
    assert ops(after) == ["Neg"] and not after.constants and len(after.inputs) == 2
    assert eliminate_dead(after, CTX) is after


def test_one_live_result_keeps_a_node() -> None:
    g = Net()
    a, b = g.add(Split(0, (1, 1)), g.tensor("x", 2))
    graph = g.finish([("b", b)])
    assert eliminate_dead(graph, CTX) is graph and a is not b


def test_equal_nodes_are_computed_once() -> None:
    g = Net()
    x = g.tensor("x", 2)
    a = g.op2("add", g.op1("exp", x), g.const([1.0, 2.0]))
    b = g.op2("add", g.op1("exp", x), g.const([1.0, 2.0]))
    graph = g.finish([("y", g.op2("mul", a, b)), ("a", a), ("b", b)])
    after = eliminate_common(graph, CTX)
    verify(after, graph)
    assert ops(after) == ["Exp", "Add", "Mul"] and len(after.constants) == 1
    assert after.outputs[1][1] is after.outputs[2][1]
    assert eliminate_common(after, CTX) is after


def test_nodes_that_differ_in_a_zero_sign_or_an_absent_operand_are_not_equal() -> None:
    g = Net()
    x = g.tensor("x", 2)
    a, b = g.add1(Clip(0.0, None), x), g.add1(Clip(-0.0, None), x)
    graph = g.finish([("a", a), ("b", b)])
    assert eliminate_common(graph, CTX) is graph
    g = Net()
    x, y = g.tensor("x", 2), g.tensor("y", 2)
    graph = g.finish([("a", g.op2("sub", x, y)), ("b", g.op2("sub", y, x))])
    assert eliminate_common(graph, CTX) is graph


def test_equal_bytes_of_different_types_are_not_equal() -> None:
    g = Net()
    bits = np.uint16([0x3F80, 0x4000])
    a = g.add1(Cast(F32), g.constant(bits.view(BF16.numpy), "a"))
    b = g.add1(Cast(F32), g.constant(bits, "b"))
    graph = g.finish([("a", a), ("b", b)])
    after = fold_constants(eliminate_common(graph, CTX), CTX)
    assert not after.nodes
    first, second = (after.constant(v) for _, v in after.outputs)
    np.testing.assert_array_equal(first, np.float32([1, 2]))
    np.testing.assert_array_equal(second, np.float32([0x3F80, 0x4000]))


def folded(g: Net, *outputs) -> Graph:
    graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    after = fold_constants(graph, CTX)
    verify(after, graph)
    return after


def test_folding_chains_in_every_type() -> None:
    g = Net()
    f32 = g.op2("mul", g.op1("neg", g.const([1.5, 2.0])), 2.0)
    f16 = g.op2("add", g.const([1.0, 2.0], "float16"), g.const(2048.0, "float16"))
    bf16 = g.add1(Cast(BF16), g.const([1.00390625, 3.0]))
    twice = g.add1(Binary("add"), bf16, bf16)
    ints = g.add1(Transpose((1, 0)), g.const([[1, 2]], "int64"))
    after = folded(g, f32, f16, twice, ints)
    assert not after.nodes
    a, b, c, d = (after.constant(v) for _, v in after.outputs)
    np.testing.assert_array_equal(a, np.float32([-3, -4]))
    np.testing.assert_array_equal(b, np.float16([2048, 2050]))  # 2049 ties to even
    np.testing.assert_array_equal(c, np.array([2, 6], BF16.numpy))  # 1.0039 ties to 1.0
    np.testing.assert_array_equal(d, [[1], [2]])
    assert after.outputs[2][1].dtype is BF16


def test_sizes_of_static_tensors_are_constants_and_of_dynamic_ones_are_not() -> None:
    g = Net()
    static, dynamic = g.tensor("s", 2, 3), g.tensor("d", sym("n"), 3)
    after = folded(g, g.add1(Shape(), static), g.add1(Shape(), dynamic), g.add1(
        SizeTensor((sym("n"), 4), (2,)))
    )  # fmt: skip
    assert ops(after) == ["Shape", "SizeTensor"]
    np.testing.assert_array_equal(after.constant(after.outputs[0][1]), [2, 3])


def test_folding_never_explodes() -> None:
    g = Net()
    big = g.add1(Expand((1000, 1000)), g.const([1.0]))
    small = g.add1(Expand((10, 10)), g.const([1.0]))
    weights = g.add1(Cast(F32), g.const(np.zeros((300, 300)), "float16"))
    assert ops(folded(g, big, small, weights)) == ["Expand"]


def test_wrong_data_is_left_for_run_time() -> None:
    g = Net()
    bad = g.add1(Gather(0), g.const([1.0, 2.0]), g.const([5], "int64"))
    assert ops(folded(g, bad)) == ["Gather"]


def test_partly_constant_nodes_stay() -> None:
    g = Net()
    graph = g.finish([("y", g.op2("add", g.tensor("x", 2), 1.0))])
    assert fold_constants(graph, CTX) is graph


@dataclass(frozen=True)
class Doubled(Op):
    """x + x, or itself for ever."""

    endless: bool = False

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        assert inputs[0] is not None
        return (inputs[0],)

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        def build(g, x):  # type: ignore[no-untyped-def]
            return (g.add1(self, x) if self.endless else g.add1(Binary("add"), x, x),)

        return Decompose(build)


def test_decompose_expands_nodes_that_feed_each_other() -> None:
    g = Net()
    x = g.tensor("x", 2)
    g.origins = ("A",)
    y = g.add1(Doubled(), x)
    g.origins = ("B",)
    graph = g.finish([("y", g.add1(Doubled(), y))])
    after = decompose(graph, CTX)
    verify(after, graph)
    assert ops(after) == ["Add", "Add"]
    assert [n.origins for n in after.nodes] == [("A",), ("B",)]
    got = evaluate(after, {"x": np.float32([1, 2])})["y"]
    np.testing.assert_array_equal(got, [4, 8])
    assert decompose(after, CTX) is after


def test_decompose_gives_up_on_endless_expansion() -> None:
    g = Net()
    graph = g.finish([("y", g.add1(Doubled(True), g.tensor("x", 2)))])
    with pytest.raises(UnsupportedOpError, match="expanding"):
        decompose(graph, CTX)


def test_run_passes_verifies_and_records() -> None:
    g = Net()
    x = g.tensor("x", 2)
    g.op1("exp", x)
    graph = g.finish([("y", g.op1("neg", x))])
    ctx = PassContext(trace=Trace(dump=True))
    after = run_passes(graph, (eliminate_dead, eliminate_common), ctx)
    assert ops(after) == ["Neg"]
    assert [name for name, _ in ctx.trace.stages] == ["import", "00_eliminate_dead"]
    assert {"kind": "pass", "name": "eliminate_dead", "nodes": 1, "nodes_before": 2} in (
        ctx.trace.decisions
    )
    assert set(ctx.trace.seconds) == {"passes.eliminate_dead", "passes.eliminate_common"}

    def break_types(graph: Graph, ctx: PassContext) -> Graph:
        g = Net()
        node = Node(Unary("exp"), (graph.inputs[0],), (g.tensor("w", 7),))
        return Graph(graph.inputs, (("y", node.output),), (node,), {}, graph.weights)

    with pytest.raises(VerifyError, match="after break_types"):
        run_passes(graph, (break_types,), ctx)


def test_reshape_of_symbols_is_kept_by_folding() -> None:
    g = Net()
    y = g.add1(Reshape((sym("n") * 3,)), g.tensor("x", sym("n"), 3, dtype=I64))
    assert ops(folded(g, y)) == ["Reshape"]


def test_outputs_that_share_a_value_get_their_own() -> None:
    g = Net()
    x, c = g.tensor("x", 2), g.const([1.0, 2.0])
    y = g.op1("neg", x)
    taken = g.op1("exp", x)
    graph = g.finish([("y", y), ("again", y), ("x_out", x), ("c", c), ("e", taken)])
    after = separate_outputs(graph, CTX)
    verify(after, graph)
    made = [v for _, v in after.outputs]
    assert len(set(made)) == 5 and all(v in after.producer for v in made)
    assert ops(after).count("Reshape") == 3
    feeds = {"x": np.float32([3, 4])}
    for name, array in evaluate(after, feeds).items():
        np.testing.assert_array_equal(array, evaluate(graph, feeds)[name])


def test_outputs_with_values_of_their_own_stay() -> None:
    g = Net()
    x = g.tensor("x", 2)
    graph = g.finish([("a", g.op1("neg", x)), ("b", g.op1("exp", x))])
    assert separate_outputs(graph, CTX) is graph


def test_a_separated_output_never_takes_a_name_that_is_there() -> None:
    g = Net()
    x = g.tensor("x", 2)
    g.tensor("x_as_y", 2)
    graph = g.finish([("y", x)])
    after = separate_outputs(graph, CTX)
    verify(after, graph)
    assert after.outputs[0][1].name == "x_as_y_1"


@dataclass(frozen=True)
class _Lies(Op):
    """An op whose reference does not give what it infers; folding must not hide that."""

    def infer(self, inputs: Any, ctx: Any) -> tuple[TensorType, ...]:
        return (inputs[0],)

    def reference(self, *inputs: Any) -> tuple[Any, ...]:
        return (inputs[0].astype(np.float64),)


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
def test_a_reference_of_another_type_is_not_converted(dtype: DType) -> None:
    g = Net()
    with pytest.raises(VerifyError, match="_Lies: its reference gives float64"):
        g.add1(_Lies(), g.constant(np.ones(2, dtype.numpy)))
    # too large to be evaluated while it is imported: the pass leaves the node, and it stays visible
    y = g.add1(_Lies(), g.constant(np.ones(3000, dtype.numpy)))
    assert len(fold_constants(g.finish([("y", y)]), CTX).nodes) == 1


def test_bfloat16_folds_while_it_is_imported() -> None:
    g = Net()
    x = g.constant(np.array([1.00390625, 3.0], np.float32))
    y = g.add1(Binary("add"), g.add1(Cast(BF16), x), g.add1(Cast(BF16), x))
    assert not g.nodes
    assert g.array(y).tolist() == [2.0, 6.0]  # 1.0039 ties to 1.0, and is rounded before the sum
