"""Non-maximum suppression: candidates leave a heap by falling score and meet the boxes kept so far.

Every score that counts becomes one integer that sorts like it, above the box's number with its bits
flipped, so that of equal scores the first box leaves first. Only as many candidates leave as are
looked at: time is boxes + looked at * (log(candidates) + kept) a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I64, KernelFunction, i64
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.scratch import Scratch, scratch_base
from braze.codegen.cpu.select.heap import Heap, sort_key
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.dtypes import F32
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Tactic
from braze.ops.lowering import Operand, SuppressSpec

TEMPLATE = "suppress"
_FLOAT, _I1, _I32 = ir.FloatType(), ir.IntType(1), ir.IntType(32)
_NUMBERS = 0xFFFFFFFF  # the bits of an integer that hold a box's number
_KEPT = 5  # floats that are remembered of a kept box: lowest and highest y, x, and its area


def suppress_support(
    spec: SuppressSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None: every size and layout has a template."""
    return None


def suppress_tactics(kernel: AnchorKernel, target: CpuTarget, effort: Effort) -> tuple[Tactic, ...]:
    """One way, for every size."""
    return (Tactic(TEMPLATE),)


def compile_suppress(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one suppression; classes are split over the workers."""
    spec = kernel.spec
    assert isinstance(spec, SuppressSpec)
    template = _Suppress(spec, len(kernel.inputs), target)
    if spec.most != 0:
        template.build()
    code, params = template.fn.finish()
    launch = HostLaunch(spec.batch * spec.classes != 1, template.scratch.used)
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch)


class _Box(NamedTuple):
    low: tuple[ir.Value, ir.Value]
    high: tuple[ir.Value, ir.Value]
    area: ir.Value


class _Suppress:
    """Builds one kernel."""

    def __init__(self, spec: SuppressSpec, inputs: int, target: CpuTarget) -> None:
        self.spec, self.output = spec, inputs
        self.scratch = Scratch(1)
        self.kept_at: ir.Value | None = None
        if spec.most != 0:
            self.scratch.take(spec.count * 8)
            self.kept_from = self.scratch.take(spec.most * (_KEPT * 4))
        self.fn = KernelFunction(TEMPLATE, target, inputs + 1 + (spec.most != 0))

    def build(self) -> None:
        """Emit the loop over this worker's classes."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        base = scratch_base(fn, self.output + 1, self.scratch.used)
        self.heap = Heap(fn, base, I64)
        self.kept_at = fn.at(base, fn.dim(self.kept_from), ir.IntType(8))
        self.limit = fn.load(fn.buffer(2, _FLOAT), _FLOAT)
        classes, most = fn.dim(spec.classes), fn.dim(spec.most)
        begin, end = fn.split(fn.dim(spec.batch * spec.classes))
        with fn.loop(begin, end) as line:
            batch, number = b.sdiv(line, classes), b.srem(line, classes)
            found = self._candidates(batch, number)
            self.heap.order(found)
            row = fn.at(fn.buffer(self.output, I64), b.mul(line, most), I64)
            with fn.loop(self._keep(batch, found, most, row), most) as j:
                fn.store(i64(0), fn.at(row, j, I64))

    def _candidates(self, batch: ir.Value, number: ir.Value) -> ir.Value:
        """Put the boxes whose score counts into the heap's memory; gives how many they are."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        least = fn.load(fn.buffer(3, _FLOAT), _FLOAT) if spec.threshold else None
        with fn.carry_loop(0, fn.dim(spec.count), 1, [i64(0)]) as it:
            score = self._element(spec.scores, batch, number, it.index)
            counts = b.fcmp_ordered("==", score, score)
            if least is not None:
                counts = b.fcmp_ordered(">", score, least)
            key = sort_key(b, b.bitcast(score, _I32), F32, largest=False)
            flipped = b.xor(it.index, i64(_NUMBERS))
            item = b.or_(b.shl(b.zext(key, I64), i64(32)), flipped)
            # one that does not count is overwritten by the next
            fn.store(item, self.heap.at(it.values[0]))
            it.next = [b.add(it.values[0], b.zext(counts, I64))]
        return it.results[0]

    def _keep(self, batch: ir.Value, found: ir.Value, most: ir.Value, row: ir.Value) -> ir.Value:
        """Numbers of kept boxes from `row` on; gives how many they are."""
        fn, b = self.fn, self.fn.builder

        def more(values: list[ir.Value]) -> ir.Value:
            left, kept = values
            return b.and_(b.icmp_signed("<", i64(0), left), b.icmp_signed("<", kept, most))

        def next_candidate(values: list[ir.Value]) -> list[ir.Value]:
            left, kept = values
            top, rest = self.heap.load(i64(0)), b.sub(left, i64(1))
            last = self.heap.load(rest)
            with fn.if_(b.icmp_signed("<", i64(0), rest)):
                self.heap.sift(i64(0), rest, last)
            number = b.xor(b.and_(top, i64(_NUMBERS)), i64(_NUMBERS))
            box = self._box(batch, number)
            free = b.not_(self._covered(box, kept))
            with fn.if_(free):
                fn.store(b.add(number, i64(1)), fn.at(row, kept, I64))
                for i, value in enumerate((*box.low, *box.high, box.area)):
                    fn.store(value, self._kept(kept, i))
            return [rest, b.add(kept, b.zext(free, I64))]

        return fn.while_loop([found, i64(0)], more, next_candidate)[1]

    def _covered(self, box: _Box, kept: ir.Value) -> ir.Value:
        """Whether the overlap with one of the first `kept` boxes is above the limit."""
        fn, b = self.fn, self.fn.builder

        def goes_on(values: list[ir.Value]) -> ir.Value:
            return b.and_(b.icmp_signed("<", values[0], kept), b.not_(values[1]))

        def compare(values: list[ir.Value]) -> list[ir.Value]:
            numbers = [fn.load(self._kept(values[0], i), _FLOAT) for i in range(_KEPT)]
            other = _Box((numbers[0], numbers[1]), (numbers[2], numbers[3]), numbers[4])
            hit = b.fcmp_ordered(">", self._overlap(box, other), self.limit)
            return [b.add(values[0], i64(1)), hit]

        return fn.while_loop([i64(0), ir.Constant(_I1, 0)], goes_on, compare)[1]

    def _overlap(self, box: _Box, other: _Box) -> ir.Value:
        """The common area by the joint area; zero where one of them has none."""
        b, zero = self.fn.builder, ir.Constant(_FLOAT, 0.0)
        sides = []
        for axis in range(2):
            low, high = (box.low[axis], other.low[axis]), (box.high[axis], other.high[axis])
            begin = b.select(b.fcmp_ordered(">", *low), *low)
            sides.append(b.fsub(b.select(b.fcmp_ordered("<", *high), *high), begin))
        common = b.fmul(*sides)
        joint = b.fsub(b.fadd(box.area, other.area), common)
        real = ir.Constant(_I1, 1)
        for value in (*sides, box.area, other.area, joint):
            real = b.and_(real, b.fcmp_ordered(">", value, zero))
        return b.select(real, b.fdiv(common, joint), zero)

    def _box(self, batch: ir.Value, number: ir.Value) -> _Box:
        b = self.fn.builder
        v = [self._element(self.spec.boxes, batch, number, i64(i)) for i in range(4)]
        if self.spec.centered:
            half = [b.fdiv(v[i], ir.Constant(_FLOAT, 2.0)) for i in (3, 2)]
            middle = (v[1], v[0])
            low = tuple(b.fsub(m, h) for m, h in zip(middle, half, strict=True))
            high = tuple(b.fadd(m, h) for m, h in zip(middle, half, strict=True))
        else:
            swapped = [b.fcmp_ordered("<", v[i + 2], v[i]) for i in range(2)]
            low = tuple(b.select(swapped[i], v[i + 2], v[i]) for i in range(2))
            high = tuple(b.select(swapped[i], v[i], v[i + 2]) for i in range(2))
        area = b.fmul(b.fsub(high[0], low[0]), b.fsub(high[1], low[1]))
        return _Box((low[0], low[1]), (high[0], high[1]), area)

    def _kept(self, number: ir.Value, part: int) -> ir.Value:
        at = self.fn.builder.add(self.fn.builder.mul(number, i64(_KEPT)), i64(part))
        return self.fn.at(self.kept_at, at, _FLOAT)

    def _element(self, operand: Operand, *index: ir.Value) -> ir.Value:
        fn, b = self.fn, self.fn.builder
        at = fn.dim(operand.offset)
        for i, stride in zip(index, operand.strides, strict=True):
            at = b.add(at, b.mul(i, fn.dim(stride)))
        return fn.load(fn.at(fn.buffer(operand.slot, _FLOAT), at, _FLOAT), _FLOAT)
