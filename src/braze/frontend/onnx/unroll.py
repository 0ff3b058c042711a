"""Loops of a known number of iterations as those iterations, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from braze.core.errors import UnsupportedOpError
from braze.frontend.onnx.bodies import Site, known_flag
from braze.frontend.onnx.records import GraphRecord
from braze.frontend.onnx.scope import Bound
from braze.ir.graph import Value
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import reshape


class _NotKnownError(Exception):
    """A loop cannot be unrolled."""


def unrolled(
    site: Site, graph: GraphRecord, first: Sequence[Bound], trips: int, most: int
) -> Sequence[Bound] | None:
    """The outputs after `trips` iterations, one after the other; None where one may be the last,
    where one does not run, or where there would be more than `most` nodes."""
    if trips * len(graph.nodes) > most or (not trips and len(graph.outputs) > 1 + len(first)):
        return None
    before = len(site.nodes.findings)
    try:
        with site.builder.undone_on_error():
            made = _iterations(site, graph, first, trips)
    except (_NotKnownError, UnsupportedOpError):
        del site.nodes.findings[before:]
        return None
    site.supported()
    return made


def _iterations(
    site: Site, graph: GraphRecord, first: Sequence[Bound], trips: int
) -> Sequence[Bound]:
    nodes, builder, node = site.nodes, site.builder, site.node
    before = len(nodes.findings)
    state: list[Bound] = list(first)
    slices: list[list[Bound]] = []
    shapes = [(1,) if d.shape is not None and len(d.shape) == 1 else () for d in graph.inputs[:2]]
    for i in range(trips):
        head = [
            builder.constant(np.full(shapes[0], i, np.int64), "iteration"),
            builder.constant(np.ones(shapes[1], np.bool_), "true"),
        ]
        made = site.inline(graph, [*head, *state], f"{node.name}/{i}/", len(graph.outputs))
        if any(not f.supported for f in nodes.findings[before:]):
            raise _NotKnownError
        state, further = made[1 : 1 + len(first)], made[1 + len(first) :]
        slices.append(further)
        next_ = made[0] if isinstance(made[0], Value) else None
        going = known_flag(builder.array(next_), builder.sizes(next_))
        if going is None and i + 1 < trips:
            raise _NotKnownError
        if going is False:
            break
    return [*state, *(_stacked(site, list(rows)) for rows in zip(*slices, strict=True))]


def _stacked(site: Site, rows: Sequence[Bound]) -> Value:
    """Slices of equal shapes on a new first axis."""
    values = [v for v in rows if isinstance(v, Value)]
    if len(values) < len(rows) or any(v.type != values[0].type for v in values):
        raise UnsupportedOpError(
            f"{site.node.where}: the slices of an output differ in shape; keep it equal"
        )
    parts = [reshape(site.builder, v, (1, *v.shape)) for v in values]
    return parts[0] if len(parts) == 1 else site.builder.add1(Concat(0), *parts)
