"""Scalar expressions to LLVM values, one lane or a vector of lanes at a time.

    value = emit(fn, expr, Env(tensors, axes={0: (m, False), 1: (n, True)}, holes=(acc,)), 16)

An axis marked as vector stands for base, base + 1, ... in the lanes; everything that does not
depend on it is computed once as a scalar. Values are held as i1 for bool, float for float16 and
bfloat16 (rounded after each operation) and the element's own type otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from llvmlite import ir

from braze.codegen.cpu.llvm.access import Memory
from braze.codegen.cpu.llvm.function import I1, KernelFunction, storage_type
from braze.codegen.cpu.llvm.requantize import emit_requantized, requantized
from braze.codegen.cpu.llvm.scalars import PRIMITIVES
from braze.codegen.cpu.llvm.vector import F32, Lanes, constant, is_vector
from braze.core.dims import Dim
from braze.core.dtypes import BF16, BOOL, F16, DType
from braze.expr.guards import load_guards
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr


@dataclass(frozen=True)
class Env:
    """What the leaves of an expression stand for at this place of the code.

    tensors: type and shape per slot (slot k is buffer k of the kernel); axes: index -> (value of
    lane 0 as i64, is it the vector axis); holes and reds: scalars (the same in every lane) or
    vectors of the emitted width, in the register type of their dtype; mask: i1 vector of the lanes
    that exist (None: all; lane 0 always does); extents: number of steps of each axis, used to
    prove indexes in range; aligned: the vector axis's lane 0 is a multiple of the width; buffers:
    buffer of each slot where it is not the slot's own number.
    """

    tensors: Sequence[TensorSpec]
    axes: Mapping[int, tuple[ir.Value, bool]]
    holes: Sequence[ir.Value] = ()
    reds: Sequence[ir.Value] = ()
    mask: ir.Value | None = None
    extents: Mapping[int, Dim] = field(default_factory=dict)
    aligned: bool = False
    buffers: Sequence[int] = ()

    def buffer(self, slot: int) -> int:
        """The kernel buffer that slot `slot` lies in."""
        return self.buffers[slot] if self.buffers else slot


def register_type(dtype: DType) -> ir.Type:
    """LLVM type that holds one value of `dtype` in a register."""
    if dtype is BOOL:
        return I1
    return F32 if dtype in (F16, BF16) else storage_type(dtype)


def emit(fn: KernelFunction, expr: Expr, env: Env, width: int) -> ir.Value:
    """The value of `expr` at the end of fn's current block.

    A vector of `width` lanes, or a scalar for width 1. Loads with data-dependent indexes are
    checked: outside their tensor they report STATUS_INDEX and give zero.
    """
    emitter = Emitter(fn, env, width, [expr])
    return emitter.lanes.splat(emitter.value(expr))


class Emitter:
    """Emits several expressions that share subexpressions.

    `roots` are all expressions that will be asked for (they decide which loads are conditional).
    `inside` gives an emitter for a deeper block, which reuses what its parents have computed.
    """

    def __init__(
        self,
        fn: KernelFunction,
        env: Env,
        width: int,
        roots: Sequence[Expr],
        parent: Emitter | None = None,
    ) -> None:
        self.fn = fn
        self.env = env
        self.width = width
        self.parent = parent
        self.guards: Mapping[Expr, Expr | None]
        self._leaves: dict[Expr, frozenset[tuple[str, object]]]
        if parent is None:
            self.guards = load_guards(roots)
            self._leaves = {}
        else:
            self.guards = parent.guards
            self._leaves = parent._leaves
        self.lanes = Lanes(fn, width)
        self.memory = Memory(self)
        self._done: dict[Expr, ir.Value] = {}
        self._bound = _changes(env, parent.env if parent else None)
        self.vector_axis = next((k for k, (_, v) in env.axes.items() if v), None)
        self._moving = _vector_leaves(env)
        self._first: Emitter = self
        if width > 1:
            axes = {k: (v, False) for k, (v, _) in env.axes.items()}
            holes = [self.lanes.extract(h, 0) for h in env.holes]
            reds = [self.lanes.extract(r, 0) for r in env.reds]
            scalar = replace(env, axes=axes, holes=holes, reds=reds, mask=None, aligned=False)
            self._first = Emitter(fn, scalar, 1, (), parent._first if parent else None)
            if parent is None:
                self._first.guards, self._first._leaves = self.guards, self._leaves

    @property
    def first(self) -> Emitter:
        """The emitter of lane 0 alone: for addresses and for what all lanes share."""
        return self._first

    def inside(self, env: Env, width: int) -> Emitter:
        """An emitter for a block inside the current one, with `env` in place of this one's."""
        return Emitter(self.fn, env, width, (), self)

    def leaves(self, e: Expr) -> frozenset[tuple[str, object]]:
        """The axes, holes and reductions `e` depends on."""
        stack = [e]
        while stack:
            x = stack[-1]
            todo = [a for a in x.args if a not in self._leaves]
            if todo and x not in self._leaves:
                stack.extend(todo)
                continue
            stack.pop()
            if x.op in ("axis", "hole", "red"):
                self._leaves[x] = frozenset({(x.op, x.attr)})
            elif x not in self._leaves:
                guard = self.guards.get(x)
                extra = () if guard is None else (self._guard_leaves(guard),)
                self._leaves[x] = frozenset().union(*(self._leaves[a] for a in x.args), *extra)
        return self._leaves[e]

    def _guard_leaves(self, guard: Expr) -> frozenset[tuple[str, object]]:
        return self.leaves(guard)

    def varies(self, e: Expr) -> bool:
        """True when lanes may hold different values of `e`."""
        if self.width == 1:
            return False
        return not self._moving.isdisjoint(self.leaves(e))

    def value(self, root: Expr) -> ir.Value:
        """The value of `root`: a vector when lanes differ, else a scalar."""
        stack = [root]
        while stack:
            e = stack[-1]
            known = self._lookup(e)
            if known is not None:
                self._done[e] = known
                stack.pop()
                continue
            if e.op != "load" and (self.width == 1 or self.varies(e)):
                whole = requantized(e)
                wanted = e.args if whole is None else (whole.value,)
                todo = [a for a in wanted if self._lookup(a) is None]
                if todo:
                    stack.extend(todo)
                    continue
            self._done[e] = self._emit(e)
            stack.pop()
        return self._done[root]

    def _lookup(self, e: Expr) -> ir.Value | None:
        scope: Emitter | None = self
        while scope is not None:
            if e in scope._done:
                return scope._done[e]
            if scope.parent is None or scope.width != scope.parent.width:
                return None
            if self.leaves(e) & scope._bound:
                return None
            scope = scope.parent
        return None

    def _emit(self, e: Expr) -> ir.Value:
        if self.width > 1 and not self.varies(e):
            return self.first.value(e)
        if e.op == "load":
            return self.memory.load(e)
        if not e.args:
            return self._leaf(e)
        whole = requantized(e)
        if whole is not None:
            return emit_requantized(self.lanes, whole, self._lookup(whole.value))
        args = [self._lookup(a) for a in e.args]
        return PRIMITIVES[e.op](self.lanes, e, *args)

    def _leaf(self, e: Expr) -> ir.Value:
        if e.op == "const":
            return constant(register_type(e.dtype), e.value)
        if e.op == "dim":
            return self.fn.dim(e.size)
        index = e.number
        if e.op == "hole":
            return self.env.holes[index]
        if e.op == "red":
            return self.env.reds[index]
        base, vector = self.env.axes[index]
        if not vector or self.width == 1:
            return base
        return self.lanes.add(base, self.lanes.lane_numbers())


def _vector_leaves(env: Env) -> frozenset[tuple[str, object]]:
    """Leaves that differ from lane to lane."""
    moving: set[tuple[str, object]] = {("axis", k) for k, (_, vector) in env.axes.items() if vector}
    for name, values in (("hole", env.holes), ("red", env.reds)):
        moving.update((name, k) for k, v in enumerate(values) if is_vector(v))
    return frozenset(moving)


def _changes(env: Env, outer: Env | None) -> frozenset[tuple[str, object]]:
    """Leaves whose value in `env` is not the one they have in `outer`."""
    if outer is None:
        return frozenset()
    changed: set[tuple[str, object]] = set()
    for k, pair in env.axes.items():
        if outer.axes.get(k) != pair:
            changed.add(("axis", k))
    for name, new, old in (("hole", env.holes, outer.holes), ("red", env.reds, outer.reds)):
        for k, v in enumerate(new):
            if k >= len(old) or old[k] is not v:
                changed.add((name, k))
    return frozenset(changed)
