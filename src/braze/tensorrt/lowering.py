"""A network as ONNX nodes with types, made layer by layer as far as somebody asks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from braze.core.dims import Dim
from braze.core.errors import BrazeError, InternalError, ModelError
from braze.frontend.onnx.nodes import NodeImporter
from braze.frontend.onnx.records import (
    GraphRecord,
    ModelRecord,
    NodeRecord,
    TensorRecord,
    Unreadable,
    ValueRecord,
)
from braze.frontend.onnx.scope import Poison, Scope
from braze.frontend.onnx.shapes import Shapes, resolve_shapes
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.catalog import IMPORTERS
from braze.tensorrt.dtypes import core_type
from braze.tensorrt.emitter import Emitter, Said
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.layer import ILayer
    from braze.tensorrt.network import INetworkDefinition
    from braze.tensorrt.tensor import ITensor

OPSET = 24  # of what layers are said in
BATCH = "implicit_batch"  # the size of the axis that shapes of old networks do not have


class Lowering:
    """What the layers of a network are in ONNX, as far as they were asked for.

    scope: names -> values of the graph in which types are inferred; said: layers by number;
    origins: constants -> the weights they are of; obey: whether precisions of layers count; values:
    inputs by name whose content the engine is made for.
    """

    def __init__(
        self,
        network: INetworkDefinition,
        shapes: Shapes | None = None,
        obey: bool = False,
        values: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.network, self.obey = network, obey
        self.batched = network.has_implicit_batch_dimension
        self.initializers: dict[str, TensorRecord | Unreadable] = {}
        self.origins: dict[str, Weights] = {}
        self.said: dict[int, Said] = {}
        self._names: dict[str, int] = {}
        self._reading: Mapping[str, int] = {"": OPSET}
        resolved = resolve_shapes(self.inputs(), shapes, require=False)
        self.builder = GraphBuilder(bounds=resolved.bounds, name="network")
        self.scope = Scope(self.builder, self.initializers, None, "")
        record = ModelRecord({"": OPSET}, GraphRecord("", (), (), {}, ()), network._functions)
        self.importer = NodeImporter(self.builder, record, IMPORTERS)
        self.head: list[NodeRecord] = []
        for tensor in network._inputs:
            name, found = self.input_name(tensor), resolved.types.get(tensor.name)
            bound = self.builder.input(name, found) if found is not None else Poison(True)
            if found is not None and tensor.name in values:
                content = np.array(values[tensor.name], found.dtype.numpy)
                bound = self.builder.constant(content, f"{name}.value")
            self.scope.bind(name, bound)
            if name != self.name_of(tensor):
                self._cast_input(tensor, name)

    def input_name(self, tensor: ITensor) -> str:
        """How a network input itself is called, before a cast to the type that layers read."""
        own = tensor._own_dtype
        is_cast = own is not None and tensor._dtype not in (None, own)
        return f"{self.name_of(tensor)}.input" if is_cast else self.name_of(tensor)

    def _cast_input(self, tensor: ITensor, name: str) -> None:
        """Nodes of a parsed model read the type that it declares, whatever the caller passes."""
        assert tensor._own_dtype is not None
        to = core_type(tensor._own_dtype).onnx
        made = (self.name_of(tensor),)
        node = NodeRecord("Cast", "", tensor.name, (name,), made, {"to": to}, {"to": "INT"})
        self.head.append(node)
        self.run(node)

    def inputs(self) -> list[ValueRecord]:
        """The inputs of the network as a model declares them."""
        return [declared(t) for t in self.network._inputs]

    def name_of(self, tensor: ITensor) -> str:
        """How a tensor is called here: by number, as names may change and repeat."""
        return f"t{tensor._number}"

    def fresh(self, hint: str) -> str:
        """A name for something between the tensors of the network."""
        base = re.sub(r"\s+", "_", hint)
        self._names[base] = self._names.get(base, 0) + 1
        return f"{base}.{self._names[base]}"

    def run(self, node: NodeRecord, opsets: Mapping[str, int] | None = None) -> None:
        """Import a node; raises what is wrong with it."""
        before = len(self.importer.findings)
        self.importer.run([node], self.scope, opsets or self._reading, node.outputs)
        for finding in self.importer.findings[before:]:
            if not finding.supported:
                raise (finding.error or ModelError)(finding.reason)

    # ---- as far as asked ----------------------------------------------------------------

    def through(self, layer: ILayer) -> Said:
        """A layer as it is said, after all that it reads from."""
        waiting = [layer]
        path: dict[int, ILayer] = {}  # by number: each reads from the next, as far as seen now
        while waiting:
            last = waiting[-1]
            if last._number not in self.said:
                sources = [t._producer for t in last._read() if t is not None]
                open_ = [p for p in sources if p is not None and p._number not in self.said]
                path[last._number] = last
                again = next((p._number for p in open_ if p._number in path), None)
                if open_ and again is None:
                    waiting += open_
                    continue
                known = self._say(last) if again is None else self._circular(path, again)
                self.said[last._number] = known
                del path[last._number]
            waiting.pop()
        return self.said[layer._number]

    def _circular(self, path: Mapping[int, ILayer], again: int) -> Said:
        """What the last layer of a path is that reads from one before it, or from itself."""
        layers, numbers = list(path.values()), list(path)
        names = " <- ".join(repr(x.name) for x in layers[numbers.index(again) :])
        error = ModelError(
            f"layers read in a circle: {names} <- {path[again].name!r}; give one another input"
        )
        return self._failed(layers[-1], Emitter(self, layers[-1]), error)

    def _say(self, layer: ILayer) -> Said:
        emitter = Emitter(self, layer)
        try:
            layer.lower(emitter)
            return emitter.finish()
        except BrazeError as e:
            return self._failed(layer, emitter, e)
        except Exception as e:
            text = f"layer {layer.name!r}: {type(e).__name__}: {e}"
            failure = InternalError(f"{text}; this is a bug of braze, please report it")
            failure.__cause__ = e
            return self._failed(layer, emitter, failure)

    def _failed(self, layer: ILayer, emitter: Emitter, error: BrazeError) -> Said:
        for output in layer._outputs:
            self.scope.bind(self.name_of(output), Poison(True))
        emitter.said.failure = error
        return emitter.said

    def type_of(self, tensor: ITensor) -> TensorType | None:
        """The type of a tensor; None where its layer could not be made."""
        if tensor._producer is not None:
            self.through(tensor._producer)
        value = self.scope[self.name_of(tensor)]
        return value.type if isinstance(value, Value) else None

    def content_of(self, tensor: ITensor) -> np.ndarray[Any, Any] | None:
        """Known content of a tensor of sizes."""
        if self.type_of(tensor) is None:
            return None
        value = self.scope[self.name_of(tensor)]
        return self.builder.sizes(value) if isinstance(value, Value) else None

    def failures(self, layers: Sequence[ILayer]) -> list[BrazeError]:
        """Why layers cannot be made, the first reasons alone."""
        return [e for e in (self.through(x).failure for x in layers) if e is not None]


def declared(tensor: ITensor) -> ValueRecord:
    """A network input as a model declares it."""
    names = tensor._axis_names
    shape: tuple[int | str | None, ...] = tuple(
        (names.get(i) or None) if d < 0 else d for i, d in enumerate(tensor._declared_shape)
    )
    if tensor._network.has_implicit_batch_dimension:
        shape = (BATCH, *shape)
    return ValueRecord(tensor.name, core_type(tensor.dtype), shape)


def known_sizes(shape: Sequence[Dim]) -> list[int]:
    """Sizes as TensorRT tells them: -1 for what only the run knows."""
    return [d if isinstance(d, int) else -1 for d in shape]
