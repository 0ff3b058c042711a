"""channels_last and sink_transposes: what remains, and that nothing changes its value.

Results are compared in float64: only the order of additions inside a reduction may differ, so
1e-12 relative is far above rounding and far below any mistake.
"""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ir.verify import verify
from braze.ops.evaluator import evaluate
from braze.ops.move.concat_split import Concat, Split
from braze.ops.move.shape import Expand, Reshape, Tile, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.norm.channel_norm import GroupNorm, InstanceNorm
from braze.ops.norm.local_norm import Lrn
from braze.ops.norm.normalization import LayerNorm
from braze.ops.pointwise.activation import PRelu, Relu
from braze.ops.pointwise.elementwise import Binary
from braze.ops.pool.pool import AveragePool, MaxPool
from braze.ops.product.conv import Conv
from braze.ops.product.conv_transpose import ConvTranspose
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.reduce import ArgReduce, Reduce
from braze.ops.reduce.softmax import Softmax
from braze.ops.sample.resize import Resize
from braze.ops.writing.axes import reshape_groups
from braze.passes.base import PassContext, run_passes
from braze.passes.pipeline import LAYOUT
from braze.passes.shapes.simplify_shapes import simplify_shapes

RNG = np.random.default_rng(0)


class Net:
    """A small convolutional net under construction."""

    def __init__(self, shape=(2, 3, 8, 10)) -> None:
        self.g = GraphBuilder(bounds={"n": (1, 4)})
        self.x = self.g.input("x", TensorType(F32, shape))

    def const(self, *shape: int) -> Value:
        return self.g.constant(RNG.standard_normal(shape).astype(np.float32))

    def conv(self, x: Value, channels: int, kernel: int = 3, stride: int = 1) -> Value:
        w = self.const(channels, int(x.shape[1]), kernel, kernel)
        pad = kernel // 2
        y = self.g.add1(Conv((stride,) * 2, (1, 1), (pad,) * 4), x, w)
        return self.g.add1(Binary("add"), y, self.const(channels, 1, 1))

    def relu(self, x: Value) -> Value:
        return self.g.add1(Relu(), x)


def transposes(graph: Graph) -> list[tuple[int, ...]]:
    return [n.op.perm for n in graph.nodes if isinstance(n.op, Transpose)]


def check(net: Net, *outputs: Value, shape=(2, 3, 8, 10), left: int) -> Graph:
    graph = net.g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    ctx = PassContext()
    after = run_passes(graph, LAYOUT, ctx)
    verify(after, graph)
    x = {"x": RNG.standard_normal(shape).astype(np.float32)}
    want, got = (evaluate(g, x, float64=True) for g in (graph, after))
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-12, atol=1e-12)
    simple = simplify_shapes(after, ctx)
    verify(simple, after)
    assert len(transposes(simple)) == left, [str(n.op) for n in simple.nodes]
    assert all(n.op.layout == "NHWC" for n in after.nodes if isinstance(n.op, Conv))
    return simple


def test_residual_block_keeps_two_transposes() -> None:
    net = Net()
    a = net.relu(net.conv(net.x, 4))
    b = net.conv(net.relu(net.conv(a, 4)), 4)
    y = net.relu(net.g.add1(Binary("add"), a, b))
    check(net, y, left=2)


def test_classifier_head_needs_no_second_transpose() -> None:
    net = Net()
    a = net.g.add1(MaxPool((3, 3), (2, 2), (1, 1), (1, 1, 1, 1)), net.relu(net.conv(net.x, 4)))
    mean = net.g.add1(Reduce("mean", (2, 3), True), a)
    check(net, net.g.add1(Reshape((2, 4)), mean), left=1)


def test_reduce_without_kept_axes() -> None:
    net = Net()
    a = net.conv(net.x, 4)
    check(net, net.g.add1(Reduce("sum", (2, 3), False), a), left=1)
    net = Net()
    a = net.conv(net.x, 4)
    check(net, net.g.add1(Reduce("max", (1,), False), a), left=1)
    net = Net()
    a = net.conv(net.x, 4)
    check(net, net.g.add1(Reduce("mean", (2,), False), a), left=2)


def test_squeeze_and_excite() -> None:
    net = Net()
    a = net.conv(net.x, 4)
    gate = net.g.add1(Reduce("mean", (2, 3), True), a)
    gate = net.conv(net.relu(net.conv(gate, 2, 1)), 4, 1)
    y = net.conv(net.g.add1(Binary("mul"), a, gate), 4)
    check(net, net.g.add1(Reduce("mean", (2, 3), False), y), left=1)


def test_gate_that_comes_from_a_matrix_costs_no_transpose() -> None:
    net = Net()
    a = net.conv(net.x, 4)
    gate = net.g.input("gate", TensorType(F32, (2, 4)))
    net.g.inputs.pop()
    gate = net.g.add1(Reduce("mean", (2, 3), False), a)
    gate = net.g.add1(Reshape((2, 4, 1, 1)), net.relu(gate))
    y = net.conv(net.g.add1(Binary("mul"), a, gate), 4)
    check(net, net.g.add1(Reduce("mean", (2, 3), False), y), left=1)


def test_concat_slice_pad_split_softmax() -> None:
    net = Net()
    a, b = net.conv(net.x, 4), net.conv(net.x, 2)
    c = net.g.add1(Concat(1), a, b, net.const(2, 2, 8, 10))
    c = net.g.add1(Pad("constant", (0, 1, 2, 3), (0, 0, -1, 0), 1.5), c)
    c = net.g.add1(Slice((0, 8, 1, 0), (2, 4, 3, 13), (1, -2, 2, 1)), c)
    p, q = net.g.add(Split(1, (1, 3)), c)
    p = net.g.add1(Softmax(1), net.conv(p, 3))
    check(net, net.conv(net.g.add1(Binary("add"), p, q), 5), left=2)


def test_tokens_and_back() -> None:
    """[N,C,H,W] -> [N,C,HW] -> [N,HW,C] and back are free once the data is channels last."""
    net = Net()
    a = net.conv(net.x, 4)
    t = net.g.add1(Transpose((0, 2, 1)), net.g.add1(Reshape((2, 4, 80)), a))
    t = net.g.add1(Softmax(2), t)
    back = net.g.add1(Reshape((2, 4, 8, 10)), net.g.add1(Transpose((0, 2, 1)), t))
    check(net, net.conv(back, 3), t, left=2)


def test_layer_norm_between_permutes() -> None:
    """A block of depthwise convolution, norm over channels, matrix products and residual."""
    net = Net()
    a = net.conv(net.x, 4)
    t = net.g.add1(Transpose((0, 2, 3, 1)), net.conv(a, 4))
    t = net.g.add1(LayerNorm(3, 1e-6), t, net.const(4), net.const(4))
    t = net.g.add1(MatMul(), t, net.const(4, 4))
    y = net.g.add1(Binary("add"), net.g.add1(Transpose((0, 3, 1, 2)), t), a)
    check(net, y, left=2)


def test_ops_with_a_layout_follow_their_operand() -> None:
    net = Net()
    a = net.conv(net.x, 4)
    a = net.g.add1(InstanceNorm(1e-5), a, net.const(4), net.const(4))
    a = net.g.add1(GroupNorm(2, 1e-5), a, net.const(4), net.const(4))
    a = net.g.add1(PRelu(), a, net.const(4, 1, 1))
    a = net.g.add1(AveragePool((3, 2), (2, 2), (1, 1), (1, 0, 1, 1), True), a)
    a = net.g.add1(Lrn(3, 1e-2, 0.75, 1.0), a)
    w = net.const(4, 3, 2, 2)
    a = net.g.add1(ConvTranspose((2, 2), (1, 1), (0, 0, 0, 0), (0, 0)), a, w)
    graph = check(net, a, left=2)
    assert {n.op.layout for n in graph.nodes if hasattr(n.op, "layout")} == {"NHWC"}


def test_norms_before_any_convolution_stay_channels_first() -> None:
    net = Net()
    a = net.g.add1(InstanceNorm(1e-5), net.x, net.const(3), net.const(3))
    graph = check(net, net.conv(a, 4), left=2)
    assert graph.nodes[0].op.layout == "NCHW"


def test_resize_tile_expand_and_arg_reduce() -> None:
    net = Net()
    a = net.conv(net.x, 4)
    up = Resize("linear", (2, 4, 16, 15), (None, None, 2.0, 1.5))
    a = net.g.add1(Tile((1, 2, 1, 1)), net.g.add1(up, a))
    mean = net.g.add1(Reduce("mean", (2, 3), True), a)
    a = net.conv(net.g.add1(Binary("add"), a, net.g.add1(Expand((2, 8, 16, 15)), mean)), 4)
    best = net.g.add1(ArgReduce("max", 1, True, False), a)
    y = net.g.add1(Reshape((2, 16, 15)), best)
    z = net.g.add1(ArgReduce("min", 1, False, False), a)
    check(net, y, z, left=1)


def test_an_operand_of_the_same_size_is_not_transposed_for_it() -> None:
    net = Net()
    a = net.conv(net.x, 3)
    y = net.relu(net.g.add1(Binary("add"), a, net.x))
    graph = check(net, y, left=2)
    assert any(isinstance(n.op, Binary) and n.output.shape == (2, 3, 8, 10) for n in graph.nodes)


def test_flatten_of_channels_and_pixels_stays_in_its_order() -> None:
    net = Net()
    check(net, net.g.add1(Reshape((2, 320)), net.conv(net.x, 4)), left=2)


def test_symbolic_batch() -> None:
    net = Net((sym("n"), 3, 8, 10))
    a = net.relu(net.conv(net.x, 4))
    y = net.g.add1(Reshape((sym("n"), 4, 80)), a)
    check(net, net.g.add1(Reduce("mean", (2,), False), y), left=1)


def test_convolution_in_one_dimension() -> None:
    net = Net((2, 3, 9))
    w = net.const(4, 3, 3)
    a = net.g.add1(Conv((1,), (1,), (1, 1)), net.x, w)
    check(net, net.g.add1(Reduce("mean", (2,), True), a), shape=(2, 3, 9), left=1)


@pytest.mark.parametrize(
    ("a", "b", "groups"),
    [
        ((2, 3, 4), (2, 12), [([0], [0]), ([1, 2], [1])]),
        ((2, 12), (2, 3, 4), [([0], [0]), ([1], [1, 2])]),
        ((4, 6), (6, 4), [([0, 1], [0, 1])]),
        ((2, 1, 3), (2, 3), [([0], [0]), ([1], []), ([2], [1])]),
        ((sym("n"), 8, 5), (sym("n"), 40), [([0], [0]), ([1, 2], [1])]),
        ((sym("n") * 2, 5), (sym("n"), 10), [([0, 1], [0, 1])]),
        ((2, 0), (0, 2), None),
        ((sym("n"), sym("m")), (sym("m"), sym("n")), None),
    ],
)
def test_reshape_groups(a, b, groups) -> None:
    assert reshape_groups(a, b) == groups
