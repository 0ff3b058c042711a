"""Loop nests: a kernel as axes, reductions and stores over scalar expressions.

    for each point of `outer`:                       (independent: may run in any order, parallel)
        red[0] = reduce over `inner` of reduces[0].expr
        red[1] = reduce over `inner` of reduces[1].expr      (may use red[0])
        ...
        stores with over="outer" run once; with over="all" once per point of `inner`;
        "scan"/"scan_exclusive" run inside the last reduction, after/before it takes each point

Axis numbers: outer axes are 0..len(outer)-1, inner axes follow. A pointwise kernel has no inner
axes; softmax has two reductions and one "all" store; pooling reduces over its window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from braze.core.dims import Dim, Shape
from braze.core.dtypes import DType
from braze.expr.scalar import Expr

REDUCE_KINDS = (
    "sum", "prod",
    "max", "min",  # NaN propagates
    "argmax", "argmin",  # index (row-major over inner) of the first extreme; first NaN wins; int64
    "argmax_last", "argmin_last",  # the same with the last extreme
)  # fmt: skip
STORE_OVER = ("outer", "all", "scan", "scan_exclusive")
STORE_MODES = ("set", "add", "mul", "max", "min")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Element type and shape of one tensor a kernel reads or writes; row-major, contiguous."""

    dtype: DType
    shape: Shape


@dataclass(frozen=True, slots=True)
class Reduce:
    """One reduction over all inner axes.

    The accumulator has the type of `expr` (int64 for arg kinds); start values are the neutral
    element of `kind` (-inf/+inf or the integer extremes for max/min). Float sums of float16 and
    bfloat16 must be given as float32 expressions by the op that makes them.
    """

    kind: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Write `expr` to element `index` of output `slot`; modes other than "set" update in place.

    Index expressions may depend on loads (scatter); then the nest must be `serial`. An index
    outside the tensor sets the kernel's status and writes nothing.
    """

    slot: int
    index: tuple[Expr, ...]
    expr: Expr
    over: str = "outer"
    mode: str = "set"


@dataclass(frozen=True, slots=True)
class LoopNest:
    """See the module text. serial: no two points of `outer` may run at the same time."""

    outer: tuple[Dim, ...]
    inner: tuple[Dim, ...]
    reduces: tuple[Reduce, ...]
    stores: tuple[Store, ...]
    serial: bool = False


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """A kernel of one or more loop nests that run one after another on the same tensors.

    inputs and outputs are the slots that loads and stores name; a nest may load from an output of
    an earlier nest through slot len(inputs) + k. With more than one nest the kernel runs on one
    worker.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nests: tuple[LoopNest, ...]


def map_nest(nest: LoopNest, change: Callable[[Expr], Expr]) -> LoopNest:
    """The nest with every expression changed."""
    return replace(
        nest,
        reduces=tuple(Reduce(r.kind, change(r.expr)) for r in nest.reduces),
        stores=tuple(
            replace(s, index=tuple(change(i) for i in s.index), expr=change(s.expr))
            for s in nest.stores
        ),
    )
