"""What product templates share: the tile of a tactic, operand addresses, the epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from braze.codegen.cuda.triton.arith import TritonArith
from braze.codegen.cuda.triton.emit import Emitter, Scope
from braze.codegen.cuda.triton.nests import TritonSource, storage_type
from braze.codegen.cuda.triton.scalars import register_type, settle
from braze.codegen.cuda.triton.source import RELEASE, WAIT, Source, Val
from braze.core.dims import Dim, DimExpr
from braze.core.dtypes import F8E4M3FN, F8E5M2, F32, DType
from braze.expr.fold import leaves
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import Operand

# 8-bit floats that are multiplied, in Triton's words
FLOAT8 = {F8E4M3FN: "float8e4nv", F8E5M2: "float8e5"}
WIDENED = {F8E4M3FN: "from_e4m3", F8E5M2: "from_e5m2"}  # functions of combine


@dataclass(frozen=True, slots=True)
class Tile:
    """rows x columns of the output a program computes, in steps of depth; warps and stages are
    Triton's. precision: how float32 operands are multiplied ("ieee", "tf32x3", "tf32"). split:
    programs that share the sum of a tile, each a range of its steps."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    precision: str = "ieee"
    split: int = 1


class AnchorWriter:
    """Source of one anchor kernel; `in0`.. are its tensors, the output behind the inputs."""

    def __init__(
        self,
        kernel: AnchorKernel,
        sizes: Sequence[Dim],
        logical: Sequence[Dim],
        waits: bool = True,
    ) -> None:
        """sizes: what the template reads besides; logical: the anchor's logical output shape;
        waits: for earlier launches at once, else where the template does."""
        self.kernel = kernel
        self.src = Source()
        self.a = TritonArith(self.src)
        found: dict[Dim, None] = dict.fromkeys((*sizes, *logical))
        for spec in (*kernel.inputs, kernel.output):
            found.update(dict.fromkeys(spec.shape))
        for e in leaves(kernel.epilogue, "dim"):
            found[e.size] = None
        self.params = [d for d in found if isinstance(d, DimExpr)]
        names: dict[Dim, str] = {d: f"n{i}" for i, d in enumerate(self.params)}
        tensors = (*kernel.inputs, kernel.output)
        extents = dict(enumerate(logical))
        self.emit = Emitter(self.a, tensors, extents, [kernel.epilogue], names)
        if waits:
            self.line(WAIT)

    def line(self, text: str) -> None:
        self.src.line(text)

    def text(self, d: Dim) -> str:
        """A size in source text: a number or a parameter."""
        return str(d) if isinstance(d, int) else self.emit.sizes[d]

    def number(self, d: Dim) -> str:
        """A size that is known to fit 32 bits, in source text."""
        return str(d) if isinstance(d, int) else f"{self.emit.sizes[d]}.to(tl.int32)"

    def read(self, name: str, slot: int, at: str, *masks: str | Val | None) -> None:
        """name = the elements of tensor `slot` at `at` where all `masks` hold, zero elsewhere."""
        held = " & ".join(f"({m})" for m in masks if m is not None)
        tail = f", mask={held}, other=0" if held else ""
        self.line(f"{name} = tl.load(in{slot} + {at}{tail})")

    def below(self, index: str | Val, size: Dim, step: int) -> Val | None:
        """Which values of an index that runs in blocks of `step` lie below `size`; None: all."""
        if isinstance(size, int) and size % step == 0:
            return None
        return self.a.put(f"{index} < {self.text(size)}", "int1")

    def both(self, x: Val | None, y: Val | None) -> Val | None:
        """Where two masks hold; None: everywhere."""
        return x if y is None else y if x is None else self.a.both(x, y)

    def begin(self, operand: Operand, lead: Sequence[str], kind: str = "int64") -> str:
        """Where the part of `operand` at the leading indexes `lead` begins, in elements."""
        steps = zip(lead, operand.strides, strict=False)
        terms = [self.text(operand.offset), *(f"{i} * {self.text(s)}" for i, s in steps)]
        return self.a.put(" + ".join(terms), kind).text

    def matrix(self, operand: Operand, begin: str, row: str, column: str) -> str:
        """Addresses of a block of the operand's last two axes."""
        down, right = (self.text(s) for s in operand.strides[-2:])
        return f"{begin} + {row} * {down} + {column} * {right}"

    def unravel(self, row: Val, sizes: Sequence[Dim]) -> list[Val]:
        """The index along each of the axes of these sizes that rows are numbered over."""
        found: list[Val] = []
        rest = row
        for d in reversed(sizes[1:]):
            found.insert(0, self.a.put(f"{rest} % {self.text(d)}", row.type))
            rest = self.a.put(f"{rest} // {self.text(d)}", row.type)
        return [rest, *found]

    def epilogue(self, acc: Val, scope: Scope) -> Val:
        """The output elements for the accumulator block `acc`, the hole of `scope`."""
        self.line(RELEASE)
        value = acc
        for hole in leaves(self.kernel.epilogue, "hole"):
            value = self.a.convert(acc, register_type(hole.dtype))
            value = settle(self.a, hole.dtype, value)
        return self.emit.value(self.kernel.epilogue, replace(scope, holes=(value,)))

    def store(self, at: str, value: Val, mask: Val | None) -> None:
        kind = storage_type(self.kernel.output.dtype)
        out = f"in{len(self.kernel.inputs)}"
        only = "" if mask is None else f", mask={mask}"
        self.line(f"tl.store({out} + {at}, {value}.to(tl.{kind}){only})")

    def pointers(self, scratch: str = "", counters: int = 0) -> tuple[tuple[str, str], ...]:
        """Name and element type of every buffer, in argument order."""
        tensors = (*self.kernel.inputs, self.kernel.output)
        found = [(f"in{i}", storage_type(s.dtype)) for i, s in enumerate(tensors)]
        found += [("scratch", scratch)] if scratch else []
        found += [("status", "int32")]
        return (*found, *([("counters", "int32")] if counters else []))

    def source(
        self, entry: str, grid: Dim, tile: Tile, sums: DType = F32, room: int = 0
    ) -> TritonSource:
        """The launch of `grid` tiles; sums: the type of what programs of one tile exchange; room:
        how many of them each, the whole tile by itself."""
        counters, scratch = 0, ""
        room = room if room else tile.rows * tile.columns
        room *= tile.split * sums.itemsize
        if tile.split == 1:
            room = 0
        else:
            assert isinstance(grid, int), "a split sum needs a known number of tiles"
            room *= grid
            counters, scratch = grid, sums.name
        pointers = self.pointers(scratch, counters)
        return self.launch(entry, pointers, grid * tile.split, tile, room, counters)

    def launch(
        self,
        entry: str,
        pointers: tuple[tuple[str, str], ...],
        grid: Dim,
        tile: Tile,
        scratch_bytes: Dim,
        counters: int = 0,
    ) -> TritonSource:
        """The launch of what was written as `grid` programs."""
        arguments = [n for n, _ in pointers] + [f"n{i}" for i in range(len(self.params))]
        text = f"@triton.jit\ndef {entry}({', '.join(arguments)}):\n{self.src.text()}\n"
        pieces = pointers, tuple(self.params), grid, tile.warps, tile.stages
        return TritonSource(entry, text, *pieces, scratch_bytes, counters, waits=True)


def dot(element: DType, sum_type: DType, a: str, b: str, acc: str, precision: str) -> str:
    """One block product added to `acc`. 8-bit floats are multiplied as float16, which has them all,
    with sums of as many bits as those of float16."""
    extra = f', input_precision="{precision}"' if element is F32 else ""
    if element is F32 and precision == "tf32":
        a, b = f"to_tf32({a})", f"to_tf32({b})"
    if element in FLOAT8:
        a, b = (f"{WIDENED[element]}({x})" for x in (a, b))
    return f"tl.dot({a}, {b}, {acc}{extra}, out_dtype=tl.{sum_type.name})"


def ceil_div(d: Dim, by: int) -> Dim:
    """Blocks of `by` that cover `d`."""
    return (d + (by - 1)) // by
