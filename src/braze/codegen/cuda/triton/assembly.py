"""PTX as it was meant, and as the assembler gets it right.

LLVM adds two 16-bit indices as the halves of one word where it knows that they are small. Of
`add.s16x2 d, a, -1` whose result is read in its lower half alone, ptxas of CUDA 12.8 and 12.9 makes
an addition of 0: convolutions over three axes read the wrong line of their window. No packed
addition is left to it.

LLVM stores the lowest byte of a word by `st.b8` of the word's register. Where a float instruction
has made that word, ptxas of CUDA 12.8, 12.9 and 13.0 converts its float to an integer of 8 bits
(and to one of 16 for `st.b16`) before the store: codes that are rounded by adding 1.5 * 2**23 were
all 255. No word is left to such a store.

LLVM packs two 32-bit numbers into one register of 64. Where the lower one is a product that nobody
reads, the LLVM of Triton 3.6 takes all its 64 bits, whose upper half then spoils the other number:
a window that begins before the image has a negative factor there. Such a product is cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

ADDITION = re.compile(r"add\.[su]16x2(?:\.\w+)*\s+(%\w+),\s*([%\w-]+),\s*([%\w-]+);")
# sums of the lower 15 bits of each half carry into its top bit alone, which is then the odd one of
# that carry and both top bits
IN_HALVES = r"""{
	.reg .b32 %half<4>;
	and.b32 %half0, \2, 0x7fff7fff;
	and.b32 %half1, \3, 0x7fff7fff;
	add.s32 %half0, %half0, %half1;
	xor.b32 %half2, \2, \3;
	and.b32 %half2, %half2, 0x80008000;
	xor.b32 \1, %half0, %half2;
	}"""


SHIFT = re.compile(r"shl\.b(32|64)\s+(%\w+),\s*%\w+,\s*(\d+);")
UNION = re.compile(r"or\.b(32|64)\s+%\w+,\s*(%\w+),\s*(%\w+);")
PRODUCT = re.compile(r"mul\.wide\.u(16|32)\s+(%\w+),\s*([%\w-]+),\s*([%\w-]+);")
STORE = re.compile(
    r"(?P<guard>@!?%\w+\s+)?(?P<store>st(?:\.\w+)*\.[bsu](?:8|16)\s+\[[^\]]+\]),\s*"
    r"(?P<given>%r\d+|\{[^}]*%r\d+[^}]*\});"
)
WORD = re.compile(r"%r\d+")


def mended(ptx: str) -> str:
    """The program that LLVM meant, without what the assembler gets wrong."""
    return without_words_in_stores(without_packed_additions(with_cut_products(ptx)))


def with_cut_products(ptx: str) -> str:
    """The same program with products in lower halves of pairs cut to their width."""
    shifted = {m[2]: m[1] for m in SHIFT.finditer(ptx) if int(m[1]) == 2 * int(m[3])}
    packed = set[str]()
    for m in UNION.finditer(ptx):
        for low, high in ((m[2], m[3]), (m[3], m[2])):
            if shifted.get(high) == m[1]:
                packed.add(low)
    return PRODUCT.sub(lambda m: _cut(m) if m[2] in packed else m[0], ptx)


def _cut(m: re.Match[str]) -> str:
    bits, to, a, b = m.groups()
    lines = (f".reg .b{bits} %half;", f"mul.lo.s{bits} %half, {a}, {b};")
    return "\n\t".join(("{", *lines, f"cvt.u{2 * int(bits)}.u{bits} {to}, %half;", "}"))


def without_packed_additions(ptx: str) -> str:
    """The same program with packed additions of 16-bit numbers written as ones of whole words."""
    return ADDITION.sub(IN_HALVES, ptx)


def without_words_in_stores(ptx: str) -> str:
    """The same program with stores of 8 and 16 bits that read half words alone."""
    return STORE.sub(_narrowed, ptx)


def _narrowed(m: re.Match[str]) -> str:
    words = list(dict.fromkeys(WORD.findall(m["given"])))
    halves = {word: f"%half{k}" for k, word in enumerate(words)}
    cuts = [f"cvt.u16.u32 {half}, {word};" for word, half in halves.items()]
    given = WORD.sub(lambda found: halves[found[0]], m["given"])
    lines = [f".reg .b16 %half<{len(words)}>;", *cuts, f"{m['guard'] or ''}{m['store']}, {given};"]
    return "\n\t".join(("{", *lines, "}"))


def assemble(ptx: str, target: Any, options: Mapping[str, Any]) -> bytes:
    """Machine code of PTX by Triton's assembler. target: a GPUTarget; options: of the compilation
    that the PTX is from."""
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    return bytes(backend.make_cubin(ptx, {}, parsed, target.arch))
