"""Slices in all their modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from braze.tensorrt.adding import Adding
from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_layers import LayerType, SampleMode
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, member, sizes
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

_BELOW_ALL: Final = -(2**31)  # an end before the first element


class ISliceLayer(ILayer):
    """Elements at start, start + stride, ... along each axis, `shape` of them.

    STRICT_BOUNDS: all are there; WRAP, CLAMP, REFLECT, FILL say what stands beyond the ends.
    Inputs 1, 2, 3 and 5 stand for start, shape, stride and axes, input 4 is what FILL fills with.
    """

    layer_type, word, most_inputs = LayerType.SLICE, "Slice", 6
    shape_inputs = (1, 2, 3, 5)
    start = Param(sizes, (), "the first element of each axis")
    shape = Param(sizes, (), "how many elements")
    stride = Param(sizes, (), "the distance between them")
    axes = Param(sizes, (), "which axes are meant; none for all")
    mode = Param(member(SampleMode), SampleMode.STRICT_BOUNDS, "what stands beyond the ends")

    def lower(self, emit: Emitter) -> None:
        """A Slice of ONNX where all elements are there, else a Gather an axis."""
        x = emit.input()
        axes = self._axes(emit, emit.rank(x))
        parts = [
            self._vector(emit, i, own, len(axes))
            for i, own in ((1, self.start), (2, self.shape), (3, self.stride))
        ]
        counts = emit.peek(parts[1])
        if counts is not None and (counts < 0).any():
            raise emit.misfit(f"its shape {counts.tolist()} has sizes below 0; give others")
        if self.mode is SampleMode.STRICT_BOUNDS:
            emit.give(0, self._strict(emit, x, axes, parts))
        else:
            emit.give(0, self._gathered(emit, x, axes, parts))

    def _axes(self, emit: Emitter, rank: int) -> list[int]:
        given = emit.numbers(emit.input(5), "its axes") if emit.has(5) else list(self.axes)
        first = emit.batch
        axes = [a + rank if a < 0 else a + first for a in given] or list(range(first, rank))
        if any(not 0 <= a < rank for a in axes):
            raise emit.misfit(f"axes {axes} are not all in 0..{rank - 1}")
        return axes

    def _vector(self, emit: Emitter, index: int, own: Dims, count: int) -> str:
        name = emit.cast(emit.input(index), DataType.INT64) if emit.has(index) else emit.ints(own)
        if emit.type(name).shape != (count,):
            found = emit.type(name).shape
            raise emit.misfit(f"start, shape and stride need {count} numbers each, not {found}")
        return name

    def _strict(self, emit: Emitter, x: str, axes: list[int], parts: Sequence[str]) -> str:
        start, count, stride = parts
        contents = [emit.content(p) for p in parts]
        steps = contents[2]
        if steps is None or any(s == 0 for s in steps.flat):
            return self._gathered(emit, x, axes, parts)
        if emit.has(2) or emit.has(1):
            end = emit.node("Add", start, emit.node("Mul", count, stride))
            if any(s < 0 for s in steps.flat):
                low = emit.constant(np.int64(_BELOW_ALL))
                zero = emit.constant(np.int64(0))
                end = emit.node("Where", emit.node("Less", end, zero), low, end)
        else:
            ends = [
                a + n * s for a, n, s in zip(self.start, self.shape, map(int, steps), strict=True)
            ]
            self._check_bounds(emit, x, axes, [int(s) for s in steps])
            end = emit.ints(_BELOW_ALL if e < 0 else e for e in ends)
        return emit.node("Slice", x, start, end, emit.ints(axes), stride)

    def _check_bounds(self, emit: Emitter, x: str, axes: list[int], steps: list[int]) -> None:
        for axis, a, n, s in zip(axes, self.start, self.shape, steps, strict=True):
            size = emit.type(x).shape[axis]
            last = a + (n - 1) * s
            if isinstance(size, int) and n > 0 and not (0 <= a < size and 0 <= last < size):
                raise emit.misfit(
                    f"elements {a} to {last} of axis {axis} are not all in 0..{size - 1}; use "
                    "another mode"
                )

    def _gathered(self, emit: Emitter, x: str, axes: list[int], parts: Sequence[str]) -> str:
        """A Gather an axis; where FILL is meant, what lies outside is replaced."""
        inside: str | None = None
        rank, made = emit.rank(x), x
        for i, axis in enumerate(axes):
            place = emit.constant(np.int64(i))
            start, count, stride = (emit.node("Gather", p, place, axis=0) for p in parts)
            one, zero = emit.constant(np.int64(1)), emit.constant(np.int64(0))
            steps = emit.node("Mul", emit.node("Range", zero, count, one), stride)
            wanted = emit.node("Add", steps, start)
            axis_name = emit.constant(np.int64(axis))
            size = emit.node("Gather", emit.shape_of(x), axis_name, axis=0)
            found = self._found(emit, wanted, size)
            if self.mode is SampleMode.FILL:
                hit = emit.node("Equal", wanted, found)
                hit = emit.reshape(hit, [-1 if k == axis else 1 for k in range(rank)])
                inside = hit if inside is None else emit.node("And", inside, hit)
            made = emit.node("Gather", made, found, axis=axis)
        if inside is None:
            return made
        fill = emit.cast(emit.input(4), emit.type(x).dtype) if emit.has(4) else emit.scalar(0, x)
        return emit.node("Where", inside, made, fill)

    def _found(self, emit: Emitter, wanted: str, size: str) -> str:
        """Which element stands for one that is wanted."""
        one, zero = emit.constant(np.int64(1)), emit.constant(np.int64(0))
        last = emit.node("Sub", size, one)
        if self.mode is SampleMode.WRAP:
            return emit.node("Mod", wanted, size)
        if self.mode is SampleMode.REFLECT:
            period = emit.node("Max", emit.node("Mul", last, emit.constant(np.int64(2))), one)
            turn = emit.node("Mod", wanted, period)
            return emit.node("Min", turn, emit.node("Sub", period, turn))
        if self.mode is SampleMode.STRICT_BOUNDS:
            return wanted
        return emit.node("Max", emit.node("Min", wanted, last), zero)


class AddSlice(Adding):
    """The part of INetworkDefinition that adds slices."""

    def add_slice(
        self, input: ITensor, start: Dims, shape: Dims, stride: Dims
    ) -> ISliceLayer | None:
        """Elements of each axis."""
        return self._add(ISliceLayer, [input], start=start, shape=shape, stride=stride)
