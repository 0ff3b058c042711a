"""If, Loop and Scan: taken apart where what they do is known, else as nodes with bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from braze.core.config import MAX_SIZE
from braze.core.dims import Dim, DimExpr, dmax
from braze.core.dims import symbols as symbols_in
from braze.core.dtypes import I64
from braze.core.errors import ModelError
from braze.frontend.onnx.bodies import Body, FlowImporter, Site, close_bodies, flag_of, import_body
from braze.frontend.onnx.continued import BRANCHES, RanksDifferError, only_branch
from braze.frontend.onnx.loops import import_loop
from braze.frontend.onnx.scan import import_scan
from braze.frontend.onnx.scope import Bound, Listed
from braze.frontend.onnx.sequences import SEQUENCES
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import ContentNeededError
from braze.ops.flow.branch import If
from braze.ops.move.shape import SizeTensor
from braze.ops.pointwise.compare import Compare


def import_if(site: Site) -> Sequence[Bound] | None:
    """The branch that is taken where that is known, else both as bodies."""
    node, count = site.node, len(site.node.outputs)
    graphs = [site.graph(name) for name in BRANCHES]
    made_by = [len(graph.outputs) for graph in graphs]
    if made_by[0] != made_by[1] or made_by[0] < count:
        raise ModelError(
            f"{node.where}: it has {count} outputs but its branches have {made_by[0]} and "
            f"{made_by[1]}; correct the model"
        )
    given = site.input(0)
    if given is None:
        raise ModelError(f"{node.where}: it has no condition")
    condition = flag_of(site, given)
    if condition is not None:
        return site.inline(graphs[0 if condition else 1], (), f"{node.name}/", count)
    bodies = [
        import_body(site, g, name, lambda _: None, count)
        for g, name in zip(graphs, BRANCHES, strict=True)
    ]
    only = only_branch(site, bodies, given)
    if only is not None:
        return only
    for body in bodies:
        body.report(site.nodes.sources.parameters(given))
    if any(isinstance(v, Listed) for body in bodies for v in body.outputs):
        raise ContentNeededError(
            f"{node.where}: its branches give sequences, and which one is taken is known at run "
            "time only; make the condition a constant",
            0,
        )
    if not all(body.runs for body in bodies):
        return None
    made = [body.values for body in bodies]
    if any(a.type.rank != b.type.rank for a, b in zip(*made, strict=True)):
        equal = _equal_sizes(site.builder, given)
        if equal is not None:
            # what exporters write for a Squeeze of an axis that may have one element: what follows
            # is written for the one rank
            site.builder.origins = (node.name,)
            site.builder.unify(*equal, "If of which the first branch is taken for its rank")
            return site.inline(graphs[0], (), f"{node.name}/", count)
    _check_alike(site, made)
    return _either(site, bodies, made, given)


def _check_alike(site: Site, made: Sequence[list[Value]]) -> None:
    """Raise unless the branches give the same element types and ranks."""
    node, refusals, kinds = site.node, list[str](), True
    ranks = []
    for name, a, b in zip(node.outputs, *made, strict=True):
        if a.dtype is b.dtype and a.type.rank == b.type.rank:
            continue
        kinds = kinds and a.dtype is b.dtype
        ranks.append(name)
        refusals.append(
            f"{node.where}: its branches give {a.type} and {b.type} for {name!r}, and which "
            "one is taken is known at run time only; make the types equal or the condition a "
            "constant"
        )
    if refusals:
        raise RanksDifferError(refusals[0], ranks) if kinds else ContentNeededError(refusals[0], 0)


def _equal_sizes(g: GraphBuilder, condition: Value) -> tuple[Dim, Dim] | None:
    """The two sizes that a condition says to be equal; None for any other condition."""
    node = g.producer.get(condition)
    if node is None or node.op != Compare("eq"):
        return None
    sizes = [g.sizes(v) for v in node.inputs]
    if any(found is None or found.size != 1 for found in sizes):
        return None
    a, b = (found.reshape(-1)[0] for found in sizes if found is not None)
    return (a, b) if isinstance(a, (int, DimExpr)) and isinstance(b, (int, DimExpr)) else None


def _either(
    site: Site, bodies: Sequence[Body], made: Sequence[list[Value]], condition: Value
) -> Sequence[Bound]:
    """The outputs of an If; sizes that differ are read from further outputs of both branches."""
    shapes = [list(v.shape) for v in made[0]]
    late: list[tuple[DimExpr, int, Dim | None]] = []
    outputs = [list(values) for values in made]
    for k, (a, b) in enumerate(zip(*made, strict=True)):
        for axis, sizes in enumerate(zip(a.shape, b.shape, strict=True)):
            if sizes[0] == sizes[1] and not any(map(_is_own, bodies, sizes)):
                continue
            hint = f"{site.node.outputs[k] or site.node.name}_{axis}"
            late.append(_size_of_either(site, bodies, sizes, hint))
            shapes[k][axis] = late[-1][0]
            for body, size, values in zip(bodies, sizes, outputs, strict=True):
                values.append(body.builder.add1(SizeTensor((size,), (1,), I64)))
    closed, captured = close_bodies(bodies, outputs, 0)
    given = tuple(map(tuple, shapes)) + ((1,),) * len(late) if late else ()
    results = site.add(If(tuple(closed), given), condition, *captured)
    count = len(shapes)
    for value, (symbol, low, high) in zip(results[count:], late, strict=True):
        site.builder.define_size(symbol, value, 0, low, high)
    return results[:count]


def _is_own(body: Body, size: Dim) -> bool:
    """Whether a size is known in a body only."""
    own = {s.symbol for s in body.builder.run_sizes.values()}
    return isinstance(size, DimExpr) and bool(own & symbols_in(size))


def _size_of_either(
    site: Site, bodies: Sequence[Body], sizes: Sequence[Dim], hint: str
) -> tuple[DimExpr, int, Dim | None]:
    """A symbol that is one of two sizes, with its bounds."""
    ranges = [body.builder.range_of(size) for body, size in zip(bodies, sizes, strict=True)]
    low, most = min(lo for lo, _ in ranges), max(hi for _, hi in ranges)
    high = None if any(map(_is_own, bodies, sizes)) else dmax(*sizes)
    return site.builder.run_symbol(hint, low, min(most, MAX_SIZE)), low, high


CONTROL_FLOW: Final[Mapping[str, FlowImporter]] = {
    "If": import_if,
    "Loop": import_loop,
    "Scan": import_scan,
    **SEQUENCES,
}
