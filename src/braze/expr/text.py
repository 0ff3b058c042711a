"""Expressions and loop kernels as text: what cache keys are made of and people read.

    loops (float32[n, 8]) -> (float32[n, 8])
    nest outer [n] inner [8]
      %0 = axis int64 0
      %1 = axis int64 1
      %2 = load float32 0 (%0, %1)
      reduce max %2
      %3 = red float32 0
      %4 = sub float32 (%2, %3)
      store 0 [%0, %1] = %4 over all mode set

Each distinct subexpression of a nest has one line. `parse_loops(loops_text(k)) == k`. Kernels of
every kind have their text in `fusion/kernel_text.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from braze.core.dims import Dim, parse_dim
from braze.core.dtypes import BOOL, DType, from_name
from braze.core.errors import ModelError
from braze.expr.guards import topological
from braze.expr.loops import (
    REDUCE_KINDS,
    STORE_MODES,
    STORE_OVER,
    LoopKernel,
    LoopNest,
    Reduce,
    Store,
    TensorSpec,
)
from braze.expr.scalar import ALL_OPS, Expr

_VALUE = re.compile(r"%(\d+) = (\w+) (\w+)(?: ([^(]*?|\{.*\}))?(?: ?\((%[\d, %]*)\))?$")
_REDUCE = re.compile(r"reduce (\w+) %(\d+)$")
_STORE = re.compile(r"store (\d+) \[([^\]]*)\] = %(\d+) over (\w+) mode (\w+)$")
_NEST = re.compile(r"nest outer \[(.*)\] inner \[(.*?)\]( serial)?$")
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")
_HEADER = re.compile(r"loops \((.*)\) -> \((.*)\)$")


class Printer:
    """Numbers subexpressions as they are first needed; `lines` holds one line for each."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[Expr, int] = {}

    def value(self, root: Expr) -> str:
        """The number of `root` as %n, after lines for what it is made of."""
        for e in topological([root]):
            if e not in self._numbers:
                args = ", ".join(f"%{self._numbers[a]}" for a in e.args)
                attr = "" if e.attr is None else f" {_attr_text(e)}"
                number = len(self._numbers)
                self._numbers[e] = number
                inner = f" ({args})" if e.args else ""
                self.lines.append(f"%{number} = {e.op} {e.dtype}{attr}{inner}")
        return f"%{self._numbers[root]}"


def _attr_text(e: Expr) -> str:
    if e.op == "dim":
        return f"{{{e.size}}}"
    if e.op == "const" and e.dtype.is_float:
        return float(e.value).hex()
    return str(e.attr)


def expr_text(e: Expr) -> str:
    """One line per distinct subexpression; the last line is `e`."""
    printer = Printer()
    printer.value(e)
    return "\n".join(printer.lines)


def loops_text(kernel: LoopKernel) -> str:
    """The whole kernel; equal kernels give equal text and only they do."""
    lines = [f"loops ({tensors_text(kernel.inputs)}) -> ({tensors_text(kernel.outputs)})"]
    for nest in kernel.nests:
        outer, inner = (", ".join(map(str, d)) for d in (nest.outer, nest.inner))
        lines.append(f"nest outer [{outer}] inner [{inner}]{' serial' * nest.serial}")
        printer = Printer()
        for r in nest.reduces:
            value = printer.value(r.expr)
            printer.lines.append(f"reduce {r.kind} {value}")
        for s in nest.stores:
            index = ", ".join([printer.value(i) for i in s.index])
            value = printer.value(s.expr)
            printer.lines.append(f"store {s.slot} [{index}] = {value} over {s.over} mode {s.mode}")
        lines.extend(f"  {line}" for line in printer.lines)
    return "\n".join(lines)


def tensors_text(specs: Iterable[TensorSpec]) -> str:
    """Types and shapes, separated by commas."""
    return ", ".join(f"{s.dtype}[{'; '.join(map(str, s.shape))}]" for s in specs)


def parse_expr(text: str) -> Expr:
    """The expression that `expr_text` printed; raises ModelError for anything else."""
    values: list[Expr] = []
    for line in text.strip().splitlines():
        _parse_value(line.strip(), values)
    if not values:
        raise ModelError("expression text is empty; give the output of expr_text")
    return values[-1]


def parse_loops(text: str) -> LoopKernel:
    """The kernel that `loops_text` printed; raises ModelError for anything else."""
    lines = [line.strip() for line in text.strip().splitlines()]
    header = _HEADER.match(lines[0]) if lines else None
    if header is None:
        raise ModelError("kernel text has no header line; give the output of loops_text")
    inputs, outputs = (parse_tensors(header[k]) for k in (1, 2))
    nests: list[LoopNest] = []
    start = 1
    while start < len(lines):
        stop = start + 1
        while stop < len(lines) and not lines[stop].startswith("nest "):
            stop += 1
        nests.append(_parse_nest(lines[start:stop]))
        start = stop
    return LoopKernel(inputs, outputs, tuple(nests))


def _parse_nest(lines: Sequence[str]) -> LoopNest:
    head = _NEST.match(lines[0])
    if head is None:
        raise ModelError(f"kernel text line {lines[0]!r} is not a nest; use loops_text's output")
    values: list[Expr] = []
    reduces: list[Reduce] = []
    stores: list[Store] = []
    for line in lines[1:]:
        reduce, store = _REDUCE.match(line), _STORE.match(line)
        if reduce is not None and reduce[1] in REDUCE_KINDS:
            reduces.append(Reduce(reduce[1], values[int(reduce[2])]))
        elif store is not None and store[4] in STORE_OVER and store[5] in STORE_MODES:
            index = tuple(values[k] for k in _numbers(store[2]))
            expr = values[int(store[3])]
            stores.append(Store(int(store[1]), index, expr, store[4], store[5]))
        else:
            _parse_value(line, values)
    outer, inner = (parse_sizes(head[k], ", ") for k in (1, 2))
    return LoopNest(outer, inner, tuple(reduces), tuple(stores), head[3] is not None)


def _parse_value(line: str, values: list[Expr]) -> None:
    found = _VALUE.match(line)
    if found is None or found[2] not in ALL_OPS or int(found[1]) != len(values):
        raise ModelError(f"expression text line {line!r} is not a value; use expr_text's output")
    dtype = from_name(found[3])
    args = tuple(values[k] for k in _numbers(found[5] or ""))
    values.append(Expr(found[2], args, dtype, _parse_attr(found[2], dtype, found[4])))


def _parse_attr(op: str, dtype: DType, text: str | None) -> bool | int | float | Dim | None:
    if not text:
        return None
    if op == "dim":
        return parse_dim(text[1:-1])
    if op == "const" and dtype.is_float:
        return float.fromhex(text)
    return text == "True" if op == "const" and dtype is BOOL else int(text)


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"%(\d+)", text)]


def parse_sizes(text: str, separator: str) -> tuple[Dim, ...]:
    """The sizes in `text`, split at separators outside parentheses."""
    parts, depth, current = [], 0, ""
    for c in text:
        depth += (c == "(") - (c == ")")
        current += c
        if depth == 0 and current.endswith(separator):
            parts.append(current[: -len(separator)])
            current = ""
    return tuple(parse_dim(p) for p in [*parts, current] if p.strip())


def parse_tensors(text: str) -> tuple[TensorSpec, ...]:
    """The tensors that `tensors_text` printed."""
    return tuple(
        TensorSpec(from_name(name), parse_sizes(shape, "; "))
        for name, shape in _TENSOR.findall(text)
    )
