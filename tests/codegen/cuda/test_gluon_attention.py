"""Attention over few keys in Gluon: how keys are cut, what is taken, and that all forms compile.

Gluon is not interpreted: tests/gpu/test_gluon_attention.py has the results.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from braze.codegen.cuda.backend import CudaBackend
from braze.codegen.cuda.gluon.attention import (
    HeadTile,
    head_tactic,
    head_tactics,
    head_tile,
    pieces,
    refusal,
    short_attention_source,
)
from braze.codegen.cuda.target import CudaTarget
from braze.core.config import EFFORTS
from braze.core.dims import sym
from braze.core.dtypes import BF16, F16, F32
from braze.expr.scalar import binary, load
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import AttentionSpec
from tests.codegen.anchors import harness
from tests.codegen.cuda.bytes import with_codes
from tests.codegen.cuda.typed import typed

pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
B = sym("b")
SHARED = CudaTarget("sm_90", 1).shared_bytes


def half(sizes: tuple[object, ...], **options: object) -> AnchorKernel:
    return typed(harness.attention(sizes, **options), F16)  # type: ignore[arg-type]


@pytest.mark.parametrize("widest", [16, 64, 128, 256])
def test_pieces_cover_all_keys_and_waste_few(widest: int) -> None:
    for keys in range(1, 257):
        cut = pieces(keys, widest)
        ends = [at + width for at, width in cut]
        assert [at for at, _ in cut] == [0, *ends[:-1]]
        assert keys <= ends[-1] <= keys + 16
        assert all(16 <= width <= widest and width & (width - 1) == 0 for _, width in cut)
    assert [width for _, width in pieces(197, 256)] == [128, 64, 16]
    assert pieces(128, 256) == [(0, 128)]
    assert pieces(250, 256) == [(0, 256)]


def test_tactics_are_their_tiles() -> None:
    assert head_tile(head_tactic(HeadTile(128, 4, 64))) == HeadTile(128, 4, 64)


FORMS = [
    ("plain", half((B, 12, 197, 197, 64, 64)), HeadTile(64, 4, 256)),
    ("turns", half((B, 2, 64, 70, 32, 32)), HeadTile(128, 1, 64)),
    ("causal", half((2, 3, 100, 128, 64, 64), causal=True), HeadTile(128, 1, 128)),
    ("mask", half((B, 3, 100, 100, 64, 64), mask="full"), HeadTile(64, 2, 256)),
    ("codes", with_codes(half((B, 3, 100, 100, 32, 32), causal=True)), HeadTile(64, 2, 256)),
    ("keys", typed(harness.attention((1, 3, 9, 40, 32, 32), mask="keys"), BF16),
     HeadTile(64, 1, 256)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kernel", "tile"), FORMS, ids=[f[0] for f in FORMS])
def test_forms_compile_and_copy_boxes_as_triton_does(
    name: str, kernel: AnchorKernel, tile: HeadTile
) -> None:
    from braze.codegen.cuda.triton.cubin import compile_source

    assert refusal(kernel) == ""
    source = short_attention_source(kernel, tile)
    meta = compile_source(source, 90).metadata
    expected = [(m.swizzle, list(m.box), m.dtype.itemsize) for m in source.maps]
    described = meta.tensordesc_meta
    assert [(d["swizzle"], d["block_size"], d["elem_size"]) for d in described] == expected
    assert meta.global_scratch_size == 0
    assert meta.num_warps == tile.warps and meta.shared <= SHARED
    assert source.waits and source.text.count("wait_for_earlier()") == 1


TAKEN = half((2, 3, 50, 70, 64, 64))


def changed(**fields: object) -> AnchorKernel:
    assert isinstance(TAKEN.spec, AttentionSpec)
    return replace(TAKEN, spec=replace(TAKEN.spec, **fields))  # type: ignore[arg-type]


def moved(**fields: object) -> AnchorKernel:
    """The keys lie elsewhere."""
    assert isinstance(TAKEN.spec, AttentionSpec)
    return changed(k=replace(TAKEN.spec.k, **fields))  # type: ignore[arg-type]


NEAR = [
    ("16-bit floats", harness.attention((2, 3, 50, 70, 64, 64))),
    ("256 keys", half((2, 3, 50, 257, 64, 64))),
    ("256 keys", half((2, 3, 50, sym("s"), 64, 64))),
    ("32 or 64", half((2, 3, 50, 70, 48, 48))),
    ("32 or 64", half((2, 3, 50, 70, 64, 32))),
    ("not positive", changed(scale=-1.0)),
    ("an epilogue", replace(TAKEN, epilogue=binary("mul", TAKEN.epilogue, load(3, (), F16)))),
    ("16 bytes", moved(offset=4)),
    ("16 bytes", moved(strides=(3 * 70 * 64, 64, 3 * 64 + 4, 1))),
    ("16 bytes", half((2, 3, 50, 70, 64, 64), layouts=("bshd", "bhds", "bshd", "bshd"))),
    ("share a row", moved(strides=(0, 64, 3 * 64, 1))),
    ("input shapes", half((2, B, 50, 70, 64, 64))),
]


@pytest.mark.parametrize(("reason", "kernel"), NEAR)
def test_near_misses(reason: str, kernel: AnchorKernel) -> None:
    assert refusal(TAKEN) == ""
    assert reason in refusal(kernel)
    assert head_tactics(kernel, SHARED) == ()


def test_an_axis_of_one_has_any_stride() -> None:
    one = half((1, 3, 1, 70, 64, 64))
    assert isinstance(one.spec, AttentionSpec)
    spec = replace(one.spec, k=replace(one.spec.k, strides=(0, 64, 3 * 64, 1)))
    assert refusal(replace(one, spec=spec)) == ""


@pytest.mark.parametrize(("capability", "level"), [("sm_90", 3), ("sm_90", 2), ("sm_80", 3)])
def test_only_hopper_has_them_and_only_by_their_times(capability: str, level: int) -> None:
    tactics = CudaBackend(CudaTarget(capability, 1)).tactics(TAKEN, EFFORTS[level])
    has = any(t.template == "gluon_attention" for t in tactics)
    assert has == (capability == "sm_90" and level == 3)
    assert tactics[0].template == "attention"


def test_many_heads_walk_over_their_tiles_and_few_do_not() -> None:
    many = head_tactics(half((32, 12, 197, 197, 64, 64)), SHARED)
    few = head_tactics(half((1, 12, 197, 197, 64, 64)), SHARED)
    assert head_tile(many[0]).turns == 4 and head_tile(few[0]).turns == 1
    assert F32 not in {i.dtype for i in TAKEN.inputs}
