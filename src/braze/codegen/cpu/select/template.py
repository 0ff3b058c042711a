"""The first elements of rows in sorted order: a heap of the best so far, for any element type.

Every element becomes one unsigned integer that sorts like it: the bits of its value, changed so
that they order as integers, above its position. No two are equal, and equal values keep their
order. Of each row the `count` smallest are kept in a heap with the largest on top, which most
elements only have to be compared with; then the heap is taken apart from the top.
Time is size + hits * log(count) a row, where hits falls with count / size for mixed data.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I64, KernelFunction, i64, storage_type
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.scratch import Scratch, scratch_base
from braze.codegen.cpu.select.heap import Heap, sort_key
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.dims import product
from braze.core.dtypes import DType
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Tactic
from braze.ops.lowering import SelectSpec

TEMPLATE = "select"
_SMALL = 4096  # elements that are not worth waking other threads for


def select_support(
    spec: SelectSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None: every type and size has a template."""
    return None


def select_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """One way, for every type and size."""
    return (Tactic(TEMPLATE),)


def compile_select(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one selection; rows are split over the workers."""
    spec = kernel.spec
    assert isinstance(spec, SelectSpec)
    template = _Select(spec, kernel.inputs[0].dtype, target)
    if spec.count != 0:
        template.build()
    code, params = template.fn.finish()
    rows, elements = spec.outer * spec.inner, product(spec.shape)
    alone = rows == 1 or (isinstance(elements, int) and elements <= _SMALL)
    launch = HostLaunch(not alone, template.scratch.used)
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch)


class _Select:
    """Builds one kernel. `heap`: the integers kept of one row, in this worker's scratch."""

    def __init__(self, spec: SelectSpec, dtype: DType, target: CpuTarget) -> None:
        self.spec, self.dtype = spec, dtype
        self.bits = dtype.itemsize * 8
        self.item = I64 if self.bits <= 32 else ir.IntType(128)
        self.place_bits = self.item.width - self.bits
        self.scratch = Scratch(self.item.width // 8)
        self.scratch.take(spec.count)
        # nothing to select: there is no scratch buffer
        self.fn = KernelFunction(TEMPLATE, target, 2 + (spec.count != 0))

    def build(self) -> None:
        """Emit the loop over this worker's rows."""
        base = scratch_base(self.fn, 2, self.scratch.used)
        self.heap = Heap(self.fn, base, self.item)
        fn, b, spec = self.fn, self.fn.builder, self.spec
        size, count, inner = (fn.dim(d) for d in (spec.shape[spec.axis], spec.count, spec.inner))
        begin, end = fn.split(fn.dim(spec.outer * spec.inner))
        # an empty heap has no top
        end = b.select(b.icmp_signed("<", i64(0), count), end, begin)
        with fn.loop(begin, end) as row:
            outer, column = b.sdiv(row, inner), b.srem(row, inner)
            first = b.add(b.mul(outer, b.mul(size, inner)), column)
            self._keep_best(first, size, count, inner)
            self._sort(count)
            self._write(b.add(b.mul(outer, b.mul(count, inner)), column), count, inner)

    def _keep_best(self, first: ir.Value, size: ir.Value, count: ir.Value, inner: ir.Value) -> None:
        fn, b = self.fn, self.fn.builder
        with fn.loop(0, count) as i:
            fn.store(self._item(first, i, inner), self.heap.at(i))
        self.heap.order(count)
        with fn.loop(count, size) as i:
            item = self._item(first, i, inner)
            top = self.heap.load(i64(0))
            with fn.if_(b.icmp_unsigned("<", item, top), likely=False):
                self.heap.sift(i64(0), count, item)

    def _sort(self, count: ir.Value) -> None:
        """Move the top behind what is left of the heap, until nothing is left."""
        fn, b = self.fn, self.fn.builder
        with fn.loop(1, count) as i:
            last = b.sub(count, i)
            item, top = self.heap.load(last), self.heap.load(i64(0))
            fn.store(top, self.heap.at(last))
            self.heap.sift(i64(0), last, item)

    def _write(self, first: ir.Value, count: ir.Value, inner: ir.Value) -> None:
        fn, b = self.fn, self.fn.builder
        with fn.loop(0, count) as i:
            item = self.heap.load(i)
            place = b.and_(item, ir.Constant(self.item, (1 << self.place_bits) - 1))
            place = place if self.item is I64 else b.trunc(place, I64)
            fn.store(place, fn.at(fn.buffer(1, I64), b.add(first, b.mul(i, inner)), I64))

    def _item(self, first: ir.Value, index: ir.Value, inner: ir.Value) -> ir.Value:
        """The integer of element `index` of the row that begins at `first`."""
        fn, b = self.fn, self.fn.builder
        kind = storage_type(self.dtype)
        where = b.add(first, b.mul(index, inner))
        raw = fn.load(fn.at(fn.buffer(0, kind), where, kind), kind)
        key = sort_key(b, b.bitcast(raw, ir.IntType(self.bits)), self.dtype, self.spec.largest)
        wide = b.zext(key, self.item)
        place = index if self.item is I64 else b.zext(index, self.item)
        return b.or_(b.shl(wide, ir.Constant(self.item, self.place_bits)), place)
