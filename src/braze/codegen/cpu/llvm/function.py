"""One kernel function in LLVM IR: the ABI, sizes, buffers, loops and the split over workers.

    void entry(void *const *buffers, const int64_t *params, int64_t worker, int64_t num_workers,
               int32_t *status)

The entry loads the buffer pointers and calls a body with them as `noalias` arguments, so that
LLVM knows that stores to one buffer do not change another. Nothing is assumed about alignment
beyond that of one element: inputs are the caller's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from braze.codegen.cpu.llvm.object import TRIPLE, compile_ir
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import Dim, DimExpr
from braze.core.dtypes import DType

I1 = ir.IntType(1)
I8 = ir.IntType(8)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
POINTER = ir.PointerType()
STATUS_INDEX = 1
STATUS_DATA = 2
_LLVM_TYPES = {
    "double": ir.DoubleType(),
    "float": ir.FloatType(),
    "half": ir.HalfType(),
    "bfloat": ir.IntType(16),
    "i64": I64,
    "i32": I32,
    "i16": ir.IntType(16),
    "i8": I8,
}


def storage_type(dtype: DType) -> ir.Type:
    """LLVM type of one stored element (bfloat16 is held as its 16 bits)."""
    return _LLVM_TYPES[dtype.llvm]


def i64(value: int) -> ir.Constant:
    """An i64 constant."""
    return ir.Constant(I64, value)


class Carry:
    """State of `KernelFunction.carry_loop`: `index`, current `values`, `next` and `results`."""

    def __init__(self, index: ir.Value, values: list[Any]) -> None:
        self.index = index
        self.values = values
        self.next: list[ir.Value] | None = None
        self.results: list[ir.Value] = []


class KernelFunction:
    """Builds one kernel. `builder` is always at the end of the block being written.

    params: the symbolic sizes used so far, in first-use order. Memory is reached through
    `buffer`, `at`, `load` and `store` (element alignment; plain `builder.load` of a vector type
    would claim the vector's natural alignment and fault on a caller's memory). Buffers in `shared`
    may overlap each other; noalias=False says so of all.
    """

    def __init__(
        self,
        name: str,
        target: CpuTarget,
        num_buffers: int,
        noalias: bool = True,
        shared: Collection[int] = (),
    ) -> None:
        self.name = name
        self.target = target
        self.params: list[DimExpr] = []
        self.module = ir.Module(name=name)
        self.module.triple = TRIPLE
        self._num_buffers = num_buffers
        kinds = [POINTER] * num_buffers + [POINTER, I64, I64, POINTER]
        self._body = self._function(f"{name}.body", kinds, "internal")
        for slot, arg in enumerate(self._body.args[:num_buffers]):
            if noalias and slot not in shared:
                arg.add_attribute("noalias")
        self._params, self.worker, self.num_workers, self._status = self._body.args[num_buffers:]
        self._params.add_attribute("noalias")
        self._status.add_attribute("noalias")
        self._head = ir.IRBuilder(self._body.append_basic_block("head"))
        self.builder = ir.IRBuilder(self._body.append_basic_block("start"))
        self._dims: dict[Dim, ir.Value] = {}
        self._buffers: dict[tuple[int, ir.Type], ir.Value] = {}
        self._intrinsics: dict[str, ir.Function] = {}
        self._tables: dict[tuple[int, ...], ir.GlobalVariable] = {}

    def _function(self, name: str, kinds: Sequence[ir.Type], linkage: str) -> ir.Function:
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
        function.linkage = linkage
        # llvmlite lists no string attributes; this one keeps loops from becoming memset calls
        for attribute in ("nounwind", '"no-builtins"'):
            set.add(function.attributes, attribute)
        return function

    def dim(self, size: Dim) -> ir.Value:
        """A size as i64: a constant, or a parameter loaded once in the head of the function."""
        if isinstance(size, int):
            return i64(size)
        if size not in self._dims:
            address = self._head.gep(
                self._params, [i64(len(self.params))], inbounds=True, source_etype=I64
            )
            value = self._head.load(address, typ=I64, align=8)
            value.set_metadata("invariant.load", self.module.add_metadata([]))
            self._dims[size] = value
            self.params.append(size)
        return self._dims[size]

    def buffer(self, slot: int, element: ir.Type) -> ir.Value:
        """The pointer of buffer `slot` (inputs, outputs, scratch) to elements of type `element`."""
        key = (slot, element)
        if key not in self._buffers:
            self._buffers[key] = self._head.bitcast(self._body.args[slot], element.as_pointer())
        return self._buffers[key]

    def at(self, pointer: ir.Value, index: ir.Value | int, element: ir.Type) -> ir.Value:
        """Address of element `index` from `pointer`."""
        where = i64(index) if isinstance(index, int) else index
        return self.builder.gep(pointer, [where], inbounds=True, source_etype=element)

    def load(self, pointer: ir.Value, kind: ir.Type) -> ir.Value:
        """Load a scalar or vector of type `kind`, aligned to one element only."""
        return self.builder.load(pointer, typ=kind, align=element_bytes(kind))

    def store(self, value: ir.Value, pointer: ir.Value) -> None:
        """Store a scalar or vector, aligned to one element only."""
        self.builder.store(value, pointer, align=element_bytes(value.type))

    def alloca(self, kind: ir.Type, count: int = 1, align: int = 64) -> ir.Value:
        """Stack memory for `count` elements, allocated once in the head of the function."""
        slot = self._head.alloca(kind, i64(count))
        slot.align = align
        slot.type = POINTER  # opaque like every other pointer here: any type may be stored
        return slot

    def zeros(self, count: int) -> ir.Value:
        """A pointer to `count` zero bytes that may be read, never written."""
        return self.filled(count, 0)

    def filled(self, count: int, value: int) -> ir.Value:
        """A pointer to `count` bytes of one value that may be read, never written."""
        name = f"{self.name}.zeros{count}" + (f".{value}" if value else "")
        if name not in self.module.globals:
            block = ir.GlobalVariable(self.module, ir.ArrayType(I8, count), name)
            block.linkage = "internal"
            block.global_constant = True
            block.align = 64
            content = bytearray([value]) * count if value else None
            block.initializer = ir.Constant(block.value_type, content)
        return self.module.globals[name]

    def words(self, values: Sequence[int]) -> ir.Value:
        """A pointer to a constant table of 64-bit words."""
        kind = ir.ArrayType(I64, len(values))
        content = tuple(values)
        if content not in self._tables:
            name = f"{self.name}.words{len(self._tables)}"
            table = ir.GlobalVariable(self.module, kind, name)
            table.linkage = "internal"
            table.global_constant = True
            table.initializer = ir.Constant(kind, list(content))
            self._tables[content] = table
        return self._tables[content]

    def intrinsic(self, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
        """Call the LLVM intrinsic spelled `name` in full, e.g. "llvm.fma.v16f32"."""
        if name not in self._intrinsics:
            kind = ir.FunctionType(result, [a.type for a in args])
            self._intrinsics[name] = ir.Function(self.module, kind, name)
        return self.builder.call(self._intrinsics[name], args)

    @contextmanager
    def loop(
        self, start: ir.Value | int, stop: ir.Value | int, step: ir.Value | int = 1
    ) -> Iterator[ir.Value]:
        """`for i in range(start, stop, step)` with a positive step; yields i."""
        with self.carry_loop(start, stop, step, ()) as it:
            it.next = []
            yield it.index

    @contextmanager
    def carry_loop(
        self,
        start: ir.Value | int,
        stop: ir.Value | int,
        step: ir.Value | int,
        init: Sequence[ir.Value],
    ) -> Iterator[Carry]:
        """A counting loop that carries values in registers.

        Inside, read `it.index` and `it.values` and assign `it.next`; afterwards `it.results` holds
        the last values (the initial ones when the loop does not run).
        """
        first, last, delta = (i64(v) if isinstance(v, int) else v for v in (start, stop, step))
        before = self.builder.block
        body = self.builder.append_basic_block("loop")
        done = self.builder.append_basic_block("done")
        self.builder.cbranch(self.builder.icmp_signed("<", first, last), body, done)
        self.builder.position_at_end(body)
        index = self.builder.phi(I64)
        values = [self.builder.phi(v.type) for v in init]
        it = Carry(index, list(values))
        yield it
        assert it.next is not None and len(it.next) == len(init), "carry_loop: set it.next"
        latch = self.builder.block
        following = self.builder.add(index, delta, flags=("nsw",))
        self.builder.cbranch(self.builder.icmp_signed("<", following, last), body, done)
        index.add_incoming(first, before)
        index.add_incoming(following, latch)
        for phi, begin, end in zip(values, init, it.next, strict=True):
            phi.add_incoming(begin, before)
            phi.add_incoming(end, latch)
        self.builder.position_at_end(done)
        for begin, end in zip(init, it.next, strict=True):
            result = self.builder.phi(begin.type)
            result.add_incoming(begin, before)
            result.add_incoming(end, latch)
            it.results.append(result)

    def while_loop(
        self,
        init: Sequence[ir.Value],
        condition: Callable[[list[ir.Value]], ir.Value],
        step: Callable[[list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """`while condition(values): values = step(values)`; returns the last values."""
        before = self.builder.block
        head, body, done = (self.builder.append_basic_block(n) for n in ("head", "body", "done"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        values: list[Any] = [self.builder.phi(v.type) for v in init]
        self.builder.cbranch(condition(list(values)), body, done)
        self.builder.position_at_end(body)
        following = step(list(values))
        latch = self.builder.block
        self.builder.branch(head)
        for phi, begin, end in zip(values, init, following, strict=True):
            phi.add_incoming(begin, before)
            phi.add_incoming(end, latch)
        self.builder.position_at_end(done)
        return values

    @contextmanager
    def if_(self, condition: ir.Value, likely: bool | None = None) -> Iterator[None]:
        """`if condition:`."""
        with self.builder.if_then(condition, likely=likely):
            yield

    @contextmanager
    def if_else(self, condition: ir.Value) -> Iterator[tuple[Any, Any]]:
        """`with fn.if_else(c) as (yes, no): with yes: ... ; with no: ...`."""
        with self.builder.if_else(condition) as branches:
            yield branches

    def minimum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The smaller of two signed integers."""
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def maximum(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """The larger of two signed integers."""
        return self.builder.select(self.builder.icmp_signed(">", a, b), a, b)

    def split(self, total: ir.Value | int, grain: int = 1) -> tuple[ir.Value, ir.Value]:
        """This worker's contiguous part [begin, end) of range(total), in multiples of `grain`."""
        b = self.builder
        count = i64(total) if isinstance(total, int) else total
        blocks = count
        if grain > 1:
            blocks = b.sdiv(b.add(count, i64(grain - 1)), i64(grain))
        begin = b.sdiv(b.mul(blocks, self.worker), self.num_workers)
        end = b.sdiv(b.mul(blocks, b.add(self.worker, i64(1))), self.num_workers)
        if grain > 1:
            begin = self.minimum(b.mul(begin, i64(grain)), count)
            end = self.minimum(b.mul(end, i64(grain)), count)
        return begin, end

    @property
    def status(self) -> ir.Value:
        """The step's own 32-bit word: zero before a run, and after it unless the data is wrong.

        All workers see the same one.
        """
        return self._status

    def set_status(self, code: int) -> None:
        """Report a data error (STATUS_INDEX, STATUS_DATA) to the runtime."""
        self.builder.store(ir.Constant(I32, code), self._status, align=4)

    def text(self) -> str:
        """Close the function and give the module's LLVM IR. Call once, last."""
        self.builder.ret_void()
        self._head.branch(self._body.blocks[1])
        entry = self._function(self.name, [POINTER, POINTER, I64, I64, POINTER], "external")
        b = ir.IRBuilder(entry.append_basic_block("entry"))
        pointers = [
            b.load(b.gep(entry.args[0], [i64(k)], inbounds=True, source_etype=POINTER), typ=POINTER)
            for k in range(self._num_buffers)
        ]
        b.call(self._body, [*pointers, *entry.args[1:]])
        b.ret_void()
        text = str(self.module)
        self._take_apart()
        return text

    def _take_apart(self) -> None:
        """Part instructions from their blocks and from each other: counts of references free them
        then, and the collector of cycles, a tenth of a build, has little to find."""
        for function in self.module.functions:
            for block in function.blocks:
                for instruction in block.instructions:
                    instruction.operands = ()
                    if isinstance(instruction, ir.PhiInstr):
                        instruction.incomings = ()
                block.instructions.clear()
                block.terminator = None
            function.blocks.clear()

    def finish(self, speed: int = 2, unroll: bool = True) -> tuple[bytes, tuple[Dim, ...]]:
        """Close the function; returns (ELF object, sizes to pass as params in order)."""
        return compile_ir(self.text(), self.target, speed, unroll), tuple(self.params)


def element_bytes(kind: ir.Type) -> int:
    """Bytes of one element of a scalar or vector type."""
    element = kind.element if isinstance(kind, ir.VectorType) else kind
    if isinstance(element, ir.IntType):
        return max(1, int(element.width) // 8)
    return {ir.DoubleType: 8, ir.FloatType: 4, ir.HalfType: 2}[type(element)]
