"""Triton text to a cubin, with no GPU: the function is compiled for the target's architecture."""

from __future__ import annotations

import hashlib
import linecache
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from braze.codegen.cuda.gluon.header import GLUON_HEADER
from braze.codegen.cuda.triton.assembly import assemble, mended
from braze.codegen.cuda.triton.nests import TritonSource
from braze.core.errors import CompileError
from braze.fusion.kernel import TensorMap

SHORT = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
    "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8",
}  # fmt: skip
HEADER = """import triton
import triton.language as tl
NAN_OF_EITHER = tl.constexpr(tl.PropagateNan.ALL)
from braze.codegen.cuda.triton.combine import (
    add_of, all_of, any_of, argmax_first, argmax_last, argmin_first, argmin_last, byte_to_float,
    from_e5m2, max_of, min_of, mul_of, near_quotient, to_tf32,
)
"""
# from this compute capability on, launches may overlap and halves of words are compared at once
OVERLAP = 90
PAIRS = "from braze.codegen.cuda.triton.combine import max_s16, max_u16\n"
PARTS = """from braze.codegen.cuda.triton.combine import (
    max_s16_by_parts as max_s16, max_u16_by_parts as max_u16,
)
"""
OVERLAPPING = """from triton.language.extra.cuda import (
    gdc_launch_dependents as release_later, gdc_wait as wait_for_earlier,
)
"""
# and 8-bit floats are made by an instruction
EIGHT_BITS = 89
BY_INSTRUCTION = "from braze.codegen.cuda.triton.combine import from_e4m3, to_e4m3\n"
BY_BITS = """from braze.codegen.cuda.triton.combine import (
    from_e4m3_by_bits as from_e4m3, to_e4m3_by_bits as to_e4m3,
)
"""
IN_TURN = """from braze.codegen.cuda.triton.combine import (
    nothing as release_later, nothing as wait_for_earlier,
)
"""


@dataclass(frozen=True)
class Cubin:
    """Machine code of one launch. shared: bytes of dynamic shared memory; threads per program."""

    entry: str
    code: bytes
    shared: int
    threads: int


def file_of(source: TritonSource, capability: int = 0) -> tuple[str, str]:
    """The name and the text of the file that has the function of `source`.

    Capability 0 is for the interpreter, which knows no overlapping launches.
    """
    header = GLUON_HEADER if source.maps else HEADER
    if not source.maps:
        header += OVERLAPPING + PAIRS if capability >= OVERLAP else IN_TURN + PARTS
        header += BY_INSTRUCTION if capability >= EIGHT_BITS else BY_BITS
    text = header + "\n\n" + source.text
    return f"<braze {hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}>", text


def function_of(source: TritonSource, capability: int = 0) -> Any:
    """The Triton function of `source` (Triton reads the text of functions from their file)."""
    name, text = file_of(source, capability)
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"__name__": "braze_generated"}
    exec(compile(text, name, "exec"), space)
    return space[source.entry]


def compile_source(source: TritonSource, capability: int) -> Any:
    """What Triton makes of a source: code of every stage, and what it says of it.

    The machine code that runs is that of `code_of`.
    """
    import triton
    from triton.compiler import ASTSource

    signature = {f"map{i}": _descriptor(m) for i, m in enumerate(source.maps)}
    signature |= {name: f"*{SHORT[kind]}" for name, kind in source.pointers}
    signature |= {f"n{i}": "i64" for i in range(len(source.params))}
    first = len(source.maps)
    places = range(first, first + len(source.pointers))
    aligned: Any = {(i,): [["tt.divisibility", 16]] for i in places}
    if source.maps:
        from triton.experimental.gluon._runtime import GluonASTSource

        ast = GluonASTSource(function_of(source, capability), signature, {}, aligned)
    else:
        ast = ASTSource(function_of(source, capability), signature, {}, aligned)
    return triton.compile(ast, target=_target(capability), options=_options(source))


def _options(source: TritonSource) -> dict[str, Any]:
    return {
        "num_warps": source.warps, "num_stages": source.stages,
        # contraction of products and sums is left to the source
        "enable_fp_fusion": False,
        "maxnreg": source.registers or None,
    }  # fmt: skip


def _target(capability: int) -> Any:
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", capability, 32)


def code_of(source: TritonSource, capability: int, compiled: Any) -> bytes:
    """The machine code of what `compile_source` gave."""
    ptx = str(compiled.asm["ptx"])
    right = mended(ptx)
    if right == ptx:
        return bytes(compiled.asm["cubin"])
    return assemble(right, _target(capability), _options(source))


def _descriptor(m: TensorMap) -> str:
    """The type of a tensor map as Triton spells it."""
    from triton.experimental.gluon.language import NVMMASharedLayout

    layout = NVMMASharedLayout(16 << m.swizzle if m.swizzle else 0, m.dtype.bits, len(m.box))
    return f"tensordesc<{SHORT[m.dtype.name]}{list(m.box)},{layout!r}>"


def compile_cubin(source: TritonSource, capability: int) -> Cubin:
    """Compile for sm_<capability>; raises CompileError."""
    try:
        done = compile_source(source, capability)
    except ImportError as e:
        raise CompileError(
            "GPU code needs the package triton, which is not installed; run `pip install .[cuda]` "
            "in the source tree of braze"
        ) from e
    meta = done.metadata
    code = code_of(source, capability, done)
    return Cubin(meta.name, code, meta.shared, 32 * meta.num_warps)


def listing_of(source: TritonSource, capability: int) -> str:
    """The PTX of one launch."""
    return mended(str(compile_source(source, capability).asm["ptx"]))


def triton_version() -> str:
    """Version of the installed Triton ("none" without it)."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return "none"
