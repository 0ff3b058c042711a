"""Epilogues: the expression an anchor applies to each finished sum before it is stored.

Templates see outputs as rows and columns: the column is the last logical axis, the row is the
flat index of all others. Loads of tensors that run along with the output, element by element,
become loads at (row, column); other axes are recovered from the row by division.
"""

from __future__ import annotations

from llvmlite import ir

from braze.codegen.cpu.llvm.access import memory_type
from braze.codegen.cpu.llvm.emit import Emitter, Env
from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.product.table import Table, split
from braze.core.dims import Dim, Shape, product
from braze.core.dtypes import F16
from braze.expr.fold import leaves, reachable, rewrite
from braze.expr.index import axes, ravel
from braze.expr.loops import TensorSpec
from braze.expr.scalar import FUNCTIONS, PAIR_FUNCTIONS, Expr, axis, load
from braze.expr.simplify import simplify
from braze.fusion.inline import ZERO, Index
from braze.fusion.kernel import AnchorKernel

LIGHT_NODES = 14  # distinct expression nodes up to which registers are finished in place
# too much code for every register; exponents are mostly small constants: a product or two
_HEAVY = FUNCTIONS | PAIR_FUNCTIONS - {"pow"}


class Epilogue:
    """Emits `kernel.epilogue` for `lanes` neighbouring columns of one row.

    shape: the anchor's logical output shape, whatever form the template gives its loops. `light`
    tells whether it is worth emitting once per register rather than in a loop. Make it where the
    kernel begins: it may compute a table there (see table.py).
    """

    def __init__(self, fn: KernelFunction, kernel: AnchorKernel) -> None:
        self.fn = fn
        self.shape = kernel.spec.out_shape
        self.stored = memory_type(kernel.output.dtype)
        self._dtype = kernel.output.dtype
        self._identity = kernel.epilogue.op == "hole"
        self._row, self._column = len(self.shape), len(self.shape) - 1
        self._tensors = list(kernel.inputs)
        self._expr = self._flattened(kernel.epilogue)
        self._table: Table | None = None
        cut = split(self._expr, product(self.shape)) if fn.target.features.has_masks else None
        if cut is not None:
            self._expr, function = cut
            self._table = Table.of(fn, function, self._expr.dtype, self._tensors)
        nodes = list(reachable(self._expr))
        heavy = any(e.op in _HEAVY for e in nodes)
        if not fn.target.features.has_f16c:  # conversions are a dozen instructions each
            heavy = heavy or any(e.dtype is F16 for e in nodes)
        self.light = len(nodes) <= LIGHT_NODES and not heavy
        used = {e.number for e in leaves(self._expr, "axis")}
        self._used = [i for i in range(len(self.shape)) if i in used]

    def _flattened(self, expr: Expr) -> Expr:
        """Loads of tensors that are only read along with the output become (row, column)."""
        loads = leaves(expr, "load")
        apart = {e.slot for e in loads if not self._runs_along(e)}
        along = {e.slot for e in loads} - apart
        for slot in along:
            self._tensors[slot] = TensorSpec(self._tensors[slot].dtype, self._flat())
        place = (axis(self._row), axis(self._column))

        def change(e: Expr) -> Expr | None:
            if e.op != "load" or e.slot not in along:
                return None
            return load(e.slot, place, e.dtype)

        return rewrite(expr, change)

    def _runs_along(self, e: Expr) -> bool:
        """Whether a load reads as many elements as the output has, each at the output's own place.

        Places are compared in row-major order, so a reshape between the two does not matter.
        """
        theirs = self._tensors[e.slot].shape
        if product(theirs) != product(self.shape):
            return False
        return self._place(theirs, e.args) == self._place(self.shape, axes(len(self.shape)))

    def _place(self, shape: Shape, index: Index) -> Expr:
        """Row-major place of an element, in normal form: unit axes are zero."""

        def unit(e: Expr) -> Expr | None:
            return ZERO if e.op == "axis" and self.shape[e.number] == 1 else None

        extents = dict(enumerate(self.shape))
        return simplify(rewrite(ravel(index, shape), unit), extents)

    def _flat(self) -> tuple[Dim, Dim]:
        return product(self.shape[:-1]), self.shape[-1]

    def apply(self, value: ir.Value, lanes: int, row: ir.Value, column: ir.Value) -> ir.Value:
        """The stored values of the outputs at (row, column .. column+lanes-1)."""
        if self._identity:
            return value
        wide = lanes > 1
        place = {self._row: (row, False), self._column: (column, wide)}
        place.update(self._lead_axes(row))
        extents = dict(enumerate(self.shape))
        extents[self._row], extents[self._column] = self._flat()
        env = Env(self._tensors, place, (value,), extents=extents)
        emitter = Emitter(self.fn, env, lanes, [self._expr])
        result = emitter.lanes.splat(emitter.value(self._expr))
        if self._table is not None:
            result = self._table.look_up(result, lanes)
        return emitter.memory.to_memory(result, self._dtype)

    def _lead_axes(self, row: ir.Value) -> dict[int, tuple[ir.Value, bool]]:
        """The logical axes before the last that the epilogue mentions, from the flat row."""
        b, found = self.fn.builder, dict[int, tuple[ir.Value, bool]]()
        lead = self.shape[:-1]
        for i in self._used:
            if i >= len(lead):
                continue
            inner = self.fn.dim(product(lead[i + 1 :]))
            value = b.sdiv(row, inner)
            if i:
                value = b.srem(value, self.fn.dim(lead[i]))
            found[i] = (value, False)
        return found
