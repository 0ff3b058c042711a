"""An ONNX model as quantization looks at it: who makes and reads a tensor, what is constant."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter

from braze.core.errors import ConfigError, UnsupportedOpError

Array = np.ndarray[Any, Any]
Node = onnx.NodeProto
CHANNELS_OPSET: Final = 13  # the first with a scale for each channel in Q/DQ
FLOAT8_OPSET: Final = 19  # the first with 8-bit floats in Q/DQ
_CONSTANT: Final[dict[str, Callable[[Array, Node], Array]]] = {
    "Identity": lambda x, n: x,
    "Transpose": lambda x, n: x.transpose(attribute(n, "perm", tuple(range(x.ndim))[::-1])),
}


def attribute(node: Node, name: str, default: Any) -> Any:
    """The value of an attribute, or `default`."""
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


class Network:
    """A model of one's own to change, with an index over its main graph.

    Nodes are added by `insert` and kept in an order that runs; `bodies` of control flow are left
    as they are, but tensors that they read count as read (by their node).
    """

    def __init__(self, model: onnx.ModelProto, opset: int = CHANNELS_OPSET) -> None:
        self.model = _at_opset(model, opset)
        self.graph = self.model.graph
        self.weights = {t.name: t for t in self.graph.initializer}
        self.names = {i.name for i in self.graph.input} | set(self.weights)
        self.names.update(o for n in self.graph.node for o in n.output)
        self.names.update(n.name for n in self.graph.node)
        fed = {i.name for i in self.graph.input}
        self._overridable = fed & set(self.weights)
        self.outputs = {o.name for o in self.graph.output}
        self.reindex()
        _name_nodes(self)

    def reindex(self) -> None:
        """Find producers and readers again, after nodes or their inputs have changed."""
        self.producer = {o: n for n in self.graph.node for o in n.output if o}
        self.readers: dict[str, list[Node]] = {}
        for n in self.graph.node:
            for name in dict.fromkeys(read_by(n)):
                self.readers.setdefault(name, []).append(n)

    def constant(self, name: str) -> Array | None:
        """The content of a tensor that no run changes, else None."""
        if name in self.weights and name not in self._overridable:
            return numpy_helper.to_array(self.weights[name])
        node = self.producer.get(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type == "Constant":
            value = attribute(node, "value", None)
            return None if value is None else numpy_helper.to_array(value)
        change = _CONSTANT.get(node.op_type)
        source = None if change is None else self.constant(node.input[0])
        return None if source is None or change is None else change(source, node)

    def only_reader(self, name: str) -> Node | None:
        """The one node that reads a tensor which is no output of the model."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def fresh(self, hint: str) -> str:
        """A name that nothing has yet."""
        for k in itertools.count():
            name = hint if k == 0 else f"{hint}_{k}"
            if name not in self.names:
                self.names.add(name)
                return name
        raise AssertionError

    def add_constant(self, array: Array, hint: str) -> str:
        """A new initializer; gives its name."""
        name = self.fresh(hint)
        tensor = _tensor(array, name)
        self.weights[name] = tensor
        self.graph.initializer.append(tensor)
        return name

    def insert(self, at: int, nodes: Iterable[Node]) -> None:
        """Put nodes before the one that stands at `at`."""
        for offset, node in enumerate(nodes):
            self.graph.node.insert(at + offset, node)

    def position(self, node: Node) -> int:
        """Where a node stands."""
        return next(i for i, n in enumerate(self.graph.node) if n is node or n.name == node.name)

    def drop_unused(self) -> None:
        """Remove constants that nothing reads any more, and nodes that make such."""
        self.reindex()
        while True:
            dead = [
                n for n in self.graph.node
                if n.op_type in ("Constant", "Identity", "Transpose")
                and not any(o in self.readers or o in self.outputs for o in n.output)
            ]  # fmt: skip
            if not dead:
                break
            for n in dead:
                self.graph.node.remove(n)
            self.reindex()
        kept = [t for t in self.graph.initializer
                if t.name in self.readers or t.name in self.outputs]  # fmt: skip
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        listed = {t.name for t in kept}
        gone = [i for i in self.graph.input if i.name in self.weights and i.name not in listed]
        for i in gone:
            self.graph.input.remove(i)


def read_by(node: Node) -> list[str]:
    """Tensors that a node reads, those that its bodies capture included."""
    names = [i for i in node.input if i]
    for a in node.attribute:
        for body in [a.g, *a.graphs] if a.type in (a.GRAPH, a.GRAPHS) else ():
            made = {i.name for i in body.input} | {t.name for t in body.initializer}
            for inner in body.node:
                names += [r for r in read_by(inner) if r not in made]
                made.update(inner.output)
            names += [o.name for o in body.output if o.name not in made]
    return names


def with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy of the model in which tensors of the main graph are further outputs."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for name in names:
        out.graph.output.append(onnx.ValueInfoProto(name=name))
    return out


def _tensor(array: Array, name: str) -> onnx.TensorProto:
    if array.dtype.name == "float8_e4m3fn":
        return helper.make_tensor(
            name, onnx.TensorProto.FLOAT8E4M3FN, array.shape, array.tobytes(), raw=True
        )
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def _at_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """A copy whose ops of ONNX are at least those of `opset`."""
    own = [o for o in model.opset_import if o.domain in ("", "ai.onnx")]
    if not own:
        raise ConfigError("the model uses no ops of ONNX, so that there is nothing to quantize")
    if own[0].version >= opset:
        return copy.deepcopy(model)
    try:
        converted = version_converter.convert_version(_without_overridable(model), opset)
    except Exception as e:  # what it raises depends on the op
        raise UnsupportedOpError(
            f"the model uses opset {own[0].version}, quantized ones need {opset}, and the onnx "
            f"package cannot convert it ({e}); export it with opset {opset}"
        ) from e
    return converted


def _without_overridable(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which no initializer is an input too; the converter knows no others."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    known = {t.name for t in out.graph.initializer}
    for i in [i for i in out.graph.input if i.name in known]:
        out.graph.input.remove(i)
    out.ir_version = max(out.ir_version, 4)  # below, initializers had to be inputs
    return out


def _name_nodes(net: Network) -> None:
    """Names for nodes without one, or with one that others have too."""
    seen: set[str] = set()
    for node in net.graph.node:
        if not node.name or node.name in seen:
            node.name = net.fresh(f"{node.op_type}_{next((o for o in node.output if o), '')}")
        seen.add(node.name)
