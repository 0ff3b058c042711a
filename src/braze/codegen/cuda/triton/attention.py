"""Attention in one pass over the keys: a running maximum and a running sum a query row.

Dao et al., "FlashAttention" (2022), algorithm 1, with the rescaling of Milakov and Gimelshein,
"Online normalizer calculation for softmax" (2018). Statistics are float32; weights are rounded to
the value's type before the second product. Rows whose keys are all masked give zeros.

With few queries (a decoder's next token) several programs may share the keys of one tile. Each
leaves its sums and statistics in the workspace; the one that arrives last takes them together in
the order of the keys, so that the bits do not depend on who that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.product import begin, index_type, last_of
from braze.codegen.cuda.triton.source import RELEASE, Val
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile, ceil_div, dot
from braze.core.dims import Dim
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import AttentionSpec, Operand

LOG2_E = 1.4426950408889634
LEAD = ("image", "head")


def block(size: Dim) -> int:
    """The power of two that holds a head, at least what tensor cores take."""
    assert isinstance(size, int), size
    return max(16, 1 << (size - 1).bit_length())


def attention_source(kernel: AnchorKernel, tile: Tile) -> TritonSource:
    """tile.rows queries a program, tile.columns keys a step; tile.depth is not used."""
    spec = kernel.spec
    assert isinstance(spec, AttentionSpec)
    operands = [o for o in (spec.q, spec.k, spec.v, spec.out, spec.mask) if o is not None]
    sizes = [spec.q_len, spec.kv_len, *(d for o in operands for d in (*o.strides, o.offset))]
    w = AnchorWriter(kernel, sizes, (spec.batch, spec.heads, spec.q_len, spec.value_dim))
    kind = index_type((*kernel.inputs, kernel.output))
    _place(w, spec, tile, kind)
    in_rows = w.below("row", spec.q_len, tile.rows)
    heads = _Heads(
        w.below("lane", spec.head_dim, block(spec.head_dim)),
        w.below("wide", spec.value_dim, block(spec.value_dim)),
        {o: w.begin(o, LEAD, kind) for o in operands if o is not spec.out},
        kind,
    )
    w.read("q", spec.q.slot, w.matrix(spec.q, heads.starts[spec.q], "row", "lane"),
           in_rows, heads.in_head)  # fmt: skip
    first, end = _keys(w, tile)
    w.line(f"top = tl.full([{tile.rows}, 1], float('-inf'), tl.float32)")
    w.line(f"total = tl.zeros([{tile.rows}, 1], tl.float32)")
    w.line(f"acc = tl.zeros([{tile.rows}, {block(spec.value_dim)}], tl.float32)")
    with w.src.block(f"for step in range({first}, {end}, {tile.columns})"):
        _scores(w, spec, tile, heads, in_rows)
        _accumulate(w, spec, tile, heads)
    mask = w.both(in_rows, heads.in_value)
    axes = {i: Val(name, kind) for i, name in enumerate((*LEAD, "row", "wide"))}
    with _joined(w, tile, block(spec.value_dim)):
        value = w.a.put("acc / tl.where(total == 0, 1.0, total)", "float32")
        done = w.epilogue(value, Scope(axes, mask))
        w.store(w.matrix(spec.out, w.begin(spec.out, LEAD, kind), "row", "wide"), done, mask)
    tiles = spec.batch * spec.heads * ceil_div(spec.q_len, tile.rows)
    return w.source("attention", tiles, tile, room=tile.rows * (block(spec.value_dim) + 2))


def _keys(w: AnchorWriter, tile: Tile) -> tuple[str, str]:
    """The first key of this program and where its keys end."""
    if tile.split == 1:
        return "0", "last"
    w.line(f"key_steps = tl.maximum((last + {tile.columns - 1}) // {tile.columns}, 0)")
    w.line(f"first_key = part * key_steps // {tile.split} * {tile.columns}")
    w.line(f"end_key = (part + 1) * key_steps // {tile.split} * {tile.columns}")
    return "first_key", "tl.minimum(end_key, last)"


@contextmanager
def _joined(w: AnchorWriter, tile: Tile, wide: int) -> Iterator[None]:
    """What is written inside runs with the sums over all keys."""
    if tile.split == 1:
        yield
        return
    size = tile.rows * (wide + 2)
    w.line(RELEASE)
    w.line(f"one = tl.arange(0, {tile.rows})[:, None]")
    w.line(f"shared = scratch + place.to(tl.int64) * {tile.split * size}")
    w.line(f"mine = shared + part * {size}")
    w.line(f"tl.store(mine + one * {wide} + tl.arange(0, {wide})[None, :], acc)")
    w.line(f"tl.store(mine + {tile.rows * wide} + one, top)")
    w.line(f"tl.store(mine + {tile.rows * (wide + 1)} + one, total)")
    with last_of(w, tile):
        w.line("top = tl.full(top.shape, float('-inf'), tl.float32)")
        for part in range(tile.split):
            at = f"shared + {part * size + tile.rows * wide} + one"
            w.line(f"top{part} = tl.load({at}, cache_modifier='.cg')")
            w.line(f"top = tl.maximum(top, top{part})")
        w.line("base = tl.where(top == float('-inf'), 0.0, top)")
        w.line("acc, total = tl.zeros_like(acc), tl.zeros_like(total)")
        for part in range(tile.split):
            w.line(f"share = tl.exp2(top{part} - base)")
            at = f"shared + {part * size} + one * {wide} + tl.arange(0, {wide})[None, :]"
            w.line(f"acc += share * tl.load({at}, cache_modifier='.cg')")
            at = f"shared + {part * size + tile.rows * (wide + 1)} + one"
            w.line(f"total += share * tl.load({at}, cache_modifier='.cg')")
        yield


@dataclass(frozen=True, slots=True)
class _Heads:
    """Which lanes belong to a head (None: all), where each operand's part of it begins, and the
    type of indexes."""

    in_head: Val | None
    in_value: Val | None
    starts: dict[Operand, str]
    kind: str


def _place(w: AnchorWriter, spec: AttentionSpec, tile: Tile, kind: str) -> None:
    """Head and queries of this program, and where the keys end that it can see."""
    q_len, kv_len, heads = w.text(spec.q_len), w.text(spec.kv_len), w.text(spec.heads)
    w.line(f"tiles = ({q_len} + {tile.rows - 1}) // {tile.rows}")
    begin(w, tile, spec.batch * spec.heads * ceil_div(spec.q_len, tile.rows))
    w.line("tile = place % tiles")
    w.line(f"head = (place // tiles % {heads}).to(tl.{kind})")
    w.line(f"image = (place // tiles // {heads}).to(tl.{kind})")
    w.line(f"row = (tile * {tile.rows} + tl.arange(0, {tile.rows})).to(tl.{kind})[:, None]")
    w.line(f"lane = tl.arange(0, {block(spec.head_dim)}).to(tl.{kind})[None, :]")
    w.line(f"wide = tl.arange(0, {block(spec.value_dim)}).to(tl.{kind})[None, :]")
    w.line(f"last = {kv_len}")
    if spec.causal:
        w.line(f"last = tl.minimum(last, (tile + 1) * {tile.rows} + ({kv_len} - {q_len}))")


def _scores(
    w: AnchorWriter, spec: AttentionSpec, tile: Tile, heads: _Heads, in_rows: Val | None
) -> None:
    """score = (scale * q @ k^T + mask) / ln 2, minus infinity where a key is not seen."""
    q_len, kv_len = w.text(spec.q_len), w.text(spec.kv_len)
    element = w.kernel.inputs[spec.q.slot].dtype
    w.line(f"key = (step + tl.arange(0, {tile.columns})).to(tl.{heads.kind})")
    whole = isinstance(spec.kv_len, int) and spec.kv_len % tile.columns == 0
    in_keys = None if whole else f"key < {kv_len}"
    k_at = w.matrix(spec.k, heads.starts[spec.k], "key[:, None]", "lane")
    w.read("k_block", spec.k.slot, k_at, in_keys and f"({in_keys})[:, None]", heads.in_head)
    zero = f"tl.zeros([{tile.rows}, {tile.columns}], tl.float32)"
    product = dot(element, spec.acc, "q", "tl.trans(k_block)", zero, tile.precision)
    w.line(f"score = {product} * {spec.scale * LOG2_E!r}")
    seen = in_keys and f"({in_keys})[None, :]"
    if spec.mask is not None:
        at = w.matrix(spec.mask, heads.starts[spec.mask], "row", "key[None, :]")
        w.read("extra", spec.mask.slot, at, in_rows, seen)
        w.line(f"score += extra.to(tl.float32) * {LOG2_E}")
    if spec.causal:
        earlier = f"(key[None, :] <= row + ({kv_len} - {q_len}))"
        seen = earlier if seen is None else f"{seen} & {earlier}"
    if seen is not None:
        w.line(f"score = tl.where({seen}, score, float('-inf'))")


def _accumulate(w: AnchorWriter, spec: AttentionSpec, tile: Tile, heads: _Heads) -> None:
    """Take a block of scores in: rescale what was summed below a lower maximum."""
    element = w.kernel.inputs[spec.q.slot].dtype
    w.line("high = tl.maximum(top, tl.max(score, 1)[:, None])")
    w.line("base = tl.where(high == float('-inf'), 0.0, high)")
    w.line("weight = tl.exp2(score - base)")
    w.line("shrink = tl.exp2(top - base)")
    w.line("total = total * shrink + tl.sum(weight, 1)[:, None]")
    v_at = w.matrix(spec.v, heads.starts[spec.v], "key[:, None]", "wide")
    whole = isinstance(spec.kv_len, int) and spec.kv_len % tile.columns == 0
    in_keys = None if whole else f"(key < {w.text(spec.kv_len)})[:, None]"
    w.read("v_block", spec.v.slot, v_at, in_keys, heads.in_value)
    rounded = f"weight.to(tl.{element.name})"
    w.line(f"acc = {dot(element, spec.acc, rounded, 'v_block', 'acc * shrink', tile.precision)}")
    w.line("top = high")
