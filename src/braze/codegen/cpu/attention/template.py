"""Fused attention: tactics and code.

For each head and block of query rows: scores of the block into scratch, softmax in place, times
v. Both products run on the register tile; never more than one block of scores exists. What a row
gets does not depend on the rows it shares a block with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from braze.codegen.cpu.attention.softmax import Scores, pitch, softmax_row
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.llvm.object import elf
from braze.codegen.cpu.product.blocks import Blocking, TileLoops
from braze.codegen.cpu.product.dot import element_type
from braze.codegen.cpu.product.epilogue import Epilogue
from braze.codegen.cpu.product.panels import CopiedPanels, DirectPanels, Panels, Source
from braze.codegen.cpu.product.register_tile import TileShape
from braze.codegen.cpu.product.rows import CopiedRows, Rows, StridedRows
from braze.codegen.cpu.product.scratch import Scratch, scratch_base
from braze.codegen.cpu.product.store import TileSink
from braze.codegen.cpu.product.stored import Stored
from braze.codegen.cpu.product.tactics import tile_choices
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import Effort
from braze.core.dims import Dim, ceildiv, number
from braze.core.dtypes import F32
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Tactic
from braze.ops.lowering import AttentionSpec, Operand

TEMPLATE = "attention"
_ASSUMED_KEYS = 256
_SCORE_SHARE = 4  # a block of scores may take this part of the second-level cache


def attention_support(
    spec: AttentionSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
) -> str | None:
    """None for attention of float32 or of half types, else why there is no template."""
    operands = [o for o in (spec.q, spec.k, spec.v, spec.mask) if o is not None]
    if any(element_type(inputs[o.slot].dtype) is not F32 for o in operands):
        return f"no attention of {inputs[spec.q.slot].dtype}: the template multiplies float32"
    if not isinstance(spec.head_dim, int) or not isinstance(spec.value_dim, int):
        return "the head size is not known at build time, and the template unrolls it"
    return None


def attention_tactics(
    kernel: AnchorKernel, target: CpuTarget, effort: Effort
) -> tuple[Tactic, ...]:
    """Tactics for attention that `attention_support` takes, best estimate first."""
    spec = kernel.spec
    assert isinstance(spec, AttentionSpec)
    keys = spec.kv_len if isinstance(spec.kv_len, int) else _ASSUMED_KEYS
    found = []
    estimate = effort.estimate
    values = tile_choices(target, F32, spec.q_len, spec.value_dim, estimate=estimate)
    for tile in tile_choices(target, F32, spec.q_len, max(1, keys), estimate=estimate):
        # the best tile with the same rows for the product with v
        second = next((v for v in values if v.rows == tile.rows), None)
        if second is None:
            continue
        row_bytes = F32.itemsize * max(1, keys) * tile.rows
        block = max(1, min(8, target.l2_bytes // _SCORE_SHARE // row_bytes))
        for v in _value_modes(kernel, spec.v):
            chosen = (
                ("rows", tile.rows),
                ("vectors", tile.vectors),
                ("lanes", tile.lanes),
                ("value_vectors", second.vectors),
                ("value_lanes", second.lanes),
                ("v", v),
                ("block", block),
            )
            found.append(Tactic(TEMPLATE, chosen))
    return tuple(found[: effort.tactics])


def _value_modes(kernel: AnchorKernel, v: Operand) -> tuple[str, ...]:
    in_place = v.strides[3] == 1 and kernel.inputs[v.slot].dtype is F32
    return ("direct", "copy") if in_place else ("copy",)


def compile_attention(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> CompiledKernel:
    """Code for one attention; `tactic` is one of `attention_tactics`."""
    spec = kernel.spec
    assert isinstance(spec, AttentionSpec)
    rows, lanes = int(tactic["rows"]), int(tactic["lanes"])
    scores = TileShape(rows, int(tactic["vectors"]), lanes)
    values = TileShape(rows, int(tactic["value_vectors"]), int(tactic["value_lanes"]))
    template = _Attention(kernel, spec, target, scores, values, tactic)
    template.build()
    code, params = template.fn.finish(speed=0)
    launch = HostLaunch(True, template.scratch.used)
    return CompiledKernel(elf(TEMPLATE, target, code), params, launch)


@dataclass(slots=True)
class _Regions:
    """Byte offsets of the parts of one worker's scratch."""

    keys: Dim
    scores: Dim
    values: Dim
    queries: Dim


class _Attention:
    """Builds one kernel: two tile loops that share blocks of query rows."""

    def __init__(
        self,
        kernel: AnchorKernel,
        spec: AttentionSpec,
        target: CpuTarget,
        scores: TileShape,
        values: TileShape,
        tactic: Tactic,
    ) -> None:
        self.kernel, self.spec, self.tactic = kernel, spec, tactic
        self.score_shape, self.value_shape = scores, values
        self.block_rows = int(tactic["block"]) * scores.rows
        self.scratch = Scratch(F32.itemsize)
        regions = self._regions()
        count = len(kernel.inputs) + 1
        self.fn = fn = KernelFunction(TEMPLATE, target, count + 1)
        base = scratch_base(fn, count, self.scratch.used)
        byte = ir.IntType(8)

        def place(offset: Dim) -> ir.Value:
            return fn.at(base, fn.dim(offset), byte)

        q, k, v = (self._stored(operand) for operand in (spec.q, spec.k, spec.v))
        null = self.queries = q.buffer(spec.q.slot)
        self.score_rows = place(regions.scores)
        self.rows: Rows = StridedRows(fn, scores, null, spec.q.strides[2], spec.head_dim)
        if self._copies_queries:
            q_row, q_depth = spec.q.strides[2:]
            space = place(regions.queries)
            self.rows = CopiedRows(fn, scores, q, null, q_row, q_depth, spec.head_dim, space)
        k_row, k_depth = spec.k.strides[2:]
        self.keys = Source(k, null, k_depth, k_row, spec.head_dim, spec.kv_len)
        v_row, v_column = spec.v.strides[2:]
        self.values = Source(v, null, v_row, v_column, spec.kv_len, spec.value_dim)
        self.key_panels = CopiedPanels(fn, scores, self.keys, place(regions.keys))
        self.value_panels: Panels
        if tactic["v"] == "copy":
            self.value_panels = CopiedPanels(fn, values, self.values, place(regions.values))
        else:
            self.value_panels = DirectPanels(fn, values, self.values, place(regions.values))
        self.epilogue = Epilogue(fn, kernel)

    def _stored(self, operand: Operand) -> Stored:
        """How elements of an operand are read."""
        return Stored(self.fn, self.kernel.inputs[operand.slot].dtype)

    @property
    def _copies_queries(self) -> bool:
        """Whether rows of q are copied: the register tile reads neighbours in float32."""
        q = self.spec.q
        return q.strides[3] != 1 or self.kernel.inputs[q.slot].dtype is not F32

    def _regions(self) -> _Regions:
        spec, take = self.spec, self.scratch.take
        key_columns = ceildiv(spec.kv_len, self.score_shape.columns) * self.score_shape.columns
        panels = -(-spec.value_dim // self.value_shape.columns)
        if self.tactic["v"] == "direct":
            panels = 1 if spec.value_dim % self.value_shape.columns else 0
        queries = CopiedRows.pitch(spec.head_dim) if self._copies_queries else 0
        return _Regions(
            take(key_columns * spec.head_dim),
            take(pitch(spec.kv_len) * self.block_rows),
            take(spec.kv_len * self.value_shape.columns * panels),
            take(queries * self.block_rows),
        )

    def build(self) -> None:
        """Emit the loop over heads and blocks of query rows of this worker."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        blocks = ceildiv(spec.q_len, self.block_rows)
        begin, end = fn.split(fn.dim(spec.batch * spec.heads * blocks))
        with fn.if_(b.icmp_signed("<", begin, end)):
            width = fn.dim(blocks)
            first = b.sdiv(begin, width)
            stop = b.sdiv(b.add(end, b.sub(width, i64(1))), width)
            with fn.loop(first, stop) as head:
                skipped = b.mul(head, width)
                low, high = b.sub(begin, skipped), b.sub(end, skipped)
                low = b.select(b.icmp_signed("<", low, i64(0)), i64(0), low)
                self._head(head, low, fn.minimum(high, width))

    def _offset(self, head: ir.Value, operand: Operand) -> ir.Value:
        """Element offset of head `head` (flat over the batch) in `operand`."""
        b, heads = self.fn.builder, self.fn.dim(self.spec.heads)
        outer, inner = b.sdiv(head, heads), b.srem(head, heads)
        start = self.fn.dim(operand.offset)
        batch = b.mul(outer, self.fn.dim(operand.strides[0]))
        return b.add(start, b.add(batch, b.mul(inner, self.fn.dim(operand.strides[1]))))

    def _base(self, head: ir.Value, operand: Operand) -> ir.Value:
        return self._stored(operand).buffer(operand.slot, self._offset(head, operand))

    def _head(self, head: ir.Value, low: ir.Value, high: ir.Value) -> None:
        """Blocks low .. high-1 of one head."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        self.queries = self._base(head, spec.q)
        self.keys.base = self._base(head, spec.k)
        self.values.base = self._base(head, spec.v)
        score = Scores(fn, spec)
        if spec.mask is not None:
            score.mask, score.stored_mask = self._base(head, spec.mask), self._stored(spec.mask)
        columns = self.score_shape.columns
        count = fn.dim(ceildiv(spec.kv_len, columns))
        value_count = i64(-(-number(spec.value_dim) // self.value_shape.columns))
        self.key_panels.begin(i64(0), count)
        self.value_panels.begin(i64(0), value_count)
        size = i64(self.block_rows)
        with fn.loop(low, high) as block:
            start = b.mul(block, size)
            stop = fn.minimum(b.add(start, size), fn.dim(spec.q_len))
            keys = self._visible(stop)
            panels = b.sdiv(b.add(keys, i64(columns - 1)), i64(columns))
            self._scores(score, start, stop, panels)
            with fn.loop(0, b.sub(stop, start)) as row:
                line = b.mul(row, fn.dim(pitch(spec.kv_len)))
                where = fn.at(self.score_rows, line, self.score_shape.element)
                softmax_row(fn, self.score_shape, where, keys)
            self._output(head, start, stop, keys, value_count)

    def _visible(self, stop: ir.Value) -> ir.Value:
        """Keys that any row before `stop` may look at."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        keys = fn.dim(spec.kv_len)
        if not spec.causal:
            return keys
        limit = b.add(stop, fn.dim(spec.kv_len - spec.q_len))
        limit = b.select(b.icmp_signed("<", limit, i64(0)), i64(0), limit)
        return fn.minimum(limit, keys)

    def _scores(self, score: Scores, start: ir.Value, stop: ir.Value, panels: ir.Value) -> None:
        """Scores of query rows start .. stop-1, row `start` first in scratch."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        sink = TileSink(fn, self.score_shape, score, pitch(spec.kv_len), 1)
        sink.base, sink.row_flat = self.score_rows, start
        first = b.mul(start, fn.dim(spec.q.strides[2]))
        self.rows.base = self._stored(spec.q).at(self.queries, first)
        blocking = Blocking(1, 1, "rows")
        loops = TileLoops(
            fn,
            self.score_shape,
            blocking,
            spec.block,
            spec.q_len,
            spec.kv_len,
            self.rows,
            self.key_panels,
            sink,
            _unbound,
        )
        loops.block(i64(0), b.sub(stop, start), i64(0), panels)

    def _output(
        self, head: ir.Value, start: ir.Value, stop: ir.Value, keys: ir.Value, panels: ir.Value
    ) -> None:
        """Weights times v for query rows start .. stop-1."""
        fn, b, spec = self.fn, self.fn.builder, self.spec
        line = pitch(spec.kv_len)
        rows = StridedRows(fn, self.value_shape, self.score_rows, line, keys)
        sink = TileSink(
            fn, self.value_shape, self.epilogue, spec.out.strides[2], spec.out.strides[3]
        )
        output = fn.buffer(len(self.kernel.inputs), self.epilogue.stored)
        first = b.mul(start, fn.dim(spec.out.strides[2]))
        where = b.add(self._offset(head, spec.out), first)
        sink.base = fn.at(output, where, self.epilogue.stored)
        sink.row_flat = b.add(b.mul(head, fn.dim(spec.q_len)), start)
        loops = TileLoops(
            fn,
            self.value_shape,
            Blocking(1, 1, "rows"),
            spec.block,
            spec.q_len,
            spec.value_dim,
            rows,
            self.value_panels,
            sink,
            _unbound,
        )
        loops.block(i64(0), b.sub(stop, start), i64(0), panels)


def _unbound(batch: ir.Value) -> None:
    """Bases are set per head before the loops are emitted."""
