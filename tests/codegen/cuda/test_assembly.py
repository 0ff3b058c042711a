"""Packed additions of 16-bit numbers are not left to the assembler."""

from __future__ import annotations

import re

import numpy as np
import pytest

from braze.codegen.cuda.triton.assembly import without_packed_additions
from braze.codegen.cuda.triton.window import WindowTile, window_source
from braze.core.dims import sym
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
