"""The last step of an import: drop what no output needs, name values as the model does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from braze.core.dims import DimExpr, symbols
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Graph, Node, RunSize, Value
from braze.ir.run_sizes import node_symbols, shape_symbols, sources, used_sizes
from braze.ops.move.shape import SizeTensor


def assemble(
    builder: GraphBuilder, outputs: Sequence[tuple[str, Value]], names: Mapping[Value, str]
) -> Graph:
    """The finished graph of what was built.

    A node whose outputs are known sizes (shape arithmetic) becomes one SizeTensor an output, so
    that no chain of integer kernels is left. names: value -> its name in the model.
    """
    nodes, sizes = _live(builder, [_as_sizes(builder, n) for n in builder.nodes], outputs)
    used = {v for n in nodes for v in n.inputs if v is not None} | {v for _, v in outputs}
    used |= {s.value for s in sizes if s.value is not None}
    kept = set(builder.inputs) | {v for v in builder.constants if v in used}
    renamed = _rename(builder.inputs, [*kept, *(v for n in nodes for v in n.outputs)], names)
    return Graph(
        inputs=tuple(renamed[v] for v in builder.inputs),
        outputs=tuple((name, renamed[v]) for name, v in outputs),
        nodes=tuple(
            Node(
                n.op,
                tuple(None if v is None else renamed[v] for v in n.inputs),
                tuple(renamed[v] for v in n.outputs),
                n.origins,
            )
            for n in nodes
        ),
        constants={renamed[v]: key for v, key in builder.constants.items() if v in used},
        weights=builder.weights,
        guards=tuple(builder.guards),
        bounds=dict(builder.bounds),
        name=builder.name,
        specialized=dict(builder.specialized),
        sizes=tuple(replace(s, value=None if s.value is None else renamed[s.value]) for s in sizes),
    )


def _as_sizes(builder: GraphBuilder, node: Node) -> Node:
    contents = [builder.known.get(v) for v in node.outputs]
    if len(contents) != 1 or contents[0] is None or isinstance(node.op, SizeTensor):
        return node
    if not all(isinstance(d, (int, DimExpr)) for d in contents[0].flat):
        return node
    value = node.output
    op = SizeTensor(tuple(contents[0].reshape(-1)), contents[0].shape, value.dtype)
    return Node(op, (), node.outputs, node.origins)


def _live(
    builder: GraphBuilder, nodes: Sequence[Node], outputs: Sequence[tuple[str, Value]]
) -> tuple[list[Node], tuple[RunSize, ...]]:
    """The nodes that are needed for outputs and guards, and the run sizes they use."""
    run_sizes = tuple(builder.run_sizes.values())
    needed = {v for _, v in outputs}
    used = {s for v in needed for s in shape_symbols(v)} if run_sizes else set[str]()
    for g in builder.guards if run_sizes else ():
        used |= symbols(g.lhs) | symbols(g.rhs)
    source = sources(run_sizes)
    needed.update(v for s in used for v in source.get(s, ()))
    kept = []
    for n in reversed(nodes):
        if any(v in needed for v in n.outputs):
            kept.append(n)
            needed.update(v for v in n.inputs if v is not None)
            if run_sizes:
                new = node_symbols(n) - used
                used |= new
                needed.update(v for s in new for v in source.get(s, ()))
    return kept[::-1], used_sizes(run_sizes, used)


def _rename(
    inputs: Sequence[Value], values: Sequence[Value], names: Mapping[Value, str]
) -> dict[Value, Value]:
    """New values with the model's names; other values keep theirs unless it is taken."""
    taken = {v.name for v in inputs}
    renamed: dict[Value, Value] = {v: v for v in inputs}
    todo = [v for v in values if v not in renamed]
    for v in todo:
        if v in names and names[v] not in taken:
            taken.add(names[v])
            renamed[v] = v if v.name == names[v] else Value(names[v], v.type)
    for v in todo:
        if v in renamed:
            continue
        name, count = v.name, 0
        while name in taken:
            count += 1
            name = f"{v.name}_{count}"
        taken.add(name)
        renamed[v] = v if name == v.name else Value(name, v.type)
    return renamed
