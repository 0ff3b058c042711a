"""--inputIOFormats and --outputIOFormats: a model whose inputs and outputs have other types.

As `ITensor.dtype` does it: the nodes of the model compute in the types that it declares, and a Cast
stands between them and the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from braze.cli.exec_values import IoFormat
from braze.core.dtypes import DType, from_name
from braze.frontend.onnx.proto import load_model
from braze.frontend.onnx.records import GraphRecord, ModelRecord, NodeRecord, ValueRecord
from braze.tensorrt.renaming import renamed

# types of one group stand for one another; between others a Cast would say something else
GROUPS: Final = (frozenset({"float32", "float16", "bfloat16"}), frozenset({"int32", "int64"}))


class _Names(dict[str, str]):
    """Names of tensors; those that are not in it stay."""

    def __missing__(self, name: str) -> str:
        return name


def model_in_formats(
    model: str, inputs: Sequence[IoFormat], outputs: Sequence[IoFormat]
) -> str | ModelRecord:
    """The model, with Casts where other types are asked for; where no Cast is right it stays."""
    record = load_model(model)
    graph = record.graph
    made = {o for n in graph.nodes for o in n.outputs}
    read = _differing(record.runtime_inputs, inputs)
    given = {n: t for n, t in _differing(graph.outputs, outputs).items() if n in made}
    # an input that is an output too keeps its type: the two have one name
    read = {n: t for n, t in read.items() if all(o.name != n for o in graph.outputs)}
    if not read and not given:
        return model
    names = _fresh(graph, (*read, *given))
    head = [_cast(n, names[n], own) for n, (own, _) in read.items()]
    tail = [_cast(names[n], n, wanted) for n, (_, wanted) in given.items()]
    changed = replace(
        graph,
        inputs=_retyped(graph.inputs, read),
        outputs=_retyped(graph.outputs, given),
        nodes=(*head, *(renamed(n, names) for n in graph.nodes), *tail),
    )
    return replace(record, graph=changed)


def _differing(
    values: Sequence[ValueRecord], formats: Sequence[IoFormat]
) -> dict[str, tuple[DType, DType]]:
    """The types declared and wanted, where they differ."""
    found = {}
    each = [*formats] * (len(values) if len(formats) == 1 else 1)
    for value, wanted in zip(values, each, strict=False):  # `check_formats` tells of other counts
        own = value.dtype
        if not isinstance(own, DType) or own.name == wanted.dtype:
            continue
        if any({own.name, wanted.dtype} <= group for group in GROUPS):
            found[value.name] = (own, from_name(wanted.dtype))
    return found


def _fresh(graph: GraphRecord, names: Sequence[str]) -> _Names:
    """What the nodes call tensors whose names are those of the Casts' other ends."""
    taken = {i.name for i in graph.inputs} | set(graph.initializers)
    taken |= {o for n in graph.nodes for o in n.outputs}
    found = _Names()
    for name in names:
        fresh = f"{name}.inner"
        while fresh in taken:
            fresh += "_"
        found[name] = fresh
        taken.add(fresh)
    return found


def _cast(source: str, target: str, to: DType) -> NodeRecord:
    return NodeRecord("Cast", "", target, (source,), (target,), {"to": to.onnx}, {"to": "INT"})


def _retyped(
    values: Sequence[ValueRecord], types: dict[str, tuple[DType, DType]]
) -> tuple[ValueRecord, ...]:
    return tuple(replace(v, dtype=types[v.name][1]) if v.name in types else v for v in values)
