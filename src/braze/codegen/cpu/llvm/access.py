"""Loads and stores of expressions: one vector access, a broadcast, or lane by lane.

Which one is decided by how far the address moves per lane (`braze.expr.affine.slope`). Loads that
a `select` does not need, lanes that do not exist and checked indexes out of range read zeros from a
constant block instead, so that no memory outside a tensor is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from llvmlite import ir

from braze.codegen.cpu.llvm import halves
from braze.codegen.cpu.llvm.function import I8, I32, STATUS_INDEX, element_bytes, i64, storage_type
from braze.codegen.cpu.llvm.vector import I16, Lanes, constant, suffix, with_element
from braze.core.dims import Dim
from braze.core.dtypes import BF16, BOOL, F16, DType
from braze.expr.affine import slope
from braze.expr.bounds import in_range
from braze.expr.guards import depends_on_data
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr

if TYPE_CHECKING:
    from braze.codegen.cpu.llvm.emit import Emitter

ZERO_BYTES = 1024


class Memory:
    """The memory accesses of one emitter."""

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter
        self.fn = emitter.fn

    # -- loads --------------------------------------------------------------------------------
    def load(self, e: Expr) -> ir.Value:
        """The value of a load expression that varies over lanes (or any load at width 1)."""
        spec = self.e.env.tensors[e.slot]
        element = memory_type(e.dtype)
        pointer = self.fn.buffer(self.e.env.buffer(e.slot), element)
        guard = self.e.guards.get(e)
        if guard is not None and in_range(e.args, spec.shape, self.e.env.extents):
            guard = None
        if self.e.width == 1:
            where, active = self._scalar_place(e.args, spec, guard)
            address = self._redirect(self.fn.at(pointer, where, element), active)
            raw = self.fn.load(address, element)
        elif self._contiguous(e.args, spec) and not self._checked_per_lane(e.args, guard):
            raw = self._vector_load(e, spec, pointer, guard)
        else:
            raw = self._gather(e, spec, pointer, guard)
        return from_memory(self.e.lanes, raw, e.dtype)

    def _contiguous(self, index: Sequence[Expr], spec: TensorSpec) -> bool:
        if self.flat_slope(index, spec) != 1:
            return False
        return not any(self.e.varies(i) and depends_on_data(i) for i in index)

    def _checked_per_lane(self, index: Sequence[Expr], guard: Expr | None) -> bool:
        """True when some lanes need a checked index and others do not."""
        if guard is None or not self.e.varies(guard):
            return False
        return any(depends_on_data(i) for i in index)

    def flat_slope(self, index: Sequence[Expr], spec: TensorSpec) -> Dim | None:
        """Elements the address moves per lane; None when it does not move evenly."""
        total: Dim = 0
        stride: Dim = 1
        axis = self.e.vector_axis
        block = self.e.width if self.e.env.aligned else 1
        for i, size in reversed(list(zip(index, spec.shape, strict=True))):
            if self.e.varies(i):
                step = None if axis is None else slope(i, axis, block)
                if step is None:
                    return None
                total = total + step * stride
            stride = stride * size
        return total

    def _scalar_place(
        self, index: Sequence[Expr], spec: TensorSpec, guard: Expr | None
    ) -> tuple[ir.Value, ir.Value | None]:
        """Flat position of lane 0, and whether it may be read (None: always)."""
        first = self.e.first
        values = [first.value(i) for i in index]
        active = None if guard is None else first.value(guard)
        inside = self._inside(first, index, values, spec)
        if inside is not None:
            self._report(first, inside, active)
            active = inside if active is None else self.fn.builder.and_(active, inside)
        return self._flat(first, values, spec), active

    def _vector_load(
        self, e: Expr, spec: TensorSpec, pointer: ir.Value, guard: Expr | None
    ) -> ir.Value:
        element = memory_type(e.dtype)
        kind = ir.VectorType(element, self.e.width)
        uniform = guard is None or not self.e.varies(guard)
        where, active = self._scalar_place(e.args, spec, guard if uniform else None)
        address = self._redirect(self.fn.at(pointer, where, element), active)
        mask = self.e.env.mask
        if not uniform and guard is not None:
            needed = self.e.value(guard)
            mask = needed if mask is None else self.fn.builder.and_(mask, needed)
        return self._vector_at(address, kind, mask)

    def _vector_at(self, address: ir.Value, kind: ir.Type, mask: ir.Value | None) -> ir.Value:
        """Neighbouring elements; zeros in lanes that `mask` leaves out."""
        if mask is None:
            return self.fn.load(address, kind)
        name = f"llvm.masked.load.{suffix(kind)}.p0"
        align = ir.Constant(I32, element_bytes(kind))
        return self.fn.intrinsic(name, kind, [address, align, mask, constant(kind, 0)])

    def _gather(self, e: Expr, spec: TensorSpec, pointer: ir.Value, guard: Expr | None) -> ir.Value:
        b, element = self.fn.builder, memory_type(e.dtype)
        kind = ir.VectorType(element, self.e.width)
        lanes, active = self.lane_positions(e.args, spec, guard)
        raw: ir.Value = ir.Constant(kind, ir.Undefined)
        for lane, where in enumerate(lanes):
            address = self.fn.at(pointer, where, element)
            if active is not None:
                address = self._redirect(address, self.e.lanes.extract(active, lane))
            one = self.fn.load(address, element)
            raw = b.insert_element(raw, one, ir.Constant(I32, lane))
        return raw

    def lane_positions(
        self, index: Sequence[Expr], spec: TensorSpec, guard: Expr | None
    ) -> tuple[list[ir.Value], ir.Value | None]:
        """Flat position per lane, and which lanes may be accessed (None: all)."""
        step = self.flat_slope(index, spec)
        checked = any(depends_on_data(i) for i in index)
        active = self.e.env.mask
        if guard is not None:
            needed = self.e.lanes.splat(self.e.value(guard))
            active = needed if active is None else self.fn.builder.and_(active, needed)
        if step is not None and not checked:
            where = self._flat(self.e.first, [self.e.first.value(i) for i in index], spec)
            stride = self.fn.dim(step)
            moves = [self.e.lanes.mul(stride, i64(lane)) for lane in range(self.e.width)]
            return [self.e.lanes.add(where, move) for move in moves], active
        values = [self.e.value(i) for i in index]
        inside = self._inside(self.e, index, values, spec)
        if inside is not None:
            inside = self.e.lanes.splat(inside)
            self._report(self.e, inside, active)
            active = inside if active is None else self.fn.builder.and_(active, inside)
        flat = self.e.lanes.splat(self._flat(self.e, values, spec))
        return [self.e.lanes.extract(flat, lane) for lane in range(self.e.width)], active

    def _inside(
        self, emitter: Emitter, index: Sequence[Expr], values: Sequence[ir.Value], spec: TensorSpec
    ) -> ir.Value | None:
        """Whether data-dependent indexes lie in their tensor; None when there are none."""
        total: ir.Value | None = None
        for i, value, size in zip(index, values, spec.shape, strict=True):
            if not depends_on_data(i) or in_range((i,), (size,), emitter.env.extents):
                continue
            # one unsigned comparison covers negative indexes too
            ok = emitter.lanes.compare("<", value, self.fn.dim(size), signed=False)
            total = ok if total is None else emitter.lanes.both(total, ok)
        return total

    def _report(self, emitter: Emitter, inside: ir.Value, active: ir.Value | None) -> None:
        wrong = emitter.lanes.exclusive(inside, constant(inside.type, True))
        if active is not None:
            wrong = emitter.lanes.both(wrong, active)
        with self.fn.if_(emitter.lanes.any_lane(wrong), likely=False):
            self.fn.set_status(STATUS_INDEX)

    def _flat(self, emitter: Emitter, values: Sequence[ir.Value], spec: TensorSpec) -> ir.Value:
        lanes = emitter.lanes
        total: ir.Value = i64(0)
        for position, (value, size) in enumerate(zip(values, spec.shape, strict=True)):
            if position:
                total = lanes.mul(total, self.fn.dim(size))
                total = lanes.add(total, value)
            else:
                total = value
        return total

    def _redirect(self, address: ir.Value, active: ir.Value | None) -> ir.Value:
        """`address` where active, else the block of zeros."""
        if active is None:
            return address
        zeros = self.fn.builder.bitcast(self.fn.zeros(ZERO_BYTES), address.type)
        return self.fn.builder.select(active, address, zeros)

    # -- stores -------------------------------------------------------------------------------
    def store(
        self,
        buffer: int,
        spec: TensorSpec,
        index: Sequence[Expr],
        value: ir.Value,
        mode: str = "set",
    ) -> None:
        """Store (or update with `mode`) a value in register form at `index` of buffer `buffer`.

        With data-dependent indexes, lanes out of range report STATUS_INDEX and write nothing.
        """
        element = memory_type(spec.dtype)
        pointer = self.fn.buffer(buffer, element)
        if self.e.width == 1:
            where, active = self._scalar_place(index, spec, None)
            self._store_one(self.fn.at(pointer, where, element), value, spec.dtype, mode, active)
            return
        value = self.e.lanes.splat(value)
        if self._contiguous(index, spec):
            where, active = self._scalar_place(index, spec, None)
            address = self.fn.at(pointer, where, element)
            if mode != "set":
                kind = ir.VectorType(element, self.e.width)
                place = self._redirect(address, active)
                raw = self._vector_at(place, kind, self.e.env.mask)
                old = from_memory(self.e.lanes, raw, spec.dtype)
                value = self.update(mode, old, value, spec.dtype)
            raw = self.to_memory(value, spec.dtype)
            if active is None:
                self._store_vector(address, raw)
            else:
                with self.fn.if_(active):
                    self._store_vector(address, raw)
            return
        lanes, active = self.lane_positions(index, spec, None)
        for lane, where in enumerate(lanes):
            here = None if active is None else self.e.lanes.extract(active, lane)
            one = self.e.lanes.extract(value, lane)
            self._store_one(self.fn.at(pointer, where, element), one, spec.dtype, mode, here)

    def address(self, buffer: int, spec: TensorSpec, index: Sequence[Expr]) -> ir.Value:
        """Address of lane 0 of an access whose index does not depend on data."""
        element = memory_type(spec.dtype)
        where, _ = self._scalar_place(index, spec, None)
        return self.fn.at(self.fn.buffer(buffer, element), where, element)

    def _store_vector(self, address: ir.Value, raw: ir.Value) -> None:
        mask = self.e.env.mask
        if mask is None:
            self.fn.store(raw, address)
            return
        align = ir.Constant(I32, element_bytes(raw.type))
        name = f"llvm.masked.store.{suffix(raw.type)}.p0"
        self.fn.intrinsic(name, ir.VoidType(), [raw, address, align, mask])

    def _store_one(
        self, address: ir.Value, value: ir.Value, dtype: DType, mode: str, active: ir.Value | None
    ) -> None:
        if active is not None:
            with self.fn.if_(active):
                self._store_one(address, value, dtype, mode, None)
            return
        if mode != "set":
            old = from_memory(self.e.lanes, self.fn.load(address, memory_type(dtype)), dtype)
            value = self.update(mode, old, value, dtype)
        self.fn.store(self.to_memory(value, dtype), address)

    def update(self, mode: str, old: ir.Value, value: ir.Value, dtype: DType) -> ir.Value:
        """`old` combined with `value` as a store mode or a reduction kind says."""
        lanes = self.e.lanes
        if dtype is BOOL:
            both = mode in ("mul", "prod", "min")
            return lanes.both(old, value) if both else lanes.either(old, value)
        if mode in ("max", "min"):
            return lanes.extreme(">" if mode == "max" else "<", old, value, dtype.is_signed)
        result = lanes.add(old, value) if mode in ("add", "sum") else lanes.mul(old, value)
        if dtype is F16:
            return halves.round_f16(lanes, result)
        return halves.round_bf16(lanes, result) if dtype is BF16 else result

    def to_memory(self, value: ir.Value, dtype: DType) -> ir.Value:
        """A register value in the form memory holds."""
        if dtype is BOOL:
            return self.fn.builder.zext(value, with_element(value.type, I8))
        if dtype is F16:
            return halves.f32_to_f16(self.e.lanes, value)
        if dtype is BF16:
            # the register holds a bfloat16 number: its upper half is exact
            high = self.e.lanes.shift_right(self.e.lanes.bits(value), 16)
            return self.fn.builder.trunc(high, with_element(value.type, I16))
        return value


def from_memory(lanes: Lanes, raw: ir.Value, dtype: DType) -> ir.Value:
    """A loaded value (scalar or vector) in register form."""
    if dtype is BOOL:
        return lanes.b.icmp_unsigned("!=", raw, constant(raw.type, 0))
    if dtype is F16:
        return halves.f16_to_f32(lanes, raw)
    return halves.bf16_to_f32(lanes, raw) if dtype is BF16 else raw


def memory_type(dtype: DType) -> ir.Type:
    """LLVM type of one element as loads and stores move it (half types as 16 bits)."""
    return I16 if dtype in (F16, BF16) else storage_type(dtype)
