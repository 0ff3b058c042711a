"""A lowered network as one ONNX model, in the names that the network has for its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from braze.core.dtypes import from_numpy
from braze.core.errors import ModelError
from braze.frontend.onnx.records import (
    FunctionRecord,
    GraphRecord,
    ModelRecord,
    NodeRecord,
    TensorRecord,
    Unreadable,
    ValueRecord,
)
from braze.ops.writing.assertion import ASSERT, DOMAIN
from braze.tensorrt.dtypes import core_type
from braze.tensorrt.flow_model import conditional, loop, outermost
from braze.tensorrt.layer import ILayer
from braze.tensorrt.layers_flow import ILoop, Region
from braze.tensorrt.logger import Severity
from braze.tensorrt.lowering import OPSET, Lowering
from braze.tensorrt.plugin_building import kept_plugin
from braze.tensorrt.renaming import renamed
from braze.tensorrt.tensor import ITensor

_DOMAIN = "braze.layers"  # of layers that are said in another opset than the parsed model


@dataclass
class NamedModel:
    """The model, and which of its names stand for what.

    constants: names of initializers -> as the lowering calls them; debug: of tensors marked so;
    tensors: those of the network; plugins: as an engine keeps them.
    """

    record: ModelRecord
    constants: dict[str, str] = field(default_factory=dict)
    debug: list[str] = field(default_factory=list)
    tensors: dict[ITensor, str] = field(default_factory=dict)
    plugins: list[dict[str, Any]] = field(default_factory=list)


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
        self.constants: dict[str, TensorRecord | Unreadable] = {}
        self.sources: dict[str, str] = {}
        self.asserted = self._assertions()
        self.functions: dict[tuple[str, str, str], FunctionRecord] = dict(self.network._functions)

    def made(self) -> NamedModel:
        network, lowering = self.network, self.lowering
        for tensor in network._inputs:
            self.taken.add(tensor.name)
            self.names[lowering.input_name(tensor)] = tensor.name
        for tensor in network._all_outputs():
            self._output(tensor, self.asserted if tensor is network._all_outputs()[0] else ())
        for layer in network._layers:
            for tensor in layer._outputs:
                self._name(lowering.name_of(tensor), tensor.name)
        for layer in network._layers:
            for name, record in lowering.said[layer._number].constants.items():
                self.constants[self._name(name, name.removeprefix("parsed."))] = record
                self.sources[self.names[name]] = name
        head = [renamed(n, self) for n in lowering.head]
        nodes = [*head, *self._level(network._layers), *self.tail]
        opsets = dict(network._opsets or {"": OPSET})
        if self.functions:
            opsets.setdefault(_DOMAIN, 1)
        if self.asserted:
            opsets.setdefault(DOMAIN, 1)
        graph = GraphRecord(
            network.name or "network",
            tuple(lowering.inputs()),
            tuple(self.outputs),
            self.constants,
            tuple(nodes),
        )
        debug = [self.names[lowering.name_of(t)] for t in network._debug]
        tensors = {t: self.of(t) for x in network._layers for t in x._outputs}
        tensors |= {t: t.name for t in network._inputs}
        made = ModelRecord(opsets, graph, self.functions)
        plugins = [
            kept_plugin(part, partial(self._told_name, layer))
            for layer in network._layers
            if (part := lowering.said[layer._number].plugin) is not None
        ]
        return NamedModel(made, self.sources, debug, tensors, plugins)

    def _assertions(self) -> list[ILayer]:
        """The assertions that runs check: those outside of loops and conditionals."""
        said, network = self.lowering.said, self.network
        found = [x for x in network._layers if said[x._number].asserted]
        parts = outermost(network._layers, network._regions) if found else []
        inside = {x for _, part in parts for x in part}
        for layer in found:
            if layer in inside:
                text = "is within a loop or conditional, where no run checks it"
                network._say(Severity.WARNING, f"layer {layer.name!r} (Assertion) {text}")
        return [x for x in found if x not in inside]

    def _output(self, tensor: ITensor, asserted: Sequence[ILayer]) -> None:
        """Name an output, by a node of its own where it has another type or is an input too.

        asserted: assertions that must hold for it.
        """
        inner = self.lowering.name_of(tensor)
        type_ = self.lowering.type_of(tensor)
        wanted = core_type(tensor.dtype)
        shape = type_.shape if type_ is not None else ()
        sizes = tuple(d if isinstance(d, int) else None for d in shape)
        self.outputs.append(ValueRecord(tensor.name, wanted, sizes))
        differs = type_ is not None and type_.dtype is not wanted
        if (
            not asserted
            and not differs
            and inner not in self.names
            and tensor.name not in self.taken
        ):
            self._name(inner, tensor.name)
            return
        self.taken.add(tensor.name)
        source = self.names.get(inner) or self._name(inner, f"{tensor.name}.computed")
        for layer in asserted:
            source = self._checked(layer, source)
        attributes = {"to": wanted.onnx} if differs else {}
        kinds = {"to": "INT"} if differs else {}
        op = "Cast" if differs else "Identity"
        self.tail.append(
            NodeRecord(op, "", tensor.name, (source,), (tensor.name,), attributes, kinds)
        )

    def _checked(self, layer: ILayer, source: str) -> str:
        """A tensor as it is, where an assertion holds."""
        name, condition = (
            self.fresh(f"{source}.checked"),
            self.lowering.said[layer._number].asserted,
        )
        self.tail.append(
            NodeRecord(
                ASSERT,
                DOMAIN,
                layer.name,
                (source, self[condition]),
                (name,),
                {"message": getattr(layer, "message", "")},
                {"message": "STRING"},
            )
        )
        return name

    def _name(self, inner: str, wanted: str) -> str:
        """The name in the model of what the lowering calls `inner`: as wanted, if that is free."""
        if inner not in self.names:
            name, count = wanted or inner, 1
            while name in self.taken:
                name, count = f"{wanted}.{count}", count + 1
            self.taken.add(name)
            self.names[inner] = name
        return self.names[inner]

    def _level(self, layers: Sequence[ILayer]) -> list[NodeRecord]:
        """The nodes of layers; those of a loop or conditional are within its own node."""
        parts = outermost(layers, self.network._regions)
        inside = {x for region, part in parts for x in (*part, *region.boundary)}
        nodes: list[NodeRecord] = []
        for region, part in parts:
            self._check_outputs(region, {*part, *region.entries})
            if any(self.lowering.said[x._number].plugin is not None for x in part):
                raise ModelError(
                    f"{region.word.lower()} {region.name!r} has a plugin in it, which runs outside "
                    "alone; take it out"
                )
        for layer in layers:
            if layer not in inside:
                nodes += self._said(layer)
        for region, part in parts:
            inner = [x for x in layers if x in part]
            if isinstance(region, ILoop):
                nodes += loop(region, inner, self, self._level)
            else:
                nodes += conditional(region, inner, self, self._level)
        return nodes

    def _check_outputs(self, region: Region, part: set[ILayer]) -> None:
        for tensor in self.network._all_outputs():
            if tensor._producer in part:
                raise ModelError(
                    f"output {tensor.name!r} is made within {region.word.lower()} {region.name!r}; "
                    "take it out by an output of that"
                )

    def _said(self, layer: ILayer) -> list[NodeRecord]:
        nodes = [renamed(n, self) for n in self.lowering.said[layer._number].nodes]
        marked = {self.of(t): t for t in layer._outputs if t in self.network._debug}
        nodes = [
            self._own(n, marked[n.outputs[0]])
            if n.op_type == "Identity" and n.outputs[0] in marked
            else n
            for n in nodes
        ]
        return nodes if self._speaks_same(layer) else self._as_function(layer, nodes)

    def _own(self, node: NodeRecord, tensor: ITensor) -> NodeRecord:
        """A copy as a reshape to the same sizes; importers give copies no tensor of their own."""
        type_ = self.lowering.type_of(tensor)
        same = self.constant(np.zeros(0 if type_ is None else type_.rank, np.int64))
        return replace(node, op_type="Reshape", inputs=(*node.inputs, same))

    # ---- what loops and conditionals ask for ---------------------------------------------

    def of(self, tensor: ITensor) -> str:
        """What a tensor is called."""
        return self.names[self.lowering.name_of(tensor)]

    def fresh(self, hint: str) -> str:
        """A name that is not taken."""
        return self._name(f"\0{hint}.{len(self.names)}", hint)

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        """A constant."""
        name = self.fresh("constant")
        self.constants[name] = TensorRecord(name, from_numpy(array.dtype), array)
        return name

    def __getitem__(self, name: str) -> str:
        return self._name(name, name) if name else ""

    # ---- layers beside a parsed model of another opset -----------------------------------

    def _speaks_same(self, layer: ILayer) -> bool:
        opsets = self.network._opsets
        return opsets is None or opsets.get("") == OPSET or layer.is_parsed

    def _told_name(self, layer: ILayer, name: str) -> str:
        """What a run calls a tensor within a layer."""
        prefix = "" if self._speaks_same(layer) else f"{layer.name}/"
        return prefix + self.names[name]

    def _as_function(self, layer: ILayer, nodes: list[NodeRecord]) -> list[NodeRecord]:
        """The nodes of a layer as a function, which says its own opset."""
        if not nodes:
            return []
        made = {o for n in nodes for o in n.outputs}
        inputs = tuple(dict.fromkeys(i for n in nodes for i in n.inputs if i and i not in made))
        finals = [self.names[self.lowering.name_of(t)] for t in layer._outputs]
        asserted = self.lowering.said[layer._number].asserted
        finals += [self.names[asserted]] if asserted in self.names else []
        outputs = tuple(n for n in finals if n in made)
        name = f"layer{layer._number}"
        opsets = {"": OPSET}
        self.functions[_DOMAIN, name, ""] = FunctionRecord(
            _DOMAIN, name, inputs, outputs, {}, {}, (), opsets, tuple(nodes)
        )
        return [NodeRecord(name, _DOMAIN, layer.name, inputs, outputs)]
