"""Products by cuBLASLt and convolutions by cuDNN as tactics: one for each algorithm on offer.

Where a library cannot compute the whole epilogue, a loop nest behind it does the rest in place.
Tactics are named by the library's own words for its choice, so that an engine and the timing cache
hold it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from braze.codegen.cuda.libraries.convolution import Convolution, convolution_of
from braze.codegen.cuda.libraries.cublaslt import Algorithm, PreparedProduct, find_cublaslt
from braze.codegen.cuda.libraries.cudnn import Engine, PreparedConvolution, find_cudnn
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

CUBLASLT: Final = "cublaslt"
CUDNN: Final = "cudnn"
LIBRARIES: Final = frozenset({CUBLASLT, CUDNN})
PLANS_FROM: Final = 16  # of the tactics that an optimization level offers
MOST: Final = 16  # algorithms that the library is asked for; it gives fewer
NO_REST: Final[tuple[tuple[str, int | str], ...]] = (("rows", 0), ("columns", 0), ("warps", 0))


def _product(kernel: AnchorKernel) -> Product | str:
    """cuBLASLt's part of `kernel`, or why it has none."""
    split = split_of(kernel)
    return split if isinstance(split, str) else product_of(kernel, split.library)


def _convolution(kernel: AnchorKernel) -> Convolution | str:
    """cuDNN's part of `kernel`, or why it has none."""
    split = split_of(kernel)
    if isinstance(split, str):
        return split
    return convolution_of(kernel, split.library, split.slots)


def library_support(kernel: AnchorKernel) -> str | None:
    """None where cuBLASLt may compute the product of `kernel`, or why not."""
    found = _product(kernel)
    return found if isinstance(found, str) else None


def library_tactics(kernel: AnchorKernel, effort: Effort) -> tuple[Tactic, ...]:
    """A tactic for each algorithm of the libraries here; none without them or where none fits."""
    split = split_of(kernel)
    if isinstance(split, str):
        return ()
    rest = NO_REST
    if split.rest is not None:
        rest = nest_tactics(split.rest, effort)[0].parameters
    most = min(MOST, 2 * effort.tactics)
    found: list[Tactic] = []
    product, blas = _product(kernel), find_cublaslt()
    if isinstance(product, Product) and blas is not None:
        for a in blas.algorithms(product, most):
            chosen = (("algorithm", a.content.hex()), ("workspace", a.workspace))
            found.append(Tactic(CUBLASLT, (("version", blas.version), *chosen, *rest)))
    # plans take seconds to make, and few are faster than what Gluon templates give
    convolution = _convolution(kernel) if effort.tactics >= PLANS_FROM else "not at this level"
    dnn = find_cudnn() if isinstance(convolution, Convolution) else None
    if isinstance(convolution, Convolution) and dnn is not None:
        for e in dnn.engines(convolution, most):
            engine = (("engine", e.number), ("knobs", e.knobs))
            found.append(Tactic(CUDNN, (("version", dnn.version), *engine, *rest)))
    return tuple(found)


def library_code(kernel: AnchorKernel, tactic: Tactic) -> CompiledKernel:
    """The call of `tactic`, without what follows it; raises CompileError."""
    if tactic.template == CUDNN:
        return _plan_of(kernel, tactic)
    product = _product(kernel)
    if isinstance(product, str):
        raise CompileError(f"cuBLASLt does not compute this kernel: {product}; please report it")
    chosen = {k: tactic[k] for k in ("version", "algorithm", "workspace")}
    attributes = {**chosen, **product.attributes()}
    launch = LibraryLaunch(int(tactic["workspace"]))
    return CompiledKernel(LibraryCode(CUBLASLT, "matmul", attributes), (), launch)


def _plan_of(kernel: AnchorKernel, tactic: Tactic) -> CompiledKernel:
    """A plan of cuDNN, which only the library can make."""
    convolution, library = _convolution(kernel), find_cudnn()
    if isinstance(convolution, str):
        raise CompileError(f"cuDNN does not compute this kernel: {convolution}; please report it")
    if library is None or library.version != tactic["version"]:
        raise CompileError(
            f"a tactic is a plan of cuDNN {tactic['version']}, which is not here; "
            "remove the timing cache and build the engine again"
        )
    text, workspace = library.plan(convolution, Engine(int(tactic["engine"]), str(tactic["knobs"])))
    fixed = {"version": tactic["version"], "workspace": workspace}
    attributes = {**fixed, **convolution.attributes()}
    code = LibraryCode(CUDNN, "run", attributes, text.encode())
    launch = LibraryLaunch(workspace)
    return CompiledKernel(code, (), launch, convolution.packings())


def library_codes(
    wanted: Sequence[tuple[AnchorKernel, Tactic]], threads: int
) -> list[CompiledKernel | CompileError]:
    """The calls of many tactics; plans of cuDNN, which it compiles, are made side by side."""

    def one(pair: tuple[AnchorKernel, Tactic]) -> CompiledKernel | CompileError:
        try:
            return library_code(*pair)
        except CompileError as e:
            return e

    with ThreadPoolExecutor(max(1, threads)) as pool:
        return list(pool.map(one, wanted))


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


def prepare_call(code: LibraryCode) -> PreparedProduct | PreparedConvolution:
    """A call that can be enqueued here; raises CompileError without the library's version."""
    library = find_cublaslt() if code.library == CUBLASLT else find_cudnn()
    if library is None or library.version != code.attributes["version"]:
        raise CompileError(
            f"a tactic calls {code.library} {code.attributes['version']}, which is not here; "
            "remove the timing cache and build the engine again"
        )
    if code.library == CUDNN:
        dnn = find_cudnn()
        assert dnn is not None
        return dnn.prepare(code.data, [(n, slot) for n, slot, _ in code.attributes["tensors"]])
    blas = find_cublaslt()
    assert blas is not None
    content = bytes.fromhex(code.attributes["algorithm"])
    algorithm = Algorithm(content, code.attributes["workspace"])
    return blas.prepare(Product.read(code.attributes), algorithm)
