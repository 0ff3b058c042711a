"""Products by cuBLASLt as tactics: one for each algorithm that the library offers.

Where the library cannot compute the whole epilogue, a loop nest behind it does the rest in place.
Tactics are named by what the library keeps of its choice, so that an engine and the timing cache
hold it, and code can be made of one without the library.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from braze.codegen.cuda.libraries.cublaslt import Algorithm, PreparedProduct, find_cublaslt
from braze.codegen.cuda.libraries.epilogue import Split, split_of
from braze.codegen.cuda.libraries.product import Product, product_of
from braze.codegen.cuda.tactics import nest_tactics
from braze.codegen.cuda.triton.nests import TritonSource, nest_sources
from braze.core.config import Effort
from braze.core.errors import CompileError
from braze.fusion.kernel import (
    AnchorKernel,
    CompiledKernel,
    LibraryCode,
    LibraryLaunch,
    Tactic,
)

TEMPLATE: Final = "cublaslt"
MOST: Final = 16  # algorithms that the library is asked for; it gives fewer
NO_REST: Final[tuple[tuple[str, int | str], ...]] = (("rows", 0), ("columns", 0), ("warps", 0))


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a kernel is shared between the library and a loop nest."""

    product: Product
    split: Split


def _plan(kernel: AnchorKernel) -> _Plan | str:
    """The library's part of `kernel`, or why it has none."""
    split = split_of(kernel)
    if isinstance(split, str):
        return split
    product = product_of(kernel, split.library)
    return product if isinstance(product, str) else _Plan(product, split)


def library_support(kernel: AnchorKernel) -> str | None:
    """None where cuBLASLt may compute the product of `kernel`, or why not."""
    found = _plan(kernel)
    return found if isinstance(found, str) else None


def library_tactics(kernel: AnchorKernel, effort: Effort) -> tuple[Tactic, ...]:
    """A tactic for each algorithm of the library here; none without it or where it does not fit."""
    found = _plan(kernel)
    if isinstance(found, str):
        return ()
    library = find_cublaslt()
    if library is None:
        return ()
    rest = NO_REST
    if found.split.rest is not None:
        rest = nest_tactics(found.split.rest, effort)[0].parameters
    version = ("version", library.version)
    return tuple(
        Tactic(
            TEMPLATE, (version, ("algorithm", a.content.hex()), ("workspace", a.workspace), *rest)
        )
        for a in library.algorithms(found.product, min(MOST, 2 * effort.tactics))
    )


def library_code(kernel: AnchorKernel, tactic: Tactic) -> CompiledKernel:
    """The call of `tactic`, without what follows it."""
    found = _plan(kernel)
    if isinstance(found, str):
        raise CompileError(f"cuBLASLt does not compute this kernel: {found}; please report it")
    chosen = {k: tactic[k] for k in ("version", "algorithm", "workspace")}
    attributes = {**chosen, **found.product.attributes()}
    launch = LibraryLaunch(int(tactic["workspace"]))
    return CompiledKernel(LibraryCode(TEMPLATE, "matmul", attributes), (), launch)


def library_listing(kernel: AnchorKernel, tactic: Tactic) -> str:
    """The call as text for people."""
    code = library_code(kernel, tactic).code
    assert isinstance(code, LibraryCode)
    return f"{code.library}.{code.routine} {json.dumps(code.attributes, indent=2)}"


def rest_sources(kernel: AnchorKernel, tactic: Tactic) -> tuple[TritonSource, ...]:
    """The launches behind the library's call."""
    found = split_of(kernel)
    if isinstance(found, str) or found.rest is None:
        return ()
    rows, columns, warps = (int(tactic[k]) for k in ("rows", "columns", "warps"))
    return nest_sources(found.rest, rows, columns, warps)


def rest_takes(kernel: AnchorKernel) -> tuple[int, ...]:
    """Which of the kernel's buffers (inputs, then the output) those launches take."""
    found = split_of(kernel)
    assert isinstance(found, Split)
    out = len(kernel.inputs)
    return (*found.slots, out, out)


def prepare_call(code: LibraryCode) -> PreparedProduct:
    """A call that can be enqueued here; raises CompileError without the library's version."""
    library = find_cublaslt()
    if library is None or library.version != code.attributes["version"]:
        raise CompileError(
            f"a tactic calls cuBLASLt {code.attributes['version']}, which is not here; "
            "remove the timing cache and build the engine again"
        )
    content = bytes.fromhex(code.attributes["algorithm"])
    algorithm = Algorithm(content, code.attributes["workspace"])
    return library.prepare(Product.read(code.attributes), algorithm)
