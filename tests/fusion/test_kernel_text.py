"""Texts of kernels: parse(print(k)) is k for every kernel the node tests of onnx make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braze.core.dims import DimExpr, sym
from braze.core.dtypes import BF16, BOOL, F32, F64, I64, DType
from braze.core.errors import BrazeError, ModelError
from braze.core.trace import Trace
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, hole, load, select, unary
from braze.expr.text import expr_text, parse_expr
from braze.frontend.onnx.importer import import_network
from braze.fusion.kernel import AnchorKernel, Kernel
from braze.fusion.kernel_text import kernel_text, parse_kernel
from braze.fusion.lower import lower_all
from braze.fusion.partition import lower_nodes, partition
from braze.ir.graph import Graph
from braze.ops.abilities import UNLIMITED
from braze.ops.lowering import (
    AttentionSpec,
    CodedSpec,
    ConvSpec,
    MatmulSpec,
    Operand,
    PooledSpec,
)
from braze.passes.base import PassContext
from braze.passes.pipeline import run_pipeline
from tests.fusion.abilities import NO_TEMPLATES
from tests.onnx_backend.cases import load_cases
from tests.stages.models import MODELS

N, M = sym("n"), sym("m")
MATMUL = MatmulSpec(
    (2,), N * 3, 8, M // 2,
    Operand(0, (N * M, M, 1)), Operand(1, (0, 8, 1), N % 4), Operand(0, (N * 24, 8, 1)), F32,
)  # fmt: skip
CODED = CodedSpec(
    (2, N), M, 8, 70, 4, 32, True, -3, Operand(0, (N * M * 70, M * 70, 70, 1), 2),
    Operand(0, (N * M * 8, M * 8, 8, 1)), F32,
)  # fmt: skip
CONV = ConvSpec(
    N, (9, M), (7, M - 2), 4, 8, 2, (3, 3), (1, 1), (1, 1), (0, 0, 0, 0), F32, 99,
    Operand(0, (N * 9 * M * 8, M * 8, 8, 1), 4),
)  # fmt: skip
POOLED = PooledSpec(CONV, (3, 3), (2, 2), (1, 1), (4, M // 2))
ATTENTION = AttentionSpec(
    1, 4, N, M, 8, 16, 1 / 3, Operand(0, (1, 2, 3, 1)), Operand(1, (1, 2, 3, 1)),
    Operand(2, (1, 2, 3, 1)), Operand(0, (1, 2, 3, 1)), F64, Operand(3, (0, 0, M, 1)), True,
)  # fmt: skip


def anchor(spec: Any) -> AnchorKernel:
    """A kernel with an epilogue of every kind of leaf."""
    value = binary("add", hole(0, F32), cast(load(3, (axis(1), const(0, I64)), BF16), F32))
    value = select(const(True, BOOL), value, const(-0.0, F32))
    inputs = (TensorSpec(F32, (N, 4)), TensorSpec(BF16, ()), TensorSpec(F32, (N * M + 1, 3)))
    return AnchorKernel(spec, inputs, TensorSpec(F32, spec.out_shape), value, frozenset({1}))


@pytest.mark.parametrize("spec", [MATMUL, CODED, CONV, POOLED, ATTENTION])
def test_anchors_survive_printing(spec: Any) -> None:
    kernel = anchor(spec)
    assert parse_kernel(kernel_text(kernel)) == kernel


@pytest.mark.parametrize("spec", [MATMUL, CONV, POOLED, ATTENTION])
def test_every_field_of_an_anchor_shows_in_its_text(spec: Any) -> None:
    kernel = anchor(spec)
    changed = {
        int: 77,
        float: 0.7,
        bool: False,
        DimExpr: sym("z"),
        Operand: Operand(5, (1,), 9),
        ConvSpec: replace(CONV, groups=1),
        DType: BF16,
    }
    kernels: list[AnchorKernel] = [
        replace(kernel, inputs=kernel.inputs[:2]),
        replace(kernel, output=TensorSpec(BF16, spec.out_shape)),
        replace(kernel, epilogue=hole(0, F32)),
        replace(kernel, constant=frozenset()),
    ]
    for f in fields(spec):
        old = getattr(spec, f.name)
        new = (*old, 5) if isinstance(old, tuple) else changed[type(old)]
        other = replace(spec, **{f.name: new})
        output = TensorSpec(F32, other.out_shape)
        kernels.append(replace(kernel, spec=other, output=output))
    texts = {kernel_text(k) for k in [kernel, *kernels]}
    assert len(texts) == len(kernels) + 1
    for k in kernels:
        assert parse_kernel(kernel_text(k)) == k


@pytest.mark.parametrize("spec", [MATMUL, CONV, POOLED, ATTENTION])
def test_damaged_anchors_are_refused(spec: Any) -> None:
    text = kernel_text(anchor(spec))
    lines = text.splitlines()
    damaged = ["", "conv", text.replace("epilogue", "epilog"), text.replace(" = ", " "), text[:-9]]
    damaged += ["\n".join(lines[:i] + lines[i + 1 :]) for i in range(len(lines) - 1)]
    damaged += [text.replace("%1", "%7"), text.replace("float32", "floatx"), "cube" + text]
    for bad in damaged:
        with pytest.raises(ModelError):
            parse_kernel(bad)


def kernels_of(graph: Graph) -> Iterator[Kernel]:
    """Every kernel of an imported graph, with templates for all anchors and for none."""
    for backend in (UNLIMITED, NO_TEMPLATES):
        passed = run_pipeline(graph, PassContext(backend=backend))
        lowered = lower_nodes(passed, backend)
        for low in lower_all(passed, lowered, partition(passed, lowered, Trace())):
            yield low.kernel


def test_kernels_of_the_node_tests_survive_printing() -> None:
    seen: dict[str, Kernel] = {}
    for case in load_cases():
        try:
            graph = import_network(case.model).graph
            kernels = list(kernels_of(graph))
        except BrazeError:
            continue  # refused models are another test's business
        for kernel in kernels:
            text = kernel_text(kernel)
            assert seen.setdefault(text, kernel) == kernel, (case.name, text)
    for text, kernel in seen.items():
        assert parse_kernel(text) == kernel, text
    assert len(seen) > 400


@pytest.mark.parametrize("name", MODELS)
def test_kernels_of_symbolic_models_survive_printing(name: str) -> None:
    case = MODELS[name]()
    graph = import_network(case.model, shapes=case.shapes).graph
    for kernel in kernels_of(graph):
        assert parse_kernel(kernel_text(kernel)) == kernel


LEAVES = st.one_of(
    st.floats(width=32, allow_nan=False).map(lambda v: const(v, F32)),
    st.integers(0, 3).map(lambda k: hole(k, F32)),
    st.integers(0, 3).map(lambda k: load(k, (axis(k), const(k, I64)), F32)),
    st.integers(0, 3).map(lambda k: load(k, (), F32)),
)


def grown(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """Expressions one operation deeper; one strategy gives shared parts as well."""
    return st.one_of(
        st.tuples(st.sampled_from(["neg", "exp", "sqrt"]), parts).map(lambda t: unary(*t)),
        st.tuples(st.sampled_from(["add", "mul", "min"]), parts, parts).map(lambda t: binary(*t)),
        parts.map(lambda x: binary("add", x, x)),
        st.tuples(parts, parts).map(lambda t: select(binary("lt", *t), *t)),
        parts.map(lambda x: cast(cast(x, I64), F32)),
    )


@settings(max_examples=200, deadline=None)
@given(st.recursive(LEAVES, grown, max_leaves=12))
def test_random_expressions_survive_printing(e: Expr) -> None:
    assert parse_expr(expr_text(e)) == e


def test_constants_of_every_type_survive() -> None:
    for value in (np.iinfo(np.int64).min, 2**64 - 1, 0):
        assert parse_expr(expr_text(const(value, I64))) == const(value, I64)
    assert parse_expr(expr_text(const(False, BOOL))) == const(False, BOOL)
    assert parse_expr(expr_text(const(float("inf"), BF16))) == const(float("inf"), BF16)
