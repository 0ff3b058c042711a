"""A pool of what a quantized convolution gives, done by the convolution.

Results keep the order of their sums where the epilogue never falls as a sum rises. The largest of a
window's results is then the result of its largest sum: what the pool would read again is never
stored, and the epilogue runs for what is left. Only for integer sums, among which there is no NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from braze.core.dims import is_static, static
from braze.core.dtypes import I8, I32, U8
from braze.expr.fold import leaves
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr
from braze.fusion.finishing import read_once
from braze.fusion.kernel import AnchorKernel
from braze.fusion.lower import LoweredRegion
from braze.fusion.region import Partition, Region
from braze.ir.graph import Graph, Value
from braze.ops.abilities import Abilities
from braze.ops.lowering import ConvSpec, PooledSpec
from braze.ops.pool.pool import MaxPool
from braze.ops.quant.linear import saturated

Array = NDArray[Any]
Content = Callable[[Expr], Array | None]  # what an expression without sums may be; None: unknown
RISING: Final = frozenset({"add", "max", "min", "round", "floor", "ceil"})


def pooled(
    kernels: Sequence[LoweredRegion],
    graph: Graph,
    partition: Partition,
    pinned: frozenset[Value],
    backend: Abilities,
) -> tuple[LoweredRegion, ...]:
    """The kernels in their order, without the pools that the convolution before them does as well.

    pinned: values that something besides kernels reads.
    """
    once = read_once(kernels, partition, pinned)
    done: list[LoweredRegion] = []
    maker: dict[Value, int] = {}
    for low in kernels:
        op, source = _pool_of(low)
        place, joined = len(done), None
        if op is not None and source in maker and source in once:
            joined = _joined(done[maker[source]], low, op, graph, backend)
            place = place if joined is None else maker[source]
        done[place : place + 1] = [joined or low]
        maker.update((v, place) for v in low.region.outputs)
    return tuple(done)


def _pool_of(low: LoweredRegion) -> tuple[MaxPool | None, Value]:
    """The pool that a kernel is, channels last and by known steps, and what it reads."""
    node = low.region.producer
    if node is None or low.region.nodes != (node,) or not isinstance(node.op, MaxPool):
        return None, low.region.root
    op, source = node.op, low.inputs[0]
    plain = op.layout == "NHWC" and not op.with_indices and is_static(op.pads)
    plain = plain and len(low.inputs) == 1 and node.inputs[0] is source
    return (op if plain and all(d == 1 for d in op.dilations) else None), source


def _joined(
    maker: LoweredRegion, low: LoweredRegion, op: MaxPool, graph: Graph, backend: Abilities
) -> LoweredRegion | None:
    """The convolution with the pool behind it; None where it cannot."""
    kernel, root = maker.kernel, low.region.root
    if not isinstance(kernel, AnchorKernel) or not isinstance(kernel.spec, ConvSpec):
        return None
    last = len(kernel.output.shape) - 1
    others = {a.number for a in leaves(kernel.epilogue, "axis")} - {last}
    if kernel.spec.acc is not I32 or maker.places or others:
        return None
    if root.dtype is not kernel.output.dtype or not rises(kernel.epilogue, _content(maker, graph)):
        return None
    rank, out = len(op.kernel), root.shape
    spec = PooledSpec(kernel.spec, op.kernel, op.strides, static(op.pads[:rank]), out[1:-1])
    if backend.supports(spec, kernel.inputs, kernel.constant) is not None:
        return None
    nodes = (*maker.region.nodes, *low.region.nodes)
    region = Region((root,), maker.region.producer, nodes, maker.region.reason)
    done = replace(kernel, spec=spec, output=TensorSpec(root.dtype, out))
    return replace(maker, region=region, kernel=done)


def _content(maker: LoweredRegion, graph: Graph) -> Content:
    """What is known of a kernel's constants."""

    def content(e: Expr) -> Array | None:
        if e.op == "const":
            return np.asarray(e.value)
        if e.op == "load" and e.slot in maker.kernel.constant:  # type: ignore[union-attr]
            found: Array | None = graph.constant(maker.inputs[e.slot])
            return found
        return None

    return content


def rises(e: Expr, content: Content) -> bool:
    """Whether `e` never falls as the sum in it rises; False where that is not known."""
    if e.op == "hole":
        return True
    if e.op == "cast":
        return _cast_rises(e, content)
    holes = [bool(leaves(x, "hole")) for x in e.args]
    if e.op == "mul" or (e.op == "div" and holes == [True, False]):
        return _scaled_rises(e, holes, content)
    if e.op not in RISING:
        return False
    return all(
        rises(x, content) if has else _is_finite(content(x))
        for x, has in zip(e.args, holes, strict=True)
    )


def _cast_rises(e: Expr, content: Content) -> bool:
    (x,) = e.args
    if x.dtype.is_int and e.dtype.is_float:
        return rises(x, content)
    try:
        rounded = x.args[1].args[1]
    except IndexError:
        return False
    whole = e.dtype in (I8, U8) and saturated(rounded, e.dtype, 8) == e
    return whole and rises(rounded, content)


def _scaled_rises(e: Expr, holes: Sequence[bool], content: Content) -> bool:
    if holes not in ([True, False], [False, True]):
        return False
    x, scale = e.args if holes[0] else e.args[::-1]
    found = content(scale)
    least = np.min(found) if found is not None and found.size and _is_finite(found) else -1
    return bool(least > 0 or (least == 0 and e.op == "mul")) and rises(x, content)


def _is_finite(x: Array | None) -> bool:
    return x is not None and bool(np.all(np.isfinite(x.astype(np.float64))))
