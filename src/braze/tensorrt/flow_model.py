"""Loops and conditionals of a network as Loop and If of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from braze.core.dtypes import BOOL, I64
from braze.core.errors import ModelError
from braze.frontend.onnx.order import read_names
from braze.frontend.onnx.records import GraphRecord, NodeRecord, ValueRecord
from braze.tensorrt.enums_layers import LoopOutput, TripLimit
from braze.tensorrt.layer import ILayer
from braze.tensorrt.layers_flow import (
    IConditionLayer,
    IIfConditionalOutputLayer,
    IIteratorLayer,
    ILoop,
    ILoopOutputLayer,
    IRecurrenceLayer,
    ITripLimitLayer,
    Region,
)
from braze.tensorrt.renaming import renamed
from braze.tensorrt.tensor import ITensor


class Names(Protocol):
    """What a model being made gives: names of tensors, new names, and constants."""

    def of(self, tensor: ITensor) -> str: ...

    def fresh(self, hint: str) -> str: ...

    def constant(self, array: np.ndarray[Any, Any]) -> str: ...


Said = Callable[[Sequence[ILayer]], list[NodeRecord]]


def members(region: Region, layers: Sequence[ILayer], regions: Sequence[Region]) -> set[ILayer]:
    """The layers that run in a region: what is made of its entries, up to its exits.

    A region whose layers are among them is among them as a whole.
    """
    found: set[ILayer] = set()
    reached: set[ITensor] = {t for x in region.entries for t in x._outputs}
    border, inner = set(region.boundary), [r for r in regions if r is not region]
    while True:
        before = len(found)
        for layer in layers:
            read = any(t in reached for t in layer._inputs if t is not None)
            if layer not in border and (read or layer in found):
                found.add(layer)
                reached.update(layer._outputs)
        for other in inner:
            if not found.isdisjoint(other.boundary):
                found.update(other.boundary)
        if len(found) == before:
            return found


def outermost(
    layers: Sequence[ILayer], regions: Sequence[Region]
) -> list[tuple[Region, set[ILayer]]]:
    """The regions among layers that are in no other one, with what is in them."""
    here = set(layers)
    inside = [r for r in regions if r.boundary and here.issuperset(r.boundary)]
    parts = [(r, members(r, layers, inside)) for r in inside]
    return [
        (r, part)
        for r, part in parts
        if not any(r is not o and not other.isdisjoint(r.boundary) for o, other in parts)
    ]


def conditional(
    region: Region, inner: Sequence[ILayer], names: Names, say: Said
) -> list[NodeRecord]:
    """An If with the layers of each branch in it."""
    conditions = [x for x in region.boundary if isinstance(x, IConditionLayer)]
    exits = [x for x in region.boundary if isinstance(x, IIfConditionalOutputLayer)]
    if not conditions or not exits:
        raise ModelError(f"conditional {region.name!r} has no condition or no output")
    entries = [
        _node("Identity", [names.of(_input(x, 0))], [names.of(x._outputs[0])], x.name)
        for x in region.entries
    ]
    nodes = [*entries, *say(inner)]
    branches = []
    for index in (0, 1):
        wanted = [names.of(_input(x, index)) for x in exits]
        body = needed(nodes, wanted)
        copy = _Copy(body, names, "then" if index == 0 else "else")
        branches.append(_graph(region.name, [], copy.nodes, [copy[w] for w in wanted], names))
    condition = names.of(_input(conditions[0], 0))
    outputs = [names.of(x._outputs[0]) for x in exits]
    attributes = {"then_branch": branches[0], "else_branch": branches[1]}
    return [_node("If", [condition], outputs, region.name, attributes)]


def loop(region: ILoop, inner: Sequence[ILayer], names: Names, say: Said) -> list[NodeRecord]:
    """A Loop with the layers of an iteration in it, and what puts stacked values into place."""
    made = _Loop(region, names, say(inner))
    return made.nodes()


class _Loop:
    def __init__(self, region: ILoop, names: Names, body: list[NodeRecord]) -> None:
        self.region, self.names, self.body = region, names, body
        border = region.boundary
        self.carried = [x for x in border if isinstance(x, IRecurrenceLayer)]
        self.iterators = [x for x in border if isinstance(x, IIteratorLayer)]
        self.exits = [x for x in border if isinstance(x, ILoopOutputLayer)]
        limits = [x for x in border if isinstance(x, ITripLimitLayer)]
        self.limits = {x.kind: _input(x, 0) for x in limits}
        if not limits:
            raise ModelError(f"loop {region.name!r} has no trip limit; add one")
        for layer in self.carried:
            if layer.get_input(1) is None:
                raise ModelError(f"layer {layer.name!r}: its next value is missing (input 1)")
        self.number, self.going = names.fresh("iteration"), names.fresh("going")

    def nodes(self) -> list[NodeRecord]:
        names, count = self.names, self.limits.get(TripLimit.COUNT)
        outside: list[NodeRecord] = []
        trips = ""
        if count is not None:
            trips = names.fresh("trips")
            outside.append(_cast(names.of(count), trips, I64.onnx, self.region.name))
        walk = [n for x in self.iterators for n in self._slice(x, self.number, outside)]
        body = [*walk, *self.body]
        firsts = {names.of(x._outputs[0]): names.of(_input(x, 0)) for x in self.carried}
        nexts = {names.of(x._outputs[0]): names.of(_input(x, 1)) for x in self.carried}
        start, going = self._conditions(body, firsts, nexts, outside)
        stacked = [x for x in self.exits if x.kind is not LoopOutput.LAST_VALUE]
        inputs = [
            ValueRecord(self.number, I64, ()),
            ValueRecord(self.going, BOOL, ()),
            *(ValueRecord(f, None, None) for f in firsts),
        ]
        outputs = [going, *nexts.values(), *(names.of(_input(x, 0)) for x in stacked)]
        graph = _graph(self.region.name, inputs, body, outputs, names)
        finals = {f: names.fresh(f"{f}.last") for f in firsts}
        raw = [names.fresh(f"{x.name}.stacked") for x in stacked]
        node = _node(
            "Loop",
            [trips, start, *firsts.values()],
            [*finals.values(), *raw],
            self.region.name,
            {"body": graph},
        )
        return [*outside, node, *self._results(finals, dict(zip(stacked, raw, strict=True)))]

    def _conditions(
        self,
        body: list[NodeRecord],
        firsts: dict[str, str],
        nexts: dict[str, str],
        outside: list[NodeRecord],
    ) -> tuple[str, str]:
        """Whether the first iteration runs, and within one, whether the next does.

        A WHILE condition is of the values that an iteration begins with. ONNX asks at the end of
        the one before, so the condition is computed there of what comes next.
        """
        names, condition = self.names, self.limits.get(TripLimit.WHILE)
        if condition is None:
            return "", names.constant(np.array(True))
        wanted = names.of(condition)
        used = needed(body, [wanted])
        if any(self.number in read_names(n) for n in used):
            raise ModelError(
                f"loop {self.region.name!r}: its condition depends on an iterator; count the "
                "iterations with a recurrence"
            )
        first, then = _Copy(used, names, "first", firsts), _Copy(used, names, "next", nexts)
        outside += first.nodes
        body += then.nodes
        return first[wanted], then[wanted]

    def _slice(
        self, layer: IIteratorLayer, number: str, outside: list[NodeRecord]
    ) -> list[NodeRecord]:
        names, source = self.names, self.names.of(_input(layer, 0))
        at, nodes = number, []
        if layer.reverse:
            sizes, size, last = (
                names.fresh(f"{layer.name}.{w}") for w in ("sizes", "size", "last")
            )
            axis = names.constant(np.array(layer.axis, np.int64))
            outside.append(_node("Shape", [source], [sizes], layer.name))
            outside.append(_node("Gather", [sizes, axis], [size], layer.name, {"axis": 0}))
            one = names.constant(np.array(1, np.int64))
            outside.append(_node("Sub", [size, one], [last], layer.name))
            at = names.fresh(f"{layer.name}.place")
            nodes.append(_node("Sub", [last, number], [at], layer.name))
        out = names.of(layer._outputs[0])
        nodes.append(_node("Gather", [source, at], [out], layer.name, {"axis": layer.axis}))
        return nodes

    def _results(
        self, finals: dict[str, str], stacked: dict[ILoopOutputLayer, str]
    ) -> list[NodeRecord]:
        names, nodes = self.names, []
        for layer in self.exits:
            out, inner = names.of(layer._outputs[0]), names.of(_input(layer, 0))
            if layer.kind is LoopOutput.LAST_VALUE:
                nodes.append(_node("Identity", [finals[inner]], [out], layer.name))
                continue
            name = stacked[layer]
            if layer.kind is LoopOutput.REVERSE:
                ends = [np.array([v], np.int64) for v in (-1, -(2**31), 0, -1)]
                turned = names.fresh(f"{layer.name}.turned")
                inputs = [name, *(names.constant(e) for e in ends)]
                nodes.append(_node("Slice", inputs, [turned], layer.name))
                name = turned
            rank = len(layer._outputs[0].shape)
            order = list(range(1, rank))
            order.insert(layer.axis, 0)
            nodes.append(_node("Transpose", [name], [out], layer.name, {"perm": tuple(order)}))
        return nodes


# ---- pieces ------------------------------------------------------------------------------


def needed(nodes: Sequence[NodeRecord], wanted: Iterable[str]) -> list[NodeRecord]:
    """The nodes that some names are made of."""
    producer = {o: n for n in nodes for o in n.outputs}
    waiting, kept = list(wanted), set()
    while waiting:
        name = waiting.pop()
        if name in producer and id(producer[name]) not in kept:
            kept.add(id(producer[name]))
            waiting += read_names(producer[name])
    return [n for n in nodes if id(n) in kept]


class _Copy:
    """Nodes once more with other names, and other tensors in place of some."""

    def __init__(
        self,
        nodes: Sequence[NodeRecord],
        names: Names,
        hint: str,
        given: dict[str, str] | None = None,
    ) -> None:
        self.renamed = dict(given or {})
        for node in nodes:
            for o in node.outputs:
                if o:
                    self.renamed[o] = names.fresh(f"{o}.{hint}")
        self.nodes = [renamed(n, self) for n in nodes]

    def __getitem__(self, name: str) -> str:
        return self.renamed.get(name, name)


def _graph(
    name: str,
    inputs: Sequence[ValueRecord],
    nodes: Sequence[NodeRecord],
    outputs: Sequence[str],
    names: Names,
) -> GraphRecord:
    """A body; each output is a tensor of its own, even where one is an input or from outside."""
    ends = [names.fresh(f"{o}.out") for o in outputs]
    passed = [_node("Identity", [o], [e], name) for o, e in zip(outputs, ends, strict=True)]
    return GraphRecord(
        name, tuple(inputs), tuple(ValueRecord(e, None, None) for e in ends), {}, (*nodes, *passed)
    )


def _input(layer: ILayer, index: int) -> ITensor:
    tensor = layer.get_input(index)
    if tensor is None:
        raise ModelError(f"layer {layer.name!r} ({layer.word}): input {index} is missing")
    return tensor


def _cast(source: str, target: str, to: int, name: str) -> NodeRecord:
    return _node("Cast", [source], [target], name, {"to": to})


def _node(
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    name: str,
    attributes: dict[str, Any] | None = None,
) -> NodeRecord:
    given = attributes or {}
    kinds = {
        k: "GRAPH" if isinstance(v, GraphRecord) else "INTS" if isinstance(v, tuple) else "INT"
        for k, v in given.items()
    }
    return NodeRecord(op, "", name, tuple(inputs), tuple(outputs), given, kinds)
