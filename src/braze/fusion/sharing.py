"""Kernels that differ only in constant places they read become one kernel.

An unrolled recurrence reads x[t] at its step t, and a Concat of rearranged pieces reads x[7], x[14]
and so on: the same code but for numbers in the indexes of loads. Where many kernels are alike so,
the numbers that differ become sizes, which are given when the kernel is launched.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from braze.core.dims import Dim, sym
from braze.expr.fold import rewrite
from braze.expr.guards import depends_on_data, topological
from braze.expr.loops import LoopKernel, map_nest
from braze.expr.scalar import Expr
from braze.expr.simplify import Linear, linear, simplify
from braze.fusion.kernel import AnchorKernel, Kernel
from braze.ops.lowering import MatmulSpec

MIN_KERNELS = 8  # fewer do not repay what known places are worth to a kernel's code

# a kernel and the value of each size that it takes for a place
Shared = tuple[Kernel, Mapping[str, int]]


def share_places(
    kernels: Sequence[Kernel], taken: Iterable[str], products: bool = True
) -> list[Shared]:
    """The same kernels, those alike but for constant places made equal. taken: names of sizes;
    products: also those whose operands begin at other places."""
    prefix = "place"
    names = tuple(taken)
    while any(name.startswith(prefix) for name in names):
        prefix = f"_{prefix}"
    done: list[Shared] = [(k, {}) for k in kernels]
    for near in _groups(range(len(kernels)), [_surface(k, products) for k in kernels]):
        if len({kernels[i] for i in near}) < MIN_KERNELS:
            continue
        found = [_Places.of(kernels[i], products) for i in near]
        marks = [sym(f"{prefix}{k}") for k in range(max(len(p.numbers) for p in found))]
        for same in _groups(range(len(near)), [p.filled(marks) for p in found]):
            if len({kernels[near[i]] for i in same}) >= MIN_KERNELS:
                merged = _merge([found[i] for i in same], prefix)
                for i, shared in zip(same, merged, strict=True):
                    done[near[i]] = shared
    return done


@dataclass(frozen=True)
class _Places:
    """The constant places of a kernel: the additive numbers in the indexes of its loads.

    found: load, position of the index, what the index is a sum of; in an order that kernels alike
    agree on. Indexes that depend on data are left alone, and so are negative numbers (sizes are
    not negative), which stand in conditional loads only. fields: operands whose beginnings are the
    last of `numbers`.
    """

    kernel: Kernel
    found: tuple[tuple[Expr, int, Linear], ...]
    numbers: tuple[int, ...]
    fields: tuple[str, ...]

    @staticmethod
    def of(kernel: Kernel, products: bool) -> _Places:
        """All constant places of `kernel`."""
        found: list[tuple[Expr, int, Linear]] = []
        numbers: list[int] = []
        extents = _extents(kernel)
        for e in topological(_roots(kernel)):
            if e.op != "load" or any(depends_on_data(index) for index in e.args):
                continue
            for i, index in enumerate(e.args):
                total = linear(simplify(index, extents))
                if isinstance(total.constant, int) and total.constant >= 0:
                    found.append((e, i, total))
                    numbers.append(total.constant)
        offsets = _offsets(kernel) if products else {}
        return _Places(kernel, tuple(found), (*numbers, *offsets.values()), tuple(offsets))

    def filled(self, places: Sequence[Dim]) -> Kernel:
        """The kernel with `places` in place of its numbers."""
        indexes: dict[Expr, list[Expr]] = {}
        for (e, i, total), number, place in zip(self.found, self.numbers, places, strict=False):
            args = indexes.setdefault(e, list(e.args))
            if place != number:
                args[i] = Linear(place, total.terms).expr()
        changed = {e: Expr("load", tuple(args), e.dtype, e.attr) for e, args in indexes.items()}
        kernel = _rewritten(self.kernel, changed)
        if not isinstance(kernel, AnchorKernel):
            return kernel
        starts = places[len(self.found) : len(self.numbers)]
        return _moved(kernel, dict(zip(self.fields, starts, strict=True)))


def _merge(alike: Sequence[_Places], prefix: str) -> list[Shared]:
    """Kernels that differ in numbers alone as one; numbers that move together take one size."""
    places: list[Dim] = []
    sizes: list[tuple[int, ...]] = []  # of each size its value for every kernel
    known: dict[tuple[int, ...], Dim] = {}
    for column in zip(*(p.numbers for p in alike), strict=True):
        moved = tuple(number - column[0] for number in column)
        if not any(moved):
            places.append(column[0])
            continue
        if moved not in known:
            known[moved] = sym(f"{prefix}{len(sizes)}") - column[0]
            sizes.append(column)
        places.append(known[moved] + column[0])
    kernel = alike[0].filled(places)
    return [
        (kernel, {f"{prefix}{k}": values[i] for k, values in enumerate(sizes)})
        for i in range(len(alike))
    ]


def _offsets(kernel: Kernel) -> dict[str, int]:
    """Where the operands of a product begin, by field of its spec."""
    if not isinstance(kernel, AnchorKernel) or not isinstance(kernel.spec, MatmulSpec):
        return {}
    operands = kernel.spec.operands
    return {
        name: operand.offset
        for name, (operand, _) in operands.items()
        if operand.slot not in kernel.constant and isinstance(operand.offset, int)
    }


def _moved(kernel: AnchorKernel, offsets: Mapping[str, Dim]) -> AnchorKernel:
    """The kernel whose operands begin at `offsets`."""
    operands = kernel.spec.operands
    changed: Any = {
        name: replace(operands[name][0], offset=offset) for name, offset in offsets.items()
    }
    return replace(kernel, spec=replace(kernel.spec, **changed))


def _groups(items: Sequence[int], keys: Sequence[Hashable]) -> list[list[int]]:
    """Items of equal keys, where there are enough of them."""
    found: dict[Hashable, list[int]] = {}
    for i, key in zip(items, keys, strict=True):
        found.setdefault(key, []).append(i)
    return [group for group in found.values() if len(group) >= MIN_KERNELS]


def _surface(kernel: Kernel, products: bool) -> Hashable:
    """What kernels must have in common to be worth a closer look."""
    if not isinstance(kernel, LoopKernel):
        if products:
            kernel = _moved(kernel, dict.fromkeys(_offsets(kernel), 0))
        return kernel.spec, kernel.inputs, kernel.output, kernel.constant
    return kernel.inputs, kernel.outputs, tuple((n.outer, n.inner) for n in kernel.nests)


def _roots(kernel: Kernel) -> list[Expr]:
    if not isinstance(kernel, LoopKernel):
        return [kernel.epilogue]
    roots = [r.expr for nest in kernel.nests for r in nest.reduces]
    for nest in kernel.nests:
        for s in nest.stores:
            roots += [*s.index, s.expr]
    return roots


def _extents(kernel: Kernel) -> dict[int, Dim]:
    """Sizes of the axes on which all loop nests agree."""
    if not isinstance(kernel, LoopKernel):
        return dict(enumerate(kernel.spec.out_shape))
    nests = [dict(enumerate((*nest.outer, *nest.inner))) for nest in kernel.nests]
    return {i: size for i, size in nests[0].items() if all(i in n and n[i] == size for n in nests)}


def _rewritten(kernel: Kernel, changed: Mapping[Expr, Expr]) -> Kernel:
    def change(e: Expr) -> Expr:
        return rewrite(e, changed.get)

    if not isinstance(kernel, LoopKernel):
        return replace(kernel, epilogue=change(kernel.epilogue))
    return replace(kernel, nests=tuple(map_nest(nest, change) for nest in kernel.nests))
