"""Einsum: parsed into labels, contracted pair by pair, each pair a MatMul where it is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim
from braze.core.errors import ShapeError
from braze.expr.index import axes, to_expr
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, load, red
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.lowering import Lowering, Nest
from braze.ops.move.shape import reshape, transpose
from braze.ops.product.matmul import MatMul
from braze.ops.writing.arguments import Types, array_of, tensor_specs, type_of
from braze.ops.writing.precision import compute_type, narrow, same_dtype, widen

Labels = tuple[int, ...]


@dataclass(frozen=True)
class Einsum(Op):
    """out[output labels] = sum over the other labels of the product of all inputs.

    terms: one label per axis of each input (repeats take the diagonal). An axis of size 1
    broadcasts against a longer axis with its label. Half types are summed in float32.
    """

    terms: tuple[Labels, ...]
    output: Labels

    def sizes(self, inputs: Types, ctx: InferContext) -> dict[int, Dim]:
        """The size of every label."""
        out: dict[int, Dim] = {}
        for k, term in enumerate(self.terms):
            shape = type_of(inputs, k).shape
            if len(shape) != len(term):
                raise ShapeError(f"Einsum: input {k} has rank {len(shape)}, its term {len(term)}")
            for label, d in zip(term, shape, strict=True):
                out[label] = ctx.broadcast(out.get(label, 1), d, f"Einsum input {k}")
        return out

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        dtype = same_dtype([type_of(inputs, k) for k in range(len(inputs))], "Einsum")
        sizes = self.sizes(inputs, ctx)
        return (TensorType(dtype, tuple(sizes[label] for label in self.output)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        arrays = [widen(array_of(inputs, k)) for k in range(len(inputs))]
        longest: dict[int, int] = {}
        for a, term in zip(arrays, self.terms, strict=True):
            for label, d in zip(term, a.shape, strict=True):
                longest[label] = d if longest.get(label, 1) == 1 else longest[label]
        arrays = [
            np.broadcast_to(a, [longest[label] for label in term])
            for a, term in zip(arrays, self.terms, strict=True)
        ]
        number = {label: i for i, label in enumerate(longest)}
        operands: list[object] = []
        for a, term in zip(arrays, self.terms, strict=True):
            operands += [a, [number[label] for label in term]]
        y = np.einsum(*operands, [number[label] for label in self.output])  # type: ignore[call-overload]
        return (narrow(np.asarray(y, arrays[0].dtype), array_of(inputs, 0)),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        out = outputs[0]
        wide = compute_type(out.dtype)
        sizes: dict[int, Dim] = {}
        for k, term in enumerate(self.terms):
            for label, d in zip(term, type_of(inputs, k).shape, strict=True):
                if sizes.get(label, 1) == 1:
                    sizes[label] = d
        summed = [label for label in sizes if label not in self.output]
        place = {label: axis(i) for i, label in enumerate((*self.output, *summed))}
        product: Expr | None = None
        for k, term in enumerate(self.terms):
            t = type_of(inputs, k)
            at = tuple(
                to_expr(0) if d == 1 else place[label]
                for label, d in zip(term, t.shape, strict=True)
            )
            factor = cast(load(k, at, t.dtype), wide)
            product = factor if product is None else binary("mul", product, factor)
        assert product is not None
        inner = tuple(sizes[label] for label in summed)
        reduces = (Reduce("sum", product),) if inner else ()
        value = cast(red(0, wide) if inner else product, out.dtype)
        nest = LoopNest(out.shape, inner, reduces, (Store(0, axes(out.rank), value),))
        spec = TensorSpec(out.dtype, out.shape)
        return Nest(LoopKernel(tensor_specs(inputs), (spec,), (nest,)))


def _parse(n: OnnxNode, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Labels of every input and of the output. Letters are their code points; the axes of an
    ellipsis are -1 (the last), -2, ..."""
    equation = str(n.attr("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise ShapeError(
            f"node {n.name!r} (Einsum): {equation!r} has {len(texts)} terms for {len(ranks)} inputs"
        )
    longest = 0
    for text, rank in zip(texts, ranks, strict=True):
        letters = len(text.replace("...", ""))
        rest = rank - letters
        if rest < 0 or (rest > 0 and "..." not in text):
            raise ShapeError(
                f"node {n.name!r} (Einsum): term {text!r} does not fit an input of rank {rank}"
            )
        longest = max(longest, rest if "..." in text else 0)

    def labels(text: str, hidden: int) -> Labels:
        before, dots, after = text.partition("...")
        if not all(c.isalpha() for c in before + after):
            raise n.unsupported(f"equation {equation!r} has characters that are not letters")
        middle = tuple(range(-hidden, 0)) if dots else ()
        return (*map(ord, before), *middle, *map(ord, after))

    terms = [labels(t, r - len(t.replace("...", ""))) for t, r in zip(texts, ranks, strict=True)]
    if arrow:
        output = labels(right, longest)
    else:
        every = [label for term in terms for label in term]
        output = (
            *range(-longest, 0),
            *sorted(label for label in set(every) if label > 0 and every.count(label) == 1),
        )
    known = {label for term in terms for label in term}
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ShapeError(f"node {n.name!r} (Einsum): the output of {equation!r} is malformed")
    return terms, output


def _as_matmul(
    g: GraphBuilder, a: Value, b: Value, left: Labels, right: Labels, output: Labels
) -> Value | None:
    """The contraction of a pair as one MatMul, or None when it is not one."""
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        return None
    size: dict[int, Dim] = dict(zip(left, a.shape, strict=True))
    for label, d in zip(right, b.shape, strict=True):
        if label in size and size[label] != d:
            return None
        size[label] = d
    both = [label for label in left if label in right]
    batch = [label for label in output if label in both]
    inner = [label for label in both if label not in output]
    rows = [label for label in left if label not in both]
    columns = [label for label in right if label not in both]
    if not inner or not set(rows) | set(columns) <= set(output):
        return None
    a = transpose(g, a, [left.index(label) for label in (*batch, *rows, *inner)])
    b = transpose(g, b, [right.index(label) for label in (*batch, *inner, *columns)])

    def count(labels: Sequence[int]) -> Dim:
        return dims.product(size[label] for label in labels)

    outer = tuple(size[label] for label in batch)
    a = reshape(g, a, (*outer, count(rows), count(inner)))
    b = reshape(g, b, (*outer, count(inner), count(columns)))
    y = g.add1(MatMul(), a, b)
    made = (*batch, *rows, *columns)
    y = reshape(g, y, tuple(size[label] for label in made))
    return transpose(g, y, [made.index(label) for label in output])


def _contract(
    g: GraphBuilder, values: Sequence[Value], terms: Sequence[Labels], output: Labels
) -> Value:
    if len(values) == 2 and values[0].dtype.kind == "f":
        done = _as_matmul(g, values[0], values[1], terms[0], terms[1], output)
        if done is not None:
            return done
    return g.add1(Einsum(tuple(terms), output), *values)


def import_einsum(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Einsum (opset 12 on); more than two inputs are contracted from the left."""
    values = [n.need(i) for i in range(len(n.inputs))]
    terms, output = _parse(n, [len(v.shape) for v in values])
    while len(values) > 2:
        later = {label for term in terms[2:] for label in term} | set(output)
        kept = tuple(dict.fromkeys(label for t in terms[:2] for label in t if label in later))
        values[:2] = [_contract(g, values[:2], terms[:2], kept)]
        terms[:2] = [kept]
    return (_contract(g, values, terms, output),)
