"""The results of `Op.lower`. Fusion and code generation know ops only through these.

A new kind of anchor is its spec here, a template, the template's row in `codegen/cpu/anchors.py`,
and the op that returns it; a backend without a row runs the anchor's loop nest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Union

from braze.core.dims import Dim, Shape, product
from braze.core.dtypes import DType
from braze.expr.loops import LoopKernel
from braze.expr.scalar import Expr
from braze.ops.coded_spec import CodedSpec
from braze.ops.operands import SUM_BLOCK, Operand, Operands
from braze.ops.recurrence_spec import RECURRENT_GATES, RecurrenceSpec
from braze.ops.select_spec import SelectSpec
from braze.ops.suppress_spec import SuppressSpec

if TYPE_CHECKING:
    from braze.ir.graph import Graph, Value


@dataclass(frozen=True, slots=True)
class Pointwise:
    """One output; each element is `expr` of the operands' elements under numpy broadcasting.

    `hole(k)` is operand k (absent optional operands have no hole). `axis(i)` may be used for the
    output's axes and `dim` for sizes.
    """

    expr: Expr


@dataclass(frozen=True, slots=True)
class View:
    """One output that only moves elements of input 0: out[axes] = in0[index(axes)].

    index: one int64 expression per input axis over `axis(i)` of the output (and `dim`s), always in
    range where `inside` holds. inside: bool expression or None (always); elsewhere the element is
    `fill`. reshape: True when the row-major order of elements is kept (no bytes move).
    """

    index: tuple[Expr, ...]
    inside: Expr | None = None
    fill: Expr | None = None
    reshape: bool = False


@dataclass(frozen=True, slots=True)
class Nest:
    """Loop nests over the op's present inputs (in order; absent optionals are skipped)."""

    kernel: LoopKernel


# Every spec has the class variables `kind`, its name in kernel texts, and `takes_epilogue`: whether
# the pointwise kernel that reads the result may be computed where the result is. `operands` are its
# operands by field, with the sizes of the axes each is read along; what is not among them is read
# as a whole, row-major. Sums are in blocks (ops/operands.py).


@dataclass(frozen=True, slots=True)
class MatmulSpec:
    """out[b.., m, n] = sum_k lhs[b.., m, k] * rhs[b.., k, n], summed as `acc` and `block` say.

    lhs strides: (*batch, m, k); rhs strides: (*batch, k, n); out strides: (*batch, m, n).
    """

    kind: ClassVar[str] = "matmul"
    takes_epilogue: ClassVar[bool] = True

    batch: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    lhs: Operand
    rhs: Operand
    out: Operand
    acc: DType
    block: int = SUM_BLOCK

    @property
    def operands(self) -> Operands:
        """Both factors."""
        batch = self.batch
        return {
            "lhs": (self.lhs, (*batch, self.m, self.k)), "rhs": (self.rhs, (*batch, self.k, self.n))
        }  # fmt: skip

    @property
    def out_shape(self) -> Shape:
        """The logical output axes: (*batch, m, n)."""
        return (*self.batch, self.m, self.n)


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """Convolution, channels last in memory: input [N, *spatial, C], output [N, *out, K].

    The weight (slot 1) is [K, C/groups, *kernel] as in ONNX; templates repack it at build time
    when it is constant. pads: (begin.., end..) in spatial order. There are as many spatial axes as
    the op has, one to three: a template that knows only planes lifts them for itself. The sum's k
    runs over (*kernel, C/groups), channels fastest, summed as `acc` and `block` say. data: where
    the input's elements lie, along (n, *spatial, c), when it is not row-major. fill: the integer
    that padding holds.
    """

    kind: ClassVar[str] = "conv"
    takes_epilogue: ClassVar[bool] = True

    batch: Dim
    in_spatial: tuple[Dim, ...]
    out_spatial: tuple[Dim, ...]
    in_channels: int
    out_channels: int
    groups: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    acc: DType
    block: int = SUM_BLOCK
    data: Operand | None = None
    fill: int = 0

    @property
    def operands(self) -> Operands:
        """The data."""
        sizes = (self.batch, *self.in_spatial, self.in_channels)
        dense = tuple(product(sizes[i + 1 :]) for i in range(len(sizes)))
        return {"data": (self.data or Operand(0, dense), sizes)}

    @property
    def pixels(self) -> tuple[int, int] | None:
        """(elements from a pixel to the next, elements in front of the first); None where pixels
        of the data do not follow each other at one distance."""
        data, sizes = self.operands["data"]
        *outer, (last, _) = zip(data.strides, sizes, strict=True)
        moving = [(stride, size) for stride, size in reversed(outer) if size != 1]
        distance = moving[0][0] if moving else self.in_channels
        step = distance
        for stride, size in moving:
            if stride != step:
                return None
            step = step * size
        if (last != 1 and self.in_channels > 1) or not isinstance(distance, int):
            return None
        return (distance, data.offset) if isinstance(data.offset, int) else None

    @property
    def out_shape(self) -> Shape:
        """The logical output axes: (n, *out_spatial, k)."""
        return (self.batch, *self.out_spatial, self.out_channels)


@dataclass(frozen=True, slots=True)
class PooledSpec:
    """The largest of a convolution's sums in each window of neighbouring outputs: an epilogue that
    keeps their order gives what a pool over its results gives.

    window, steps and pads (those before) are of the spatial axes, in their order, out_spatial what
    is left of them. What lies outside of the convolution's output is no part of a window. Fusion
    makes these, never an op.
    """

    kind: ClassVar[str] = "pooled"
    takes_epilogue: ClassVar[bool] = True

    conv: ConvSpec
    window: tuple[int, ...]
    steps: tuple[int, ...]
    pads: tuple[int, ...]
    out_spatial: tuple[Dim, ...]

    @property
    def operands(self) -> Operands:
        """Those of the convolution."""
        return self.conv.operands

    @property
    def acc(self) -> DType:
        """The type of sums."""
        return self.conv.acc

    @property
    def out_shape(self) -> Shape:
        """The logical output axes: (n, *out_spatial, k)."""
        return (self.conv.batch, *self.out_spatial, self.conv.out_channels)


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """out[b, h, i, :] = softmax_j(scale * q[b,h,i,:].k[b,h,j,:] + mask[b,h,i,j]) @ v[b,h,j,:].

    Operand strides: q (b, h, i, d), k (b, h, j, d), v (b, h, j, d), out (b, h, i, d),
    mask (b, h, i, j) or None; `causal` masks j > i + (kv_len - q_len). Rows that are masked
    entirely give zeros. Scores and softmax have the type `acc`; both products are summed as `acc`
    and `block` say.
    """

    kind: ClassVar[str] = "attention"
    takes_epilogue: ClassVar[bool] = False

    batch: Dim
    heads: Dim
    q_len: Dim
    kv_len: Dim
    head_dim: Dim
    value_dim: Dim
    scale: float
    q: Operand
    k: Operand
    v: Operand
    out: Operand
    acc: DType
    mask: Operand | None = None
    causal: bool = False
    block: int = SUM_BLOCK

    @property
    def operands(self) -> Operands:
        """q, k, v, and the mask where there is one."""
        lead = (self.batch, self.heads)
        found: Operands = {
            "q": (self.q, (*lead, self.q_len, self.head_dim)),
            "k": (self.k, (*lead, self.kv_len, self.head_dim)),
            "v": (self.v, (*lead, self.kv_len, self.value_dim)),
        }
        if self.mask is not None:
            found["mask"] = (self.mask, (*lead, self.q_len, self.kv_len))
        return found

    @property
    def out_shape(self) -> Shape:
        """The logical output axes: (b, h, i, d)."""
        return (self.batch, self.heads, self.q_len, self.value_dim)


def window_block(kernel: tuple[int, ...], channels: int) -> int:
    """The block of a convolution's sums: `SUM_BLOCK`, or whole lines of a depthwise window.

    A depthwise window has one channel to a tap, so that only a line of it is worth a loop.
    """
    if channels > 1 or math.prod(kernel) <= SUM_BLOCK:
        return SUM_BLOCK
    return max(1, SUM_BLOCK // kernel[-1]) * kernel[-1]


AnchorSpec = Union[
    MatmulSpec, CodedSpec, ConvSpec, PooledSpec, AttentionSpec, SelectSpec, RecurrenceSpec,
    SuppressSpec,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Anchor:
    """A heavy op with templates; pointwise users may become its epilogue.

    `spec.out_shape` is the one description of the output's axes: axis(i) of an epilogue, the shape
    of the kernel's output and the rows and columns of a template all mean these axes.
    `fallback` is the same computation as a loop nest or as a subgraph: what runs where the backend
    has no template. None where neither is worth having (sorting): every backend needs a template.
    Ops give the anchor always; the backend is asked (`Abilities.supports`).
    """

    spec: AnchorSpec
    fallback: LoopKernel | Decompose | None


@dataclass(frozen=True, slots=True)
class Decompose:
    """The op as a subgraph: `build(builder, *inputs)` adds nodes and returns the outputs."""

    build: Callable[..., tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Branch:
    """Input 0, one bool, says which of two bodies runs; both have all other inputs as theirs.

    The outputs of the body that ran are those of the node. late: the outputs whose sizes differ
    from body to body, by position.
    """

    bodies: tuple[Graph, Graph]
    late: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Repeat:
    """A body again and again, at most as often as `trip` says and as long as `condition` holds.

    Inputs: the trip count (one int64) if `trip`, the condition (one bool) if `condition`, `carried`
    first values, then what the body reads besides. The body's inputs: the number of the iteration
    (int64), the carried values, the same others. Its outputs: the next condition if there is one,
    the next carried values, and then a slice of each further output of the node; the node's outputs
    are the last carried values and the slices stacked on a new first axis, one an iteration.
    late: the outputs whose sizes only the run knows, by position: carried values that change their
    sizes, and slices of which nobody knows how many there will be.
    """

    bodies: tuple[Graph]
    trip: bool
    condition: bool
    carried: int
    late: frozenset[int] = frozenset()


Flow = (Branch, Repeat)  # what steps of a plan do that run other steps

Lowering = Union[Pointwise, View, Nest, Anchor, Decompose, Branch, Repeat]

__all__ = [
    "RECURRENT_GATES",
    "SUM_BLOCK",
    "Anchor",
    "AnchorSpec",
    "AttentionSpec",
    "Branch",
    "CodedSpec",
    "ConvSpec",
    "Decompose",
    "Flow",
    "Lowering",
    "MatmulSpec",
    "Nest",
    "Operand",
    "Pointwise",
    "PooledSpec",
    "RecurrenceSpec",
    "Repeat",
    "SelectSpec",
    "SuppressSpec",
    "View",
    "window_block",
]
