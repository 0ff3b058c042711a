"""Target: what code is generated for. Frozen data that one backend makes and understands.

`braze.build(target=...)` names one by text, "cpu" or "cpu:avx2": a backend, and a variant of its
targets (none: what this machine has). `braze.codegen.catalog` finds the backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol


class Target(Protocol):
    """A frozen, hashable value. Only its own backend looks further than this."""

    @property
    def name(self) -> str:
        """How messages call it: "cpu:avx2"."""

    @property
    def threads(self) -> int:
        """Host threads of one run."""

    @property
    def alignment(self) -> int:
        """Bytes that every buffer's address is a multiple of; a power of two."""

    @property
    def space(self) -> str:
        """Where memory of its kernels lies: "host" or "device"."""

    @property
    def fingerprint(self) -> str:
        """Everything that a measured time depends on besides the code: machine, threads, caches."""

    def describe(self) -> dict[str, Any]:
        """What the engine file says about its target: JSON-able, the same in every build."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """What pays on a target: costs by which passes and fusion choose among right answers.

    Costs count instructions per element. cheap_cost: what may be computed again instead of stored;
    heavy_cost: an exp, log, division or the like; max_cost: the most that a kernel computes, what
    its registers and the time to compile it bear; max_reads: the most tensors that a kernel reads
    by being fused; small_elements: a tensor so small that computing it again beats a kernel of its
    own. channels_last: numbers of spatial axes whose convolutions have templates that read channels
    last; narrow_columns: products of fewer columns waste what a wider one would use;
    joint_products: products or convolutions of one tensor with several weights are better one wide
    one, whose parts are read where they lie; patch_products: a convolution that cuts a picture into
    patches is better a product of them; side_by_side: a kernel costs time by itself, so that small
    ones that do not read each other are better one; finishes: for the same reason what is computed
    of one tensor is better stored by the loop nest or attention that makes it; grouped_queries:
    attention has a template that takes several queries of a head together; unsigned_bytes: products
    of bytes take unsigned data (by signed weights), not signed; fills: their padding may hold any
    number, not zeros alone; lowest_hides: attention is computed
    in float32, and fast where a mask is not read, so that a mask of the lowest numbers is none;
    halves: of "fp16" and "bf16", the types that products are computed in, not in float32 after a
    conversion; widens: those whose numbers are better float32 from product to product, as nothing
    is computed in them, but for products of up to held_rows rows by constants, which read these as
    they are. shares_products: products that read many places of one tensor, as the steps of an
    unrolled recurrence do, are better one kernel that is told the place.
    """

    cheap_cost: int = 4
    heavy_cost: int = 20
    max_cost: int = 400
    max_reads: int = 64
    small_elements: int = 4096
    channels_last: frozenset[int] = frozenset({1, 2, 3})
    narrow_columns: int = 32
    joint_products: bool = False
    patch_products: bool = False
    side_by_side: bool = False
    finishes: bool = False
    grouped_queries: bool = False
    unsigned_bytes: bool = True
    fills: bool = True
    lowest_hides: bool = False
    halves: frozenset[str] = frozenset()
    widens: frozenset[str] = frozenset()
    held_rows: int = 0
    shares_products: bool = True


PREFERENCES: Final = Preferences()  # of a processor with caches and vectors
