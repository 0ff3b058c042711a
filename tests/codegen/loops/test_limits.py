"""Limits that NaN becomes, behind limits of the same number that it passes: LLVM takes one for the
other (`codegen/cpu/llvm/vector.py`, limited)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import braze
from tests.codegen.anchors.harness import host_isas

DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16,
          "bfloat16": ml_dtypes.bfloat16}  # fmt: skip
DATA = [np.nan, -0.0, 0.0, 1, -1, np.inf, -np.inf, 6, 7] * 2  # a vector of AVX-512 and a rest
NAN = float("nan")  # limits nothing: no comparison with it is true
INSIDE = {"Relu": (0.0, NAN), "Max": (6.0, -0.0, NAN), "Min": (6.0, 0.0, NAN)}
COMPARISONS = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")
TARGETS = [f"cpu:{isa}" for isa in host_isas()]


def chain(*nodes: onnx.NodeProto, dtype: Any, limit: float = 0.0) -> onnx.ModelProto:
    """x through nodes, which may read the number c and the scale s, to y."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = [numpy_helper.from_array(np.array(limit, dtype), "c"),
                 numpy_helper.from_array(np.array(0.1, dtype), "s")]  # fmt: skip
    read = {name for n in nodes for name in n.input}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, [len(DATA)])],
        [onnx.ValueInfoProto(name="y")], [c for c in constants if c.name in read],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def inner(op: str) -> onnx.NodeProto:
    return helper.make_node(op, ["x"] if op == "Relu" else ["x", "c"], ["r"])


def outer_limits() -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """r or c, whichever a comparison of both picks."""
    for op, left, arms in product(COMPARISONS, (["r", "c"], ["c", "r"]), (["r", "c"], ["c", "r"])):
        yield helper.make_node(op, left, ["k"]), helper.make_node("Where", ["k", *arms], ["y"])


def assert_same(m: onnx.ModelProto, dtype: Any) -> None:
    x = np.array(DATA, dtype)
    want = braze.build(m, target="reference", optimization_level=0)({"x": x})["y"]
    for target in TARGETS:
        got = braze.build(m, target=target, optimization_level=1)({"x": x})["y"]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", INSIDE)
def test_a_where_behind_a_limit_of_the_same_number(op: str, dtype: str) -> None:
    kind = DTYPES[dtype]
    for limit in INSIDE[op]:
        for outer in outer_limits():
            assert_same(chain(inner(op), *outer, dtype=kind, limit=limit), kind)


@pytest.mark.parametrize("to", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("op", INSIDE)
def test_codes_of_what_is_not_a_number_behind_an_activation(op: str, to: str) -> None:
    """NaN becomes the least code, also where the activation has that limit itself."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    last = helper.make_node("QuantizeLinear", ["r", "s"], ["y"], output_dtype=code)
    least = np.iinfo(to).min
    for limit in (*INSIDE[op], least * 0.1, np.iinfo(to).max * 0.1):
        m = chain(inner(op), last, dtype=np.float32, limit=limit)
        assert_same(m, np.float32)
        for target in ("cpu", "reference"):
            y = braze.build(m, target=target)({"x": np.array(DATA, np.float32)})["y"]
            assert y[0] == least


def test_codes_of_what_is_not_a_number_behind_a_product() -> None:
    """A convolution with a weight that is none, its activation and its codes in one kernel."""
    w = np.full((4, 4, 1, 3), 0.1, np.float32)
    w[1, 0, 0, 0] = np.nan
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("QuantizeLinear", ["r", "s"], ["y"])]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 4, 2, 20])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.float32(0.1), "s")],
    )  # fmt: skip
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    for target in TARGETS:
        y = braze.build(m, target=target)({"x": np.ones((1, 4, 2, 20), np.float32)})["y"]
        assert (y[0, 1] == 0).all() and (y[0, ::2] == 12).all()
