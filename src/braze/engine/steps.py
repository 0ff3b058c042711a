"""The steps of a plan and the bodies that steps run.

A list of steps is cut into segments at steps that decide what runs next (Sizes, If, Loop, Call);
docs/engine-format.md explains how a run walks them. A new field is its line here, who sets it
(planning/steps.py, lists.py) and who heeds it (native/src/executor.cc, cuda_steps.cc on a GPU).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from braze.core.dtypes import DType
from braze.engine.records import Earlier, Index, Many, Number, Union

MAX_MAP_RANK: Final = 5  # of a tensor map

Size: TypeAlias = Annotated[int, Index("sizes")]
Params: TypeAlias = Annotated[tuple[int, ...], Many(Index("sizes"))]
After: TypeAlias = Annotated[tuple[int, ...], Many(Earlier())]


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A buffer with a byte displacement (a size index, or -1 for none)."""

    ROW: ClassVar[bool] = True
    buffer: Annotated[int, Index("buffers")]
    displacement: Annotated[int, Index("sizes", none=True)] = -1


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How a kernel of a GPU copies one of its tensors in boxes (CUtensorMap).

    buffer: a position in the buffers of the launch; shape and strides: sizes, outermost axis first;
    strides are in elements, of every axis but the last, whose step is 1; box: elements along each
    axis; swizzle: how a box is scattered in shared memory (CUtensorMapSwizzle).
    """

    buffer: Annotated[int, Number(0)]
    dtype: DType
    shape: Annotated[tuple[int, ...], Many(Index("sizes"), MAX_MAP_RANK)]
    strides: Annotated[tuple[int, ...], Many(Index("sizes"), MAX_MAP_RANK)]
    box: Annotated[tuple[int, ...], Many(Number(1, 256), MAX_MAP_RANK)]
    swizzle: Annotated[int, Number(0, 3)]


@dataclass(frozen=True, slots=True)
class Launch:
    """Launch one kernel.

    kernel: index into Plan.kernels; buffers: pointers in the order the kernel expects; params:
    size indexes whose int64 values are passed in order. `parallel` steps run on all workers,
    others on one. `after` lists earlier steps of the same list this one must wait for (empty: no
    dependency); the executor may skip a barrier between steps that do not depend on each other.
    grid: blocks along each axis (size indexes), for kernels of a device that has blocks. maps: its
    first arguments, before the buffers.
    """

    TAG: ClassVar[str] = "launch"
    kernel: Annotated[int, Index("kernels")]
    name: str
    buffers: tuple[BufferRef, ...]
    params: Params
    parallel: bool
    after: After = ()
    origins: tuple[str, ...] = ()
    tactic: str = ""
    grid: Annotated[tuple[int, ...], Many(Index("sizes"), 3)] = ()
    maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """Call a routine of a library that the runtime has ("braze") or opens.

    attributes: the literal descriptor of the routine, JSON-able; buffers and params as for Launch;
    module: what of it is no literal, code of kind "library" (-1: none).
    A runtime without the library refuses the engine with a TargetError.
    """

    TAG: ClassVar[str] = "library"
    library: str
    routine: str
    name: str
    buffers: tuple[BufferRef, ...]
    params: Params
    attributes: dict[str, Any] = field(default_factory=dict)
    after: After = ()
    origins: tuple[str, ...] = ()
    tactic: str = ""
    module: Annotated[int, Index("modules", none=True)] = -1


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy `bytes` (a size) from one buffer to another."""

    TAG: ClassVar[str] = "copy"
    source: BufferRef
    target: BufferRef
    bytes: Size
    name: str = ""
    after: After = ()
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownSize:
    """A symbol, and the size it gets; -1 where its ElementSource is read."""

    ROW: ClassVar[bool] = True
    symbol: Annotated[int, Index("symbols")]
    size: Annotated[int, Index("sizes", none=True)] = -1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The point where sizes become known: gives symbols their values, all at once.

    Everything before it has run and is without error; what uses the symbols is set up after it.
    """

    TAG: ClassVar[str] = "sizes"
    known: tuple[KnownSize, ...]
    name: str = ""
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """Run body `then` when the byte at `condition` is not zero, else `otherwise` (-1: none)."""

    TAG: ClassVar[str] = "if"
    condition: BufferRef
    then: Annotated[int, Index("bodies", none=True)]
    otherwise: Annotated[int, Index("bodies", none=True)]
    name: str = ""
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Carried:
    """A buffer that keeps a value from one iteration to the next.

    target gets a copy of `first` before the loop (None: earlier steps have filled it) and of `next`
    after every iteration; as many bytes as target then has. After the loop it holds the last value.
    """

    target: Annotated[int, Index("buffers")]
    first: BufferRef | None
    next: BufferRef


@dataclass(frozen=True, slots=True)
class CarriedSize:
    """An assigned symbol that is `first` before the loop and `next` after every iteration."""

    ROW: ClassVar[bool] = True
    symbol: Annotated[int, Index("symbols")]
    first: Size
    next: Size


@dataclass(frozen=True, slots=True)
class Loop:
    """Run a body again and again.

    trip: an int64, read once before the loop, at most so many times; condition: a byte, read before
    every iteration, ends the loop when zero. One of them must be there. counter: an int64 buffer
    that gets the number of the iteration before each (-1: none). Carried values and sizes change
    together, after the body. Symbols that steps of the body give are unknown again in every
    iteration and after the loop; what outlives an iteration is carried.
    """

    TAG: ClassVar[str] = "loop"
    body: Annotated[int, Index("bodies")]
    trip: BufferRef | None = None
    condition: BufferRef | None = None
    counter: Annotated[int, Index("buffers", none=True)] = -1
    carried: tuple[Carried, ...] = ()
    sizes: tuple[CarriedSize, ...] = ()
    name: str = ""
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """Run a body once."""

    TAG: ClassVar[str] = "call"
    body: Annotated[int, Index("bodies")]
    name: str = ""
    origins: tuple[str, ...] = ()


Step: TypeAlias = Launch | LibraryCall | Copy | Sizes | If | Loop | Call
Steps: TypeAlias = Annotated[
    tuple[Step, ...],
    Many(Union("Step", (Launch, LibraryCall, Copy, Sizes, If, Loop, Call))),
]


def bodies_run(step: Step) -> list[int]:
    """The bodies that a step may run, by their numbers in the plan."""
    if isinstance(step, If):
        return [b for b in (step.then, step.otherwise) if b >= 0]
    return [step.body] if isinstance(step, (Loop, Call)) else []


@dataclass(frozen=True, slots=True)
class Body:
    """Steps that an If, a Loop or a Call runs; they may run bodies before this one in the plan."""

    name: str
    steps: Steps
