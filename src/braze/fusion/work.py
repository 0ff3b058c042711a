"""What a kernel cannot do without: the operations of its products and the bytes it must move.

Divided by what a machine does in a second they bound a kernel's time from below (Williams et al.,
"Roofline: an insightful visual performance model", 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from braze.core.dims import Shape, dmin, evaluate, product
from braze.core.elements import size_of
from braze.expr.fold import leaves
from braze.expr.loops import LoopKernel, LoopNest, TensorSpec
from braze.expr.scalar import Expr
from braze.fusion.kernel import AnchorKernel, Kernel
from braze.fusion.lower import LoweredRegion
from braze.ops.lowering import (
    AttentionSpec,
    CodedSpec,
    ConvSpec,
    MatmulSpec,
    Operand,
    PooledSpec,
    RecurrenceSpec,
)

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Work:
    """flops: multiplications and additions of products; bytes: read and written at least once."""

    flops: int
    bytes: int


def work_of(low: LoweredRegion, sizes: Sizes) -> Work:
    """The work of one use of a kernel; sizes: the value of every symbol.

    A value in several slots is read once. What only some elements of are read (a table, a slice)
    counts as many elements as there are loads of it.
    """
    known = {**sizes, **low.places}
    read: dict[object, int] = {}
    for value, spec, count in zip(
        low.inputs, low.kernel.inputs, reads(low.kernel, known), strict=True
    ):
        whole = tensor_bytes(spec, known)
        part = read.get(value, 0) + size_of(count, spec.dtype)
        read[value] = min(whole, part)
    kernel = low.kernel
    outputs = kernel.outputs if isinstance(kernel, LoopKernel) else (kernel.output,)
    written = sum(tensor_bytes(s, known) for s in outputs)
    return Work(flops(kernel, known), sum(read.values()) + written)


def tensor_bytes(spec: TensorSpec, sizes: Sizes) -> int:
    """Bytes of a whole tensor."""
    return size_of(evaluate(product(spec.shape), sizes), spec.dtype)


def flops(kernel: Kernel, sizes: Sizes) -> int:
    """Twice the multiply-adds of an anchor's products; 0 for loops, which wait for memory."""
    if isinstance(kernel, LoopKernel):
        return 0
    spec = kernel.spec
    if isinstance(spec, PooledSpec):
        spec = spec.conv
    if isinstance(spec, (MatmulSpec, CodedSpec)):
        terms = product((*spec.batch, spec.m, spec.n, spec.k))
    elif isinstance(spec, ConvSpec):
        taps = math.prod(spec.kernel) * (spec.in_channels // spec.groups)
        terms = product((*spec.out_shape, taps))
    elif isinstance(spec, AttentionSpec):
        pairs = product((spec.batch, spec.heads, spec.q_len, spec.kv_len))
        terms = pairs * (spec.head_dim + spec.value_dim)
    elif isinstance(spec, RecurrenceSpec):
        terms = product((spec.steps, spec.batch, *spec.operands["weight"][1]))
    else:
        return 0
    return 2 * evaluate(terms, sizes)


def reads(kernel: Kernel, sizes: Sizes) -> list[int]:
    """Of each input slot, the elements that are loaded, counted with repetitions."""
    counts = [0] * len(kernel.inputs)
    if isinstance(kernel, LoopKernel):
        for nest in kernel.nests:
            for points, roots in _parts(nest, sizes):
                for e in _loads(roots, len(counts)):
                    counts[e.slot] += points
        return counts
    for operand, elements in _operands(kernel, sizes):
        counts[operand] += elements
    points = evaluate(product(kernel.output.shape), sizes)
    for e in _loads([kernel.epilogue], len(counts)):
        counts[e.slot] += points
    return counts


def _parts(nest: LoopNest, sizes: Sizes) -> Iterator[tuple[int, list[Expr]]]:
    """Expressions of a nest with the number of points each is computed at."""
    outer = evaluate(product(nest.outer), sizes)
    every = outer * evaluate(product(nest.inner), sizes)
    once = [e for s in nest.stores if s.over == "outer" for e in (s.expr, *s.index)]
    others = [e for s in nest.stores if s.over != "outer" for e in (s.expr, *s.index)]
    yield outer, once
    yield every, [*(r.expr for r in nest.reduces), *others]


def _loads(roots: Iterable[Expr], inputs: int) -> list[Expr]:
    """The distinct loads of inputs in some expressions."""
    found = dict.fromkeys(e for root in roots for e in leaves(root, "load"))
    return [e for e in found if e.slot < inputs]


def _operands(kernel: AnchorKernel, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """(slot, elements) of an anchor's own operands."""
    spec = kernel.spec
    if isinstance(spec, PooledSpec):
        spec = spec.conv
    if isinstance(spec, ConvSpec):
        axes = zip(spec.in_spatial, spec.out_spatial, spec.kernel, strict=True)
        seen = [dmin(there, out * taps) for there, out, taps in axes]  # steps may skip pixels
        yield 0, evaluate(product((spec.batch, *seen, spec.in_channels)), sizes)
        yield 1, evaluate(product(kernel.inputs[1].shape), sizes)
    elif isinstance(spec, CodedSpec):
        yield spec.lhs.slot, evaluate(product((*spec.batch, spec.m, spec.k)), sizes)
        yield 1, evaluate(product(kernel.inputs[1].shape), sizes)
    else:
        other = set(range(len(kernel.inputs)))
        other -= {e.slot for e in _loads([kernel.epilogue], len(kernel.inputs))}
        for operand, shape in spec.operands.values():
            yield _touched(operand, shape, sizes)
            other.discard(operand.slot)
        for slot in sorted(other):  # what is not among the operands is read as a whole
            yield slot, evaluate(product(kernel.inputs[slot].shape), sizes)


def _touched(operand: Operand, shape: Shape, sizes: Sizes) -> tuple[int, int]:
    """(slot, elements) of an operand; what a stride of 0 repeats counts once."""
    axes = [d for d, stride in zip(shape, operand.strides, strict=True) if stride != 0]
    return operand.slot, evaluate(product(axes), sizes)
