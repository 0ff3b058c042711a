"""Views that anchors read in place, and those that need memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32
from braze.core.target import PREFERENCES, Preferences
from braze.core.trace import Trace
from braze.expr.loops import TensorSpec
from braze.fusion.lower import LoweredRegion, lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.abilities import UNLIMITED, Abilities
from braze.ops.evaluator import evaluate
from braze.ops.lowering import AnchorSpec
from braze.ops.move.shape import Expand, Reshape, Transpose
from braze.ops.move.slice_pad import Pad, Slice
from braze.ops.pointwise.activation import Relu
from braze.ops.product.attention import FusedAttention
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.softmax import Softmax
from tests.fusion.run import run_kernels

B, S = sym("b"), sym("s")
SIZES = {"b": 2, "s": 5}


class Net(GraphBuilder):
    def data(self, *shape: Any) -> Value:
        return self.input(f"x{len(self.inputs)}", TensorType(F32, shape))

    def weight(self, *shape: int) -> Value:
        return self.constant(np.random.default_rng(1).standard_normal(shape).astype("f4"))

    def cut(self, x: Value, axis: int, start: int, size: Any, step: int = 1) -> Value:
        starts, sizes, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
        starts[axis], sizes[axis], steps[axis] = start, size, step
        return self.add1(Slice(tuple(starts), tuple(sizes), tuple(steps)), x)

    def shaped(self, x: Value, *shape: Any) -> Value:
        return self.add1(Reshape(shape), x)


def kernels(g: Net, *outputs: Value, backend: Abilities = UNLIMITED) -> tuple[LoweredRegion, ...]:
    """The kernels of the graph, which give what it means."""
    graph: Graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    rng = np.random.default_rng(0)
    feed = {}
    for v in graph.inputs:
        shape = [d if isinstance(d, int) else SIZES[str(d)] for d in v.shape]
        feed[v.name] = rng.standard_normal(shape).astype(np.float32)
    want, got = evaluate(graph, feed), run_kernels(graph, feed)
    for name, w in want.items():
        np.testing.assert_allclose(got[name], w, rtol=1e-5, atol=1e-5)
    lowered = lower_nodes(graph)
    return lower_all(graph, lowered, partition(graph, lowered, Trace(), backend=backend))


def packed(g: Net, x: Value, how: str) -> list[Value]:
    """[B, S, 72] as queries, keys and values [B, S, 3, 8]."""
    if how == "columns":
        return [g.shaped(g.cut(x, 2, 24 * i, 24), B, S, 3, 8) for i in range(3)]
    if how == "per head":  # q, k and v of a head side by side
        y = g.shaped(x, B, S, 3, 3, 8)
        return [g.shaped(g.cut(y, 3, i, 1), B, S, 3, 8) for i in range(3)]
    y = g.add1(Transpose((2, 0, 1, 3, 4)), g.shaped(x, B, S, 3, 3, 8))
    return [g.shaped(g.cut(y, 0, i, 1), B, S, 3, 8) for i in range(3)]


@pytest.mark.parametrize("how", ["columns", "per head", "first"])
@pytest.mark.parametrize("turned", [False, True])
def test_packed_attention(how: str, turned: bool) -> None:
    g = Net()
    q, k, v = packed(g, g.data(B, S, 72), how)
    layout = "BSHD"
    if turned:
        q = g.add1(Transpose((0, 2, 1, 3)), q)
        layout = "BHSD"
    op = FusedAttention(0.5, False, layout, "BSHD", "BSHD", "BSHD")
    (kernel,) = kernels(g, g.add1(op, q, k, v))
    assert len(set(kernel.inputs)) == 1


def test_one_token_of_a_sequence() -> None:
    g = Net()
    x = g.shaped(g.cut(g.data(B, S, 16), 1, 0, 1), B, 16)
    (kernel,) = kernels(g, g.add1(Relu(), g.add1(MatMul(), x, g.weight(16, 9))))
    assert [str(d) for d in kernel.kernel.inputs[0].shape] == ["b", "s", "16"]


def test_both_factors() -> None:
    g = Net()
    x = g.data(B, 4, S, 24)
    left, right = g.cut(x, 3, 0, 8), g.add1(Transpose((0, 1, 3, 2)), g.cut(x, 3, 16, 8))
    assert len(kernels(g, g.add1(MatMul(), left, right))) == 2  # columns would lie apart
    g = Net()
    x = g.data(B, 8, 24)
    (kernel,) = kernels(g, g.add1(MatMul(), g.cut(x, 2, 0, 8), g.cut(x, 2, 8, 16)))
    assert kernel.inputs[0] is kernel.inputs[1]


def test_channels_of_pixels() -> None:
    g = Net()
    x = g.cut(g.data(B, 6, 5, 12), 3, 4, 6)
    conv = Conv((1, 1), (1, 1), (1, 1, 1, 1), 1, "NHWC")
    assert len(kernels(g, g.add1(conv, x, g.weight(7, 6, 3, 3)))) == 1


def test_a_picture_is_read_channels_first() -> None:
    """So few channels are not worth being side by side; more are."""
    for channels, count in ((3, 1), (8, 2)):
        g = Net()
        x = g.add1(Transpose((0, 2, 3, 1)), g.data(B, channels, 6, 5))
        conv = Conv((1, 1), (1, 1), (0,) * 4, 1, "NHWC")
        assert len(kernels(g, g.add1(conv, x, g.weight(7, channels, 3, 3)))) == count


def test_other_readers() -> None:
    """A loop nest computes the slice for itself; an output is stored, and read from there."""
    g = Net()
    x = g.cut(g.data(B, S, 16), 2, 4, 8)
    y = g.add1(MatMul(), x, g.weight(8, 9))
    assert len(kernels(g, y, g.add1(Softmax(2), x))) == 2
    g = Net()
    x = g.cut(g.data(B, S, 16), 2, 4, 8)
    found = kernels(g, g.add1(MatMul(), x, g.weight(8, 9)), x)
    assert len(found) == 2 and x in found[1].inputs


def _backwards(g: Net) -> Value:
    return g.cut(g.data(B, 6, 8), 1, 5, 6, -1)


def _padded(g: Net) -> Value:
    return g.add1(Pad("constant", (0, 1, 0), (0, 0, 0)), g.data(B, 5, 8))


def _repeated(g: Net) -> Value:
    return g.add1(Expand((2, 6, 8)), g.data(1, 6, 8))


def _columns(g: Net) -> Value:
    return g.add1(Transpose((0, 2, 1)), g.data(B, 8, 6))


def _steps_in_rows(g: Net) -> Value:
    return g.cut(g.data(B, 6, 16), 2, 0, 8, 2)


def _rows_of_slices(g: Net) -> Value:
    return g.shaped(g.cut(g.data(B, 12, 8), 2, 0, 4), B, 6, 8)


def _computed(g: Net) -> Value:
    return g.add1(Relu(), g.data(B, 6, 8))


@pytest.mark.parametrize(
    "make",
    [_backwards, _padded, _repeated, _columns, _steps_in_rows, _rows_of_slices, _computed],
    ids=lambda f: f.__name__.strip("_"),
)
def test_near_misses(make: Any) -> None:
    g = Net()
    assert len(kernels(g, g.add1(MatMul(), make(g), g.weight(8, 9)))) == 2


@dataclass(frozen=True)
class NoOffsets:
    """A backend whose templates read operands from their first element on."""

    preferences: Preferences = PREFERENCES

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        begins = all(operand.offset == 0 for operand, _ in spec.operands.values())
        return None if begins else "an operand begins elsewhere"


def test_the_backend_is_asked() -> None:
    g = Net()
    x = g.data(B, S, 16)
    first, second = (g.add1(MatMul(), g.cut(x, 2, at, 8), g.weight(8, 9)) for at in (0, 8))
    assert len(kernels(g, first, second, backend=NoOffsets())) == 3


def test_without_fusion_every_view_is_stored() -> None:
    g = Net()
    y = g.add1(MatMul(), g.cut(g.data(2, 3, 16), 2, 0, 8), g.weight(8, 9))
    graph = g.finish([("y", y)])
    lowered = lower_nodes(graph)
    assert len(partition(graph, lowered, Trace(), fuse=False).regions) == 2
