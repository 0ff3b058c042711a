"""Products by dequantized constants become products by their codes.

    MatMul(x, Dequantize(w, s, p))  ->  CodedMatMul(x, records of w, s and p)

for scales and zero points that are constant along groups of rows of w. The numbers are the same;
a quarter or an eighth of the bytes are read for them. Only where the backend has a template: it
knows for how many rows that pays. Views between a Dequantize and its product move the codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from braze.core.dtypes import F32, I8, U8
from braze.expr.loops import TensorSpec
from braze.ir.editor import GraphEditor
from braze.ir.graph import Graph, Node, TensorType, Value
from braze.ops.coded_spec import SCALE_BYTES
from braze.ops.lowering import SUM_BLOCK, Anchor
from braze.ops.move.shape import Transpose
from braze.ops.product.matmul import MatMul
from braze.ops.quant.coded import CodedMatMul, records
from braze.ops.quant.linear import Dequantize, RepeatBlocks
from braze.passes.base import PassContext
from braze.passes.rewrite import describe, producer
from braze.passes.rules.multiply_quantized import constant_of

Array = np.ndarray[Any, Any]
GROUPS = tuple(size for size in (256, 128, 64, 32, 16) if SUM_BLOCK % size == 0)
_RANGES = ((2, -2, 1), (4, -8, 7), (8, -128, 127))  # bits and what signed codes of them may be


@dataclass(frozen=True)
class _Rows:
    """A scale or zero point of a weight [k, n]: row k // block of `array` ([rows, 1 or n])."""

    array: Array
    block: int

    def is_constant(self, group: int) -> bool:
        """Whether each column has one number in every group of rows of the weight."""
        if len(self.array) == 1 or self.block % group == 0:
            return True
        if group % self.block:
            return False
        first = np.arange(len(self.array)) // (group // self.block) * (group // self.block)
        exact = {"equal_nan": self.array.dtype.kind == "f"}
        # most groups that are wrong are so in the first column
        parts = (self.array[:, :1], self.array)
        return all(np.array_equal(x, x[first], **exact) for x in parts)

    def of_groups(self, groups: int, group: int, n: int) -> Array:
        """[n, groups], for a group that it is constant in."""
        rows = self.array
        if len(rows) > 1:
            rows = rows[np.arange(groups) * group // self.block]
        return np.asarray(np.broadcast_to(rows, (groups, n)).T)


@dataclass(frozen=True)
class _Weight:
    """Codes [k, n] of `bits` bits from `least` on, their scales and their zero points (or None),
    which are constant in each `group` of rows."""

    codes: Array
    bits: int
    least: int
    scale: _Rows
    zero: _Rows | None
    group: int


def multiply_coded(graph: Graph, ctx: PassContext) -> Graph:
    """Rewrite products that the backend has a template for."""
    editor = GraphEditor(graph)
    for node in editor.walk():
        if isinstance(node.op, MatMul) and _rewrite(node, editor, ctx):
            ctx.trace.decide("rewrite", rule="multiply_coded", at=describe(node), nodes=1)
    return editor.finish()


def _rewrite(node: Node, editor: GraphEditor, ctx: PassContext) -> bool:
    x, out = node.inputs[0], node.output
    if x is None or x.dtype is not F32 or x.type.rank < 2 or x in editor.constants:
        return False
    weight = _weight(node.inputs[1], editor)
    if weight is None:
        return False
    op, data = _coded(weight)
    low = op.lower((x.type, TensorType(U8, data.shape)), [out.type])
    specs = [TensorSpec(x.dtype, x.shape), TensorSpec(U8, data.shape)]
    assert isinstance(low, Anchor)
    if ctx.backend.supports(low.spec, specs, frozenset({1})) is not None:
        return False
    g = editor.rewriter([node])
    y = g.add1(op, x, g.constant(data, node.inputs[1].name if node.inputs[1] else "weight"))
    editor.commit(g, node, {out: y})
    return True


def _coded(weight: _Weight) -> tuple[CodedMatMul, Array]:
    """The product by `weight`, and its records."""
    (k, n), group = weight.codes.shape, weight.group
    groups = -(-k // group)
    codes = np.zeros((n, groups * group), np.uint8)
    # of bytes the difference wraps to what it is
    codes[:, :k] = weight.codes.T.view(np.uint8) - np.uint8(weight.least % 256)
    zero, own = -weight.least, None
    if weight.zero is not None:
        given = weight.zero.array.astype(np.int16) - weight.least
        zero = int(given.flat[0])
        if (given != zero).any():
            zero, own = 0, replace(weight.zero, array=given).of_groups(groups, group, n)
    op = CodedMatMul(k, weight.bits, group, own is not None, zero)
    scale = weight.scale.of_groups(groups, group, n)
    return op, records(codes.reshape(n, groups, group), scale, own, weight.bits)


def _bits(codes: Array, zero: _Rows | None) -> tuple[int, int]:
    """How many bits hold the codes, and the least code that these have.

    Zero points take a byte each, counted from there.
    """
    for bits, least, most in _RANGES:
        moved = 0 if codes.dtype == np.int8 else -least
        first = least + moved
        fits = _within(codes, first, most + moved)
        if fits and (zero is None or _within(zero.array, first, first + 255)):
            return bits, first
    raise AssertionError("codes and zero points of a byte fit into a byte")


def _within(a: Array, least: int, most: int) -> bool:
    return bool(least <= int(a.min()) and int(a.max()) <= most)


def _weight(v: Value | None, editor: GraphEditor) -> _Weight | None:
    """The weight of a product as codes, None where it is none of groups along k."""
    turned = False
    while (above := producer(editor, v, Transpose)) is not None:
        assert isinstance(above.op, Transpose)
        turned ^= above.op.perm == (1, 0)
        v = above.inputs[0]
    node = producer(editor, v, Dequantize)
    if node is None or node.output.dtype is not F32 or node.output.type.rank != 2:
        return None
    q, scale, zero = (*node.inputs, None)[:3]
    codes = editor.array(q)
    if codes is None or q is None or q.dtype not in (I8, U8) or 0 in codes.shape:
        return None
    if scale is None or scale.dtype is not F32:
        return None
    scales = _rows(scale, turned, codes.shape, editor)
    zeros = None if zero is None else _rows(zero, turned, codes.shape, editor)
    if scales is None or (zero is not None and zeros is None):
        return None
    codes = codes.T if turned else codes
    bits, least = _bits(codes, zeros)
    group = _group([scales] if zeros is None else [scales, zeros], len(codes), bits)
    return None if group is None else _Weight(codes, bits, least, scales, zeros, group)


def _rows(v: Value, turned: bool, shape: Sequence[int], editor: GraphEditor) -> _Rows | None:
    """A scale or zero point of codes of `shape`, as rows of the weight that these are (`turned`:
    of the transposed one)."""
    repeat, block = producer(editor, v, RepeatBlocks), 1
    array = constant_of(v if repeat is None else repeat.inputs[0], editor)
    if array is None:
        return None
    if repeat is not None:
        assert isinstance(repeat.op, RepeatBlocks)
        axis, block = repeat.op.axis, repeat.op.block
        if axis != int(turned):  # blocks of columns
            array, block = np.take(array, np.arange(shape[axis]) // block, axis), 1
    array = array.reshape((1,) * (2 - array.ndim) + array.shape)
    return _Rows(array.T if turned else array, block)


def _group(parts: Sequence[_Rows], depth: int, bits: int) -> int | None:
    """The group in which every parameter is constant, and by which `depth` takes least bytes."""
    fitting = [g for g in GROUPS if all(a.is_constant(g) for a in parts)]
    return min(fitting, key=lambda g: -(-depth // g) * (g * bits // 8 + SCALE_BYTES), default=None)
