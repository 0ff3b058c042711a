"""NonMaxSuppression: of boxes that cover each other the one of the highest score.

What each class keeps is found by an anchor in a table with room for all that may be kept; how many
there are in all, the run reads from it (see places.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim, dmax, dmin
from braze.core.dtypes import I64
from braze.core.errors import ShapeError
from braze.expr.index import to_expr
from braze.expr.scalar import axis, binary, const, load, select
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import Array, InferContext, OnnxNode, Op
from braze.ops.index.places import find_places
from braze.ops.lowering import Anchor, Lowering, Nest, Operand, SuppressSpec
from braze.ops.move.shape import reshape
from braze.ops.move.slice_pad import single_store
from braze.ops.operands import row_major_strides
from braze.ops.writing.arguments import Types, array_of, run_sizes, tensor_specs, type_of
from braze.ops.writing.run_contents import settled

MAX_BOXES = (1 << 32) - 1  # numbers of boxes share a 64-bit word with their scores


def suppressed(
    boxes: Array, scores: Array, most: int, centered: bool, overlap: Array, least: Array | None
) -> Array:
    """What SuppressSpec says, in numpy's float32."""
    out = np.zeros((*scores.shape[:2], most), np.int64)
    corners = _corners(boxes, centered)
    limit = np.float32(overlap.reshape(-1)[0])
    for b, c in np.ndindex(*scores.shape[:2]):
        line = scores[b, c]
        fits = ~np.isnan(line) if least is None else line > np.float32(least.reshape(-1)[0])
        found = np.flatnonzero(fits)
        kept: list[int] = []
        for i in found[np.argsort(-line[found], kind="stable")]:
            if len(kept) == most:
                break
            if not (_overlaps(corners[b, i], corners[b, kept]) > limit).any():
                kept.append(int(i))
        out[b, c, : len(kept)] = np.array(kept, np.int64) + 1
    return out


def _corners(boxes: Array, centered: bool) -> Array:
    """(lowest y, lowest x, highest y, highest x) of each box."""
    if centered:
        x, y, width, height = (boxes[..., i] for i in range(4))
        half = np.float32(2)
        ends = (y - height / half, x - width / half, y + height / half, x + width / half)
        return np.stack(ends, axis=-1)
    first, second = boxes[..., :2], boxes[..., 2:]
    swapped = second < first
    low, high = np.where(swapped, second, first), np.where(swapped, first, second)
    return np.concatenate([low, high], axis=-1)


def _overlaps(box: Array, others: Array) -> Array:
    """The common area of a box and each of the others by their joint area."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    with np.errstate(all="ignore"):
        sides = high - low
        common = sides[:, 0] * sides[:, 1]
        own = (box[2] - box[0]) * (box[3] - box[1])
        areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
        joint = own + areas - common
        real = (sides > 0).all(axis=1) & (own > 0) & (areas > 0) & (joint > 0)
        return np.asarray(np.where(real, common / joint, np.float32(0)))


@dataclass(frozen=True)
class Suppress(Op):
    """What SuppressSpec says of boxes, scores, largest overlap [1] and least score [1] or none."""

    most: Dim
    centered: bool

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, (*type_of(inputs, 1).shape[:2], self.most)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        boxes, scores, overlap = (array_of(inputs, i) for i in range(3))
        least = inputs[3] if len(inputs) > 3 else None
        most = dims.number(self.most)
        return (suppressed(boxes, scores, most, self.centered, overlap, least),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        boxes, (batch, classes, count) = type_of(inputs, 0).shape, type_of(inputs, 1).shape
        spec = SuppressSpec(
            batch, classes, count, self.most, self.centered, len(tensor_specs(inputs)) > 3,
            Operand(0, row_major_strides(boxes)),
            Operand(1, row_major_strides((batch, classes, count))),
        )  # fmt: skip
        return Anchor(spec, None)


@dataclass(frozen=True)
class Kept(Op):
    """[count, 3]: batch, class and number of the boxes at some places of Suppress's table."""

    classes: Dim
    most: Dim

    def infer(self, inputs: Types, ctx: InferContext) -> tuple[TensorType, ...]:
        return (TensorType(I64, (type_of(inputs, 1).shape[0], 3)),)

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        table, places = array_of(inputs, 0), array_of(inputs, 1)
        most, classes = max(dims.number(self.most), 1), max(dims.number(self.classes), 1)
        lines = places // most
        return (np.stack([lines // classes, lines % classes, table[places] - 1], axis=1),)

    def lower(self, inputs: Types, outputs: Sequence[TensorType]) -> Lowering:
        place = load(1, (axis(0),), I64)
        # where there is no room or no class there are no places
        classes = to_expr(dmax(self.classes, 1))
        line = binary("floordiv", place, to_expr(dmax(self.most, 1)))
        batch = binary("floordiv", line, classes)
        number = binary("sub", load(0, (place,), I64), const(1, I64))
        rest = select(binary("eq", axis(1), const(1, I64)), binary("mod", line, classes), number)
        out = select(binary("eq", axis(1), const(0, I64)), batch, rest)
        return Nest(single_store(inputs, outputs[0], out))


def import_non_max_suppression(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """NonMaxSuppression: without a number of boxes to keep it keeps none, as ONNX has it."""
    boxes, scores = n.need(0), n.need(1)
    _check(n, g, boxes, scores)
    most: Dim = 0
    hint = f"{n.name or n.op_type}_most"
    if n.input(2) is not None:
        most = run_sizes(n, g, 2, "max_output_boxes_per_class")[0]
    count = boxes.shape[1]
    if isinstance(most, int):
        most = dmin(count, min(max(most, 0), MAX_BOXES))
    else:
        most = dmin(count, settled(g, dmin(most, MAX_BOXES), MAX_BOXES, hint))
    overlap, least = n.input(3), n.input(4)
    if overlap is None:
        overlap = g.constant(np.zeros(1, np.float32), "overlap")
    given = [reshape(g, v, (1,)) for v in (overlap, least) if v is not None]
    centered = bool(n.attr("center_point_box", 0))
    table = g.add1(Suppress(most, centered), boxes, scores, *given)
    places = find_places(g, table, f"{n.name or n.op_type}_count")
    flat = reshape(g, table, (dims.product(table.shape),))
    return (g.add1(Kept(scores.shape[1], most), flat, places),)


def _check(n: OnnxNode, g: GraphBuilder, boxes: Value, scores: Value) -> None:
    if len(boxes.shape) != 3 or len(scores.shape) != 3:
        raise ShapeError(
            f"node {n.name!r} (NonMaxSuppression): boxes have {len(boxes.shape)} axes and scores "
            f"{len(scores.shape)}; give boxes [batch, count, 4] and scores [batch, classes, count]"
        )
    g.unify(boxes.shape[2], 4, "NonMaxSuppression: numbers of a box")
    g.unify(boxes.shape[0], scores.shape[0], "NonMaxSuppression: batch of boxes and scores")
    g.unify(boxes.shape[1], scores.shape[2], "NonMaxSuppression: count of boxes and scores")
    low, high = g.range_of(boxes.shape[1])
    if high > MAX_BOXES and isinstance(boxes.shape[1], int):
        raise n.unsupported(f"{low} boxes are too many; {MAX_BOXES} are supported")
