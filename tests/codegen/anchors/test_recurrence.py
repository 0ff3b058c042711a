"""The recurrence template: right on every instruction set, the same bits however it is shared."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_support, anchor_tactics, compile_anchor
from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import Dim, evaluate, sym
from braze.core.dtypes import BF16, F16, F32, F64, I32, DType
from braze.expr.loops import TensorSpec
from braze.expr.scalar import cast, hole
from braze.fusion.kernel import AnchorKernel, Tactic
from braze.fusion.kernel_text import kernel_text, parse_kernel
from braze.ops.lowering import RECURRENT_GATES, Operand, RecurrenceSpec
from braze.ops.operands import row_major_strides
from braze.ops.recurrent.cells import ACTIVATIONS
from braze.ops.writing.precision import compute_type
from braze.runtime.native import LoadedKernel
from tests.codegen.anchors.harness import host_isas
from tests.pairs import pairwise

Array = np.ndarray[Any, Any]
# float32 sums of 130 terms in one order, with and without fused multiply-adds, over five steps; the
# rounding of a half-precision state may fall to either side, and is then carried on
TOLERANCES = {F64: 1e-12, F32: 2e-5, F16: 4e-3, BF16: 3e-2}
EVERYTHING = ("bias", "lens", "h0", "c0", "peephole")


def recurrence(
    cell: str,
    sizes: tuple[Dim, Dim, int],
    reverse: tuple[bool, ...] = (False,),
    dtype: DType = F32,
    present: tuple[str, ...] = EVERYTHING,
    constant: bool = True,
    **fields: Any,
) -> AnchorKernel:
    """A kernel of (steps, batch, hidden) with the operands in `present` that its cell has."""
    steps, batch, hidden = sizes
    count, gates = len(reverse), RECURRENT_GATES[cell]
    own = {"bias": ("gru",), "c0": ("lstm",), "peephole": ("lstm",)}
    shapes = {
        "x": (steps, batch, count * gates * hidden),
        "weight": (count, gates * hidden, hidden),
        "bias": (count, hidden),
        "lens": (batch,),
        "h0": (count, batch, hidden),
        "c0": (count, batch, hidden),
        "peephole": (count, 3 * hidden),
    }
    names = ["x", "weight", *(n for n in present if cell in own.get(n, (cell,)))]
    operands: Any = {
        name: Operand(i, row_major_strides(shapes[name])) for i, name in enumerate(names)
    }
    given = {"clip": math.inf, "reset_after": True, "coupled": False, "sequence": True}
    given |= {"finals": 2 if cell == "lstm" else 1} | fields
    names_of = tuple(f.lower() for f in ACTIVATIONS[cell]) * count
    spec = RecurrenceSpec(
        cell, steps, batch, hidden, reverse, names_of,
        dtype=dtype, acc=compute_type(dtype), **given, **operands,
    )  # fmt: skip
    inputs = tuple(TensorSpec(I32 if n == "lens" else dtype, shapes[n]) for n in names)
    known = frozenset({1}) if constant else frozenset()
    epilogue = cast(hole(0, spec.acc), dtype)
    return AnchorKernel(spec, inputs, TensorSpec(dtype, spec.out_shape), epilogue, known)


def data(kernel: AnchorKernel, env: dict[str, int], seed: int = 0) -> list[Array]:
    """Operands: weights that keep sums near 1; rows of every length."""
    rng, made = np.random.default_rng(seed), []
    for slot, spec in enumerate(kernel.inputs):
        shape = [evaluate(d, env) for d in spec.shape]
        if spec.dtype is I32:
            made.append(np.arange(shape[0], dtype=np.int32) % (made[0].shape[0] + 1))
            continue
        scale = shape[-1] ** -0.5 if slot == 1 else 1.0
        made.append((rng.uniform(-2, 2, shape) * scale).astype(spec.dtype.numpy))
    return made


def run(
    kernel: AnchorKernel,
    inputs: list[Array],
    isa: str,
    workers: int,
    env: dict[str, int],
    tactic: Tactic | None = None,
    repeats: int = 1,
) -> Array:
    """The output, `repeats` times in a row on the same memory; bytes beside it stay as they are."""
    target = CpuTarget(isa, 2)
    tactic = tactic or anchor_tactics(kernel, target, EFFORTS[3])[0]
    code = compile_anchor(kernel, tactic, target)
    loaded = LoadedKernel(code.own_code.data, code.own_code.entry)
    passed = list(inputs)
    for slot, packing in code.packings:
        passed[slot] = pack_anchor(inputs[slot], packing)
    shape = [evaluate(d, env) for d in kernel.output.shape]
    size, guard = int(np.prod(shape)), 64
    filled = np.full(size + 2 * guard, 7, kernel.output.dtype.numpy)
    needed = evaluate(code.launch.workspace(workers), env)
    scratch = np.full(needed + 64, 0xFF, np.uint8)
    start = -scratch.ctypes.data % 64
    buffers = [*passed, filled[guard : guard + size], scratch[start : start + needed]]
    params = [evaluate(d, env) for d in code.params]
    count = workers if code.launch.parallel else 1
    for _ in range(repeats):
        filled[guard : guard + size] = 9
        assert loaded.run(buffers, params, workers=count) == 0
    assert (filled[:guard] == 7).all() and (filled[guard + size :] == 7).all()
    return filled[guard : guard + size].reshape(shape)


def near(got: Array, want: Array, dtype: DType) -> None:
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(got.astype("f8"), want.astype("f8"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("cell", "dtype", "isa", "size"),
    pairwise(
        ["rnn", "gru", "lstm"],
        [F32, F64, F16, BF16],
        host_isas(),
        [(1, (True,)), (5, (False, True)), (64, (False,)), (130, (False, True))],
    ),
    ids=str,
)
def test_every_type_and_size(
    cell: str, dtype: DType, isa: str, size: tuple[int, tuple[bool, ...]]
) -> None:
    hidden, reverse = size
    kernel = recurrence(cell, (5, 3, hidden), reverse, dtype)
    inputs = data(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    near(run(kernel, inputs, isa, 2, {}), want, dtype)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("reset_after", [False, True])
def test_workers_tactics_and_packing_change_no_bit(cell: str, reset_after: bool) -> None:
    kernel = recurrence(
        cell, (sym("t"), sym("b"), 300), (False, True), reset_after=reset_after, clip=0.6
    )
    env = {"t": 4, "b": 7}
    inputs, isa = data(kernel, env), host_isas()[0]
    want = run(kernel, inputs, isa, 1, env)
    near(want, run_kernel(kernel, inputs, env)[0], F32)
    for workers in (2, 3, 5):
        np.testing.assert_array_equal(run(kernel, inputs, isa, workers, env, repeats=8), want)
    for tactic in anchor_tactics(kernel, CpuTarget(isa, 2), EFFORTS[4]):
        np.testing.assert_array_equal(run(kernel, inputs, isa, 2, env, tactic), want)
    at_run_time = replace(kernel, constant=frozenset())
    np.testing.assert_array_equal(run(at_run_time, inputs, isa, 2, env, repeats=3), want)
    fixed = recurrence(cell, (4, 7, 300), (False, True), reset_after=reset_after, clip=0.6)
    np.testing.assert_array_equal(run(fixed, inputs, isa, 2, {}), want)


def test_workers_that_come_and_go() -> None:
    """More than there are processors, so that some lose theirs in any phase; a worker that joined
    where its own share stood, with others still in the phase before, changed bits."""
    kernel = recurrence("gru", (60, 3, 64), (False, True), reset_after=False)
    inputs, isa = data(kernel, {}), host_isas()[0]
    want = run(kernel, inputs, isa, 1, {})
    for _ in range(10):
        np.testing.assert_array_equal(run(kernel, inputs, isa, 7, {}, repeats=3), want)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_row_is_the_same_in_every_slot(cell: str) -> None:
    whole = recurrence(cell, (3, 9, 70), present=("bias", "h0"))
    alone = recurrence(cell, (3, 1, 70), present=("bias", "h0"))
    inputs, isa = data(whole, {}), host_isas()[0]
    out = run(whole, inputs, isa, 2, {})
    axis_of = {0: 1, len(inputs) - 1: 1}
    for row in range(9):
        own = [
            np.ascontiguousarray(np.take(a, [row], axis_of[i])) if i in axis_of else a
            for i, a in enumerate(inputs)
        ]
        np.testing.assert_array_equal(run(alone, own, isa, 1, {})[:, :, 0], out[:, :, row])


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_rows_that_are_asked_for(sequence: bool, steps: int) -> None:
    for finals in (0, 1, 2):
        kernel = recurrence("lstm", (steps, 2, 20), (False, True), sequence=sequence, finals=finals)
        inputs = data(kernel, {})
        (want,) = run_kernel(kernel, inputs, {})
        assert want.shape[0] == steps * sequence + finals
        near(run(kernel, inputs, host_isas()[0], 2, {}), want, F32)


def test_operands_are_read_where_they_lie() -> None:
    """x with its first axes swapped and a step between rows; states a part of something wider."""
    kernel = recurrence("lstm", (3, 2, 24), present=("h0", "c0"))
    inputs = data(kernel, {})
    (want,) = run_kernel(kernel, inputs, {})
    wide = np.zeros((2, 3, 100), np.float32)
    wide[:, :, 4:] = inputs[0].swapaxes(0, 1)
    state = np.zeros((1, 2, 40), np.float32)
    state[:, :, :24] = inputs[2]
    spec = replace(kernel.spec, x=Operand(0, (100, 300, 1), 4), h0=Operand(2, (80, 40, 1)))
    specs = [TensorSpec(F32, wide.shape), kernel.inputs[1], TensorSpec(F32, state.shape)]
    moved = replace(kernel, spec=spec, inputs=(*specs, kernel.inputs[3]))
    got = run(moved, [wide, inputs[1], state, inputs[3]], host_isas()[0], 2, {})
    near(got, want, F32)
    across = replace(spec, x=Operand(0, (1, 300, 3), 0))
    assert anchor_support(across, moved.inputs, frozenset()) is not None


def test_text() -> None:
    kernel = recurrence("lstm", (sym("t"), 2, 24), (True, False), F16, ("lens", "peephole"))
    assert parse_kernel(kernel_text(kernel)) == kernel
