"""Which input of a loop kernel may share memory with its output."""

from __future__ import annotations

from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel
from braze.fusion.kernel import Kernel


def in_place_slots(kernel: Kernel) -> tuple[int, ...]:
    """Input slots whose every element is read only where it is overwritten.

    Holds for one pointwise nest with one output when each load of the slot has the index of the
    store and the tensors have equal shapes and element sizes. Code for a kernel with such a slot
    must not assume that the two buffers are distinct.
    """
    if not isinstance(kernel, LoopKernel) or len(kernel.nests) != 1 or len(kernel.outputs) != 1:
        return ()
    (nest,) = kernel.nests
    if nest.inner or nest.serial or len(nest.stores) != 1:
        return ()
    (store,) = nest.stores
    if store.mode != "set" or any(i.op != "axis" for i in store.index):
        return ()
    out = kernel.outputs[0]
    loads = leaves(store.expr, "load")
    good = []
    for slot, spec in enumerate(kernel.inputs):
        here = [e for e in loads if e.slot == slot]
        same = spec.shape == out.shape and spec.dtype.bits == out.dtype.bits
        if here and same and all(e.args == store.index for e in here):
            good.append(slot)
    return tuple(good)
