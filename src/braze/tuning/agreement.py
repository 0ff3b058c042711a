"""Tactics check each other: all of a kernel's compute the same, so one that is far off is wrong.

Code may be right in every interpreter and wrong on a machine. Where tactics are timed, they run on
equal inputs anyway; a look at some elements of what each has left costs next to nothing, and what
is wrong is told from rounding by orders of magnitude. So bounds are wide: they let pass whatever
the arithmetic of a kernel allows, and a wrong address still leaves differences as large as values.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from braze.codegen.reference.run import run_kernel
from braze.codegen.spread import spread
from braze.core.dims import evaluate, product
from braze.core.dtypes import F32, DType, from_numpy
from braze.core.errors import ExecutionError
from braze.expr.fold import reachable
from braze.expr.loops import LoopKernel
from braze.expr.scalar import COMPARE, TESTS, Expr
from braze.fusion.kernel import Kernel
from braze.fusion.work import flops, reads

Array = np.ndarray[Any, Any]
Results = Sequence[Array]  # some elements of each output, flat
# float32: products in three passes of TF32 and transformed convolutions lose some bits of 24
FLOAT32, TF32 = 2.0**-18, 2.0**-10
WIDEST: Final = 1 / 8  # of the root mean square of an output
# one of so many elements may be off: quotients of near zeros; where values jump, those at a jump
RARE, JUMPING = 4096, 64
EXACT: Final = sys.maxsize  # none may be: nothing is rounded
JUMPS: Final = COMPARE | TESTS | {"sign", "floor", "ceil", "round", "trunc", "floordiv", "mod"}
AFFORDABLE: Final = 1 << 27  # operations that the truth may take, about a second in numpy


@dataclass(frozen=True, slots=True)
class Bound:
    """How far results may be from each other: relative to the root mean square of an output, steps
    of an integer, and one of how many elements may be further."""

    relative: float
    steps: int
    one_of: int


def bound(kernel: Kernel, sizes: Mapping[str, int], tf32: bool) -> Bound:
    """The bound of a kernel at these sizes; tf32: factors of float32 may be rounded to 11 bits.

    A sum of k products of rounded factors is off by about the unit of rounding times its own root
    mean square, whatever k is; an activation that saturates may leave less than one of what was the
    root of k. The factor of 4 (4 + sqrt k) is that, with the largest of many errors for the usual
    one.
    """
    nodes = [e for root in _roots(kernel) for e in reachable(root)]
    outputs = kernel.outputs if isinstance(kernel, LoopKernel) else (kernel.output,)
    types = {e.dtype for e in nodes} | {s.dtype for s in (*kernel.inputs, *outputs)}
    floats = [t for t in types if t.is_float]
    if not floats:
        return Bound(0.0, 0, EXACT)
    unit = max(FLOAT32, *(_epsilon(t) for t in floats), TF32 if tf32 and F32 in floats else 0.0)
    relative = min(WIDEST, 4 * (4 + math.sqrt(_terms(kernel, sizes))) * unit)
    jumps = any(_jumps(e) for e in nodes)
    return Bound(relative, 1, JUMPING if jumps else RARE)


def disagreeing(
    results: Sequence[Results], limit: Bound, truth: Callable[[], Results | None]
) -> list[int]:
    """Of which tactics the results are wrong.

    truth: what is right, asked for where results differ; None where that would take too long. Right
    is then what most tactics have, the first of them where as many have another.
    """
    if all(_alike(results[0], r, limit) for r in results[1:]):
        return []
    known = truth()
    if known is not None:
        off = [i for i, r in enumerate(results) if not _alike(known, r, limit)]
        if len(off) < len(results):
            return off
    votes = [sum(_alike(r, other, limit) for other in results) for r in results]
    right = results[votes.index(max(votes))]
    return [i for i, r in enumerate(results) if not _alike(right, r, limit)]


def computed(
    kernel: Kernel, sizes: Mapping[str, int], inputs: Callable[[], Sequence[Array]]
) -> list[Array] | None:
    """What the numpy meaning of a kernel gives, as `Results`; None where it would take long, or
    refuses these inputs."""
    if flops(kernel, sizes) // 2 + sum(reads(kernel, sizes)) > AFFORDABLE:
        return None
    try:
        outputs = run_kernel(kernel, inputs(), sizes)
    except (ExecutionError, MemoryError):
        return None
    flat = [o.reshape(-1) for o in outputs]
    return [np.concatenate([o[part] for part in spread(o.size)]) for o in flat]


def _roots(kernel: Kernel) -> Iterator[Expr]:
    """The expressions of values (places are integers everywhere)."""
    if not isinstance(kernel, LoopKernel):
        yield kernel.epilogue
        return
    for nest in kernel.nests:
        yield from (r.expr for r in nest.reduces)
        yield from (s.expr for s in nest.stores)


def _terms(kernel: Kernel, sizes: Mapping[str, int]) -> int:
    """About how many terms a sum has."""
    if isinstance(kernel, LoopKernel):
        return max(1, *(evaluate(product(n.inner), sizes) for n in kernel.nests))
    return flops(kernel, sizes) // max(1, 2 * evaluate(product(kernel.output.shape), sizes))


def _jumps(e: Expr) -> bool:
    """Whether a small difference may become a large one."""
    if not e.args or not e.args[0].dtype.is_float:
        return False
    return e.op in JUMPS or (e.op == "cast" and not e.dtype.is_float)


def _epsilon(dtype: DType) -> float:
    return float(ml_dtypes.finfo(dtype.numpy).eps)  # type: ignore[no-untyped-call]


def _alike(right: Results, other: Results, limit: Bound) -> bool:
    return all(_near(r, o, limit) for r, o in zip(right, other, strict=True))


def _near(right: Array, other: Array, limit: Bound) -> bool:
    """Whether two samples of an output are the same but for rounding."""
    dtype = from_numpy(right.dtype)
    if not dtype.is_float:
        # differences of unsigned and of 64-bit integers wrap in their own types
        far = np.abs(right.astype(np.float64) - other.astype(np.float64)) > limit.steps
        return int(np.count_nonzero(far)) <= right.size // limit.one_of
    if not right.size:
        return True
    wide, there = right.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(wide)
    size = math.sqrt(float(np.mean(np.square(wide, where=finite, out=np.zeros_like(wide)))))
    with np.errstate(invalid="ignore"):
        near = np.abs(wide - there) <= limit.relative * size + _epsilon(dtype) * np.abs(wide)
    near = np.where(finite, near, (wide == there) | (np.isnan(wide) & np.isnan(there)))
    return int(near.size - np.count_nonzero(near)) <= right.size // limit.one_of
