"""The Plan: everything an engine file holds, as plain frozen data.

A plan is what is serialized; an Engine is a loaded plan; an ExecutionContext holds mutable state.
Sizes that depend on the input shapes are indexes into `Plan.sizes`, the shape program: a tuple of
SizeOps in evaluation order that the runtime evaluates once per change of input shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from braze.core.dtypes import DType

SIZE_OPS = ("const", "sym", "add", "mul", "floordiv", "mod", "max", "min")


@dataclass(frozen=True, slots=True)
class SizeOp:
    """One step of the shape program (all values are int64).

    ("const", value, 0) | ("sym", symbol index, 0) | (binary op, a, b) with a and b the indexes of
    earlier steps. floordiv and mod follow Python; a zero divisor is an error at set-shapes time.
    """

    op: str
    a: int
    b: int = 0


@dataclass(frozen=True, slots=True)
class Guard:
    """Sizes that the build assumed equal; checked whenever input shapes are set."""

    lhs: int
    rhs: int
    what: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A network input or output. `shape` holds size indexes; `buffer` an index into Plan.buffers.

    For an input, a dim that is a plain symbol *binds* that symbol from the actual shape (every
    occurrence must agree); any other dim is checked against its computed value. `value`, when not
    empty, is the constant content (flattened, C order) an input was specialised to: every run
    must pass exactly this content.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    buffer: int
    value: tuple[int | float, ...] = ()


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory a step reads or writes.

    kind: "arena" (offset per profile), "weight" (offset into the weights section), "input" or
    "output" (memory of the caller, bound by name). `bytes` is a size index; `offset` is in bytes
    and counts for weights only; arena offsets stand in each profile.
    """

    kind: str
    bytes: int
    offset: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A buffer with a byte displacement (a size index, or -1 for none)."""

    buffer: int
    displacement: int = -1


@dataclass(frozen=True, slots=True)
class Step:
    """Launch one kernel: entry(buffers, params, worker, num_workers, status).

    kernel: index into Plan.kernels; buffers: pointers in the order the kernel expects; params:
    size indexes whose int64 values are passed in order. `parallel` steps run on all workers,
    others on one. `after` lists earlier steps this one must wait for (empty: no dependency);
    the executor may skip a barrier between steps that do not depend on each other.
    """

    kernel: int
    name: str
    buffers: tuple[BufferRef, ...]
    params: tuple[int, ...]
    parallel: bool
    after: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    tactic: str = ""


@dataclass(frozen=True, slots=True)
class KernelCode:
    """One kernel: an ELF relocatable object and the entry symbol in it; `isa` it needs."""

    entry: str
    isa: str
    object_bytes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Profile:
    """One optimization profile: bounds of every symbol and the arena laid out for its maxima.

    ranges: (min, opt, max) per symbol, in the order of Plan.symbols; offsets: arena byte offset per
    buffer (-1 for buffers that are not in the arena); lower_bound_bytes: the largest live set.
    """

    ranges: tuple[tuple[int, int, int], ...]
    offsets: tuple[int, ...]
    arena_bytes: int
    lower_bound_bytes: int


@dataclass(frozen=True, slots=True)
class DebugTensor:
    """An intermediate value that can be read back in debug mode, after step `step` has run."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    ref: BufferRef
    step: int


@dataclass(frozen=True, slots=True)
class Weight:
    """One constant in the weights section; bytes are 64-byte aligned there and never copied."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    bytes: int
    content_hash: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A finished engine, before it is written or after it is read.

    record: JSON-able notes for people (fusions, tactics, refusals, timings are never in it, so
    that two builds from the same inputs and timing cache give the same bytes).
    weight_data: one bytes-like object per entry of `weights`.
    """

    target: dict[str, Any]
    threads: int
    symbols: tuple[str, ...]
    sizes: tuple[SizeOp, ...]
    guards: tuple[Guard, ...]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    buffers: tuple[Buffer, ...]
    kernels: tuple[KernelCode, ...]
    steps: tuple[Step, ...]
    profiles: tuple[Profile, ...]
    weights: tuple[Weight, ...]
    debug: tuple[DebugTensor, ...]
    record: dict[str, Any]
    weight_data: tuple[Any, ...] = field(repr=False, compare=False, default=())
