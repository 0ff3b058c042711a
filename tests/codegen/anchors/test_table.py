"""Long functions of a code behind a product, as tables: the bits of computing them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_tactics
from braze.codegen.cpu.product.table import split
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dtypes import F32, I8, I32, U8, DType
from braze.expr.fold import leaves
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, binary, cast, const, hole, unary
from braze.fusion.kernel import AnchorKernel
from braze.ops.quant.linear import saturated
from tests.codegen.anchors.harness import Compiled, host_isas, matmul
from tests.codegen.anchors.test_bytes import drawn, of_bytes

SCALE = const(0.043, F32)


def code(x: Expr, to: DType, scale: Expr = SCALE) -> Expr:
    return saturated(unary("round", binary("div", x, scale)), to, 8)


def number(x: Expr) -> Expr:
    return binary("mul", cast(cast(x, I32), F32), SCALE)


def activated(to: DType, function: str = "erf") -> AnchorKernel:
    """A product of bytes, its code, and a code of that times a function of it."""
    plain = of_bytes(matmul((), 301, 67, 24))
    x = number(code(cast(hole(0, I32), F32), to, const(19.0, F32)))
    return replace(
        plain,
        output=TensorSpec(to, plain.output.shape),
        epilogue=code(binary("mul", x, unary(function, x)), to),
    )


@pytest.mark.parametrize("to", [U8, I8])
def test_bits_of_the_function(to: DType) -> None:
    kernel = activated(to)
    inputs = drawn(kernel, {})
    want = run_kernel(kernel, inputs, {})[0]
    assert len(np.unique(want)) > 8
    for isa in host_isas():
        target = CpuTarget(isa, 2)
        for tactic in anchor_tactics(kernel, target, EFFORTS[3])[:4]:
            for workers in (1, 3):
                got = Compiled(kernel, tactic, target)(inputs, {}, workers)
                np.testing.assert_array_equal(got, want, f"{isa} {tactic}")


def test_where_a_table_pays() -> None:
    root = activated(U8).epilogue
    cut = split(root, 301 * 67)
    assert cut is not None and cut[0].dtype is U8
    assert [e.number for e in leaves(cut[1], "hole")] == [0] and leaves(cut[0], "hole")
    assert split(root, 300) is None, "few elements"
    assert split(cast(root, I32), 301 * 67) is None, "no code"
    assert split(activated(U8, "abs").epilogue, 301 * 67) is None, "as short as a look-up"
    again = code(binary("add", number(cut[0]), cast(hole(0, I32), F32)), U8)
    assert split(again, 301 * 67) is None, "it depends on the sum otherwise"
