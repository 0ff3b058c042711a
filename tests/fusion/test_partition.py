"""Regions: what is fused where, and what must not be."""

from __future__ import annotations

import numpy as np
import pytest

from braze.core.dims import sym
from braze.core.dtypes import F32, I8
from braze.core.trace import Trace
from braze.fusion.partition import lower_nodes, partition
from braze.fusion.region import Partition
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, TensorType, Value
from braze.ops.move.shape import Reshape, Transpose
from braze.ops.pointwise.activation import Gelu, Relu, Sigmoid
from braze.ops.pointwise.elementwise import Binary, Unary
from braze.ops.product.matmul import MatMul
from braze.ops.quant.linear import Dequantize, Quantize
from braze.ops.reduce.reduce import Reduce


def split(graph: Graph, **options: object) -> Partition:
    return partition(graph, lower_nodes(graph), Trace(), **options)  # type: ignore[arg-type]


def labels(parts: Partition) -> list[str]:
    return [r.label for r in parts.regions]


class Net:
    """A builder with a few shorthands."""

    def __init__(self, *shape: object) -> None:
        self.g = GraphBuilder()
        self.x = self.g.input("x", TensorType(F32, shape))  # type: ignore[arg-type]

    def weight(self, *shape: int) -> Value:
        return self.g.constant(
            np.random.default_rng(len(self.g.nodes)).normal(size=shape).astype("f4")
        )

    def finish(self, *outputs: Value) -> Graph:
        return self.g.finish([(f"y{i}", v) for i, v in enumerate(outputs)])


def test_pointwise_chain_is_one_region() -> None:
    n = Net(4, 8)
    y = n.g.add1(Relu(), n.g.add1(Binary("add"), n.g.add1(Unary("exp"), n.x), n.x))
    assert len(split(n.finish(y)).regions) == 1


def test_shared_value_inside_one_kernel_is_not_stored() -> None:
    n = Net(4, 8)
    e = n.g.add1(Unary("exp"), n.x)
    y = n.g.add1(Binary("mul"), e, n.g.add1(Sigmoid(), e))
    assert len(split(n.finish(y)).regions) == 1


def test_value_of_two_kernels_is_stored_once() -> None:
    n = Net(4096, 64)
    e = n.g.add1(Unary("exp"), n.x)
    a, b = n.g.add1(Relu(), e), n.g.add1(Unary("sqrt"), e)
    parts = split(n.finish(a, b))
    assert sorted(labels(parts)) == ["Exp", "Relu", "Sqrt"]


def test_graph_output_inside_a_chain_is_stored() -> None:
    n = Net(4, 8)
    e = n.g.add1(Unary("exp"), n.x)
    assert len(split(n.finish(e, n.g.add1(Relu(), e))).regions) == 2


def test_matmul_takes_bias_activation_and_residual() -> None:
    n = Net(2, 16, 32)
    h = n.g.add1(Binary("add"), n.g.add1(MatMul(), n.x, n.weight(32, 32)), n.weight(32))
    y = n.g.add1(Binary("add"), n.g.add1(Gelu(), h), n.x)
    parts = split(n.finish(y))
    assert labels(parts) == ["MatMul+Add+Gelu+Add"]


def test_epilogue_refused_when_the_product_has_another_user() -> None:
    n = Net(16, 32)
    m = n.g.add1(MatMul(), n.x, n.weight(32, 32))
    parts = split(n.finish(n.g.add1(Relu(), m), n.g.add1(MatMul(), m, n.weight(32, 8))))
    assert sorted(labels(parts)) == ["MatMul", "MatMul", "Relu"]


def test_epilogue_refused_across_a_transpose() -> None:
    n = Net(16, 32)
    m = n.g.add1(MatMul(), n.x, n.weight(32, 16))
    y = n.g.add1(Binary("add"), m, n.g.add1(Transpose((1, 0)), m))
    parts = split(n.finish(y))
    assert "MatMul" in labels(parts)
    assert len(parts.regions) >= 2


def test_two_products_added_only_one_takes_the_sum() -> None:
    n = Net(16, 32)
    a = n.g.add1(MatMul(), n.x, n.weight(32, 8))
    b = n.g.add1(MatMul(), n.x, n.weight(32, 8))
    assert labels(split(n.finish(n.g.add1(Binary("add"), a, b)))) == ["MatMul", "MatMul+Add"]


def quantized_product(n: Net, columns: int) -> Value:
    """The codes of x @ w."""
    product = n.g.add1(MatMul(), n.x, n.weight(32, columns))
    return n.g.add1(Quantize(I8, 8, F32), product, n.g.constant(np.float32(0.5)), None)


def numbers(n: Net, codes: Value) -> Value:
    return n.g.add1(Dequantize(F32), codes, n.g.constant(np.float32(0.5)), None)


def test_of_two_quantized_products_added_one_stores_codes() -> None:
    n = Net(16, 32)
    a, b = (numbers(n, quantized_product(n, 8)) for _ in range(2))
    parts = split(n.finish(n.g.add1(Relu(), n.g.add1(Binary("add"), a, b))))
    assert sorted(labels(parts)) == [
        "Dequantize+MatMul+Quantize+Dequantize+Add+Relu", "MatMul+Quantize",
    ]  # fmt: skip
    stored = next(r for r in parts.regions if r.label == "MatMul+Quantize")
    assert stored.outputs[0].dtype is I8


def test_a_loop_nest_reads_the_codes_of_a_product() -> None:
    n = Net(16, 32)
    y = n.g.add1(Reduce("max", (1,), False), numbers(n, quantized_product(n, 8)))
    parts = split(n.finish(y))
    assert labels(parts) == ["MatMul+Quantize", "Dequantize+ReduceMax"]


def test_codes_of_one_product_are_not_stored_inside_its_epilogue() -> None:
    n = Net(16, 32)
    y = n.g.add1(Relu(), numbers(n, quantized_product(n, 8)))
    assert labels(split(n.finish(y))) == ["MatMul+Quantize+Dequantize+Relu"]


def test_what_costs_more_than_a_conversion_is_not_taken_into_a_nest() -> None:
    n = Net(16, 32)
    y = n.g.add1(Gelu(), numbers(n, quantized_product(n, 8)))
    parts = split(n.finish(n.g.add1(Reduce("max", (1,), False), y)))
    assert labels(parts) == ["MatMul+Quantize+Dequantize+Gelu", "ReduceMax"]


def test_reshape_is_an_alias() -> None:
    n = Net(sym("b"), 8)
    r = n.g.add1(Reshape((sym("b"), 2, 4)), n.g.add1(MatMul(), n.x, n.weight(8, 8)))
    y = n.g.add1(MatMul(), r, n.weight(4, 4))
    parts = split(n.finish(y))
    assert labels(parts) == ["MatMul", "MatMul"]
    assert parts.base(r) is not r


def test_reshaped_output_of_an_input_is_copied() -> None:
    n = Net(4, 8)
    y = n.g.add1(Reshape((8, 4)), n.x)
    parts = split(n.finish(y))
    assert labels(parts) == ["Reshape"]
    assert parts.base(y) is y


def test_reshaped_output_claims_its_base_only_once() -> None:
    n = Net(4, 8)
    m = n.g.add1(MatMul(), n.x, n.weight(8, 8))
    a, b = n.g.add1(Reshape((32,)), m), n.g.add1(Reshape((8, 4)), m)
    parts = split(n.finish(a, b))
    assert len(parts.regions) == 2
    assert parts.base(a) is not parts.base(b)


def test_nothing_is_fused_at_level_zero() -> None:
    n = Net(4, 8)
    y = n.g.add1(Relu(), n.g.add1(Unary("exp"), n.g.add1(Unary("neg"), n.x)))
    assert len(split(n.finish(y), fuse=False).regions) == 3


def test_debug_values_stay_in_memory() -> None:
    n = Net(4, 8)
    e = n.g.add1(Unary("exp"), n.x)
    graph = n.finish(n.g.add1(Relu(), e))
    assert len(split(graph, keep=frozenset({e})).regions) == 2


def test_expensive_value_is_not_repeated_by_broadcasting() -> None:
    n = Net(256, 1)
    wide = n.g.input("wide", TensorType(F32, (256, 4096)))
    y = n.g.add1(Binary("mul"), n.g.add1(Unary("exp"), n.x), wide)
    assert labels(split(n.finish(y))) == ["Exp", "Mul"]


@pytest.mark.parametrize("length", [50, 300])
def test_long_chains_terminate(length: int) -> None:
    n = Net(4, 8)
    v = n.x
    for _ in range(length):
        v = n.g.add1(Binary("add"), n.g.add1(Binary("mul"), v, v), n.x)
    assert len(split(n.finish(v)).regions) >= 1


def test_activation_before_a_transpose_stays_with_its_product() -> None:
    n = Net(16, 32)
    r = n.g.add1(Relu(), n.g.add1(MatMul(), n.x, n.weight(32, 64)))
    assert labels(split(n.finish(n.g.add1(Transpose((1, 0)), r)))) == ["MatMul+Relu", "Transpose"]
