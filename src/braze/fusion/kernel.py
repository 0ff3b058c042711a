"""Kernel: a backend-neutral unit of work that a code generator turns into one launch.

A kernel is either a LoopKernel (generic loop nests) or an AnchorKernel (a template with holes).
Both are frozen data; their text keys the timing cache and is what the inspector shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union

from braze.core.dims import Dim
from braze.core.dtypes import DType
from braze.expr.loops import LoopKernel, TensorSpec
from braze.expr.scalar import Expr
from braze.ops.lowering import AnchorSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AnchorKernel:
    """An anchor with its epilogue.

    inputs: the anchor's own operands first (in its slot order), then what the epilogue reads.
    epilogue: over `hole(0)` (the sum, of the spec's type `acc`), `axis(i)` of the anchor's logical
    output axes (`spec.out_shape`, which is the output's shape) and `load(slot, ...)`; its dtype is
    the output's.
    constant: slots whose content is known at build time and may be repacked. The epilogue reads no
    operand that is (what it needs of the same value is in a slot of its own), so that code may ask
    for one in another form without a look at the epilogue.
    """

    spec: AnchorSpec
    inputs: tuple[TensorSpec, ...]
    output: TensorSpec
    epilogue: Expr
    constant: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        assert self.output.shape == self.spec.out_shape, (self.output, self.spec)


Kernel = Union[LoopKernel, AnchorKernel]


@dataclass(frozen=True, slots=True)
class Tactic:
    """One way to generate code for a kernel: a template and its literal parameters."""

    template: str
    parameters: tuple[tuple[str, int | str], ...] = ()

    def __getitem__(self, key: str) -> int | str:
        return dict(self.parameters)[key]

    def __str__(self) -> str:
        inner = ", ".join(f"{k}={v}" for k, v in self.parameters)
        return f"{self.template}({inner})"


@dataclass(frozen=True, slots=True)
class Packing:
    """How a constant slot is laid out for a template: `kind`, element type, literal parameters.

    The backend that asked for it applies it (`backend.pack(array, packing)`); equal content with
    equal packing is stored once.
    """

    kind: str
    dtype: DType
    parameters: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """What a backend made of a kernel: bytes of one kind that only its runtime reads.

    kind: "elf" (a relocatable object for the CPU), "cubin" (for a GPU) or "text" (what the backend
    itself interprets); entry: the function to call in it; needs: what must be there to run it, in
    the backend's words ("avx512", "sm_90", "reference").
    """

    kind: str
    entry: str
    needs: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LibraryCode:
    """A routine of a library that the runtime opens, in place of code of one's own.

    attributes: its literal descriptor, JSON-able; it says which buffer is what. data: what of it is
    no literal, in the library's own form.
    """

    library: str
    routine: str
    attributes: dict[str, Any] = field(hash=False)
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """Run by the threads of the host: `parallel` is False for code that must run on one worker.

    scratch_bytes: bytes of workspace *per worker* (0: none); when not 0, one extra buffer of
    num_workers * scratch_bytes follows the outputs.
    """

    parallel: bool
    scratch_bytes: Dim = 0

    def workspace(self, threads: int) -> Dim:
        """Bytes of the extra buffer."""
        return self.scratch_bytes * threads


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor that a kernel copies in boxes of `box` elements; elements outside of it are zero.

    buffer: its place among the buffers of the launch; shape: outermost axis first; strides:
    elements from step to step of every axis but the last, whose step is 1; swizzle: how a box is
    scattered in shared memory, as CUDA numbers it (CUtensorMapSwizzle).
    """

    buffer: int
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True, slots=True)
class GridLaunch:
    """Run by a device in `grid` blocks of `block` threads that share `shared_bytes` each.

    scratch_bytes: bytes of workspace of the launch (0: none), in one extra buffer behind the
    outputs. counters: 32-bit words that the step has for itself, zero before and after each run;
    waits: the code itself waits for the launches before it, and may be started while those run;
    maps: tensor maps, which are its first arguments.
    """

    grid: Dim
    block: int
    shared_bytes: int
    scratch_bytes: Dim = 0
    counters: int = 0
    waits: bool = False
    maps: tuple[TensorMap, ...] = ()

    def workspace(self, threads: int) -> Dim:
        """Bytes of the extra buffer."""
        return self.scratch_bytes


@dataclass(frozen=True, slots=True)
class LibraryLaunch:
    """A call of a library; scratch_bytes as for a grid."""

    scratch_bytes: Dim = 0

    def workspace(self, threads: int) -> Dim:
        """Bytes of the extra buffer."""
        return self.scratch_bytes


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """Code for one kernel and tactic, and how it is launched.

    params: the sizes the code reads at run time, in order. packings: constant slots that must be
    repacked. Buffers are passed as: inputs in slot order, outputs in slot order, scratch. takes:
    the positions among inputs and outputs of the buffers that are passed before the scratch, in
    their order (None: all). then: a second launch on the same buffers, for a kernel that is more
    than one; it reads what the first has written.
    """

    code: Code | LibraryCode
    params: tuple[Dim, ...]
    launch: HostLaunch | GridLaunch | LibraryLaunch
    packings: tuple[tuple[int, Packing], ...] = ()
    then: CompiledKernel | None = None
    takes: tuple[int, ...] | None = None

    @property
    def own_code(self) -> Code:
        """The code, of a kernel that calls no library."""
        assert isinstance(self.code, Code), self.code
        return self.code

    def passed(self, buffers: Sequence[T]) -> list[T]:
        """Those of the kernel's buffers (inputs, then outputs) that are passed, in order."""
        return list(buffers) if self.takes is None else [buffers[i] for i in self.takes]
