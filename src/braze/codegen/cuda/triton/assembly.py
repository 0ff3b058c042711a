"""PTX as the assembler gets it right.

LLVM adds two 16-bit indices as the halves of one word where it knows that they are small. Of
`add.s16x2 d, a, -1` whose result is read in its lower half alone, ptxas of CUDA 12.8 and 12.9 makes
an addition of 0: convolutions over three axes read the wrong line of their window. No packed
addition is left to it.
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


def without_packed_additions(ptx: str) -> str:
    """The same program with packed additions of 16-bit numbers written as ones of whole words."""
    return ADDITION.sub(IN_HALVES, ptx)


def assemble(ptx: str, target: Any, options: Mapping[str, Any]) -> bytes:
    """Machine code of PTX by Triton's assembler. target: a GPUTarget; options: of the compilation
    that the PTX is from."""
    from triton.compiler.compiler import make_backend

    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    return bytes(backend.make_cubin(ptx, {}, parsed, target.arch))
