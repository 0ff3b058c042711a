"""Plans with steps that steer, for native and for reference engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from braze.core.dims import sym
from braze.core.dtypes import BOOL, F32, I64, DType
from braze.engine.plan import (
    AssignedSource,
    AxisSource,
    Binding,
    Buffer,
    DebugTensor,
    ElementSource,
    Kernel,
    Module,
    Plan,
    Profile,
    Symbol,
    SymbolSource,
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
    Step,
)
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, binary, load
from braze.fusion.kernel_text import kernel_text
from tests.runtime.kernels import add_object, gather_object, reversed_add_object
from tests.runtime.plans import TARGET, SizeTable

MOST = 64  # of sizes that are not carried
Ref = BufferRef


def add_text() -> bytes:
    """The text of what `add_object` computes."""
    x = TensorSpec(F32, (sym("n"),))
    a, b = load(0, (axis(0),), F32), load(1, (axis(0),), F32)
    nest = LoopNest((sym("n"),), (), (), (Store(0, (axis(0),), binary("add", a, b)),))
    return kernel_text(LoopKernel((x, x), (x,), (nest,))).encode("ascii")


def gather_text() -> bytes:
    """The text of what `gather_object` computes, params m and n."""
    x, i, y = (TensorSpec(t, (sym(n),)) for t, n in ((F32, "n"), (I64, "m"), (F32, "m")))
    place = load(1, (axis(0),), I64)
    value = load(0, (place,), F32)
    nest = LoopNest((sym("m"),), (), (), (Store(0, (axis(0),), value),))
    return kernel_text(LoopKernel((x, i), (y,), (nest,))).encode("ascii")


def in_text(plan: Plan) -> Plan:
    """The plan for the reference engine: objects of the tests become the texts of the same."""
    texts = {
        add_object(): add_text(),
        reversed_add_object(): add_text(),
        gather_object(): gather_text(),
    }
    modules = tuple(Module("text", "reference", texts[m.code]) for m in plan.modules)
    return replace(plan, modules=modules)


@dataclass
class PlanBuilder:
    """Collects a plan whose buffers in the arena stand one after another."""

    sizes: SizeTable = field(default_factory=SizeTable)
    symbols: list[Symbol] = field(default_factory=list)
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    arena: int = 0
    inputs: list[Binding] = field(default_factory=list)
    outputs: list[Binding] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    debug: list[DebugTensor] = field(default_factory=list)

    def symbol(self, name: str, source: SymbolSource, most: int = MOST) -> int:
        """A size of the shape program; its symbol is `len(symbols) - 1`."""
        self.symbols.append(Symbol(name, source))
        self.ranges.append((0, min(4, most), most))
        return self.sizes.add("sym", len(self.symbols) - 1)

    def axis(self, name: str, of_input: int) -> int:
        """The size of axis 0 of an input."""
        return self.symbol(name, AxisSource(of_input, 0))

    def times(self, *factors: int) -> int:
        """The size that is the product of sizes."""
        first, *others = factors
        for other in others:
            first = self.sizes.add("mul", first, other)
        return first

    def bytes(self, dtype: DType, *shape: int) -> int:
        """Bytes of a tensor."""
        return self.times(*shape, self.sizes.const(dtype.itemsize))

    def buffer(self, kind: str, size: int, offset: int = -1) -> int:
        """A buffer at an offset of the arena, or none."""
        self.buffers.append(Buffer(kind, size))
        self.offsets.append(offset)
        return len(self.buffers) - 1

    def arena_buffer(self, size: int, most: int) -> int:
        """A buffer in the arena with room for `most` bytes."""
        at, self.arena = self.arena, self.arena + -(-most // 64) * 64
        return self.buffer("arena", size, at)

    def own(self, size: int) -> int:
        """A buffer with memory of its own."""
        return self.buffer("arena", size)

    def tensor(self, kind: Literal["input", "output"], name: str, dtype: DType, *shape: int) -> int:
        """The buffer of a new input or output."""
        buffer = self.buffer(kind, self.bytes(dtype, *shape))
        rows = self.inputs if kind == "input" else self.outputs
        rows.append(Binding(name, dtype, shape, buffer))
        return buffer

    def body(self, name: str, *steps: Step) -> int:
        """The number of a new body."""
        self.bodies.append(Body(name, steps))
        return len(self.bodies) - 1

    def plan(self, *steps: Step) -> Plan:
        """The plan of these steps; kernel 0 adds."""
        return Plan(
            target=TARGET,
            threads=8,
            symbols=tuple(self.symbols),
            sizes=tuple(self.sizes.ops),
            guards=(),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            buffers=tuple(self.buffers),
            modules=(Module("elf", "x86-64", add_object()),),
            kernels=(Kernel("entry", 0),),
            steps=steps,
            profiles=(Profile(tuple(self.ranges), tuple(self.offsets), self.arena, 0),),
            weights=(),
            debug=tuple(self.debug),
            record={},
            bodies=tuple(self.bodies),
        )


def add(a: int, b: int, out: int, n: int, after: Sequence[int] = ()) -> Launch:
    """out[n] = a + b."""
    return Launch(0, "add", (Ref(a), Ref(b), Ref(out)), (n,), True, tuple(after), ("Add_2",))


def nested_plan() -> Plan:
    """y = x after `outer` rounds, c the last round's number (`inner` when there was none).

    A round with a flag adds x `inner` times; one without doubles. A loop in a branch in a loop.
    """
    p = PlanBuilder()
    n, k = p.axis("n", 0), p.axis("k", 1)
    i = p.symbol("i", AssignedSource())
    one, zero = p.sizes.const(1), p.sizes.const(0)
    x, flags = p.tensor("input", "x", F32, n), p.tensor("input", "flags", BOOL, k)
    outer, inner = p.tensor("input", "outer", I64), p.tensor("input", "inner", I64)
    y, c = p.tensor("output", "y", F32, n), p.tensor("output", "c", I64)
    eight, size = p.bytes(I64), p.bytes(F32, n)
    total, part, sums = (p.arena_buffer(size, 4 * MOST) for _ in range(3))
    flag, counter = p.arena_buffer(one, 1), p.arena_buffer(eight, 8)
    add_x = p.body("add_x", add(part, x, sums, n))
    many = p.body(
        "many", Loop(add_x, Ref(inner), carried=(Carried(part, Ref(total), Ref(sums)),), name="in")
    )
    double = p.body("double", add(total, total, part, n))
    once = p.body("once", Call(double, "call"))
    step = p.sizes.add("add", i, one)
    turn = p.body(
        "round", Copy(Ref(flags, i), Ref(flag), one, "flag"), If(Ref(flag), many, once, "if")
    )
    p.debug += [DebugTensor("part", F32, (n,), Ref(part), 3 + j) for j in (1, 2, 5)]
    return p.plan(
        Copy(Ref(inner), Ref(counter), eight, "none"),
        Loop(
            turn, Ref(outer), None, counter, (Carried(total, Ref(x), Ref(part)),),
            (CarriedSize(2, zero, step),), "out", ("Loop_1",),
        ),
        Call(p.body("end", Copy(Ref(total), Ref(y), size), Copy(Ref(counter), Ref(c), eight)), "e"),
    )  # fmt: skip


def nested_result(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `nested_plan` computes."""
    y, rounds = feed["x"], int(feed["outer"])
    for flag in feed["flags"][:rounds]:
        for _ in range(int(feed["inner"]) if flag else 0):
            y = y + feed["x"]
        y = y if flag else y + y
    return {"y": y, "c": np.array(rounds - 1 if rounds > 0 else feed["inner"])}


def while_plan() -> Plan:
    """y = x doubled as long as flags say, which must end."""
    p = PlanBuilder()
    n, k = p.axis("n", 0), p.axis("k", 1)
    i = p.symbol("i", AssignedSource())
    one, zero = p.sizes.const(1), p.sizes.const(0)
    x, flags = p.tensor("input", "x", F32, n), p.tensor("input", "flags", BOOL, k)
    y = p.tensor("output", "y", F32, n)
    twice, going = p.arena_buffer(p.bytes(F32, n), 4 * MOST), p.arena_buffer(one, 1)
    body = p.body("double", add(y, y, twice, n))
    step = p.sizes.add("add", i, one)
    carried = (Carried(y, Ref(x), Ref(twice)), Carried(going, Ref(flags), Ref(flags, step)))
    return p.plan(Loop(body, None, Ref(going), -1, carried, (CarriedSize(2, zero, step),), "while"))


def while_result(feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `while_plan` computes."""
    return {"y": feed["x"] * np.float32(2) ** int(np.argmin(feed["flags"]))}


def topk_plan(dtype: DType = F32, largest: bool = True) -> Plan:
    """values, places [rows, k] = the first k of each row of x [rows, n], k an input."""
    p = PlanBuilder()
    rows = p.axis("rows", 0)
    n = p.symbol("n", AxisSource(0, 1))
    k_buffer = 1
    k = p.symbol("k", ElementSource(k_buffer, 0))
    x, given = p.tensor("input", "x", dtype, rows, n), p.tensor("input", "k", I64)
    assert given == k_buffer
    values = p.tensor("output", "values", dtype, rows, k)
    places = p.tensor("output", "places", I64, rows, k)
    order = p.arena_buffer(p.bytes(I64, n), 8 * MOST)
    attributes: dict[str, Any] = {"dtype": dtype.name, "largest": largest}
    refs = (Ref(x), Ref(values), Ref(places), Ref(order))
    return p.plan(
        Sizes((KnownSize(2),), "k"),
        LibraryCall("braze", "topk", "best", refs, (rows, n, k), attributes, (), ("TopK_0",)),
    )


def scoped_plan() -> Plan:
    """places[m] of x in a loop: the size is unknown again after it, where the output needs it."""
    p = PlanBuilder()
    n = p.axis("n", 0)
    count_buffer = 4
    m = p.symbol("m", ElementSource(count_buffer, 0))
    x, trip = p.tensor("input", "x", F32, n), p.tensor("input", "trip", I64)
    y = p.tensor("output", "y", I64, m)
    places = p.arena_buffer(p.bytes(I64, n), 8 * MOST)
    count = p.arena_buffer(p.bytes(I64), 8)
    assert count == count_buffer
    find = LibraryCall(
        "braze", "nonzero", "find", (Ref(x), Ref(places), Ref(count)), (n,), {"dtype": "float32"}
    )
    body = p.body(
        "find", find, Sizes((KnownSize(1),)), Copy(Ref(places), Ref(y), p.bytes(I64, m), "move")
    )
    return p.plan(Loop(body, Ref(trip), name="again"))
