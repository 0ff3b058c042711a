"""Scalar expressions of a loop nest as Triton source, with masked and range-checked loads.

Index arithmetic is done in 32 bits where its interval is known to fit, in 64 bits elsewhere: 64-bit
division costs a GPU about a hundred instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braze.codegen.cuda.triton.arith import TritonArith
from braze.codegen.cuda.triton.bytes import byte_forms
from braze.codegen.cuda.triton.halves import short_forms
from braze.codegen.cuda.triton.scalars import PRIMITIVES, register_type
from braze.codegen.cuda.triton.source import Val
from braze.core.dims import Dim
from braze.core.dtypes import BF16, BOOL, F16, I64
from braze.expr.bounds import in_range, index_range
from braze.expr.fold import leaves
from braze.expr.guards import depends_on_data, load_guards
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr

# operations on int64 that may be done in 32 bits when operands and result fit
NARROW = frozenset({"add", "sub", "mul", "floordiv", "mod", "min", "max", "select"})
STATUS_INDEX = 1
INT32 = (-(2**31), 2**31 - 1)


@dataclass(frozen=True)
class Scope:
    """What the leaves of expressions stand for: axis values, results of reductions, and the mask
    of the points that exist (None: all). lane: the inner point's row-major number.

    parts: axes, and the mask of those of their values that exist. They cover all axes and together
    say what `mask` does; with them, a load that uses few axes is no larger than these make it.
    loaded: what was read ahead, as it lies in memory.
    """

    axes: Mapping[int, Val]
    mask: Val | None
    reds: Sequence[Val] = ()
    holes: Sequence[Val] = ()
    lane: Val | None = None
    parts: Sequence[tuple[frozenset[int], Val | None]] = ()
    loaded: dict[Expr, Val] = field(default_factory=dict)
    done: dict[Expr, Val] = field(default_factory=dict)

    def mask_of(self, uses: set[int]) -> list[Val | None]:
        """The masks of the points that a load at these axes has."""
        if not self.parts:
            return [self.mask]
        return [mask for axes, mask in self.parts if axes & uses]


class Emitter:
    """Emits expressions of one nest. `sizes` names the kernel parameter of each symbolic size."""

    def __init__(
        self,
        a: TritonArith,
        tensors: Sequence[TensorSpec],
        extents: Mapping[int, Dim],
        roots: Sequence[Expr],
        sizes: Mapping[Dim, str],
    ) -> None:
        self.a = a
        self.tensors = tensors
        self.extents = extents
        self.guards = load_guards(roots)
        self.short = {**short_forms(roots), **byte_forms(roots)}
        self.sizes = sizes

    def size(self, d: Dim) -> Val:
        """A size as a value: a literal or a parameter."""
        if isinstance(d, int):
            return self.a.of(d, "int32" if d <= INT32[1] else "int64")
        return Val(self.sizes[d], "int64")

    def value(self, root: Expr, scope: Scope) -> Val:
        """The value of `root`; shared subexpressions are emitted once per scope."""
        stack = [root]
        while stack:
            e = stack[-1]
            if e in scope.done:
                stack.pop()
                continue
            guard = self.guards.get(e) if e.op == "load" else None
            needs = (*e.args, *([guard] if guard is not None else []))
            short = self.short.get(e)
            if short is not None:
                needs = short[1:]
            todo = [x for x in needs if x not in scope.done]
            if todo:
                stack.extend(todo)
                continue
            if short is not None:
                scope.done[e] = short[0](self.a, scope.done[short[1]])
            else:
                scope.done[e] = self._one(e, scope)
            stack.pop()
        return scope.done[root]

    def _one(self, e: Expr, scope: Scope) -> Val:
        if e.op == "const":
            if e.dtype is I64:
                small = INT32[0] <= e.value <= INT32[1]
                return self.a.of(e.value, "int32" if small else "int64")
            return self.a.of(e.value, register_type(e.dtype))
        if e.op == "dim":
            return self.size(e.size)
        if e.op == "axis":
            return scope.axes[e.number]
        if e.op == "red":
            return scope.reds[e.number]
        if e.op == "hole":
            return scope.holes[e.number]
        if e.op == "load":
            return self._load(e, scope)
        return self._operation(e, [scope.done[x] for x in e.args])

    def _operation(self, e: Expr, args: list[Val]) -> Val:
        if any(x.dtype is I64 for x in e.args):
            args = self._matched(e, args)
            if e.op in ("floordiv", "mod") and self._plain_division(e):
                return self.a.put(
                    f"{args[0]} {'//' if e.op == 'floordiv' else '%'} {args[1]}", args[0].type
                )
        return PRIMITIVES[e.op](self.a, e, *args)

    def _matched(self, e: Expr, args: list[Val]) -> list[Val]:
        """int64 operands in one width: 32 bits when the result is known to fit as well."""
        wide = [x.dtype is I64 for x in e.args]
        narrow = e.op in NARROW or (e.op in ("lt", "le", "eq", "cast") and e.dtype is not I64)
        narrow = narrow and all(v.type == "int32" for v, w in zip(args, wide, strict=True) if w)
        if narrow and e.dtype is I64:
            narrow = self._fits(e)
        if narrow:
            return args
        return [self.a.convert(v, "int64") if w else v for v, w in zip(args, wide, strict=True)]

    def _fits(self, e: Expr) -> bool:
        low, high = index_range(e, self.extents)
        return (
            isinstance(low, int) and isinstance(high, int) and low >= INT32[0] and high <= INT32[1]
        )

    def _plain_division(self, e: Expr) -> bool:
        """A non-negative number by a positive literal: the hardware's division is right."""
        low, _ = index_range(e.args[0], self.extents)
        by = e.args[1]
        return isinstance(low, int) and low >= 0 and by.op == "const" and by.value > 0

    def address(self, index: Sequence[Val], shape: Sequence[Dim]) -> Val:
        """Row-major position of `index`, in 64 bits unless the tensor is known to be small."""
        count = 1
        for d in shape:
            count = count * d if isinstance(d, int) and count else 0
        small = 0 < count <= INT32[1] or 0 in shape
        kind = "int32" if small and all(v.type == "int32" for v in index) else "int64"
        total: Val | None = None
        for d, i in zip(shape, index, strict=True):
            here = self.a.convert(i, kind)
            if total is None:
                total = here
            else:
                step = self.a.convert(self.size(d), kind)
                total = self.a.add(self.a.mul(total, step), here)
        return total if total is not None else self.a.of(0, "int32")

    def inside(self, index: Sequence[Val], shape: Sequence[Dim], mask: Val | None) -> Val:
        """`mask` and whether `index` lies in a tensor of `shape`; reports what does not."""
        good: Val | None = None
        for d, i in zip(shape, index, strict=True):
            here = self.a.both(
                self.a.compare(">=", i, self.a.of(0, i.type)),
                self.a.compare("<", *self._widest(i, self.size(d))),
            )
            good = here if good is None else self.a.both(good, here)
        if good is None:
            return mask if mask is not None else self.a.of(True, "int1")
        bad = self.a.exclusive(good, self.a.of(True, "int1"))
        if mask is not None:
            bad, good = self.a.both(bad, mask), self.a.both(good, mask)
        self.a.source.line(
            f"tl.store(status + tl.zeros_like({bad}.to(tl.int32)), {STATUS_INDEX}, mask={bad})"
        )
        return good

    def _widest(self, x: Val, y: Val) -> tuple[Val, Val]:
        kind = "int64" if "int64" in (x.type, y.type) else "int32"
        return self.a.convert(x, kind), self.a.convert(y, kind)

    def ahead(self, root: Expr, scope: Scope, of: frozenset[Expr] | None = None) -> None:
        """Read what `root` loads at places that neither data nor holes decide, before its value is
        asked for; nothing is computed with it yet, so that it stays as small as in memory. of:
        only these loads."""
        for e in leaves(root, "load"):
            if e in scope.loaded or (of is not None and e not in of):
                continue
            if self.guards[e] is not None or any(depends_on_data(x) for x in e.args):
                continue
            for x in e.args:
                self.value(x, scope)
            kind = self.tensors[e.slot].dtype.name
            scope.loaded[e] = self.a.put(self._read(e, scope), kind)

    def _read(self, e: Expr, scope: Scope) -> str:
        """The elements that `e` loads, as they lie in memory."""
        slot = e.slot
        spec = self.tensors[slot]
        guard = self.guards[e]
        index = [scope.done[x] for x in e.args]
        if guard is None:
            checked = not in_range(e.args, spec.shape, self.extents)
        else:  # the guard keeps computed indexes inside; data may hold anything
            checked = any(depends_on_data(x) for x in e.args)
        masks = [scope.mask]
        if guard is None and not checked:
            masks = scope.mask_of({a.number for x in e.args for a in leaves(x, "axis")})
        elif guard is not None:
            masks.append(scope.done[guard])
        mask: Val | None = None
        for m in masks:
            mask = m if mask is None else mask if m is None else self.a.both(mask, m)
        if checked:
            mask = self.inside(index, spec.shape, mask)
        at = self.address(index, spec.shape)
        if mask is not None:
            at = self.widened(at, mask)
        tail = "" if mask is None else f", mask={mask}, other=0"
        return f"tl.load(in{slot} + {at}{tail})"

    def _load(self, e: Expr, scope: Scope) -> Val:
        spec = self.tensors[e.slot]
        loaded = scope.loaded[e].text if e in scope.loaded else self._read(e, scope)
        kind = register_type(spec.dtype)
        if spec.dtype is BOOL:
            return self.a.put(f"{loaded} != 0", "int1")
        if spec.dtype in (F16, BF16):
            return self.a.put(f"{loaded}.to(tl.float32)", kind)
        return self.a.put(loaded, kind)

    def widened(self, at: Val, mask: Val) -> Val:
        """`at` in the block shape of `mask`: a block of pointers must not be smaller."""
        return self.a.put(f"{at} + tl.zeros_like({mask}.to(tl.int32))", at.type)
