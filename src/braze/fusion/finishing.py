"""Pointwise kernels of one tensor, done by the kernel that makes that tensor.

Such a kernel would read again what another one has just had in registers, and a launch costs about
a microsecond whatever it does: the codes of a norm's output beside the sums that it goes on in, the
codes of what an attention gives. A loop nest stores one tensor more; an attention, whose templates
compute scalars of what they store, gives the codes alone where nothing else reads its output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from braze.expr.fold import leaves, reachable, rewrite
from braze.expr.index import axes
from braze.expr.loops import LoopKernel, Store, TensorSpec
from braze.expr.scalar import Expr, load
from braze.fusion.kernel import AnchorKernel
from braze.fusion.lower import LoweredRegion
from braze.fusion.region import Partition, Region
from braze.ir.graph import Value
from braze.ir.run_sizes import shape_symbols
from braze.ops.lowering import AttentionSpec

MOST_OUTPUTS = 4  # of one nest


def finished(
    kernels: Sequence[LoweredRegion], partition: Partition, pinned: frozenset[Value]
) -> tuple[LoweredRegion, ...]:
    """The kernels in their order, without those that the maker of what they read can do as well.

    pinned: values that something besides kernels reads.
    """
    once = read_once(kernels, partition, pinned)
    done: list[LoweredRegion] = []
    maker: dict[Value, int] = {}
    for low in kernels:
        value, place, joined = _scalar(low), len(done), None
        source = partition.base(low.inputs[0]) if value is not None else None
        # a view may have a size that is known only behind what makes the tensor
        late = source is not None and shape_symbols(low.region.root) - shape_symbols(source)
        if value is not None and source is not None and source in maker and not late:
            joined = _joined(done[maker[source]], source, low, value, source in once)
            place = place if joined is None else maker[source]
        done[place : place + 1] = [joined or low]
        maker.update((partition.base(v), place) for v in low.region.outputs)
    return tuple(done)


def read_once(
    kernels: Sequence[LoweredRegion], partition: Partition, pinned: frozenset[Value]
) -> frozenset[Value]:
    """The tensors that one kernel reads and nothing else; pinned: see `finished`."""
    readers = Counter(v for low in kernels for v in {partition.base(x) for x in low.inputs})
    kept = {partition.base(v) for v in pinned}
    return frozenset(v for v, count in readers.items() if count == 1 and v not in kept)


def _scalar(low: LoweredRegion) -> Expr | None:
    """What a kernel computes of each element of its only input, over `load(0, axes)`; None for a
    kernel that does more."""
    kernel = low.kernel
    if not isinstance(kernel, LoopKernel) or len(kernel.nests) != 1 or len(kernel.inputs) != 1:
        return None
    (nest,), (read,) = kernel.nests, kernel.inputs
    if low.places or nest.inner or nest.serial or len(nest.stores) != 1:
        return None
    (store,), here = nest.stores, axes(len(nest.outer))
    if store.mode != "set" or store.index != here or nest.outer != read.shape:
        return None
    elements = leaves(store.expr, "load")
    others = (e.op for e in reachable(store.expr, into_loads=False))
    if elements != (load(0, here, read.dtype),) or {"axis", "dim"} & set(others):
        return None
    return store.expr


def _joined(
    maker: LoweredRegion, source: Value, low: LoweredRegion, value: Expr, alone: bool
) -> LoweredRegion | None:
    """The kernel that makes `source`, with what `low` computes of it; None where it cannot.

    alone: whether nothing else reads `source`.
    """
    kernel, outputs = maker.kernel, maker.region.outputs
    if maker.places:
        return None
    done: LoopKernel | AnchorKernel | None = None
    if isinstance(kernel, LoopKernel):
        done = _with_store(kernel, outputs.index(source), value, source, low.region.root)
        outputs = (*outputs, low.region.root)
    elif alone and isinstance(kernel.spec, AttentionSpec):
        end = _of(kernel.epilogue, value)
        spec = TensorSpec(low.region.root.dtype, kernel.output.shape)
        done, outputs = replace(kernel, output=spec, epilogue=end), (low.region.root,)
    if done is None:
        return None
    nodes = (*maker.region.nodes, *low.region.nodes)
    region = Region(outputs, maker.region.producer, nodes, maker.region.reason)
    return replace(maker, region=region, kernel=done)


def _with_store(
    kernel: LoopKernel, slot: int, value: Expr, source: Value, root: Value
) -> LoopKernel | None:
    """The kernel with one more output, beside the one in `slot`: `value` of each element."""
    if len(kernel.nests) != 1 or len(kernel.outputs) >= MOST_OUTPUTS:
        return None
    (nest,) = kernel.nests
    stores = [s for s in nest.stores if s.slot == slot]
    if nest.serial or len(stores) != 1 or stores[0].mode != "set":
        return None
    (store,) = stores
    # pools have templates for one store
    plain = store.over == "all" or (store.over == "outer" and not nest.inner)
    if not plain or store.expr.dtype is not source.dtype:
        return None
    more = Store(len(kernel.outputs), store.index, _of(store.expr, value), store.over)
    spec = TensorSpec(root.dtype, kernel.outputs[slot].shape)
    nests = (replace(nest, stores=(*nest.stores, more)),)
    return replace(kernel, outputs=(*kernel.outputs, spec), nests=nests)


def _of(element: Expr, value: Expr) -> Expr:
    """`value` where its load is `element`."""
    return rewrite(value, lambda e: element if e.op == "load" else None)
