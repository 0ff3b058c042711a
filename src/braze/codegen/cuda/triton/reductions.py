"""Reductions and scans over blocks of inner points, in the same order on every run.

A reduction keeps one partial result per (row, column) of its block and reduces the columns by
Triton's tree at the end. Lanes without a point hold the neutral element.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from braze.codegen.cuda.triton.arith import TritonArith, literal
from braze.codegen.cuda.triton.emit import Emitter, Scope
from braze.codegen.cuda.triton.scalars import register_type
from braze.codegen.cuda.triton.source import Val
from braze.core.dtypes import BF16, BOOL, F16, DType
from braze.expr.loops import Reduce

NAN = ", propagate_nan=tl.PropagateNan.ALL"
# functions of braze.codegen.cuda.triton.combine
COMBINERS = {"sum": "add_of", "prod": "mul_of", "max": "max_of", "min": "min_of"}
NO_INDEX = 2**63 - 1

Walk = AbstractContextManager[Scope]


@dataclass(frozen=True, slots=True)
class Block:
    """Outer points a program holds, and inner points a step.

    parts: the inner points lie along two axes, so that the last one is as wide as what a warp loads
    at once. Triton lays warps along that axis first and then along another, which is that of the
    rows if it comes at the right place: then a warp has rows to itself, and its reductions need no
    other's sums. rows_first: [rows, parts, columns / parts], not [parts, rows, columns / parts].
    """

    rows: int
    columns: int
    parts: int = 1
    rows_first: bool = False

    def __str__(self) -> str:
        if self.parts == 1:
            return f"[{self.rows}, {self.columns}]"
        outer = (self.rows, self.parts) if self.rows_first else (self.parts, self.rows)
        return f"[{outer[0]}, {outer[1]}, {self.columns // self.parts}]"

    @property
    def down(self) -> str:
        """How a value of each row is spread over the block."""
        if self.parts == 1:
            return "[:, None]"
        return "[:, None, None]" if self.rows_first else "[None, :, None]"

    def lanes(self, start: str) -> str:
        """The inner points of a step."""
        if self.parts == 1:
            return f"({start} + tl.arange(0, {self.columns}))[None, :]"
        wide = self.columns // self.parts
        across = "[None, :, None]" if self.rows_first else "[:, None, None]"
        first = f"{start} + tl.arange(0, {self.parts}){across} * {wide}"
        return f"({first} + tl.arange(0, {wide})[None, None, :])"

    def reduced(self, acc: str, function: str) -> str:
        """One value a row."""
        if self.parts == 1:
            return f"tl.reduce({acc}, 1, {function})[:, None]"
        axis = int(self.rows_first)
        return f"tl.reduce(tl.reduce({acc}, {axis}, {function}), 1, {function}){self.down}"


def neutral(kind: str, dtype: DType) -> str:
    """The neutral element of a reduction, as source."""
    type_ = register_type(dtype)
    if kind in ("sum", "prod"):
        return literal(0 if kind == "sum" else 1, type_)
    high = kind == "min"
    if dtype is BOOL:
        return literal(high, type_)
    if dtype.is_float:
        return literal(float("inf") if high else float("-inf"), type_)
    top = 2 ** (dtype.bits - dtype.is_signed) - 1
    bottom = -top - 1 if dtype.is_signed else 0
    return literal(top if high else bottom, type_)


def combined(kind: str, dtype: DType, x: str, y: str) -> str:
    """`x` and `y` taken together; NaN propagates through max and min."""
    if dtype is BOOL:
        return f"{x} | {y}" if kind in ("sum", "max") else f"{x} & {y}"
    if kind in ("sum", "prod"):
        text = f"{x} {'+' if kind == 'sum' else '*'} {y}"
        if dtype in (F16, BF16):
            return f"({text}).to(tl.{dtype.name}).to(tl.float32)"
        return text
    return f"tl.{kind}imum({x}, {y}{NAN if dtype.is_float else ''})"


def _filled(block: str, value: str, type_: str) -> str:
    """A block full of one value (`tl.full` wants a literal, this takes any scalar)."""
    return f"tl.where(tl.full({block}, 1, tl.int1), {value}, {value}).to(tl.{type_})"


def reduce_rows(a: TritonArith, r: Reduce, block: Block, walk: Walk, emit: Emitter) -> Val:
    """The reduction of each row."""
    dtype, type_ = r.expr.dtype, register_type(r.expr.dtype)
    start = neutral(r.kind, dtype)
    acc = a.source.fresh("acc")
    a.source.line(f"{acc} = {_filled(str(block), start, type_)}")
    with walk as scope:
        value = a.put(f"tl.where({scope.mask}, {emit.value(r.expr, scope)}, {start})", type_)
        a.source.line(f"{acc} = {combined(r.kind, dtype, acc, value.text)}")
    if dtype is BOOL:
        function = "any_of" if r.kind in ("sum", "max") else "all_of"
        return a.put(f"{block.reduced(f'{acc}.to(tl.int32)', function)} != 0", type_)
    result = block.reduced(acc, COMBINERS[r.kind])
    if dtype in (F16, BF16):
        result = f"({result}).to(tl.{dtype.name}).to(tl.float32)"
    return a.put(result, type_)


def winner(a: TritonArith, r: Reduce, block: Block, walk: Walk, emit: Emitter) -> Val:
    """The index of each row's extreme: (value, index) pairs under a total order."""
    dtype = r.expr.dtype
    type_ = "int32" if dtype is BOOL else register_type(dtype)
    kind, _, last = r.kind.partition("_")
    function = f"{kind}_{last or 'first'}"
    start = f"{neutral(kind.removeprefix('arg'), dtype)}.to(tl.{type_})"
    nowhere = literal(-1 if last else NO_INDEX, "int64")
    best, where = a.source.fresh("best"), a.source.fresh("where")
    a.source.line(f"{best} = {_filled(str(block), start, type_)}")
    a.source.line(f"{where} = {_filled(str(block), nowhere, 'int64')}")
    with walk as scope:
        value = a.convert(emit.value(r.expr, scope), type_)
        value = a.put(f"tl.where({scope.mask}, {value}, {start})", type_)
        at = a.put(f"tl.where({scope.mask}, {scope.lane}.to(tl.int64), {nowhere})", "int64")
        a.source.line(f"{best}, {where} = {function}({best}, {where}, {value}, {at})")
    pair = a.source.fresh("pair")
    a.source.line(f"{pair} = tl.reduce(({best}, {where}), 1, {function})")
    return a.put(f"{pair}[1][:, None]", "int64")


def scan_rows(
    a: TritonArith,
    r: Reduce,
    block: Block,
    walk: Walk,
    emit: Emitter,
    at_each: Callable[[Scope, Val, Val], None],
    exclusive: bool,
) -> Val:
    """A running reduction: `at_each(scope, result after each point, result before it)` stores.

    Returns the result of the whole row, [rows, 1]. The second value is meaningful only when
    `exclusive`.
    """
    dtype, type_ = r.expr.dtype, register_type(r.expr.dtype)
    start = neutral(r.kind, dtype)
    function = COMBINERS[r.kind]
    carry = a.source.fresh("carry")
    a.source.line(f"{carry} = {_filled(f'[{block.rows}, 1]', start, type_)}")
    with walk as scope:
        value = emit.value(r.expr, scope)
        full = f"tl.broadcast_to(tl.where({scope.mask}, {value}, {start}), {block})"
        value = a.put(full, type_)
        inner = a.put(f"tl.associative_scan({value}, 1, {function})", type_)
        after = a.put(combined(r.kind, dtype, carry, inner.text), type_)
        before = _moved(a, after, block, carry) if exclusive else after
        at_each(scope, after, before)
        total = f"tl.reduce({value}, 1, {function})[:, None]"
        a.source.line(f"{carry} = {combined(r.kind, dtype, carry, total)}")
    return Val(carry, type_)


def _moved(a: TritonArith, running: Val, block: Block, first: str) -> Val:
    """Each column's left neighbour; the first column gets `first`."""
    lanes = f"tl.arange(0, {block.columns})"
    left = f"tl.broadcast_to(tl.maximum({lanes} - 1, 0)[None, :], {block})"
    moved = a.put(f"tl.gather({running}, {left}, 1)", running.type)
    return a.put(f"tl.where(({lanes} == 0)[None, :], {first}, {moved})", running.type)
