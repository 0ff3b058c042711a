"""Sequences and optionals: lists of tensors that exist while a model is imported only.

How long a sequence is and which element is meant must be known then; what the elements hold need
not be. A sequence that a loop made may be a stack instead, whose length the run tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from braze.core.dims import Dim
from braze.core.dtypes import I64
from braze.core.errors import ModelError, UnsupportedOpError
from braze.frontend.onnx.bodies import FlowImporter, Site
from braze.frontend.onnx.scope import Bound, Listed
from braze.ir.graph import Value
from braze.ops.base import ContentNeededError
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import SizeTensor, Transpose, reshape
from braze.ops.move.slice_pad import slice_axis


def _listed(site: Site, index: int = 0) -> Listed:
    """The sequence in an input."""
    value = site.bound[index] if index < len(site.bound) else None
    if not isinstance(value, Listed):
        raise ModelError(f"{site.node.where}: input {index} must be a sequence")
    if value.stack is not None:
        raise UnsupportedOpError(
            f"{site.node.where}: the run tells how long the sequence is that a loop made; join it "
            "by ConcatFromSequence, or take elements by SequenceAt"
        )
    return value


def _stack(site: Site) -> Value | None:
    """The sequence in input 0, where it is a stack."""
    value = site.bound[0] if site.bound else None
    return value.stack if isinstance(value, Listed) else None


def _tensor(site: Site, index: int) -> Value:
    """The tensor in an input."""
    value = site.bound[index] if index < len(site.bound) else None
    if not isinstance(value, Value):
        raise ModelError(f"{site.node.where}: input {index} must be a tensor")
    return value


def _position(site: Site, index: int, count: int, default: int, end: bool = False) -> int:
    """A position among `count` in an input, counted from the front; end: that behind all is one."""
    if index >= len(site.bound) or site.bound[index] is None:
        return default
    known = site.builder.sizes(_tensor(site, index))
    if known is None or known.size != 1 or not isinstance(known.reshape(-1)[0], int):
        raise ContentNeededError(
            f"{site.node.where}: which element is meant is known at run time only; make the "
            "position a constant",
            index,
        )
    at = int(known.reshape(-1)[0])
    if not -count <= at < count + end:
        raise ModelError(f"{site.node.where}: position {at} is outside of {count} elements")
    return at if at >= 0 else at + count


def import_construct(site: Site) -> Sequence[Bound]:
    """SequenceEmpty and SequenceConstruct."""
    return [Listed(tuple(_tensor(site, i) for i in range(len(site.bound))))]


def import_at(site: Site) -> Sequence[Bound]:
    """SequenceAt."""
    if (stack := _stack(site)) is not None:
        at = reshape(site.builder, _tensor(site, 1), ())
        return [site.builder.add1(Gather(0), stack, at)]
    values = _listed(site).values
    return [values[_position(site, 1, len(values), 0)]]


def import_insert(site: Site) -> Sequence[Bound]:
    """SequenceInsert: at the end, or in front of a position."""
    values = list(_listed(site).values)
    values.insert(_position(site, 2, len(values), len(values), end=True), _tensor(site, 1))
    return [Listed(tuple(values))]


def import_erase(site: Site) -> Sequence[Bound]:
    """SequenceErase: the last element, or the one at a position."""
    values = list(_listed(site).values)
    if not values:
        raise ModelError(f"{site.node.where}: the sequence is empty")
    del values[_position(site, 1, len(values), len(values) - 1)]
    return [Listed(tuple(values))]


def import_length(site: Site) -> Sequence[Bound]:
    """SequenceLength."""
    if (stack := _stack(site)) is not None:
        return [site.builder.add1(SizeTensor((stack.shape[0],), (), I64))]
    count = np.array(len(_listed(site).values), np.int64)
    return [site.builder.constant(count, "length")]


def import_split(site: Site) -> Sequence[Bound]:
    """SplitToSequence: slices of one size, or of sizes that a vector lists."""
    x, node, g = _tensor(site, 0), site.node, site.builder
    axis = int(node.attributes.get("axis", 0))
    if not -x.type.rank <= axis < x.type.rank:
        raise ModelError(f"{node.where}: axis {axis} is outside of a tensor of rank {x.type.rank}")
    axis %= x.type.rank
    sizes = _split_sizes(site, x.shape[axis])
    parts, start = [], 0
    for size in sizes:
        part = slice_axis(g, x, axis, start, size)
        start += size
        if len(site.bound) < 2 and not node.attributes.get("keepdims", 1):
            part = reshape(g, part, (*x.shape[:axis], *x.shape[axis + 1 :]))
        parts.append(part)
    return [Listed(tuple(parts))]


def _fixed(site: Site, total: Dim) -> int:
    if isinstance(total, int):
        return total
    raise UnsupportedOpError(
        f"{site.node.where}: how many elements the sequence has depends on {total}, which is no "
        "fixed number; make that size static"
    )


def _split_sizes(site: Site, total: Dim) -> list[int]:
    if len(site.bound) < 2 or site.bound[1] is None:
        return [1] * _fixed(site, total)
    split = _tensor(site, 1)
    known = site.builder.sizes(split)
    if known is None or not all(isinstance(d, int) for d in known.flat):
        raise ContentNeededError(
            f"{site.node.where}: the sizes of the parts are known at run time only; make them "
            "constants",
            1,
        )
    sizes = [int(d) for d in known.flat]
    if split.type.rank == 0:
        if sizes[0] <= 0:
            raise ModelError(f"{site.node.where}: parts of {sizes[0]} elements are no parts")
        whole, rest = divmod(_fixed(site, total), sizes[0])
        sizes = sizes * whole + ([rest] if rest else [])
    if not isinstance(total, int):
        total = site.builder.unify(sum(sizes), total, f"{site.node.where}: parts of {sizes}")
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise ModelError(f"{site.node.where}: parts of {sizes} do not make up {total}")
    return sizes


def import_concat(site: Site) -> Sequence[Bound]:
    """ConcatFromSequence."""
    if (stack := _stack(site)) is not None:
        return [_joined(site, stack)]
    values, node, g = list(_listed(site).values), site.node, site.builder
    if not values:
        raise ModelError(f"{node.where}: the sequence is empty")
    fresh = bool(node.attributes.get("new_axis", 0))
    rank = values[0].type.rank + fresh
    axis = int(node.attributes["axis"])
    if not -rank <= axis < rank:
        raise ModelError(f"{node.where}: axis {axis} is outside of a tensor of rank {rank}")
    axis %= rank
    if fresh:
        values = [reshape(g, v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in values]
    return [values[0] if len(values) == 1 else g.add1(Concat(axis), *values)]


def _joined(site: Site, stack: Value) -> Value:
    """The slices of a stack along a new axis, or behind each other along one they have."""
    node, g = site.node, site.builder
    fresh = bool(node.attributes.get("new_axis", 0))
    rank = stack.type.rank if fresh else stack.type.rank - 1
    axis = int(node.attributes["axis"])
    if not -rank <= axis < rank:
        raise ModelError(f"{node.where}: axis {axis} is outside of a tensor of rank {rank}")
    axis %= rank
    order = [*range(1, axis + 1), 0, *range(axis + 1, stack.type.rank)]
    moved = stack if axis == 0 else g.add1(Transpose(tuple(order)), stack)
    if fresh:
        return moved
    shape = moved.shape
    return reshape(g, moved, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def import_map(site: Site) -> Sequence[Bound] | None:
    """SequenceMap: its body for the elements, one after the other."""
    graph, count = site.graph("body"), len(site.node.outputs)
    length = len(_listed(site).values)
    given: list[tuple[Value, ...] | Bound] = [
        _listed(site, i).values if isinstance(value, Listed) else value
        for i, value in enumerate(site.bound)
    ]
    if any(isinstance(value, tuple) and len(value) != length for value in given):
        raise ModelError(f"{site.node.where}: its sequences differ in length")
    rows: list[Sequence[Bound]] = []
    for i in range(length):
        row = [value[i] if isinstance(value, tuple) else value for value in given]
        rows.append(site.inline(graph, row, f"{site.node.name}/{i}/", count))
    made = [[row[k] for row in rows] for k in range(count)]
    if not all(isinstance(v, Value) for column in made for v in column):
        return None
    return [Listed(tuple(v for v in column if isinstance(v, Value))) for column in made]


def import_optional(site: Site) -> Sequence[Bound]:
    """Optional and OptionalGetElement: the value itself; absent where there is none."""
    value = site.bound[0] if site.bound else None
    if value is None and site.node.op_type == "OptionalGetElement":
        raise ModelError(f"{site.node.where}: the optional is empty")
    return [value]


def import_has_element(site: Site) -> Sequence[Bound]:
    """OptionalHasElement."""
    there = bool(site.bound) and site.bound[0] is not None
    return [site.builder.constant(np.array(there), "has_element")]


SEQUENCES: Final[Mapping[str, FlowImporter]] = {
    "SequenceEmpty": import_construct,
    "SequenceConstruct": import_construct,
    "SequenceAt": import_at,
    "SequenceInsert": import_insert,
    "SequenceErase": import_erase,
    "SequenceLength": import_length,
    "SequenceMap": import_map,
    "SplitToSequence": import_split,
    "ConcatFromSequence": import_concat,
    "Optional": import_optional,
    "OptionalGetElement": import_optional,
    "OptionalHasElement": import_has_element,
}
