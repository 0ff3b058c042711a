"""Loop nests along their last axis: which are taken, and that they compile.

interpreted.py and interpreted_nests.py have their results, tests/gpu/test_bytes.py those on a card.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from braze.codegen.cuda.triton.lanes import lane_tactics, lanes_source, runs_along
from braze.core.dims import sym
from braze.core.dtypes import F16, I8, U8, DType
from braze.expr.loops import LoopKernel
from braze.expr.scalar import axis, binary, const
from tests.codegen.cuda.pools import pool
from tests.codegen.loops.kernels import cases

N = sym("n")


@pytest.mark.parametrize(("dtype", "channels"), [(I8, 64), (U8, 24), (I8, 9), (F16, 64)])
@pytest.mark.parametrize("capability", [80, 90])
def test_pools_compile(dtype: DType, channels: int, capability: int) -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    pytest.importorskip("triton", reason="triton is not installed: pip install braze[cuda]")
    kernel = pool(dtype, N, channels)
    source = lanes_source(kernel, lane_tactics(kernel, 1)[0])
    ptx = compile_source(source, capability).asm["ptx"]
    in_words = dtype.itemsize == 1 and channels % 4 == 0
    sign = "s" if dtype is I8 else "u"
    assert (f"max.{sign}16x2" in ptx) == (in_words and capability == 90)
    # 16 bytes of a line at a time, where lines are that long
    assert ("ld.global.v4" in ptx) == (channels == 64)


def changed(kernel: LoopKernel, **fields: object) -> LoopKernel:
    (nest,) = kernel.nests
    return replace(kernel, nests=(replace(nest, **fields),))  # type: ignore[arg-type]


def test_near_misses() -> None:
    kernel = pool(I8, N, 64)
    assert runs_along(kernel)
    (nest,) = kernel.nests
    (store,) = nest.stores
    turned = replace(store, index=(*store.index[:-2], store.index[-1], store.index[-2]))
    one = const(1, axis(3).dtype)
    later = replace(store, index=(*store.index[:-1], binary("add", axis(3), one)))
    for other in (
        pool(I8, N, 7),
        pool(I8, N, sym("c")),  # type: ignore[arg-type]
        changed(kernel, serial=True),
        changed(kernel, stores=(turned,)),
        changed(kernel, stores=(later,)),
        changed(kernel, stores=(replace(store, over="all"),)),
        replace(kernel, nests=(nest, nest)),
    ):
        assert not runs_along(other) and lane_tactics(other, 9) == ()
    for case in cases():
        tactics = lane_tactics(case.kernel, 9)
        assert bool(tactics) == runs_along(case.kernel)
