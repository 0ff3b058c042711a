"""What stands before every source in Gluon.

Gluon's language takes the name of Triton's, so that scalar code is the same text in both. Names
that Gluon changed between Triton 3.6 and 3.9 have one of ours here.
"""

from __future__ import annotations

from typing import Final

GLUON_HEADER: Final = """from triton.experimental import gluon
import triton.experimental.gluon.language as gl
import triton.experimental.gluon.language as tl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait,
)
from triton.language import PropagateNan, constexpr
copy_box = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
all_threads = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier
NAN_OF_EITHER = constexpr(PropagateNan.ALL)
TO_WAIT = constexpr("griddepcontrol.wait; mov.u32 $0, $1;")
TO_RAISE = constexpr("ex2.approx.ftz.f32 $0, $1;")
TO_INVERT = constexpr("rcp.approx.ftz.f32 $0, $1;")
TO_WIDEN = constexpr(
    "{ .reg .b32 t; xor.b32 t, $4, 0x80808080; prmt.b32 $0, t, 0x4B000000, 0x7540; "
    "prmt.b32 $1, t, 0x4B000000, 0x7541; prmt.b32 $2, t, 0x4B000000, 0x7542; "
    "prmt.b32 $3, t, 0x4B000000, 0x7543; }"
)
TO_RELEASE = constexpr("griddepcontrol.launch_dependents; mov.u32 $0, $1;")


@gluon.jit
def wait_for_earlier():
    gl.inline_asm_elementwise(
        TO_WAIT, "=r,r", [gl.program_id(0)], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def release_later():
    gl.inline_asm_elementwise(
        TO_RELEASE, "=r,r", [gl.program_id(0)], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def byte_to_float(x):
    # four bytes, plus 128 each, in the last bits of 2**23
    wide = gl.inline_asm_elementwise(
        TO_WIDEN, "=r,=r,=r,=r,r", [x], dtype=gl.float32, is_pure=True, pack=4
    )
    return wide - 8388736.0


@gluon.jit
def to_e4m3(x):
    return x.to(gl.float8e4nv).to(gl.uint8, bitcast=True)


@gluon.jit
def near_quotient(x, y):
    # for y of 1 and more; an inverse below the least normal number is zero
    return x * gl.inline_asm_elementwise(
        TO_INVERT, "=f,f", [y], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def power_of_two(x):
    return gl.inline_asm_elementwise(
        TO_RAISE, "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


if hasattr(gl.shared_memory_descriptor, "reinterpret"):
    @gluon.jit
    def rows_of(box, shape: gl.constexpr, layout: gl.constexpr):
        return box.reinterpret(box.dtype, shape, layout)
else:
    @gluon.jit
    def rows_of(box, shape: gl.constexpr, layout: gl.constexpr):
        return box._reinterpret(box.dtype, shape, layout)
"""
