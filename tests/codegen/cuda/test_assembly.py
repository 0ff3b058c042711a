"""Packed additions of 16-bit numbers are not left to the assembler."""

from __future__ import annotations

import re

import numpy as np
import pytest

from braze.codegen.cuda.triton.assembly import (
    with_cut_products,
    without_packed_additions,
    without_words_in_stores,
)
from braze.codegen.cuda.triton.nests import nest_sources
from braze.codegen.cuda.triton.window import WindowTile, window_source
from braze.core.dims import sym
from braze.core.dtypes import F32, I8, I32, I64, U8, DType
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, binary, cast, const, load, select, unary
from tests.codegen.anchors import harness

WORDS = {"and": np.bitwise_and, "xor": np.bitwise_xor, "add": np.add}
EXTREME = np.array([0, 1, 0x7FFF, 0x8000, 0xFFFF], np.uint32)


def computed(text: str, registers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The registers after straight-line PTX of 32-bit words."""
    registers = dict(registers)
    for op, to, *operands in re.findall(r"(\w+)\.[bs]32 (%\w+), ([%\w-]+), ([%\w-]+);", text):
        a, b = (
            registers[o] if o.startswith("%") else np.uint32(int(o, 0) & 0xFFFFFFFF)
            for o in operands
        )
        registers[to] = WORDS[op](a, b)
    return registers


@pytest.mark.parametrize("kind", ["s16x2", "u16x2"])
@pytest.mark.parametrize("constant", [None, 0xFFFF, -1, 0x20003])
def test_the_same_sums(kind: str, constant: int | None) -> None:
    halves = np.concatenate([EXTREME, np.random.default_rng(0).integers(0, 1 << 16, 20)])
    words = (halves[:, None] << 16 | halves).reshape(-1).astype(np.uint32)
    a, b = (x.reshape(-1) for x in np.meshgrid(words, words))
    if constant is not None:
        b = np.full_like(a, constant & 0xFFFFFFFF)
    operand = "%r3" if constant is None else str(constant)
    text = without_packed_additions(f"\tadd.{kind} \t%r1, %r2, {operand};\n")
    assert "x2" not in text
    got = computed(text, {"%r2": a, "%r3": b})["%r1"]
    # whatever stands in a lower half never reaches the upper one
    upper, lower = ((a >> 16) + (b >> 16)) & 0xFFFF, (a + b) & 0xFFFF
    np.testing.assert_array_equal(got, upper << 16 | lower)


def test_a_result_may_be_an_operand() -> None:
    text = without_packed_additions("add.s16x2 %r1, %r1, %r1;")
    got = computed(text, {"%r1": np.array([0x8001FFFF], np.uint32)})["%r1"]
    assert got == 0x0002FFFE


@pytest.mark.parametrize("line", ["max.s16x2 %r1, %r2, %r3;", "add.s16 %rs1, %rs2, %rs3;",
                                  "add.f16x2 %r1, %r2, %r3;"])  # fmt: skip
def test_what_is_left_as_it_is(line: str) -> None:
    assert without_packed_additions(line) == line


def test_indices_of_a_window_over_three_axes() -> None:
    pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
    from braze.codegen.cuda.triton.cubin import compile_cubin, compile_source, listing_of

    channels, pads = (17, 17), (1, 0, 1, 1, 0, 1)
    kernel = harness.conv3d(
        sym("n"), (8, 8, 3), channels, (3, 3, 3), (2, 3, 2), pads, groups=17
    )  # fmt: skip
    source = window_source(kernel, WindowTile(16, 32, 1, 2))
    compiled = compile_source(source, 90)
    if "add.s16x2" not in compiled.asm["ptx"]:
        pytest.skip("this Triton adds no packed numbers here")
    assert "16x2" not in listing_of(source, 90)
    cubin = compile_cubin(source, 90)
    assert cubin.code[:4] == b"\x7fELF"
    assert cubin.code != compiled.asm["cubin"]


@pytest.mark.parametrize(
    "line, words",
    [
        ("\tst.shared.b8 \t[%r40+4], %r24;", {"%half0": "%r24"}),
        ("@%p1 st.global.b16 [ %rd2 + 0 ], { %r7 };", {"%half0": "%r7"}),
        ("@!%p1 st.shared.v2.b8 [%r1], {%r7, %rs8};", {"%half0": "%r7"}),
        ("st.shared.v4.u8 [%r1], {%r7, %r8, %r7, %rs9};", {"%half0": "%r7", "%half1": "%r8"}),
    ],
)  # fmt: skip
def test_words_are_cut_before_a_narrow_store(line: str, words: dict[str, str]) -> None:
    """Put back in place of the halves, the words give the same store."""
    text = without_words_in_stores(line)
    cuts = dict(re.findall(r"cvt\.u16\.u32 (%half\d), (%r\d+);", text))
    assert cuts == words
    (store,) = (part for part in text.splitlines() if " st." in f" {part.strip()}")
    assert not re.search(r", .*%r\d", store.split("]")[1])
    for half, word in words.items():
        store = store.replace(half, word)
    assert store.split() == line.split()


@pytest.mark.parametrize("line", [
    "st.shared.b8 [%r1], %rs2;", "st.shared.b32 [%r1], %r2;", "ld.shared.b8 %r1, [%r2];",
    "st.global.v2.b16 [%rd1], {%rs1, %rs2};",
])  # fmt: skip
def test_stores_that_read_no_word_stay(line: str) -> None:
    assert without_words_in_stores(line) == line


def rounded_codes(code: DType, sizes: tuple[int, ...]) -> LoopKernel:
    """Codes, less 3, of [sizes], beside a nest of int64."""
    low, high = (0, 255) if code is U8 else (-128, 127)
    least, most = const(float(low), F32), const(float(high), F32)
    at = tuple(axis(k) for k in range(len(sizes)))
    x = unary("round", binary("div", load(0, at, F32), const(0.125, F32)))
    x = select(binary("lt", least, x), x, least)
    x = select(binary("lt", x, most), x, most)
    number = cast(binary("sub", cast(cast(x, code), I32), const(3, I32)), F32)
    data, flags = TensorSpec(F32, sizes), TensorSpec(I64, (576,))
    inverse = unary("not", load(1, (axis(0),), I64))
    nests = (
        LoopNest(sizes, (), (), (Store(0, at, number),)),
        LoopNest((576,), (), (), (Store(1, (axis(0),), inverse),)),
    )
    return LoopKernel((data, flags), (data, flags), nests)


@pytest.mark.parametrize("code", [U8, I8])
def test_no_float_is_converted_in_a_store(code: DType) -> None:
    """Codes travel through shared memory where what they are made of is read in other runs."""
    pytest.importorskip("triton", reason="triton is not installed: pip install .[cuda]")
    from braze.codegen.cuda.triton.cubin import code_of, compile_source, listing_of

    (source,) = nest_sources(rounded_codes(code, (6, 7)), 128, 1, 2)
    compiled = compile_source(source, 90)
    if not re.search(r"st\.shared\.b8\s+\[\S+\], %r\d", compiled.asm["ptx"]):
        pytest.skip("this Triton stores no bytes of words here")
    assert not re.search(r"st\.shared\.b8\s+\[\S+\], %r\d", listing_of(source, 90))
    right = code_of(source, 90, compiled)
    assert right[:4] == b"\x7fELF" and right != compiled.asm["cubin"]


PAIR = """
	cvt.u64.u32 	%rd81, %r720;
	shl.b64 	%rd82, %rd81, 32;
	mul.wide.u32 	%rd83, %r718, %r21;
	or.b64 	%rd84, %rd83, %rd82;
"""


def test_a_product_below_another_number_is_cut() -> None:
    """Its upper half would be the other number's."""
    text = with_cut_products(PAIR)
    assert "mul.wide" not in text
    assert re.search(r"mul\.lo\.s32 (%\w+), %r718, %r21;\s+cvt\.u64\.u32 %rd83, \1;", text)
    kept = [line for line in PAIR.splitlines() if "mul" not in line]
    assert all(line in text.splitlines() for line in kept)
    halves = PAIR.replace("b64", "b32").replace(", 32;", ", 16;").replace("wide.u32", "wide.u16")
    text = with_cut_products(halves)
    assert re.search(r"mul\.lo\.s16 (%\w+), .*\s+cvt\.u32\.u16 %rd83, \1;", text)


@pytest.mark.parametrize(
    "there, other",
    [
        (", 32;", ", 31;"),  # no pair
        ("or.b64", "add.s64"),  # an address
        ("wide.u32", "wide.s32"),
        ("%rd83, %rd82", "%rd85, %rd82"),  # another number is in the pair
    ],
)
def test_whole_products_stay(there: str, other: str) -> None:
    assert with_cut_products(PAIR.replace(there, other)) == PAIR.replace(there, other)
