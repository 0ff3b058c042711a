"""A layer as ONNX nodes, each imported at once so that the next can ask for ranks and types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from braze.core.dtypes import DType
from braze.core.dtypes import from_numpy as core_from_numpy
from braze.core.elements import unpack
from braze.core.errors import BrazeError, ModelError, ShapeError
from braze.frontend.onnx.records import GraphRecord, NodeRecord, TensorRecord, Unreadable
from braze.ir.graph import TensorType, Value
from braze.tensorrt.addresses import AddressError
from braze.tensorrt.dtypes import core_type, from_core
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.layer import ILayer
    from braze.tensorrt.lowering import Lowering
    from braze.tensorrt.tensor import ITensor

Array = np.ndarray[Any, Any]
_FLOATS = (DataType.HALF, DataType.BF16, DataType.FLOAT)


@dataclass
class Said:
    """A layer as it was said: its nodes, its constants by name, and why it cannot be, if so.

    read: tensors whose content decided what was said.
    """

    nodes: list[NodeRecord] = field(default_factory=list)
    constants: dict[str, TensorRecord | Unreadable] = field(default_factory=dict)
    failure: BrazeError | None = None
    plugin: dict[str, Any] | None = None  # where it is one: what it reads and fills
    asserted: str = ""  # where it is an assertion: an integer that must be 1 in a run
    read: list[str] = field(default_factory=list)


class Emitter:
    """Says one layer."""

    def __init__(self, lowering: Lowering, layer: ILayer) -> None:
        self.lowering, self.layer = lowering, layer
        self.said = Said()
        self._given: dict[int, str] = {}
        self._read: list[str] = []  # whose content is in what was said
        self._before: DType | None = None  # the type of operands that precision has changed

    # ---- what there is ------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """How many axes in front shapes and axes of the network leave out: 1 of old networks."""
        return int(self.lowering.network.has_implicit_batch_dimension)

    def has(self, index: int) -> bool:
        """Whether the layer has an input."""
        return self.layer.get_input(index) is not None

    def input(self, index: int = 0) -> str:
        """The name of an input."""
        tensor = self.layer.get_input(index)
        if tensor is None:
            raise self.wrong(f"input {index} is missing; give it with set_input")
        return self.in_precision(self.name_of(tensor))

    def in_precision(self, name: str) -> str:
        """A float operand in the precision of the layer, where that is obeyed."""
        precision = self.layer._precision if self.lowering.obey else None
        if precision is None or not self.type(name).dtype.is_float:
            return name
        if self.type(name).dtype is core_type(precision):
            return name
        self._before = self._before or self.type(name).dtype
        return self.cast(name, precision)

    def name_of(self, tensor: ITensor) -> str:
        """The name of any tensor of the network."""
        return self.lowering.name_of(tensor)

    def type(self, name: str) -> TensorType:
        """The type of what a name stands for."""
        return self.value(name).type

    def value(self, name: str) -> Value:
        """What a name stands for in the graph that types are inferred in."""
        value = self.lowering.scope[name]
        if not isinstance(value, Value):
            raise self.wrong("one of its inputs has no type, as its layer could not be made")
        return value

    def rank(self, name: str) -> int:
        """How many axes a tensor has."""
        return self.type(name).rank

    def dtype(self, name: str) -> DataType:
        """The element type of a tensor."""
        return from_core(self.type(name).dtype, f"layer {self.layer.name!r}")

    def content(self, name: str) -> Array | None:
        """The content of a tensor of sizes where it is known: an array of ints and sizes."""
        builder = self.lowering.builder
        known = builder.sizes(self.value(name))
        return self.array(name) if known is None else self._read_now(name, known)

    def array(self, name: str) -> Array | None:
        """The content of a constant tensor; None where it is none."""
        return self._read_now(name, self.lowering.builder.array(self.value(name)))

    def peek(self, name: str) -> Array | None:
        """As `array`, for a check alone: what is said of the layer does not depend on it."""
        return self.lowering.builder.array(self.value(name))

    def _read_now(self, name: str, content: Array | None) -> Array | None:
        if content is not None:
            self._read.append(name)
        return content

    def known(self, tensor: ITensor) -> Array | None:
        """The same of any tensor of the network."""
        return self._read_now(self.name_of(tensor), self.lowering.content_of(tensor))

    def numbers(self, name: str, what: str) -> list[int]:
        """The content of a tensor that must be constant."""
        content = self.content(name)
        if content is None or not all(isinstance(v, (int, np.integer)) for v in content.flat):
            raise self.wrong(f"{what} must be a constant; take it from add_constant")
        return [int(v) for v in content.reshape(-1)]

    # ---- what is said -------------------------------------------------------------------

    def node(self, op: str, *inputs: str | None, **attributes: Any) -> str:
        """A node with one output; its name."""
        return self.nodes(op, inputs, 1, **attributes)[0]

    def nodes(
        self, op: str, inputs: Sequence[str | None], count: int, **attributes: Any
    ) -> tuple[str, ...]:
        """A node with `count` outputs; their names."""
        outputs = tuple(self.lowering.fresh(f"{self.layer.name}.{op}") for _ in range(count))
        kept = {k: _plain(v) for k, v in attributes.items() if v is not None}
        names = [i or "" for i in inputs]
        while names and not names[-1]:
            names.pop()
        record = NodeRecord(
            op,
            "",
            self.layer.name,
            tuple(names),
            outputs,
            kept,
            {k: _kind(v) for k, v in kept.items()},
        )
        self.said.nodes.append(record)
        self.lowering.run(record)
        return outputs

    def constant(self, array: Any, dtype: Any = None) -> str:
        """A constant; its name."""
        data = np.asarray(array, dtype)
        name = self.lowering.fresh(f"{self.layer.name}.constant")
        record = TensorRecord(name, core_from_numpy(data.dtype), data)
        self.said.constants[name] = record
        self.lowering.initializers[name] = record
        return name

    def raw(self, record: NodeRecord) -> None:
        """A node of a parsed model."""
        self.said.nodes.append(record)
        self.lowering.run(record, self.lowering.network._opsets)

    def initializer(self, name: str, record: TensorRecord | Unreadable) -> str:
        """A constant of a parsed model, which several layers may read; its name here."""
        inner = f"parsed.{name}"
        self.lowering.initializers[inner] = record
        self.said.constants[inner] = record
        return inner

    def ints(self, values: Iterable[Any]) -> str:
        """A vector of int64 as a constant."""
        return self.constant(np.array(list(values), np.int64))

    def scalar(self, value: float, like: str) -> str:
        """A constant of no axes with the element type of another tensor."""
        return self.constant(np.asarray(value).astype(self.type(like).dtype.numpy))

    def weights(self, weights: Weights, shape: Sequence[int], like: str | None = None) -> str:
        """Weights in a shape, with the element type of another tensor where both are floats."""
        count = int(np.prod(shape, dtype=np.int64))
        if weights.size != count:
            raise self.wrong(f"{weights.size} weights are given where {count} are needed")
        try:
            data = elements(weights).reshape(tuple(shape))
        except AddressError as e:
            raise self.wrong(str(e)) from e
        if like is not None and self.type(like).dtype.is_float:
            data = data.astype(self.type(like).dtype.numpy, copy=False)
        name = self.constant(data)
        self.lowering.origins[name] = weights
        return name

    def cast(self, name: str, dtype: DataType | DType) -> str:
        """A tensor in an element type."""
        kind = core_type(dtype) if isinstance(dtype, DataType) else dtype
        if self.type(name).dtype is kind:
            return name
        return self.node("Cast", name, to=kind.onnx)

    def alike(self, *names: str) -> list[str]:
        """Tensors in one element type: of floats that differ, the widest.

        Networks without types of their own may mix floats, as the builder chooses among them.
        """
        kinds = [self.dtype(n) for n in names]
        if len(set(kinds)) == 1 or not all(k in _FLOATS for k in kinds):
            return list(names)
        if self.lowering.network.strongly_typed:
            raise self.wrong(f"its inputs are {', '.join(k.name for k in kinds)}; cast them")
        both = {DataType.HALF, DataType.BF16} <= set(kinds)
        widest = DataType.FLOAT if both else max(kinds, key=lambda k: core_type(k).bits)
        return [self.cast(n, widest) for n in names]

    def reshape(self, name: str, sizes: Sequence[Any]) -> str:
        """A tensor in another shape of known sizes (one may be -1)."""
        return self.node("Reshape", name, self.ints(sizes), allowzero=1 if 0 in sizes else None)

    def transpose(self, name: str, order: Sequence[int]) -> str:
        """A tensor with its axes in another order."""
        if list(order) == list(range(len(order))):
            return name
        return self.node("Transpose", name, perm=tuple(order))

    def shape_of(self, name: str) -> str:
        """The sizes of a tensor as a vector of int64."""
        return self.node("Shape", name)

    def give(self, index: int, name: str) -> None:
        """Let a tensor be an output of the layer."""
        own = {o for n in self.said.nodes for o in n.outputs}
        if name not in own or name in self._given.values():
            name = self.node("Identity", name)
        self._given[index] = name

    def stand_in(self, index: int, type_: TensorType) -> None:
        """Let an output be something of a type that nothing here computes (a loop does)."""
        name = self.name_of(self.layer._outputs[index])
        self.lowering.scope.bind(name, self.lowering.builder.input(name, type_))

    def wrong(self, why: str) -> BrazeError:
        """An error about the layer."""
        return ModelError(f"layer {self.layer.name!r} ({self.layer.word}): {why}")

    def misfit(self, why: str) -> BrazeError:
        """An error about shapes at the layer."""
        return ShapeError(f"layer {self.layer.name!r} ({self.layer.word}): {why}")

    # ---- the end ------------------------------------------------------------------------

    def finish(self) -> Said:
        """The layer, its outputs called as the tensors are."""
        for i, name in self._given.items():
            precise = self.layer._precision
            if self._before is not None and precise is not None and self.dtype(name) is precise:
                self._given[i] = self.cast(name, self._before)
        for i, kind in self.layer._output_types.items():
            if i in self._given:
                self._given[i] = self.cast(self._given[i], kind)
        renamed = {}
        for i, name in self._given.items():
            final = self.name_of(self.layer._outputs[i])
            renamed[name] = final
            self.lowering.scope.bind(final, self.lowering.scope[name])
        self.said.nodes = [_renamed(n, renamed) for n in self.said.nodes]
        self.said.read = [renamed.get(n, n) for n in self._read]
        return self.said


def elements(weights: Weights) -> Array:
    """Weights as the core holds them, those of 4 bits in a byte each."""
    return unpacked(weights.elements(), core_type(weights.dtype), weights.size)


def unpacked(array: Array, dtype: DType, count: int) -> Array:
    """Elements of any origin as arrays of the core: bytes are unpacked, numbers converted."""
    flat = array.reshape(-1)
    if flat.dtype == dtype.numpy:
        return flat
    if flat.dtype == np.uint8 and dtype.numpy != np.uint8 and flat.size != count:
        return unpack(flat, dtype, count)
    if flat.dtype == np.uint8 and dtype.bits == 8 and dtype.is_narrow:
        return flat.view(dtype.numpy)
    return flat.astype(dtype.numpy)


def _renamed(node: NodeRecord, names: dict[str, str]) -> NodeRecord:
    inputs, outputs = (tuple(names.get(n, n) for n in part) for part in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    return value


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{_kind(value[0])}S" if value else "INTS"
    if isinstance(value, GraphRecord):
        return "GRAPH"
    if isinstance(value, np.ndarray):
        return "TENSOR"
    return {int: "INT", float: "FLOAT", str: "STRING"}[type(value)]
