"""What kernels cannot do without, counted by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F16, F32, I64, DType
from braze.core.trace import Trace
from braze.expr.loops import TensorSpec
from braze.expr.scalar import axis, hole, load
from braze.fusion.kernel import AnchorKernel
from braze.fusion.lower import lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.work import Work, reads, work_of
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.abilities import UNLIMITED
from braze.ops.index.gather import Gather
from braze.ops.move.slice_pad import Slice
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.attention import FusedAttention
from braze.ops.product.conv import Conv
from braze.ops.product.matmul import MatMul
from braze.ops.reduce.softmax import Softmax

N = sym("n")


class Net(GraphBuilder):
    def __init__(self) -> None:
        super().__init__(bounds={"n": (1, 8)})

    def tensor(self, name: str, *shape: object, dtype: DType = F32) -> Value:
        return self.input(name, TensorType(dtype, tuple(shape)))  # type: ignore[arg-type]


def works(g: Net, y: Value) -> list[Work]:
    """Of every kernel of a graph, for n = 2."""
    graph, trace = g.finish([("y", y)]), Trace()
    lowered = lower_nodes(graph, UNLIMITED, trace)
    parts = partition(graph, lowered, trace)
    return [work_of(low, {"n": 2}) for low in lower_all(graph, lowered, parts)]


def test_a_product_with_its_epilogue() -> None:
    g = Net()
    x, w, z = g.tensor("x", N, 3), g.tensor("w", 3, 5), g.tensor("z", N, 5)
    y = g.add1(Binary("add"), g.add1(MatMul(), x, w), z)
    assert works(g, y) == [Work(2 * 2 * 3 * 5, 4 * (2 * 3 + 3 * 5 + 2 * 5 + 2 * 5))]


@dataclass(frozen=True)
class Summed:
    """A spec that names no operand."""

    operands: ClassVar[dict[str, Any]] = {}
    out_shape: ClassVar[tuple[Any, ...]] = (N, 6)


def test_what_is_not_among_the_operands_is_read_as_a_whole() -> None:
    """And what the epilogue loads alone counts as often as it does so."""
    x, z = TensorSpec(F32, (N, 6)), TensorSpec(F32, (6,))
    spec: Any = Summed()
    for inputs, epilogue, counts in (
        ((x,), hole(0, F32), [12]),
        ((x, z), hole(0, F32), [12, 6]),
        ((x, z), load(1, (axis(1),), F32), [12, 12]),
    ):
        assert reads(AnchorKernel(spec, inputs, x, epilogue), {"n": 2}) == counts


@pytest.mark.parametrize(("kernel", "step", "read"), [(3, 1, 8), (1, 2, 4), (2, 2, 8)])
def test_a_convolution_reads_the_pixels_under_its_window(kernel: int, step: int, read: int) -> None:
    g = Net()
    pad = kernel // 2 if step == 1 else 0
    w = g.constant(np.ones((16, 4, kernel, kernel), np.float16))
    x = g.tensor("x", N, 8, 8, 4, dtype=F16)
    y = g.add1(Conv((step,) * 2, (1,) * 2, (pad,) * 4, layout="NHWC"), x, w)
    out, taps = 2 * (8 // step) ** 2 * 16, kernel * kernel * 4
    assert works(g, y) == [Work(2 * out * taps, 2 * (2 * read * read * 4 + 16 * taps + out))]


def test_a_table_counts_as_far_as_it_is_read() -> None:
    g = Net()
    y = g.add1(Gather(0), g.tensor("t", 1000, 4), g.tensor("i", N, dtype=I64))
    assert works(g, y) == [Work(0, 4 * 8 + 8 * 2 + 4 * 8)]


def test_a_slice_counts_what_it_takes() -> None:
    g = Net()
    x = g.tensor("x", N, 100)
    y = g.add1(Unary("neg"), g.add1(Slice((0, 0), (N, 5), (1, 1)), x))
    assert works(g, y) == [Work(0, 4 * (10 + 10))]


def test_a_row_that_is_read_twice_counts_once() -> None:
    g = Net()
    assert works(g, g.add1(Softmax(1), g.tensor("x", N, 7))) == [Work(0, 4 * (14 + 14))]


def test_attention_of_one_tensor_reads_it_once() -> None:
    g = Net()
    x, mask = g.tensor("x", N, 4, 6, 8), g.tensor("m", 1, 1, 6, 6)
    y = g.add1(FusedAttention(1.0), x, x, x, mask)
    size = 2 * 4 * 6 * 8
    assert works(g, y) == [Work(2 * 2 * 4 * 6 * 6 * 16, 4 * (size + 36 + size))]
