"""Convolutions of a picture with a pool behind them: the sums that a window needs never leave
registers.

A first launch spreads the picture to four bytes a pixel, with the padding around it. The eight
pixels that a line of the window sees are then 32 bytes of memory, one step of the tensor cores,
and what neighbouring windows read lies so near that it comes from a multiprocessor's cache: a left
operand is loaded to registers where it is multiplied, and copied to nowhere.

The rows of a tile are eight columns of pooled pixels by some strips of lines. A program walks down
its strips. For every pooled pixel it computes the sums of its window's lines 2p and 2p + 1, each
at three places, all as sums of equal rows of the tensor cores, so that the largest is taken without
an exchange; line 2p - 1 is the last one of the step before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braze.codegen.cuda.gluon.layout import GluonTile, run_of, spread, spread_layout
from braze.codegen.cuda.gluon.product import function
from braze.codegen.cuda.gluon.tiles import lanes
from braze.codegen.cuda.triton.emit import Scope
from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.source import RELEASE, WAIT, Val
from braze.codegen.cuda.triton.stem import folds
from braze.codegen.cuda.triton.tile import AnchorWriter
from braze.core.config import Effort
from braze.core.dims import static, static_size
from braze.core.dtypes import I8, I32
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, Packing, Tactic, TensorMap
from braze.ops.lowering import PooledSpec

TEMPLATE: Final = "gluon_pooled"
PIXEL, PIXELS = 4, 8  # bytes of a pixel; pixels of a step
COLUMNS, SIDE = 64, 8  # output channels of a tile; pooled columns
FOLDED: Final = 1024  # pixels of a program that spreads them
LINES: Final = (8, 16, 4)  # at most so many of a strip
ROWS: Final = 64
REGISTERS: Final = 168  # at most so many a thread: three programs fit a multiprocessor
LOWEST: Final = -(2**31)


def pools(spec: PooledSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]) -> str | None:
    """None for what the template takes, else why it does not."""
    conv = spec.conv
    if inputs[0].dtype is not I8 or inputs[1].dtype is not I8 or conv.acc is not I32:
        return "pools are taken of sums of bytes"
    if not folds(conv) or conv.fill or 1 not in constant or conv.out_channels % COLUMNS:
        return "pools are taken of convolutions of pictures"
    if (spec.window, spec.steps, spec.pads) != ((3, 3), (2, 2), (1, 1)):
        return "pools of other windows than 3 x 3 by steps of 2"
    if any(s != 2 * p for s, p in zip(conv.out_spatial, spec.out_spatial, strict=True)):
        return "the last window of a line hangs over"
    return None if room_of(spec) < 2**31 else "pictures that are counted in 64 bits"


def pooled_tactics(kernel: AnchorKernel, effort: Effort) -> tuple[Tactic, ...]:
    """How many lines a strip has."""
    assert isinstance(kernel.spec, PooledSpec)
    down, _ = static(kernel.spec.out_spatial)
    found = [max(n for n in range(1, most + 1) if down % n == 0) for most in LINES]
    tactics = tuple(Tactic(TEMPLATE, (("lines", n),)) for n in dict.fromkeys(found))
    return tactics[: 1 if effort.tactics == 1 else None]


def spread_size(spec: PooledSpec) -> tuple[int, int]:
    """Lines and pixels a line of what the first launch makes, with all that is read."""
    down, right = static(spec.out_spatial)
    across = -(-right // SIDE) * SIDE
    return 4 * down + spec.conv.kernel[0], 4 * across + PIXELS


def room_of(spec: PooledSpec) -> int:
    """Bytes of that."""
    (batch,) = static((spec.conv.batch,))
    high, wide = spread_size(spec)
    return batch * high * wide * PIXEL


def pooled_sources(kernel: AnchorKernel, tactic: Tactic) -> tuple[TritonSource, ...]:
    """The launch that spreads pixels, and the one that convolves and pools."""
    spec = kernel.spec
    assert isinstance(spec, PooledSpec)
    run = run_of(_tile(), kernel.output.dtype)
    parameters = (("block", COLUMNS), ("run", run), ("pixels", PIXELS), ("pixel", PIXEL))
    packings = ((1, Packing("pixels", I8, parameters)),)
    w = AnchorWriter(kernel, [], spec.out_shape, waits=False)
    lines = int(tactic["lines"])
    tiles, programs = spec.conv.out_channels // COLUMNS, _groups(spec, lines)
    text = function("pooled", f"map0, {_names(w)}", _program(w, spec, lines, run))
    depth = PIXELS * PIXEL
    weight = TensorMap(
        1, I8, (tiles * spec.conv.kernel[0] * COLUMNS, depth), (depth,), (COLUMNS, depth), 1
    )
    second = TritonSource(
        "pooled", text, w.pointers("int8"), (), programs * tiles, 4, waits=True, maps=(weight,),
        scratch_bytes=room_of(spec), packings=packings, registers=REGISTERS,
    )  # fmt: skip
    return _spreading(w, spec, packings), second


def _tile() -> GluonTile:
    return GluonTile(ROWS, COLUMNS, 4, 1, 0)


def _names(w: AnchorWriter) -> str:
    return ", ".join(name for name, _ in w.pointers("int8"))


def _groups(spec: PooledSpec, lines: int) -> int:
    """Tiles of rows."""
    batch, down, right = static((spec.conv.batch, *spec.out_spatial))
    return -(-batch * (down // lines) // (ROWS // SIDE)) * -(-right // SIDE)


def _spreading(
    w: AnchorWriter, spec: PooledSpec, packings: tuple[tuple[int, Packing], ...]
) -> TritonSource:
    """The launch that fills the workspace."""
    conv, (high, wide) = spec.conv, spread_size(spec)
    height, width = conv.in_spatial
    data, _ = conv.operands["data"]
    of_image, of_line, of_pixel, of_channel = data.strides
    total = static_size(static((conv.batch, high, wide)))
    reads = []
    for c in range(conv.in_channels):
        reads.append(f"byte = tl.load(in0 + place + {c} * {of_channel}, mask=inside, other=0)")
        reads.append(f"word = word | ((byte.to(tl.int32) & 255) << {8 * c})")
    lines = (
        WAIT,
        f"pixel = tl.program_id(0) * {FOLDED} + tl.arange(0, {FOLDED})",
        f"x = pixel % {wide} - {conv.pads[1] + 2}",
        f"y = pixel // {wide} % {high} - {conv.pads[0] + 2}",
        f"inside = (x >= 0) & (x < {width}) & (y >= 0) & (y < {height}) & (pixel < {total})",
        f"place = pixel // {wide * high} * {of_image} + y * {of_line} + x * {of_pixel}",
        f"place = place + {data.offset}",
        f"word = tl.zeros([{FOLDED}], tl.int32)",
        *reads,
        RELEASE,
        "words = scratch.to(tl.pointer_type(tl.int32), bitcast=True)",
        f"tl.store(words + pixel, word, mask=pixel < {total})",
    )
    text = f"@triton.jit\ndef spread({_names(w)}):\n" + "".join(f"    {x}\n" for x in lines)
    return TritonSource(
        "spread", text, w.pointers("int8"), (), -(-total // FOLDED), 4, waits=True,
        scratch_bytes=total * PIXEL, packings=packings,
    )  # fmt: skip


def _program(w: AnchorWriter, spec: PooledSpec, lines: int, run: int) -> list[str]:
    """The weight of a program's channels to shared memory, then its strips, line by line."""
    batch, down, right = static((spec.conv.batch, *spec.out_spatial))
    tiles, across, strips = spec.conv.out_channels // COLUMNS, -(-right // SIDE), down // lines
    _memory(w, spec.conv.kernel[0], tiles, run)
    w.line(f"tile = tl.program_id(0) // {tiles}")
    for layout, end in (("dot", ""), ("mma", "_mma"), ("layout", "_out")):
        row = lanes(ROWS, layout)
        w.line(f"strip{end} = tile // {across} * {ROWS // SIDE} + {row} // {SIDE}")
        w.line(f"right{end} = tile % {across} * {SIDE} + {row} % {SIDE}")
    high, wide = spread_size(spec)
    w.line(f"some = gl.minimum(strip, {batch * strips - 1})")
    w.line(f"top = some // {strips} * {high} + some % {strips} * {4 * lines}")
    k = f"tl.arange(0, {PIXELS * PIXEL}, gl.SliceLayout(0, dot))[None, :]"
    w.line(f"at = (top * {wide} + right * 4) * {PIXEL} + {k}")
    none = "gl.zeros([64, 64], gl.int32, mma)"
    w.line(f"zero = {none}")
    w.line(f"low = {none} + {LOWEST}")
    w.line(f"first_line = strip_mma % {strips} == 0")
    # no sum of 8 x 8 x 4 products of bytes rises from here to one of any other place
    w.line(f"edge = gl.where((right_mma == 0) & (zero == 0), {-(2**30)}, 0)")
    _lines(w, spec, wide, 1)
    w.line("largest = gl.where(first_line & (zero == 0), low, largest)")
    w.line(f"image = strip_out // {strips}")
    with w.src.block(f"for step in range({lines})"):
        w.line(f"down = strip_out % {strips} * {lines} + step")
        _lines(w, spec, wide, 2)
        _finish(w, spec, run)
        w.line("largest = last")
        w.line(f"at = at + {4 * wide * PIXEL}")
    return w.src.lines


def _memory(w: AnchorWriter, lines: int, tiles: int, run: int) -> None:
    """Layouts, and the weight on its way to shared memory."""
    w.line("mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 32])")
    w.line("dot: gl.constexpr = gl.DotOperandLayout(0, mma, 4)")
    w.line(f"layout: gl.constexpr = {spread_layout(_tile(), run)}")
    shared = "gl.NVMMASharedLayout(32, 8, 2)"
    w.line(f"weight = gl.allocate_shared_memory(gl.int8, [{lines}, 64, 32], {shared})")
    w.line("bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())")
    w.line("mbarrier.init(bar, count=1)")
    w.line("fence_async_shared()")
    w.line(f"column_tile = tl.program_id(0) % {tiles}")
    w.line(f"mbarrier.expect(bar, {lines * COLUMNS * PIXELS * PIXEL})")
    with w.src.block(f"for t in gl.static_range({lines})"):
        at = f"[(column_tile * {lines} + t) * {COLUMNS}, 0]"
        w.line(f"copy_box(map0, {at}, bar, weight.index(t))")
    w.line(WAIT)
    w.line("mbarrier.wait(bar, 0)")


def _lines(w: AnchorWriter, spec: PooledSpec, wide: int, count: int) -> None:
    """largest = that of itself and the sums of the next `count` lines at three places; with two
    lines, last = that of the second. Lines of the picture that both need are loaded once."""
    taps = spec.conv.kernel[0]
    first = 0 if count == 1 else 2  # of the picture
    if count == 1:
        w.line("largest = low")
    else:
        w.line("last = low")
    with w.src.block("for place in range(3)"):
        for i in range(count):
            w.line(f"sum{i} = gl.where(place == 0, edge, zero)")
        for v in range(taps + 2 * (count - 1)):
            distance = f"place * {2 * PIXEL} + {(first + v) * wide * PIXEL}"
            w.line(f"line{v} = tl.load(scratch + (at + {distance}))")
        for i in range(count):  # in turns, for want of registers
            for t in range(taps):
                right = f"weight.index({t}).permute((1, 0))"
                made = f"warpgroup_mma(line{t + 2 * i}, {right}, sum{i}, is_async=True)"
                w.line(f"sum{i} = {made}")
            w.line(f"sum{i} = warpgroup_mma_wait(0, deps=[sum{i}])")
            w.line(f"largest = gl.maximum(largest, sum{i})")
        if count == 2:
            w.line("last = gl.maximum(last, sum1)")


def _finish(w: AnchorWriter, spec: PooledSpec, run: int) -> None:
    """The epilogue of the largest sums, and its stores. What it reads of channels is read every
    time: there are no registers to keep it in."""
    batch, down, right = static((spec.conv.batch, *spec.out_spatial))
    total = w.a.put(spread(_tile(), "largest", "layout", run), "int32")
    lane = f"tl.arange(0, {COLUMNS}, gl.SliceLayout(0, layout))[None, :]"
    column = w.a.put(f"column_tile * {COLUMNS} + {lane}", "int32")
    inside = f"(image < {batch})" + (f" & (right_out < {right})" if right % SIDE else "")
    some = w.a.put(inside, "int1")
    places = (*(Val(name, "int32") for name in ("image", "down", "right_out")), column)
    parts = ((frozenset(range(3)), some), (frozenset({3}), None))
    scope = Scope(dict(enumerate(places)), some, parts=parts)
    value = w.epilogue(total, scope)
    pixel = f"((image * {down} + down) * {right} + right_out)"
    at = w.a.put(f"{pixel} * {spec.conv.out_channels} + {column}", "int32")
    w.store(at.text, value, w.a.put(f"{some} & ({column} >= 0)", "int1"))
