"""Rows of a loop nest: loops over several axes at once, whole or a worker's part of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.core.dims import Dim

# begin and end of a range; None for all of it
Part = tuple[Any, Any]


class Rows:
    """Loops over axes with the given extents."""

    def __init__(self, fn: KernelFunction, extents: Mapping[int, Dim]) -> None:
        self.fn = fn
        self.extents = extents

    def share(self, count: Dim, extent: Dim, grain: int, parallel: bool) -> tuple[Part, Part]:
        """This worker's part of `count` rows and of the vector axis (in multiples of `grain`)."""
        fn, b = self.fn, self.fn.builder
        size = fn.dim(extent)
        if not parallel:
            return (None, None), (i64(0), size)
        lane_begin, lane_end = fn.split(size, grain)
        if count == 1:
            return (None, None), (lane_begin, lane_end)
        rows = fn.dim(count)
        row_begin, row_end = fn.split(rows)
        workers = fn.num_workers
        many = b.icmp_signed(">=", rows, b.mul(workers, i64(4)))
        short = b.icmp_signed("<", size, b.mul(workers, i64(grain)))
        by_rows = b.or_(many, short)
        zero = i64(0)
        return (
            (b.select(by_rows, row_begin, zero), b.select(by_rows, row_end, rows)),
            (b.select(by_rows, zero, lane_begin), b.select(by_rows, size, lane_end)),
        )

    @contextmanager
    def over(self, axes: Sequence[int], part: Part) -> Iterator[Mapping[int, ir.Value]]:
        """Loop over rows [begin, end) of the flattened axes, or over all (None); yields values."""
        begin, end = part
        if begin is None or end is None:
            with self._nested(axes, {}) as values:
                yield values
        elif len(axes) <= 1:
            with self.fn.loop(begin, end) as i:
                yield dict.fromkeys(axes, i)
        else:
            with self._odometer(axes, begin, end) as values:
                yield values

    @contextmanager
    def _nested(
        self, axes: Sequence[int], values: Mapping[int, ir.Value]
    ) -> Iterator[Mapping[int, ir.Value]]:
        if not axes:
            yield values
            return
        with (
            self.fn.loop(0, self.fn.dim(self.extents[axes[0]])) as i,
            self._nested(axes[1:], {**values, axes[0]: i}) as deeper,
        ):
            yield deeper

    @contextmanager
    def _odometer(
        self, axes: Sequence[int], begin: ir.Value, end: ir.Value
    ) -> Iterator[Mapping[int, ir.Value]]:
        """Axis values carried along and advanced like the digits of a counter."""
        b = self.fn.builder
        sizes = [self.fn.dim(self.extents[k]) for k in axes]
        start: list[ir.Value] = []
        rest = begin
        for size in reversed(sizes[1:]):
            # an empty loop may have a size of zero: divide by one then
            safe = b.select(b.icmp_signed("<", size, i64(1)), i64(1), size)
            start.insert(0, b.srem(rest, safe))
            rest = b.sdiv(rest, safe)
        start.insert(0, rest)
        with self.fn.carry_loop(begin, end, 1, start) as it:
            yield dict(zip(axes, it.values, strict=True))
            following: list[ir.Value] = []
            step: ir.Value = i64(1)
            for value, size in zip(reversed(it.values), reversed(sizes), strict=True):
                moved = b.add(value, step)
                full = b.icmp_signed("==", moved, size)
                following.insert(0, b.select(full, i64(0), moved))
                step = b.zext(full, i64(0).type)
            it.next = following
