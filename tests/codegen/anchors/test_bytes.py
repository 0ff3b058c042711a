"""Products and convolutions of bytes: exact for every tile, worker and instruction set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_support, anchor_tactics
from braze.codegen.cpu.backend import cpu_backend
from braze.codegen.cpu.target import EXTRAS, CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import evaluate, sym
from braze.core.dtypes import F32, I8, I32, U8, DType
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, hole, load, unary
from braze.fusion.kernel import AnchorKernel
from braze.runtime.native import host_features, host_isa
from tests.codegen.anchors.harness import Compiled, conv, conv3d, host_isas, matmul
from tests.pairs import pairwise

Array = np.ndarray[Any, Any]
M, N = sym("m"), sym("n")


def targets() -> list[CpuTarget]:
    """Every way to multiply bytes on this machine."""
    found = [CpuTarget(isa, 2) for isa in host_isas()]
    for extra, isa in EXTRAS.items():
        if extra.endswith("vnni") and extra in host_features() and isa in host_isas():
            found.append(CpuTarget(isa, 2, extras=(extra,)))
    return found


def requantized(kernel: AnchorKernel, slot: int) -> tuple[Expr, DType]:
    """round(sum * scale[column]) + 3 as a byte, saturated."""
    column = axis(len(kernel.spec.out_shape) - 1)
    q = binary("mul", cast(hole(0, I32), F32), load(slot, (column,), F32))
    q = binary("add", unary("round", q), const(3.0, F32))
    q = binary("min", binary("max", q, const(0.0, F32)), const(255.0, F32))
    return cast(q, U8), U8


def of_bytes(kernel: AnchorKernel, finish: bool = False, fill: int = 0) -> AnchorKernel:
    """A float kernel as one of unsigned bytes by signed ones; int32 sums or requantized."""
    changes = {"acc": I32} | ({"fill": fill} if hasattr(kernel.spec, "fill") else {})
    spec = replace(kernel.spec, **changes)
    inputs = [replace(t, dtype=d) for t, d in zip(kernel.inputs, (U8, I8), strict=True)]
    expr: Expr = hole(0, I32)
    kind = I32
    kernel = replace(kernel, spec=spec, epilogue=expr)
    if finish:
        expr, kind = requantized(kernel, 2)
        inputs.append(TensorSpec(F32, (spec.out_shape[-1],)))
    output = replace(kernel.output, dtype=kind)
    return AnchorKernel(spec, tuple(inputs), output, expr, kernel.constant)


def drawn(kernel: AnchorKernel, env: dict[str, int], extremes: bool = False) -> list[Array]:
    """Bytes over their whole range, or only the largest; small positive scales."""
    rng = np.random.default_rng(1)
    arrays = []
    for t in kernel.inputs:
        shape = [evaluate(d, env) for d in t.shape]
        if t.dtype is F32:
            arrays.append(rng.uniform(1e-4, 2e-3, shape).astype(np.float32))
        elif extremes:
            arrays.append(rng.choice([255] if t.dtype is U8 else [-128, 127], shape))
        else:
            low, high = (0, 256) if t.dtype is U8 else (-128, 128)
            arrays.append(rng.integers(low, high, shape))
    return [a.astype(t.dtype.numpy) for a, t in zip(arrays, kernel.inputs, strict=True)]


def compiled(kernel: AnchorKernel, target: CpuTarget) -> Iterator[Compiled]:
    """Every tactic of the best way there is, and the simple one of the others."""
    tactics: dict[Any, None] = {}
    for level in (0, 3) if target == targets()[-1] else (0,):
        tactics |= dict.fromkeys(anchor_tactics(kernel, target, EFFORTS[level]))
    assert tactics
    wanted = [f"with={extra}" for extra in target.extras]
    for tactic in tactics:
        assert all(w in str(tactic) for w in wanted)
        code = Compiled(kernel, tactic, target)
        assert code.code.own_code.needs == "+".join((target.isa, *target.extras))
        yield code


def check(kernel: AnchorKernel, env: dict[str, int], extremes: bool = False) -> None:
    """Equal to the reference, bit for bit."""
    inputs = drawn(kernel, env, extremes)
    want = run_kernel(kernel, inputs, env)[0]
    for target in targets():
        for code in compiled(kernel, target):
            for workers in (1, 3):
                got = code(inputs, env, workers)
                np.testing.assert_array_equal(got, want, f"{target.name} {code.tactic}")


@pytest.mark.parametrize("finish", [False, True])
@pytest.mark.parametrize(
    "size", [(1, 1, 1), (1, 40, 7), (13, 3, 5), (12, 32, 16), (25, 33, 18), (5, 70, 1), (9, 20, 67)]
)
def test_static_product(size: tuple[int, int, int], finish: bool) -> None:
    check(of_bytes(matmul((), *size), finish), {})


def test_symbolic_rows_columns_of_a_batch_and_turned_weights() -> None:
    check(of_bytes(matmul((N,), M, 21, 12), True), {"n": 2, "m": 13})
    check(of_bytes(matmul((3,), M, 20, 10, shared=False)), {"m": 5})
    check(of_bytes(matmul((), 7, 33, 30, turned=True)), {})


def test_nothing_saturates_on_the_way() -> None:
    """255 * 127 + 255 * 127 is 64,770: above what 16 bits hold."""
    check(of_bytes(matmul((), 5, 19, 64)), {}, extremes=True)
    check(of_bytes(conv(1, 5, 5, (8, 19), (3, 3))), {}, extremes=True)


def test_long_sums() -> None:
    check(of_bytes(matmul((), 3, 17, 1027)), {}, extremes=True)


@pytest.mark.parametrize(
    ("channels", "kernel", "fill"),
    pairwise([(4, 5), (3, 16), (20, 33), (17, 8)], [(1, 1), (3, 3), (2, 5)], [0, 7, 255]),
)
def test_convolution(channels: tuple[int, int], kernel: tuple[int, int], fill: int) -> None:
    pads = (1, 0, 2, 1) if kernel != (1, 1) else (0, 0, 0, 0)
    check(of_bytes(conv(2, 6, 7, channels, kernel, pads=pads), fill == 7, fill), {})


def test_convolutions_with_strides_dilations_groups_and_symbolic_sizes() -> None:
    one = {"pads": (1, 1, 1, 1)}
    check(of_bytes(conv(1, 9, 9, (8, 12), (3, 3), strides=(2, 2), **one), True, 128), {})
    check(of_bytes(conv(1, 9, 9, (3, 12), (3, 3), dilations=(2, 1), pads=(2, 1, 2, 1)), fill=9), {})
    check(of_bytes(conv(1, 6, 6, (16, 24), (3, 3), groups=2, **one), True, 3), {})
    check(of_bytes(conv(1, 6, 6, (6, 8), (3, 3), groups=2, **one), True, 3), {})
    check(of_bytes(conv(N, M, 5, (4, 6), (3, 3), **one), fill=200), {"n": 2, "m": 7})
    check(of_bytes(conv(1, 5, 5, (6, 8), (1, 1), strides=(2, 2))), {})


def test_convolution_over_three_axes() -> None:
    pads = (1, 1, 1, 1, 1, 1)
    kernel = conv3d(1, (4, 5, 3), (8, 5), (3, 3, 3), (1, 1, 1), pads)
    check(of_bytes(kernel, True, 11), {})
    # channels that are no whole words: windows are copied
    kernel = conv3d(1, (4, 5, 3), (6, 10), (2, 3, 2), (1, 2, 1), (1, 0, 1, 0, 2, 1), groups=2)
    check(of_bytes(kernel, True, 11), {})
    kernel = conv3d(N, (4, M, 3), (3, 5), (3, 3, 3), (2, 1, 1), pads)
    check(of_bytes(kernel, True, 200), {"n": 2, "m": 4})


@pytest.mark.parametrize(
    ("kernel", "constant", "reason"),
    [
        (matmul((), 4, 8, 8), frozenset(), "not constant"),
        (conv(1, 5, 5, (8, 8), (3, 3), groups=8), frozenset({1}), "depthwise"),
        (
            conv3d(1, (3, 3, 3), (6, 6), (2, 2, 2), (1, 1, 1), (0,) * 6, groups=6),
            frozenset({1}),
            "depthwise",
        ),
    ],
)
def test_near_misses(kernel: AnchorKernel, constant: frozenset[int], reason: str) -> None:
    k = of_bytes(kernel)
    refusal = anchor_support(k.spec, k.inputs, constant)
    assert refusal is not None and reason in refusal


@pytest.mark.parametrize("types", [(I8, I8), (U8, U8), (I8, U8), (U8, F32)])
def test_other_types_are_refused(types: Sequence[DType]) -> None:
    k = of_bytes(matmul((), 4, 8, 8))
    inputs = [replace(t, dtype=d) for t, d in zip(k.inputs, types, strict=True)]
    assert "templates are for floats" in str(anchor_support(k.spec, inputs, k.constant))


def test_this_machine_offers_its_instructions_and_a_named_one_does_not() -> None:
    here, named = cpu_backend("", 2).target, cpu_backend(host_isa(), 2).target
    wanted = {e for e, isa in EXTRAS.items() if e in host_features() and isa == host_isa()}
    assert set(here.extras) == wanted and named.extras == ()
    assert here.name == named.name
    assert not wanted or here.fingerprint != named.fingerprint
