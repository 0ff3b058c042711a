"""Products by weights of few bits: the bits of a product of the dequantized weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_support, anchor_tactics
from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.cpu.product.coded_template import MOST_ROWS
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dims import Dim, sym
from braze.core.dtypes import BF16, F16, F32, F64, U8, DType
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import CodedSpec, Operand
from braze.ops.quant.coded import records, weight_of
from tests.codegen.anchors import harness
from tests.codegen.anchors.harness import Compiled, contiguous, host_isas, matmul, variants
from tests.pairs import pairwise

Array = np.ndarray[Any, Any]
N, M = sym("n"), sym("m")
# bits, group, own zero points, zero point of all
FORMS = [
    (4, 32, False, 8), (4, 16, True, 0), (8, 32, False, 128), (8, 64, True, 0),
    (2, 16, False, 2), (2, 256, True, 0), (4, 128, False, 0), (8, 16, False, 0),
]  # fmt: skip


def coded(
    batch: tuple[Dim, ...], m: Dim, n: int, k: int, form: tuple[int, int, bool, int],
    kind: str = "none", dtype: DType = F32,
) -> AnchorKernel:  # fmt: skip
    """A product of [*batch, m, k] by records of one form."""
    bits, group, own, zero = form
    out = (*batch, m, n)
    lhs = Operand(0, contiguous((*batch, m, k)))
    spec = CodedSpec(
        batch, m, n, k, bits, group, own, zero, lhs, Operand(0, contiguous(out)), F32
    )  # fmt: skip
    expr, extra = harness.epilogue(kind, out, 2, dtype)
    inputs = [TensorSpec(dtype, (*batch, m, k)), TensorSpec(U8, (n, spec.groups, spec.record))]
    inputs += [TensorSpec(dtype, shape) for shape in extra]
    return AnchorKernel(spec, tuple(inputs), TensorSpec(dtype, out), expr, frozenset({1}))


def drawn(kernel: AnchorKernel, env: harness.Env) -> list[Array]:
    """Data of normal values, and records of every code."""
    inputs = harness.random_inputs(kernel, env)
    spec, rng = kernel.spec, np.random.default_rng(2)
    assert isinstance(spec, CodedSpec)
    shape = (spec.n, spec.groups)
    codes = rng.integers(0, 1 << spec.bits, (*shape, spec.group)).astype(np.uint8)
    scale = rng.uniform(-0.1, 0.1, shape).astype(np.float32)
    zero = rng.integers(0, 1 << spec.bits, shape) if spec.own else None
    inputs[1] = records(codes, scale, zero, spec.bits)
    return inputs


def dequantized(kernel: AnchorKernel, inputs: list[Array]) -> tuple[AnchorKernel, list[Array]]:
    """The product of numbers that `kernel` is, and its inputs."""
    spec = kernel.spec
    assert isinstance(spec, CodedSpec)
    wide = matmul(spec.batch, spec.m, spec.n, spec.k)
    weight = TensorSpec(F32, (spec.k, spec.n))
    lhs = replace(wide.spec, lhs=spec.lhs)  # type: ignore[arg-type]
    wide = replace(
        kernel, spec=lhs, inputs=(kernel.inputs[0], weight, *kernel.inputs[2:])
    )  # fmt: skip
    return wide, [inputs[0], weight_of(spec, inputs[1]), *inputs[2:]]


def check(kernel: AnchorKernel, env: harness.Env, isa: str) -> None:
    """Equal bits, for every tactic and any number of workers; near the reference in float64."""
    inputs = drawn(kernel, env)
    target = CpuTarget(isa, 2)
    other, numbers = dequantized(kernel, inputs)
    want = Compiled(other, anchor_tactics(other, target, EFFORTS[0])[0], target)(numbers, env)
    exact = harness.run_kernel(kernel, inputs, env, float64=True)[0].astype(np.float64)
    # at most 600 products of up to 3 * 13 in float32, and one rounding to a half type
    half = {F16: 2**-10, BF16: 2**-7}.get(kernel.output.dtype, 0)
    np.testing.assert_allclose(want.astype(np.float64), exact, rtol=1e-5 + half, atol=1e-3)
    for code in variants(kernel, isa):
        for workers in (1, 3):
            np.testing.assert_array_equal(code(inputs, env, workers), want, str(code.tactic))


@pytest.mark.parametrize(
    ("isa", "form", "size"),
    pairwise(host_isas(), FORMS, [(1, 40, 300), (3, 7, 100), (5, 130, 513), (1, 1, 1)]),
    ids=str,
)
def test_forms(isa: str, form: tuple[int, int, bool, int], size: tuple[int, int, int]) -> None:
    check(coded((), *size, form), {}, isa)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("kind", harness.EPILOGUES)
def test_epilogue(isa: str, kind: str) -> None:
    kernel = coded((N,), M, 35, 70, FORMS[0], kind)
    check(kernel, {"n": 2, "m": 3}, isa)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_data_of_half_types(isa: str, dtype: DType) -> None:
    check(coded((), 3, 33, 300, FORMS[1], "bias", dtype), {}, isa)


@pytest.mark.parametrize("isa", host_isas())
def test_slices_of_the_data_and_symbolic_rows(isa: str) -> None:
    for m in (1, 2, 9, 70):
        check(harness.inside(coded((2,), M, 35, 70, FORMS[3]), 3), {"m": m}, isa)
    check(harness.inside(coded((), 4, 35, 70, FORMS[0]), 1), {}, isa)


@pytest.mark.parametrize("isa", host_isas())
def test_infinities_nan_and_equal_rows(isa: str) -> None:
    kernel = coded((), 6, 20, 64, FORMS[0])
    inputs = drawn(kernel, {})
    inputs[0][:] = inputs[0][0]
    inputs[0][1, 3], inputs[0][2, 5] = np.inf, np.nan
    inputs[1][4, 1, :4] = np.frombuffer(np.float32(np.inf).tobytes(), np.uint8)
    target = CpuTarget(isa, 2)
    other, numbers = dequantized(kernel, inputs)
    want = Compiled(other, anchor_tactics(other, target, EFFORTS[0])[0], target)(numbers, {})
    assert np.isnan(want[2]).all() and not np.isfinite(want[1]).any()
    for code in variants(kernel, isa):
        got = code(inputs, {}, 2)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(got[3:], np.broadcast_to(got[3], got[3:].shape))


def test_panels() -> None:
    """Words of codes (one column a lane, the lowest bits first), then scales and zero points."""
    codes = np.arange(16, dtype=np.uint8).reshape(1, 1, 16)
    codes = np.concatenate([codes, codes[..., ::-1], np.full_like(codes, 5)])
    data = records(codes, np.array([[1.0], [2.0], [3.0]]), np.array([[7], [8], [9]]), 4)
    values = (("columns", 2), ("k", 16), ("bits", 4), ("group", 16), ("own", 1))
    packed = pack_anchor(data, Packing("coded_panels", U8, values)).reshape(2, -1)
    assert packed.shape[1] == 2 * (4 + 1 + 8)
    words = np.ascontiguousarray(packed[0, :16]).view(np.uint32)
    np.testing.assert_array_equal(np.ascontiguousarray(packed[0, 16:24]).view(np.float32), [1, 2])
    np.testing.assert_array_equal(packed[0, 24:], [7, 8])
    np.testing.assert_array_equal(words, [0x76543210, 0x89ABCDEF, 0xFEDCBA98, 0x01234567])
    assert not packed[1, 25:].any() and packed[1, 24] == 9  # the last column has no neighbour


def test_near_misses() -> None:
    def refusal(kernel: AnchorKernel) -> str:
        return str(anchor_support(kernel.spec, kernel.inputs, kernel.constant))

    assert refusal(coded((), MOST_ROWS, 8, 64, FORMS[0])) == "None"
    assert "faster" in refusal(coded((), MOST_ROWS + 1, 8, 64, FORMS[0]))
    assert "faster" in refusal(coded((2,), MOST_ROWS, 8, 64, FORMS[0]))
    assert refusal(coded((), M, 8, 64, FORMS[0])) == "None"
    kernel = coded((), 1, 8, 64, FORMS[0])
    assert "not constant" in refusal(replace(kernel, constant=frozenset()))
    wide = (TensorSpec(F64, (1, 64)), *kernel.inputs[1:])
    assert "float64" in refusal(replace(kernel, inputs=wide))
    assert "divide" in refusal(coded((), 1, 8, 64, (4, 48, False, 8)))
