"""Boxes that a class keeps, one after the other: a program for each class of each batch.

A round finds the best box that is left and takes away what overlaps it, in one walk over all boxes
(the greedy algorithm of ONNX's NonMaxSuppression). Which boxes are left is kept in the workspace,
so the work is that of the boxes by those that are kept. One order of equal scores on every run.
"""

from __future__ import annotations

from braze.codegen.cuda.triton.nests import TritonSource
from braze.codegen.cuda.triton.tile import AnchorWriter, Tile
from braze.core.dims import product
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import SuppressSpec

_ENDS = ("y0", "x0", "y1", "x1")  # the lowest and the highest corner


def suppress_source(kernel: AnchorKernel, tile: Tile) -> TritonSource:
    """tile.rows boxes a step."""
    spec = kernel.spec
    assert isinstance(spec, SuppressSpec)
    sizes = [spec.classes, spec.count, spec.most]
    for operand in (spec.boxes, spec.scores):
        sizes += [operand.offset, *operand.strides]
    w = AnchorWriter(kernel, sizes, spec.out_shape)
    count, most = w.text(spec.count), w.text(spec.most)
    w.line("line = tl.program_id(0).to(tl.int64)")
    w.line(f"batch, kind = line // {w.text(spec.classes)}, line % {w.text(spec.classes)}")
    boxes = w.begin(spec.boxes, ["batch"])
    scores = w.begin(spec.scores, ["batch", "kind"])
    w.line(f"lane = tl.arange(0, {tile.rows}).to(tl.int64)")
    w.line("limit = tl.load(in2)")
    if spec.threshold:
        w.line("least = tl.load(in3)")
    with w.src.block(f"for step in range(0, {count}, {tile.rows})"):
        state = f"scratch + line * {count} + step + lane"
        w.line(f"tl.store({state}, (lane * 0 + 1).to(tl.int8), mask=step + lane < {count})")
    w.line("tl.debug_barrier()")
    # the box that was kept last (-1: none yet, the count: none is left), and it in every lane
    w.line("last = line * 0 - 1")
    w.line("latest = lane * 0 - 1")
    for end in (*_ENDS, "area"):
        w.line(f"{end} = tl.zeros([{tile.rows}], tl.float32)")
    with w.src.block(f"for j in range(0, {most})"):
        w.line(f"best = tl.full([{tile.rows}], float('-inf'), tl.float32)")
        w.line(f"who = lane * 0 + {count}")
        w.line(f"walk = tl.where(last < {count}, {count}, 0)")
        with w.src.block(f"for step in range(0, walk, {tile.rows})"):
            _walk(w, spec, boxes, scores)
        w.line(f"top = tl.max(tl.where(who < {count}, best, float('-inf')), 0)")
        w.line(f"tied = (who < {count}) & (best == top)")
        w.line(f"last = tl.min(tl.where(tied, who, {count}), 0)")
        w.line(f"tl.store(in{len(kernel.inputs)} + line * {most} + j, "
               f"tl.where(last < {count}, last + 1, 0))")  # fmt: skip
        w.line("latest = lane * 0 + last")
        _box(w, spec, boxes, "latest", f"latest < {count}", "")
        w.line("tl.debug_barrier()")  # what is left was written by other threads
    lines = product((spec.batch, spec.classes))
    return w.launch("suppress", w.pointers("int8"), lines, tile, lines * spec.count)


def _walk(w: AnchorWriter, spec: SuppressSpec, boxes: str, scores: str) -> None:
    """One step: which of its boxes are left behind the last that was kept, and the best of them."""
    count = w.text(spec.count)
    w.line("at = step + lane")
    w.line(f"inside = at < {count}")
    step = w.text(spec.scores.strides[2])
    w.line(f"s = tl.load(in1 + {scores} + at * {step}, mask=inside, other=float('nan'))")
    w.line(f"was = tl.load(scratch + line * {count} + at, mask=inside, other=0)")
    fits = "s > least" if spec.threshold else "s == s"
    w.line(f"left = (was != 0) & ({fits})")
    _box(w, spec, boxes, "at", "inside", "b_")
    w.line("high = tl.minimum(y1, b_y1) - tl.maximum(y0, b_y0)")
    w.line("wide = tl.minimum(x1, b_x1) - tl.maximum(x0, b_x0)")
    w.line("common = high * wide")
    w.line("joint = b_area + area - common")
    w.line("real = (high > 0) & (wide > 0) & (b_area > 0) & (area > 0) & (joint > 0)")
    w.line("overlap = tl.where(real, tl.div_rn(common, tl.where(real, joint, 1.0)), 0.0)")
    w.line("left = left & (at != latest) & (((overlap > limit) & (latest >= 0)) == 0)")
    w.line(f"tl.store(scratch + line * {count} + at, left.to(tl.int8), mask=inside)")
    w.line(f"better = left & ((who == {count}) | (s > best))")
    w.line("best = tl.where(better, s, best)")
    w.line("who = tl.where(better, at, who)")


def _box(w: AnchorWriter, spec: SuppressSpec, boxes: str, at: str, mask: str, name: str) -> None:
    """Corners and areas of the boxes at `at`, in names that begin with `name`."""
    down, right = (w.text(s) for s in spec.boxes.strides[1:])
    for i in range(4):
        place = f"{boxes} + {at} * {down} + {i} * {right}"
        w.line(f"{name}e{i} = tl.load(in0 + {place}, mask={mask}, other=0)")
    e = [f"{name}e{i}" for i in range(4)]
    if spec.centered:  # x, y, width, height
        for end, middle, size, sign in zip(_ENDS, (1, 0, 1, 0), (3, 2, 3, 2), "--++", strict=True):
            w.line(f"{name}{end} = {e[middle]} {sign} {e[size]} * 0.5")
    else:
        for axis, (low, high) in enumerate((("y0", "y1"), ("x0", "x1"))):
            first, second = e[axis], e[axis + 2]
            w.line(f"{name}{low} = tl.where({second} < {first}, {second}, {first})")
            w.line(f"{name}{high} = tl.where({second} < {first}, {first}, {second})")
    w.line(f"{name}area = ({name}y1 - {name}y0) * ({name}x1 - {name}x0)")
