"""Which epilogues cuBLASLt computes itself, and what is left for a loop nest behind it.

The library adds a vector along the rows, a matrix, and applies ReLU or the tanh form of GELU, all
on the float32 sums: where a network of 16-bit floats rounds after each op, it rounds once.
"""

from __future__ import annotations

from dataclasses import dataclass

from braze.core.dims import Dim
from braze.core.dtypes import BF16, F16, F32, DType
from braze.expr.fold import leaves, reachable, rewrite
from braze.expr.loops import LoopKernel, LoopNest, Store
from braze.expr.scalar import Expr, axis, const, hole, load
from braze.fusion.kernel import AnchorKernel
from braze.ops.pointwise.activation import Gelu

HALVES = (F16, BF16)


@dataclass(frozen=True, slots=True)
class Epilogue:
    """activation(sum + bias + residual): slots of the two operands, None where there is none.

    activation: "" (none), "relu" or "gelu" (the tanh form).
    """

    bias: int | None = None
    residual: int | None = None
    activation: str = ""


@dataclass(frozen=True, slots=True)
class Split:
    """What the library computes of an epilogue, and the rest (None: nothing is left).

    rest: reads what the library has written to the output, and overwrites it; its inputs are those
    of the kernel in `slots`, then that.
    """

    library: Epilogue
    rest: LoopKernel | None = None
    slots: tuple[int, ...] = ()


def split_of(kernel: AnchorKernel) -> Split | str:
    """As much of the epilogue of `kernel` as the library computes, and the rest; or why none."""
    found = library_part(kernel, kernel.epilogue)
    if isinstance(found, Epilogue):
        return Split(found)
    out = kernel.output.dtype
    inner = [e for e in reachable(kernel.epilogue, into_loads=False) if e.dtype is out]
    for e in sorted(inner, key=lambda e: -len(set(reachable(e)))):
        part = library_part(kernel, e)
        rest = _rest(kernel, e) if isinstance(part, Epilogue) else None
        if isinstance(part, Epilogue) and rest is not None:
            return Split(part, *rest)
    return f"its epilogue is not the library's ({found})"


def library_part(kernel: AnchorKernel, e: Expr) -> Epilogue | str:
    """`e` as an epilogue of the library, or why it is none."""
    out = kernel.output.dtype
    if e.dtype is not out:
        return f"the result is {e.dtype}, stored as {out}"
    if not out.is_float:
        return Epilogue() if e.op == "hole" else "only floats have an epilogue"
    plain = _without_casts(e, out)
    if plain is None:
        return f"it rounds to another type than {out}"
    activation = ""
    for name, function in (("relu", _relu_of), ("gelu", _gelu_of)):
        inside = function(plain)
        if inside is not None:
            plain, activation = inside, name
            break
    bias: int | None = None
    residual: int | None = None
    sums = 0
    for term in _terms(plain):
        if term.op == "hole":
            sums += 1
        elif term.op != "load":
            return f"it has {term.op}"
        elif bias is None and _is_bias(kernel, term):
            bias = term.slot
        elif residual is None and _is_residual(kernel, term):
            residual = term.slot
        else:
            return f"it reads slot {term.slot} in another way than as a bias or a residual"
    if sums != 1:
        return f"it has the sum {sums} times"
    return Epilogue(bias, residual, activation)


def _without_casts(e: Expr, out: DType) -> Expr | None:
    """`e` in float32, without the roundings to the output's type; None where it has others."""
    allowed = (F32, out)
    if any(x.op == "cast" and x.dtype not in allowed for x in reachable(e, into_loads=False)):
        return None
    if any(x.dtype.is_float and x.dtype not in allowed for x in reachable(e, into_loads=False)):
        return None

    def widened(x: Expr) -> Expr | None:
        if x.op == "cast" and x.args[0].dtype is F32:
            return x.args[0]
        if x.op == "load" and x.dtype is out:
            return Expr("load", x.args, F32, x.attr)
        if x.op == "const" and x.dtype is out:
            return const(x.value, F32)
        return None

    return rewrite(e, widened)


def _relu_of(e: Expr) -> Expr | None:
    """x where e is max(x, 0)."""
    if e.op != "max":
        return None
    zeros = [a for a in e.args if a.op == "const" and a.value == 0]
    others = [a for a in e.args if a not in zeros]
    return others[0] if len(zeros) == 1 and len(others) == 1 else None


def _gelu_of(e: Expr) -> Expr | None:
    """x where e is the tanh form of GELU of x, written as the op Gelu lowers."""
    gelu = Gelu("tanh")
    pattern = gelu.expr(hole(0, F32))
    if e.op != pattern.op:
        return None
    for x in reachable(e, into_loads=False):
        if x.dtype is F32 and gelu.expr(x) == e:
            return x
    return None


def _terms(e: Expr) -> list[Expr]:
    """The operands of a sum of sums."""
    return [t for a in e.args for t in _terms(a)] if e.op == "add" else [e]


def _is_bias(kernel: AnchorKernel, e: Expr) -> bool:
    """Whether a load reads one element a column of the output."""
    spec, shape = kernel.inputs[e.slot], kernel.spec.out_shape
    last = axis(len(shape) - 1)
    ones = all(a.op == "const" and a.value == 0 for a in e.args[:-1])
    fits = e.args[-1:] == (last,) and spec.shape[-1:] == shape[-1:]
    return ones and fits and spec.dtype is kernel.output.dtype


def _is_residual(kernel: AnchorKernel, e: Expr) -> bool:
    """Whether a load reads the element of a tensor that stands where the output's does."""
    spec, shape = kernel.inputs[e.slot], kernel.spec.out_shape
    here = tuple(axis(i) for i in range(len(shape)))
    return e.args == here and spec.shape == shape and spec.dtype is kernel.output.dtype


def _rest(kernel: AnchorKernel, done: Expr) -> tuple[LoopKernel, tuple[int, ...]] | None:
    """The epilogue behind `done`, whose value the output holds; None where more is needed."""
    shape: tuple[Dim, ...] = kernel.spec.out_shape
    here = tuple(axis(i) for i in range(len(shape)))
    stored = load(len(kernel.inputs), here, kernel.output.dtype)
    left = rewrite(kernel.epilogue, lambda x: stored if x == done else None)
    if leaves(left, "hole"):
        return None
    slots = tuple(sorted({x.slot for x in leaves(left, "load")} - {len(kernel.inputs)}))
    number = {s: i for i, s in enumerate((*slots, len(kernel.inputs)))}

    def renumbered(x: Expr) -> Expr | None:
        return Expr("load", x.args, x.dtype, number[x.slot]) if x.op == "load" else None

    store = Store(0, here, rewrite(left, renumbered))
    nest = LoopNest(shape, (), (), (store,))
    inputs = (*(kernel.inputs[s] for s in slots), kernel.output)
    return LoopKernel(inputs, (kernel.output,), (nest,)), slots
