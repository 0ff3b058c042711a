"""Products of one tensor become one where no part then costs a copy; sums keep their bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F16, F32, I8, DType
from braze.core.target import Preferences
from braze.core.trace import Trace
from braze.fusion.lower import lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.ir.graph import Graph, Value
from braze.ir.verify import verify
from braze.ops.abilities import Unlimited
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.pointwise.activation import Gelu, Relu
from braze.ops.product.attention import FusedAttention
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.softmax import Softmax
from braze.passes.base import PassContext
from braze.passes.rules.merge_siblings import merge_siblings
from tests.fusion.run import run_kernels
from tests.passes.rule_checks import Net, ops

N, S, H, D = sym("n"), 3, 2, 4
E, K = H * D, 6
LIKES = PassContext(backend=Unlimited(Preferences(joint_products=True)))


def merged(g: Net, *outputs: Value, context: PassContext = LIKES) -> Graph:
    """The graph after the pass; its kernels give the same bits as those of the graph before."""
    graph = g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])
    after = merge_siblings(graph, context)
    verify(after, graph)
    rng = np.random.default_rng(0)
    feed = {}
    for v in graph.inputs:
        shape = [d if isinstance(d, int) else 2 for d in v.shape]
        feed[v.name] = (rng.standard_normal(shape) * 3).astype(v.dtype.numpy)
    want, got = run_kernels(graph, feed), run_kernels(after, feed)
    for name, w in want.items():
        np.testing.assert_array_equal(got[name].view(f"u{w.itemsize}"), w.view(f"u{w.itemsize}"))
    assert kernels(after) <= kernels(graph)
    return after


def kernels(graph: Graph) -> int:
    low = lower_nodes(graph)
    return len(lower_all(graph, low, partition(graph, low, Trace())))


def joined(graph: Graph, op: str = "MatMul") -> list[int]:
    """Columns of each product in order."""
    return [n.output.shape[-1] for n in graph.nodes if n.op.name == op]  # type: ignore[misc]


def project(g: Net, x: Value, columns: int = E, bias: str = "") -> Value:
    y = g.add1(MatMul(), x, g.random(x.shape[-1], columns, dtype=x.dtype.name))  # type: ignore[arg-type]
    if bias:
        b = g.random(columns, dtype=x.dtype.name)
        y = g.op2("add", b, y) if bias == "left" else g.op2("add", y, b)
    return y


def attend(g: Net, *parts: Value, mask: Value | None = None) -> Value:
    q, k, v = (g.add1(Reshape((*p.shape[:-1], H, D)), p) for p in parts)
    op = FusedAttention(0.5, False, *["BSHD"] * 4)
    return g.add1(op, q, k, v, *([] if mask is None else [mask]))


def read(g: Net, v: Value) -> Value:
    """A reader that is no epilogue: a row's sum needs all of it."""
    return g.add1(Softmax(v.type.rank - 1), v)


@pytest.mark.parametrize("bias", ["", "left", "right", "some"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", [S, sym("n")])
def test_attention_reads_its_projections_in_place(bias: str, masked: bool, size: Any) -> None:
    g = Net()
    x = g.tensor("x", 2, size, K)
    mask = g.tensor("mask", 1, 1, 1, size) if masked else None
    each = ["left", "", "right"] if bias == "some" else [bias] * 3
    after = merged(g, attend(g, *(project(g, x, bias=b) for b in each), mask=mask))
    assert joined(after) == [3 * E]
    assert kernels(after) == 2


@pytest.mark.parametrize("shape", [(K,), (S, K), (N, S, K), (2, N, 1, K)])
@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
def test_every_rank_and_unequal_columns(shape: tuple[Any, ...], dtype: DType) -> None:
    g = Net()
    x = g.tensor("x", *shape, dtype=dtype)
    parts = [read(g, project(g, x, n, "right")) for n in (8, 16, 24)]
    assert joined(merged(g, *parts)) == [48]


def test_integers() -> None:
    g = Net()
    x = g.tensor("x", N, K, dtype=I8)
    parts = [g.add1(Transpose((1, 0)), project(g, x, n)) for n in (16, 32)]
    assert joined(merged(g, *parts)) == [48]


def test_products_read_parts_as_rows() -> None:
    g = Net()
    x = g.tensor("x", N, S, K)
    h = [g.add1(Gelu("none"), project(g, x, n, "right")) for n in (8, 16)]
    after = merged(g, *(project(g, v, 5) for v in h))
    assert joined(after) == [24, 5, 5]
    assert ops(after).count("Gelu") == 1
    assert kernels(after) == 3


def convolve(
    g: Net, x: Value, columns: int, size: int = 1, stride: int = 1, groups: int = 1
) -> Value:
    window = ((stride, stride), (1, 1), (size // 2,) * 4)
    w = g.random(columns, x.shape[-1] // groups, size, size)  # type: ignore[operator]
    y = g.add1(Conv(*window, groups, "NHWC"), x, w)
    return g.op2("add", y, g.random(columns))


@pytest.mark.parametrize("size", [1, 3])
def test_convolutions_read_parts_as_channels(size: int) -> None:
    """The branches of an inception block; the last is a window over each channel."""
    g = Net()
    x = g.tensor("x", N, 5, 4, K)
    a, b, c = (g.add1(Relu(), convolve(g, x, n, size, 2)) for n in (8, 16, 4))
    after = merged(g, convolve(g, a, 5, 3), convolve(g, b, 7), convolve(g, c, 4, 3, 1, 4))
    assert joined(after, "Conv") == [28, 5, 7, 4]
    assert kernels(after) == 4


def test_a_concat_reads_parts() -> None:
    g = Net()
    x = g.tensor("x", N, 5, 4, K)
    a, b = (g.add1(Relu(), convolve(g, x, n)) for n in (8, 16))
    assert joined(merged(g, g.add1(Concat(3), a, g.tensor("z", N, 5, 4, 3), b)), "Conv") == [24]


def test_scalars_of_an_activation_are_compared() -> None:
    g = Net()
    x = g.tensor("x", N, K)
    scales = (0.5, 0.5, 0.25)
    parts = [read(g, g.op2("mul", project(g, x), f)) for f in scales]
    assert joined(merged(g, *parts)) == [2 * E, E]


def test_parts_of_parts() -> None:
    g = Net()
    x = g.tensor("x", N, K)
    a, b = project(g, x), project(g, x)
    inner = [read(g, project(g, a)) for _ in range(2)]
    after = merged(g, read(g, b), *inner)
    assert joined(after) == [2 * E, 2 * E]


def test_what_cannot_take_part_leaves_the_others_together() -> None:
    g = Net()
    x = g.tensor("x", N, K)
    a, b, c = (project(g, x) for _ in range(3))
    after = merged(g, read(g, a), b, read(g, c))
    assert sorted(joined(after)) == [E, 2 * E]


def test_few_parts_at_once() -> None:
    """The projections of an encoder's result for many layers of a decoder."""
    g = Net()
    x = g.tensor("x", N, K)
    assert joined(merged(g, *(read(g, project(g, x)) for _ in range(9)))) == [4 * E, 4 * E, E]


def _two(g: Net, x: Value) -> tuple[Value, Value]:
    return project(g, x), project(g, x)


def _other_input(g: Net, x: Value) -> list[Value]:
    other = g.tensor("z", N, K)
    return [read(g, project(g, v)) for v in (x, other)]


def _is_output(g: Net, x: Value) -> list[Value]:
    a, b = _two(g, x)
    return [read(g, a), b]


def _reshape_is_output(g: Net, x: Value) -> list[Value]:
    a, b = _two(g, x)
    return [read(g, a), g.add1(Reshape((N, H, D)), b)]


def _other_activation(g: Net, x: Value) -> list[Value]:
    a, b = _two(g, x)
    return [read(g, g.add1(Relu(), a)), read(g, g.add1(Gelu("none"), b))]


def _residual(g: Net, x: Value) -> list[Value]:
    a, b = _two(g, x)
    return [read(g, a), read(g, g.op2("add", b, g.tensor("r", N, E)))]


def _gate(g: Net, x: Value) -> list[Value]:
    """One kernel for each factor, the second with the product: as many as with one wide product,
    which would store and read a tensor more."""
    a, b = _two(g, x)
    return [g.op2("mul", g.add1(Gelu("none"), a), b)]


def _weight_read_twice(g: Net, x: Value) -> list[Value]:
    w = g.random(K, E)
    parts = [g.add1(MatMul(), x, w), project(g, x)]
    return [*(read(g, p) for p in parts), g.add1(MatMul(), g.tensor("z", 5, K), w)]


def _no_constant(g: Net, x: Value) -> list[Value]:
    w = g.tensor("w", K, E)
    return [read(g, p) for p in (g.add1(MatMul(), x, w), project(g, x))]


def _rows_and_columns_joined(g: Net, x: Value) -> list[Value]:
    a, b = _two(g, x)
    return [read(g, g.add1(Reshape((N * E,)), a)), read(g, b)]


def _read_by_data(g: Net, x: Value) -> list[Value]:
    a, b = _two(g, x)
    i = g.const([1, 0], "int64")
    return [read(g, a), g.add1(Gather(1), b, i)]


def _narrow_operand(g: Net, x: Value) -> list[Value]:
    """Rows of a product's operand would begin anywhere."""
    return [project(g, project(g, x, 3), 5), project(g, project(g, x, 6), 5)]


def _other_window(g: Net, x: Value) -> list[Value]:
    x = g.tensor("image", N, 5, 5, K)
    parts = [convolve(g, x, 8), convolve(g, x, 8, 3), convolve(g, x, 8, 1, 2)]
    return [read(g, p) for p in parts]


def _groups(g: Net, x: Value) -> list[Value]:
    x = g.tensor("image", N, 5, 5, K)
    return [read(g, convolve(g, x, 8, groups=2)) for _ in range(2)]


def _right_operand_turned(g: Net, x: Value) -> list[Value]:
    """Columns that a product reads side by side would lie apart."""
    a, b = _two(g, x)
    y = g.tensor("z", 4, E)
    return [read(g, a), g.add1(MatMul(), y, g.add1(Transpose((1, 0)), b))]


MISSES: tuple[Callable[[Net, Value], list[Value]], ...] = (
    _other_input, _is_output, _reshape_is_output, _other_activation, _residual, _gate,
    _other_window, _groups, _right_operand_turned, _weight_read_twice, _no_constant,
    _rows_and_columns_joined, _read_by_data, _narrow_operand,
)  # fmt: skip


@pytest.mark.parametrize("case", MISSES, ids=lambda f: f.__name__.strip("_"))
def test_near_misses(case: Callable[[Net, Value], list[Value]]) -> None:
    g = Net()
    x = g.tensor("x", N, K)
    outputs = case(g, x)
    graph_ops = sorted(n.op.name for n in g.nodes)
    assert sorted(ops(merged(g, *outputs))) == graph_ops


def gated(g: Net, rows: Any, both: bool = True) -> Value:
    """relu(x @ w0) * (x @ w1), or each with a residual of its own."""
    x = g.tensor("x", rows, K)
    gate, up = (project(g, x) for _ in range(2))
    if both:
        return g.op2("mul", g.add1(Relu(), gate), up)
    sums = [g.op2("add", y, g.tensor(f"r{i}", rows, E)) for i, y in enumerate((gate, up))]
    return g.op2("mul", g.add1(Softmax(1), sums[0]), sums[1])


@pytest.mark.parametrize(
    ("rows", "expected"), [(1, [2 * E]), (16, [2 * E]), (17, [E, E]), (N, [E, E])]
)
def test_both_sides_of_a_gate_are_one_product_of_few_rows(rows: Any, expected: list[int]) -> None:
    g = Net()
    assert joined(merged(g, gated(g, rows))) == expected


def test_residuals_stay_with_their_products_of_few_rows() -> None:
    g = Net()
    assert joined(merged(g, gated(g, 1, both=False))) == [E, E]
