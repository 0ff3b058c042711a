"""Small plans for the tests of the engine file and the runtime."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np

from braze.core.dtypes import F16, F32, I64, DType
from braze.engine.plan import (
    AssignedSource,
    AxisSource,
    Binding,
    Buffer,
    DebugTensor,
    ElementSource,
    Guard,
    Kernel,
    Module,
    Plan,
    Profile,
    SizeOp,
    Symbol,
    TargetRecord,
    Weight,
)
from braze.engine.steps import (
    Body,
    BufferRef,
    Call,
    Carried,
    CarriedSize,
    Copy,
    If,
    KnownSize,
    Launch,
    LibraryCall,
    Loop,
    Sizes,
    TensorMap,
)
from tests.runtime.kernels import add_object, gather_object, reversed_add_object

FLOAT = 4
TARGET = TargetRecord("cpu-x86-64", 64, {"kind": "cpu", "isa": "x86-64"})


@dataclass
class SizeTable:
    """Builds a shape program; equal entries are shared."""

    ops: list[SizeOp] = field(default_factory=list)

    def add(self, op: str, a: int, b: int = 0) -> int:
        size = SizeOp(op, a, b)
        if size not in self.ops:
            self.ops.append(size)
        return self.ops.index(size)

    def const(self, value: int) -> int:
        return self.add("const", value)


def _align(value: int) -> int:
    return -(-value // 64) * 64


def chain_plan(
    num_steps: int = 3,
    width: int = 8,
    profiles: tuple[tuple[int, int, int], ...] = ((1, 4, 16),),
    parallel: bool = True,
    threads: int = 8,
) -> Plan:
    """y = x + w + w + ... (num_steps times) with x of shape [n, width], w a weight [max n, width].

    Intermediates alternate between two arena buffers.
    """
    sizes = SizeTable()
    n, w = sizes.add("sym", 0), sizes.const(width)
    count = sizes.add("mul", n, w)
    size = sizes.add("mul", count, sizes.const(FLOAT))
    top = max(high for _, _, high in profiles)
    weight = (np.arange(top * width, dtype=np.float32) % 7).reshape(top, width)
    weight_bytes = sizes.const(weight.nbytes)
    buffers = [
        Buffer("input", size, name="x"),
        Buffer("output", size, name="y"),
        Buffer("weight", weight_bytes, offset=0, name="w"),
        Buffer("arena", size, name="t0"),
        Buffer("arena", size, name="t1"),
    ]
    steps, debug, current = [], [], 0
    for i in range(num_steps):
        target = 1 if i == num_steps - 1 else 3 + i % 2
        refs = (BufferRef(current), BufferRef(2), BufferRef(target))
        after = (i - 1,) if i else ()
        origins = (f"node_{i}",)
        steps.append(Launch(0, f"add_{i}", refs, (count,), parallel, after, origins, "add:plain"))
        if target != 1:
            debug.append(DebugTensor(f"t_{i}", F32, (n, w), BufferRef(target), i))
        current = target
    rows = []
    for low, opt, high in profiles:
        span = _align(high * width * FLOAT)
        rows.append(Profile(((low, opt, high),), (-1, -1, -1, 0, span), 2 * span, 2 * span))
    return Plan(
        target=TARGET,
        threads=threads,
        symbols=(Symbol("n", AxisSource(0, 0)),),
        sizes=tuple(sizes.ops),
        guards=(),
        inputs=(Binding("x", F32, (n, w), 0),),
        outputs=(Binding("y", F32, (n, w), 1),),
        buffers=tuple(buffers),
        modules=(Module("elf", "x86-64", add_object()),),
        kernels=(Kernel("entry", 0),),
        steps=tuple(steps),
        profiles=tuple(rows),
        weights=(_weight("w", weight, 0),),
        debug=tuple(debug),
        record={"fusions": ["add into add"]},
        weight_data=(weight,),
    )


def chain_reference(plan: Plan, x: np.ndarray) -> np.ndarray:
    """What `chain_plan` computes, in the same order of additions."""
    y = x.copy()
    for _ in plan.steps:
        y = y + np.asarray(plan.weight_data[0])[: len(x)]
    return y


def gather_plan() -> Plan:
    """y[m] = x[i[m]] for x float [n], i int64 [m]; an index out of range is a data error."""
    sizes = SizeTable()
    n, m = sizes.add("sym", 0), sizes.add("sym", 1)
    four, eight = sizes.const(4), sizes.const(8)
    x, i, y = sizes.add("mul", n, four), sizes.add("mul", m, eight), sizes.add("mul", m, four)
    refs = (BufferRef(0), BufferRef(1), BufferRef(2))
    return Plan(
        target=TARGET,
        threads=8,
        symbols=(Symbol("n", AxisSource(0, 0)), Symbol("m", AxisSource(1, 0))),
        sizes=tuple(sizes.ops),
        guards=(),
        inputs=(Binding("x", F32, (n,), 0), Binding("i", I64, (m,), 1)),
        outputs=(Binding("y", F32, (m,), 2),),
        buffers=(Buffer("input", x), Buffer("input", i), Buffer("output", y)),
        modules=(Module("elf", "x86-64", gather_object()),),
        kernels=(Kernel("entry", 0),),
        steps=(Launch(0, "gather", refs, (m, n), True, (), ("Gather_7", "Reshape_8"), ""),),
        profiles=(Profile(((0, 4, 64), (0, 4, 64)), (-1, -1, -1), 0, 0),),
        weights=(),
        debug=(),
        record={},
    )


def expression_plan(dtype: DType = F32, value: tuple[float, ...] = ()) -> Plan:
    """y = x + x for x [n, n + 1] (a computed axis), n in 1..8, and a guard n == n mod 5."""
    sizes = SizeTable()
    n = sizes.add("sym", 0)
    more = sizes.add("add", n, sizes.const(1))
    rest = sizes.add("mod", n, sizes.const(5))
    count = sizes.add("mul", n, more)
    size = sizes.add("mul", count, sizes.const(dtype.itemsize))
    refs = (BufferRef(0), BufferRef(0), BufferRef(1))
    return Plan(
        target=TARGET,
        threads=1,
        symbols=(Symbol("n", AxisSource(0, 0)),),
        sizes=tuple(sizes.ops),
        guards=(Guard(n, rest, "n is below 5"),),
        inputs=(Binding("x", dtype, (n, more), 0, value),),
        outputs=(Binding("y", dtype, (n, more), 1),),
        buffers=(Buffer("input", size), Buffer("output", size)),
        modules=(Module("elf", "x86-64", add_object()),),
        kernels=(Kernel("entry", 0),),
        steps=(Launch(0, "double", refs, (count,), False),),
        profiles=(Profile(((1, 2, 8),), (-1, -1), 0, 0),),
        weights=(),
        debug=(),
        record={},
    )


def branch_plan(width: int = 1024) -> Plan:
    """y = 9 x: t = x + x, u = t + x, v = t + t, s = x + x, u = u + s, y = u + v.

    t and s are different buffers at the same arena bytes and `after` lists only the flow of data,
    so only the executor can know that the step which writes s must wait for the readers of t.
    Every second step splits its work the other way round, so a missing barrier shows.
    """
    sizes = SizeTable()
    n, w = sizes.add("sym", 0), sizes.const(width)
    count = sizes.add("mul", n, w)
    size = sizes.add("mul", count, sizes.const(FLOAT))
    kinds = ["input", "output", "arena", "arena", "arena", "arena"]
    # step: (a, b, out, after); buffers 2 and 4 share their bytes
    rows = [(0, 0, 2, ()), (2, 0, 3, (0,)), (2, 2, 5, (0,)), (0, 0, 4, ()), (3, 4, 3, (1, 3)),
            (3, 5, 1, (2, 4))]  # fmt: skip
    steps = tuple(
        Launch(i % 2, f"add_{i}", (BufferRef(a), BufferRef(b), BufferRef(c)), (count,), True, after)
        for i, (a, b, c, after) in enumerate(rows)
    )
    span = _align(16 * width * FLOAT)
    offsets = (-1, -1, 0, span, 0, 2 * span)
    return Plan(
        target=TARGET,
        threads=8,
        symbols=(Symbol("n", AxisSource(0, 0)),),
        sizes=tuple(sizes.ops),
        guards=(),
        inputs=(Binding("x", F32, (n, w), 0),),
        outputs=(Binding("y", F32, (n, w), 1),),
        buffers=tuple(Buffer(kind, size) for kind in kinds),
        modules=(
            Module("elf", "x86-64", add_object()),
            Module("elf", "x86-64", reversed_add_object()),
        ),
        kernels=(Kernel("entry", 0), Kernel("entry", 1)),
        steps=steps,
        profiles=(Profile(((1, 4, 16),), offsets, 3 * span, 3 * span),),
        weights=(),
        debug=(),
        record={},
    )


def _weight(name: str, data: np.ndarray, offset: int) -> Weight:
    digest = hashlib.sha256(data.tobytes()).hexdigest()
    return Weight(name, F32, data.shape, offset, data.nbytes, digest)


def every_record_plan() -> Plan:
    """A plan with every record there is, and no list that is empty everywhere.

    It has a kernel for a device, so only readers take it.
    """
    plan = chain_plan()
    n, width = 0, 1
    constant = Binding("c", I64, (width,), 5, tuple(range(8)))
    at = len(plan.sizes)
    sizes = (*plan.sizes, SizeOp("const", 64), SizeOp("sym", 1), SizeOp("sym", 2))
    ref, late = BufferRef(3, n), BufferRef(6)
    on_device = Launch(
        1, "blocks", (ref,), (n,), False, origins=("node",), grid=(n, width),
        maps=(TensorMap(0, F16, (n, width), (width,), (64, 64), 3),),
    )  # fmt: skip
    call = LibraryCall(
        "braze", "nonzero", "find", (BufferRef(0),), (n,), {"dtype": "float32"}, (0,), ("node",)
    )
    body = (on_device, call, Copy(ref, late, at + 1, "copy", (0,), ("node",)))
    given = Sizes((KnownSize(1), KnownSize(2, n)), "sizes", ("node",))
    loop = Loop(
        0, BufferRef(5), BufferRef(5), 3, (Carried(4, ref, ref),), (CarriedSize(2, n, n),), "loop",
        ("node",),
    )  # fmt: skip
    steps = (given, If(ref, 0, -1, "if", ("node",)), loop, Call(0, "call", ("node",)))
    symbols = (Symbol("m", ElementSource(3, 1)), Symbol("s", AssignedSource()))
    return replace(
        plan,
        symbols=(*plan.symbols, *symbols),
        sizes=sizes,
        guards=(Guard(n, n, "n is n"),),
        inputs=(*plan.inputs, constant, Binding("k", I64, (), 7, content=(1,))),
        buffers=(
            *plan.buffers,
            Buffer("input", at, name="c"),
            Buffer("arena", at + 1),
            Buffer("input", at, name="k"),
        ),
        modules=(*plan.modules, Module("cubin", "sm_90", b"\x7fELF")),
        kernels=(*plan.kernels, Kernel("blocks", 1, 128, 1024)),
        steps=(*plan.steps, *steps),
        bodies=(Body("body", body),),
        profiles=tuple(
            replace(p, ranges=(*p.ranges, (0, 1, 9), (0, 1, 9)), offsets=(*p.offsets, -1, -1, -1))
            for p in plan.profiles
        ),
    )


def nonzero_plan() -> Plan:
    """places[m] = where x[n] is not zero, n in 0..64: the size m comes from the data."""
    sizes = SizeTable()
    n, m = sizes.add("sym", 0), sizes.add("sym", 1)
    four, eight = sizes.const(4), sizes.const(8)
    found = sizes.add("mul", m, eight)
    x, every = sizes.add("mul", n, four), sizes.add("mul", n, eight)
    attributes = {"dtype": "float32"}
    refs = (BufferRef(0), BufferRef(2), BufferRef(3))
    return Plan(
        target=TARGET,
        threads=8,
        symbols=(Symbol("n", AxisSource(0, 0)), Symbol("m", ElementSource(3, 0))),
        sizes=tuple(sizes.ops),
        guards=(),
        inputs=(Binding("x", F32, (n,), 0),),
        outputs=(Binding("places", I64, (m,), 1),),
        buffers=(
            Buffer("input", x), Buffer("output", found), Buffer("arena", every),
            Buffer("arena", eight),
        ),
        modules=(),
        kernels=(),
        steps=(
            LibraryCall("braze", "nonzero", "find", refs, (n,), attributes, (), ("NonZero_3",)),
            Sizes((KnownSize(1),), "count"),
            Copy(BufferRef(2), BufferRef(1), found, "move"),
        ),
        profiles=(Profile(((0, 4, 64), (0, 4, 64)), (-1, -1, 0, 512), 576, 0),),
        weights=(),
        debug=(DebugTensor("found", I64, (m,), BufferRef(2), 1),),
        record={},
    )  # fmt: skip


def repeat_plan() -> Plan:
    """y[s] = x[n] repeated `trip` times, and c = s: what a loop carries grows."""
    sizes = SizeTable()
    n, s = sizes.add("sym", 0), sizes.add("sym", 1)
    zero, four, eight = sizes.const(0), sizes.const(4), sizes.const(8)
    x, kept = sizes.add("mul", n, four), sizes.add("mul", s, four)
    more = sizes.add("add", s, n)
    longer = sizes.add("mul", more, four)
    body = (
        Copy(BufferRef(3), BufferRef(4), kept, "old"),
        Copy(BufferRef(0), BufferRef(4, kept), x, "new"),
    )
    loop = Loop(
        0, trip=BufferRef(1), carried=(Carried(3, None, BufferRef(4)),),
        sizes=(CarriedSize(1, zero, more),), name="repeat", origins=("Loop_1",),
    )  # fmt: skip
    return Plan(
        target=TARGET,
        threads=8,
        symbols=(Symbol("n", AxisSource(0, 0)), Symbol("s", AssignedSource())),
        sizes=tuple(sizes.ops),
        guards=(),
        inputs=(Binding("x", F32, (n,), 0), Binding("trip", I64, (), 1)),
        outputs=(Binding("y", F32, (s,), 2),),
        buffers=(
            Buffer("input", x), Buffer("input", eight), Buffer("output", kept),
            Buffer("arena", kept), Buffer("arena", longer),
        ),
        modules=(),
        kernels=(),
        steps=(loop, Copy(BufferRef(3), BufferRef(2), kept, "result")),
        profiles=(Profile(((0, 4, 64), (0, 4, 4096)), (-1,) * 5, 0, 0),),
        weights=(),
        debug=(),
        record={},
        bodies=(Body("append", body),),
    )  # fmt: skip


def rows(n: int, width: int = 8) -> np.ndarray:
    """The input of `chain_plan`."""
    return np.random.default_rng(n).standard_normal((n, width)).astype(np.float32)
