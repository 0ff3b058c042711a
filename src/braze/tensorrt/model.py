"""A lowered network as one ONNX model, in the names that the network has for its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from braze.frontend.onnx.records import (
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    TensorRecord,
    ValueRecord,
)
from braze.tensorrt.dtypes import core_type
from braze.tensorrt.layer import ILayer
from braze.tensorrt.lowering import OPSET, Lowering
from braze.tensorrt.tensor import ITensor

_DOMAIN = "braze.layers"  # of layers that are said in another opset than the parsed model


@dataclass
class NamedModel:
    """The model, and which of its names stand for what.

    constants: names of initializers -> as the lowering calls them; debug: of tensors marked so.
    """

    record: ModelRecord
    constants: dict[str, str] = field(default_factory=dict)
    debug: list[str] = field(default_factory=list)


def to_model(lowering: Lowering) -> NamedModel:
    """The model of all layers; those that no output needs are left to the importer."""
    return _Model(lowering).made()


class _Model:
    def __init__(self, lowering: Lowering) -> None:
        self.lowering, self.network = lowering, lowering.network
        self.names: dict[str, str] = {}
        self.taken: set[str] = set()
        self.tail: list[NodeRecord] = []
        self.outputs: list[ValueRecord] = []
        self.functions: dict[tuple[str, str, str], FunctionRecord] = dict(self.network._functions)

    def made(self) -> NamedModel:
        network, lowering = self.network, self.lowering
        for tensor in network._inputs:
            self.taken.add(tensor.name)
            self.names[lowering.input_name(tensor)] = tensor.name
        for tensor in network._all_outputs():
            self._output(tensor)
        for layer in network._layers:
            for tensor in layer._outputs:
                self._name(lowering.name_of(tensor), tensor.name)
        said = [(x, lowering.said[x._number]) for x in network._layers]
        constants: dict[str, TensorRecord] = {}
        sources: dict[str, str] = {}
        for _, part in said:
            for name, record in part.constants.items():
                constants[self._name(name, name)] = record
                sources[self.names[name]] = name
        nodes: list[NodeRecord] = [self._renamed(n) for n in lowering.head]
        for layer, part in said:
            renamed = [self._renamed(n) for n in part.nodes]
            nodes += renamed if self._speaks_same(layer) else self._as_function(layer, renamed)
        opsets = dict(network._opsets or {"": OPSET})
        if self.functions:
            opsets.setdefault(_DOMAIN, 1)
        graph = GraphRecord(
            network.name or "network",
            tuple(lowering.inputs()),
            tuple(self.outputs),
            constants,
            tuple(nodes + self.tail),
        )
        debug = [self.names[lowering.name_of(t)] for t in network._debug]
        return NamedModel(ModelRecord(opsets, graph, self.functions), sources, debug)

    def _output(self, tensor: ITensor) -> None:
        """Name an output, by a node of its own where it has another type or is an input too."""
        inner = self.lowering.name_of(tensor)
        type_ = self.lowering.type_of(tensor)
        wanted = core_type(tensor.dtype)
        self.outputs.append(ValueRecord(tensor.name, wanted, None))
        differs = type_ is not None and type_.dtype is not wanted
        if not differs and inner not in self.names and tensor.name not in self.taken:
            self._name(inner, tensor.name)
            return
        source = self.names.get(inner) or self._name(inner, f"{tensor.name}.computed")
        self.taken.add(tensor.name)
        attributes = {"to": wanted.onnx} if differs else {}
        kinds = {"to": "INT"} if differs else {}
        op = "Cast" if differs else "Identity"
        self.tail.append(
            NodeRecord(op, "", tensor.name, (source,), (tensor.name,), attributes, kinds)
        )

    def _name(self, inner: str, wanted: str) -> str:
        """The name in the model of what the lowering calls `inner`: as wanted, if that is free."""
        if inner not in self.names:
            name, count = wanted or inner, 1
            while name in self.taken:
                name, count = f"{wanted}.{count}", count + 1
            self.taken.add(name)
            self.names[inner] = name
        return self.names[inner]

    def _renamed(self, node: NodeRecord) -> NodeRecord:
        return renamed(node, self)

    def __getitem__(self, name: str) -> str:
        return self._name(name, name) if name else ""

    # ---- layers beside a parsed model of another opset -----------------------------------

    def _speaks_same(self, layer: ILayer) -> bool:
        opsets = self.network._opsets
        return opsets is None or opsets.get("") == OPSET or layer.is_parsed

    def _as_function(self, layer: ILayer, nodes: list[NodeRecord]) -> list[NodeRecord]:
        """The nodes of a layer as a function, which says its own opset."""
        if not nodes:
            return []
        made = {o for n in nodes for o in n.outputs}
        inputs = tuple(dict.fromkeys(i for n in nodes for i in n.inputs if i and i not in made))
        finals = [self.names[self.lowering.name_of(t)] for t in layer._outputs]
        outputs = tuple(n for n in finals if n in made)
        name = f"layer{layer._number}"
        opsets = {"": OPSET}
        self.functions[_DOMAIN, name, ""] = FunctionRecord(
            _DOMAIN, name, inputs, outputs, {}, {}, (), opsets, tuple(nodes)
        )
        return [NodeRecord(name, _DOMAIN, layer.name, inputs, outputs)]


def renamed(node: NodeRecord, names: Mapping[str, str] | Any) -> NodeRecord:
    """A node whose tensors have other names, those that its bodies capture too."""
    attributes: dict[str, Any] = dict(node.attributes)
    for key, value in node.attributes.items():
        if isinstance(value, GraphRecord):
            attributes[key] = _renamed_body(value, names, frozenset())
    return replace(
        node,
        inputs=tuple(names[n] for n in node.inputs),
        outputs=tuple(names[n] for n in node.outputs),
        attributes=attributes,
    )


def _renamed_body(graph: GraphRecord, names: Any, outer: frozenset[str]) -> GraphRecord:
    own = outer | {i.name for i in graph.inputs} | set(graph.initializers)
    own |= {o for n in graph.nodes for o in n.outputs}
    inner = _Inner(names, own)
    return replace(
        graph,
        nodes=tuple(
            replace(
                n,
                inputs=tuple(inner[i] for i in n.inputs),
                attributes={
                    k: _renamed_body(v, names, own) if isinstance(v, GraphRecord) else v
                    for k, v in n.attributes.items()
                },
            )
            for n in graph.nodes
        ),
        outputs=tuple(replace(o, name=inner[o.name]) for o in graph.outputs),
    )


class _Inner:
    """Names within a body: its own stay."""

    def __init__(self, names: Any, own: frozenset[str]) -> None:
        self.names, self.own = names, own

    def __getitem__(self, name: str) -> str:
        return name if not name or name in self.own else self.names[name]
