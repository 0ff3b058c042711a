"""Nothing is written behind the last element, whatever the type and however many are left over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.loops.template import compile_loops, loop_tactics
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dtypes import BF16, BOOL, F16, F32, F64, I8, I16, I32, U8, DType
from braze.expr.loops import LoopKernel, LoopNest, Store
from braze.expr.scalar import cast, load
from braze.runtime.native import LoadedKernel
from tests.codegen.loops.kernels import add, axes, one_nest
from tests.codegen.loops.pointwise import host_isas

Array = np.ndarray[Any, Any]
GUARD = 64
ROWS, SIZES = 3, (1, 2, 5, 8, 9, 15, 16, 17, 18, 31, 33, 49, 65)


def rows_of_every_size(dtype: DType) -> tuple[LoopKernel, list[Array]]:
    """b + x of rows of each size, a nest and an output each, computed wider than it is stored where
    there is such a way. A kernel has every tactic that one of its nests alone has."""
    wide = I32 if dtype.is_int else F32
    inputs, nests = [np.arange(ROWS)], []
    for slot, n in enumerate(SIZES):
        value = add(load(slot + 1, axes(0, 1), wide), load(0, axes(0), wide))
        nests.append(LoopNest((ROWS, n), (), (), (Store(slot, axes(0, 1), cast(value, dtype)),)))
        inputs.append(np.arange(ROWS * n).reshape(ROWS, n) % 23 - 11)
    outputs = [(dtype, (ROWS, n)) for n in SIZES]
    kernel = one_nest([(wide, x.shape) for x in inputs], outputs, *nests)
    return kernel, [x.astype(wide.numpy) for x in inputs]


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64, I8, U8, I16, BOOL], ids=str)
def test_nothing_is_written_behind_a_row(dtype: DType, isa: str) -> None:
    """LLVM 22 stores a truncated vector under a constant mask of one lane as 32 bits: rows of
    8 k + 1 bfloat16 elements lost the first element of the next row, and two bytes behind."""
    target = CpuTarget(isa, 2)
    kernel, inputs = rows_of_every_size(dtype)
    wanted = run_kernel(kernel, inputs, {})
    for tactic in loop_tactics(kernel, target, EFFORTS[5]):
        compiled = compile_loops(kernel, tactic, target)
        assert not compiled.params
        rooms = [np.full(want.nbytes + GUARD, 0xA5, np.uint8) for want in wanted]
        loaded = LoadedKernel(compiled.code.data, compiled.code.entry)
        assert loaded.run([*inputs, *rooms], [], workers=1) == 0
        for n, room, want in zip(SIZES, rooms, wanted, strict=True):
            where = f"{dtype} rows of {n}, {isa}, {tactic}"
            assert room[: want.nbytes].tobytes() == want.tobytes(), where
            assert (room[want.nbytes :] == 0xA5).all(), where
