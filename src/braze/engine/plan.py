"""The Plan: everything an engine file holds, as plain frozen data.

A plan is what is serialized; an Engine is a loaded plan; an ExecutionContext holds mutable state.
The annotations say what each field is (`engine/records.py`): encoder, decoder, range checks and the
C++ side (`python -m braze.engine.emit_header native/src`) all come from them.

Sizes that depend on shapes or data are indexes into `Plan.sizes`, the shape program: SizeOps in
evaluation order over the symbols. A symbol gets its value from an input axis before a run, or in
the run (see the sources of a Symbol).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from braze.core.dtypes import DType
from braze.engine.content import pack_content, unpack_content
from braze.engine.records import (
    Choice,
    Content,
    Index,
    Many,
    Number,
    Union,
    Unstored,
)
from braze.engine.schema import MAX_BOUNDED, MAX_RANK, MAX_WORKERS, MIN_ALIGN, PAGE_ALIGN
from braze.engine.steps import Body, BufferRef, Copy, Launch, LibraryCall, Size, Step, Steps

SIZE_OPS: Final = ("const", "sym", "add", "mul", "floordiv", "mod", "max", "min")
BUFFER_KINDS: Final = ("arena", "weight", "input", "output")
SPACES: Final = ("host", "pinned", "device")
CODE_KINDS: Final = ("elf", "cubin", "text", "library")

Shape: TypeAlias = Annotated[tuple[int, ...], Many(Index("sizes"), MAX_RANK)]
Count: TypeAlias = Annotated[int, Number(0)]


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """What the plan was made for.

    fingerprint: what its code depends on, a name; alignment: of buffers, in bytes, a power of
    two; about: more of it for people, JSON-able.
    """

    fingerprint: str
    alignment: Annotated[int, Number(MIN_ALIGN, PAGE_ALIGN)] = MIN_ALIGN
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AxisSource:
    """The size of an axis of an input; every other axis that is the same symbol must agree."""

    TAG: ClassVar[str] = "axis"
    input: Annotated[int, Index("inputs")]
    axis: Annotated[int, Number(0, MAX_RANK - 1)]


@dataclass(frozen=True, slots=True)
class ElementSource:
    """An int64 element of a buffer, read at a Sizes step."""

    TAG: ClassVar[str] = "element"
    buffer: Annotated[int, Index("buffers")]
    element: Count


@dataclass(frozen=True, slots=True)
class AssignedSource:
    """A size of the shape program, assigned at a Sizes step or carried by a loop."""

    TAG: ClassVar[str] = "assigned"


SymbolSource: TypeAlias = AxisSource | ElementSource | AssignedSource


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that the build did not know, and where its value comes from.

    Symbols with another source than an axis are unknown until a step of the run gives them. Their
    values must be in the range of the profile too, and above the least int64; they may be negative.
    """

    name: str
    source: Annotated[
        SymbolSource, Union("SymbolSource", (AxisSource, ElementSource, AssignedSource))
    ]


@dataclass(frozen=True, slots=True)
class SizeOp:
    """One step of the shape program (all values are int64).

    ("const", value, 0) | ("sym", symbol index, 0) | (binary op, a, b) with a and b the indexes of
    earlier steps. floordiv and mod follow Python; a zero divisor is an error at set-shapes time.
    """

    ROW: ClassVar[bool] = True
    op: Annotated[str, Choice("SizeOpCode", SIZE_OPS)]
    a: Annotated[int, Number()]
    b: Annotated[int, Number()] = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """Sizes that the build assumed equal; checked as soon as both are known."""

    lhs: Size
    rhs: Size
    what: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A network input or output. `shape` holds size indexes; `buffer` an index into Plan.buffers.

    For an input, a dim that is a plain symbol *binds* that symbol from the actual shape (every
    occurrence must agree); any other dim is checked against its computed value. `value`, when not
    empty, is the constant content (flattened, C order) an input was specialised to: every run
    must pass exactly this content. `content`, when not empty, has a symbol for every element of an
    input of integers (C order): the ranges of these in a profile bound what the input may hold.
    """

    name: str
    dtype: DType
    shape: Shape
    buffer: Annotated[int, Index("buffers")]
    value: Annotated[tuple[int | float, ...], Content(pack_content, unpack_content)] = ()
    content: Annotated[tuple[int, ...], Many(Index("symbols"), MAX_BOUNDED)] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a step reads or writes.

    kind: "arena" (offset per profile), "weight" (offset into the weights section), "input" or
    "output" (memory of the caller, bound by name). `bytes` is a size index; `offset` is in bytes
    and counts for weights only; arena offsets stand in each profile. space: where it must lie.
    """

    kind: Annotated[str, Choice("BufferKind", BUFFER_KINDS)]
    bytes: Size
    offset: Count = 0
    name: str = ""
    space: Annotated[str, Choice("Space", SPACES)] = "host"


@dataclass(frozen=True, slots=True)
class Module:
    """One piece of compiled code.

    kind: "elf" (a relocatable object for the CPU), "cubin", "text" (what a backend interprets), or
    "library" (what a library of a library call reads); needs: what it runs on, an ISA with any
    "+feature" parts, a compute capability ("sm_90"), or the name of a target or library.
    """

    kind: Annotated[str, Choice("CodeKind", CODE_KINDS)]
    needs: str
    code: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of a module. An elf function is
    entry(buffers, params, worker, num_workers, status); for a device with blocks, block is the
    number of threads of each and shared_bytes their shared memory. counters: 32-bit words of memory
    that each step with this kernel has for itself; they are zero before its first run, and it
    leaves them so. waits: the kernel itself waits for the launches before it, so that its blocks
    may start while those still run.
    """

    entry: str
    module: Annotated[int, Index("modules")]
    block: Annotated[int, Number(0, 1024)] = 0
    shared_bytes: Count = 0
    counters: Annotated[int, Number(0, 1 << 20)] = 0
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """One optimization profile: bounds of every symbol and the arena laid out for its maxima.

    ranges: (min, opt, max) per symbol, in the order of Plan.symbols; offsets: arena byte offset per
    buffer (-1 for buffers that are not in the arena, and for those whose size has no useful bound:
    of these, they get places behind the others when input shapes tell their sizes, and memory of
    their own when the run does); lower_bound_bytes: the largest live set.
    """

    ranges: tuple[tuple[int, int, int], ...]
    offsets: Annotated[tuple[int, ...], Many(Number(-1))]
    arena_bytes: Count
    lower_bound_bytes: Count


@dataclass(frozen=True, slots=True)
class DebugTensor:
    """An intermediate value that can be read back in debug mode, whenever step `step` has run.

    step counts as Plan.every_step does.
    """

    name: str
    dtype: DType
    shape: Shape
    ref: BufferRef
    step: Annotated[int, Index("every_step")]


@dataclass(frozen=True, slots=True)
class Weight:
    """One constant in the weights section; bytes are 64-byte aligned there and never copied."""

    name: str
    dtype: DType
    shape: Annotated[tuple[int, ...], Many(Number(0))]
    offset: Count
    bytes: Count
    content_hash: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A finished engine, before it is written or after it is read.

    record: JSON-able notes for people (fusions, tactics, refusals; timings are never in it, so
    that two builds from the same inputs and timing cache give the same bytes).
    weight_data: one bytes-like object per entry of `weights`.
    stripped: the weights' bytes were left out: it can be told of, and run once it is refitted.
    """

    target: TargetRecord
    threads: Annotated[int, Number(1, MAX_WORKERS)]
    symbols: tuple[Symbol, ...]
    sizes: tuple[SizeOp, ...]
    guards: tuple[Guard, ...]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    buffers: tuple[Buffer, ...]
    modules: tuple[Module, ...]
    kernels: tuple[Kernel, ...]
    steps: Steps
    profiles: tuple[Profile, ...]
    weights: tuple[Weight, ...]
    debug: tuple[DebugTensor, ...]
    record: Annotated[dict[str, Any], Unstored]
    weight_data: Annotated[tuple[Any, ...], Unstored] = field(repr=False, compare=False, default=())
    bodies: tuple[Body, ...] = ()
    stripped: Annotated[bool, Unstored] = False

    @property
    def every_step(self) -> tuple[Step, ...]:
        """The steps, then those of each body: what step numbers of a profile and of debug mean."""
        return (*self.steps, *(step for body in self.bodies for step in body.steps))

    @property
    def is_straight(self) -> bool:
        """Whether no step decides what runs after it, or how large that is."""
        return all(isinstance(step, (Launch, LibraryCall, Copy)) for step in self.steps)
