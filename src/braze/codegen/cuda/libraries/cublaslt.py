"""cuBLASLt in the process that builds: which algorithms it has for a product, and calls to time.

Numbers are those of cublasLt.h, https://docs.nvidia.com/cuda/cublas/#cublaslt-datatypes-reference
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from braze.codegen.cuda.driver import Driver
from braze.codegen.cuda.libraries.product import Matrix, Product
from braze.core.dtypes import BF16, F16, F32, I8, I32, DType
from braze.core.errors import CompileError, ExecutionError, TargetError
from braze.runtime.libraries import open_library

TYPE: Final[Mapping[DType, int]] = {F32: 0, F16: 2, I8: 3, I32: 10, BF16: 14}  # cudaDataType
COMPUTE: Final[Mapping[DType, int]] = {F32: 68, I32: 72}  # cublasComputeType_t
TRANSA, TRANSB, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
BATCH, STEP = 5, 6  # cublasLtMatrixLayoutAttribute_t
WORKSPACE, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)  # cublasLtMatmulPreferenceAttributes_t
# sums of a split k are added by a kernel of their own, in order; in place they take turns as they
# come (cublasLtReductionScheme_t: none, in the type of sums)
IN_ORDER: Final = 2
WORKSPACE_LIMIT: Final = 32 << 20
ALGORITHM_BYTES: Final = 64
LARGEST_ALIGNMENT: Final = 16  # what is promised of a tensor's address


def epilogue_number(product: Product) -> int:
    """The cublasLtEpilogue_t."""
    activation = {"": 0, "relu": 2, "gelu": 32}[product.activation]
    return (activation | (4 if product.bias is not None else 0)) or 1


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What the library keeps of a choice (valid for one version of it), and its workspace."""

    content: bytes
    workspace: int


class _Result(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_char * ALGORITHM_BYTES),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasLt:
    """A handle of the library on the primary context of device 0."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._driver = Driver()
        library.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = int(library.cublasLtGetVersion())
        self.handle = ctypes.c_void_p()
        self.call("cublasLtCreate", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises ExecutionError."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise ExecutionError(
                f"cuBLASLt's {name} failed with status {status}; check the GPU with nvidia-smi "
                "and run again"
            )

    def algorithms(self, product: Product, most: int) -> list[Algorithm]:
        """What the library's heuristics offer, its best guess first; none where it cannot."""
        self._driver.bind()
        with _Described(self, product) as d:
            preference = ctypes.c_void_p()
            self.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
            wanted: list[tuple[int, Any]] = [
                (WORKSPACE, ctypes.c_uint64(WORKSPACE_LIMIT)),
                (REDUCTIONS, ctypes.c_uint32(IN_ORDER)),
            ]
            operands = (product.left, product.right, product.residual or product.out, product.out)
            for attribute, m in zip(ALIGNMENTS, operands, strict=True):
                wanted.append((attribute, ctypes.c_uint32(alignment(m))))
            for attribute, value in wanted:
                self.set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value)
            results, count = (_Result * most)(), ctypes.c_int()
            status = self._library.cublasLtMatmulAlgoGetHeuristic(
                self.handle, d.operation, *d.layouts, preference, most, results,
                ctypes.byref(count),
            )  # fmt: skip
            self.call("cublasLtMatmulPreferenceDestroy", preference)
        if status:
            return []
        found = [r for r in results[: count.value] if r.state == 0]
        return [Algorithm(bytes(r)[:ALGORITHM_BYTES], r.workspace) for r in found]

    def set(self, function: str, what: ctypes.c_void_p, attribute: int, value: Any) -> None:
        """Set an attribute of a descriptor."""
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self.call(function, what, attribute, ctypes.byref(value), size)

    def prepare(self, product: Product, algorithm: Algorithm) -> PreparedProduct:
        """A call that can be made; raises CompileError for an algorithm that does not fit."""
        self._driver.bind()
        return PreparedProduct(self, product, algorithm)


def alignment(m: Matrix) -> int:
    """What every matrix's address is a multiple of, in bytes, as far as it matters."""
    reach = (m.offset | m.step) * m.dtype.itemsize
    return min(LARGEST_ALIGNMENT, reach & -reach) if reach else LARGEST_ALIGNMENT


class _Described:
    """Descriptors of a product: the operation and the layouts of A, B, C and D."""

    def __init__(self, library: CublasLt, product: Product) -> None:
        self._library = library
        kind = F32 if product.compute is F32 else I32
        self.operation = ctypes.c_void_p()
        library.call(
            "cublasLtMatmulDescCreate", ctypes.byref(self.operation), COMPUTE[kind], TYPE[kind]
        )
        self._set(TRANSA, ctypes.c_int32(product.left.transposed))
        self._set(TRANSB, ctypes.c_int32(product.right.transposed))
        self._set(EPILOGUE, ctypes.c_int32(epilogue_number(product)))
        if product.bias is not None:
            self.point_bias(16)  # the heuristics want one that is aligned
        operands = (product.left, product.right, product.residual or product.out, product.out)
        self.layouts = [self._layout(m, product.batch) for m in operands]

    def _set(self, attribute: int, value: Any) -> None:
        self._library.set("cublasLtMatmulDescSetAttribute", self.operation, attribute, value)

    def point_bias(self, address: int) -> None:
        self._set(BIAS_POINTER, ctypes.c_uint64(address))

    def _layout(self, m: Matrix, batch: int) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._library.call(
            "cublasLtMatrixLayoutCreate", ctypes.byref(made), TYPE[m.dtype],
            ctypes.c_uint64(m.rows), ctypes.c_uint64(m.columns), ctypes.c_int64(m.lead),
        )  # fmt: skip
        if batch > 1:
            for attribute, value in (
                (BATCH, ctypes.c_int32(batch)),
                (STEP, ctypes.c_int64(m.step)),
            ):
                self._library.set("cublasLtMatrixLayoutSetAttribute", made, attribute, value)
        return made

    def __enter__(self) -> _Described:
        return self

    def __exit__(self, *_: object) -> None:
        for layout in self.layouts:
            self._library.call("cublasLtMatrixLayoutDestroy", layout)
        self._library.call("cublasLtMatmulDescDestroy", self.operation)


class PreparedProduct:
    """A product with an algorithm; `run` enqueues it."""

    def __init__(self, library: CublasLt, product: Product, algorithm: Algorithm) -> None:
        self._library, self._product, self._algorithm = library, product, algorithm
        self._content = ctypes.create_string_buffer(algorithm.content, ALGORITHM_BYTES)
        scalar = ctypes.c_float if product.compute is F32 else ctypes.c_int32
        self._one, self._beta = scalar(1), scalar(int(product.residual is not None))
        self._described = _Described(library, product)
        result = _Result()
        status = library._library.cublasLtMatmulAlgoCheck(
            library.handle, self._described.operation, *self._described.layouts, self._content,
            ctypes.byref(result),
        )  # fmt: skip
        if status or result.workspace > algorithm.workspace:
            raise CompileError(
                f"cuBLASLt {library.version} does not take an algorithm for a product (status "
                f"{status}); remove the timing cache and build the engine again"
            )

    def run(self, addresses: Sequence[int], workspace: int, stream: ctypes.c_void_p | None) -> None:
        """Enqueue; addresses: of the kernel's inputs, then its output."""
        p = self._product
        if p.bias is not None:
            self._described.point_bias(addresses[p.bias])

        def at(m: Matrix) -> ctypes.c_void_p:
            return ctypes.c_void_p(addresses[m.slot] + m.offset * m.dtype.itemsize)

        a, b, c, d = self._described.layouts
        self._library.call(
            "cublasLtMatmul", self._library.handle, self._described.operation,
            ctypes.byref(self._one), at(p.left), a, at(p.right), b, ctypes.byref(self._beta),
            at(p.residual or p.out), c, at(p.out), d, self._content, ctypes.c_void_p(workspace),
            ctypes.c_size_t(self._algorithm.workspace), stream,
        )  # fmt: skip


@cache
def find_cublaslt() -> CublasLt | None:
    """The library here, or None where there is none or no GPU."""
    library = open_library("libcublasLt.so.13", "libcublasLt.so.12")
    if library is None:
        return None
    try:
        return CublasLt(library)
    except (OSError, TargetError, ExecutionError, MemoryError):
        return None
