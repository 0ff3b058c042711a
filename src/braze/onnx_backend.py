"""braze as a backend of the onnx package (`onnx.backend.base`): prepare a model, run it.

Some tensors that ONNX lets a caller choose per run (the target of Reshape, the axes of a
reduction) must be known when braze builds. A prepared model therefore builds at its first run, for
the shapes and, where a build asks for it, the content it meets, and keeps what it built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from braze.core.errors import BindingError, UnsupportedOpError
from braze.frontend.onnx.findings import ImportRefusal
from braze.frontend.onnx.proto import load_model
from braze.frontend.onnx.records import ModelRecord, Unreadable

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
# what runs one specialised model: input arrays by name -> output arrays by name
Runner = Callable[[Arrays], Arrays]
# compile(model, shapes, values) -> Runner
Compile = Callable[[ModelRecord, Mapping[str, tuple[int, ...]], Arrays], Runner]


def compile_engine(
    model: ModelRecord, shapes: Mapping[str, tuple[int, ...]], values: Arrays
) -> Runner:
    """Build an engine with one thread and no tuning: backends are asked for many small models."""
    from braze.api import build

    return build(model, shapes=shapes, values=values, threads=1, optimization_level=2)


class BrazeRep(BackendRep):
    """A prepared model; `run` builds for the shapes it is given and caches the result."""

    def __init__(self, model: ModelRecord, compile_model: Compile) -> None:
        self._model = model
        self._compile = compile_model
        self._content_names: frozenset[str] = frozenset()
        self._built: dict[tuple[Any, ...], Runner] = {}

    @property
    def content_names(self) -> frozenset[str]:
        """Inputs whose content builds have asked for so far."""
        return self._content_names

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Array, ...]:
        """Outputs in the model's order; `inputs` is a sequence in the model's order or a dict."""
        declared = self._model.runtime_inputs
        arrays: dict[str, Array] = {}
        if isinstance(inputs, Mapping):
            arrays = {name: _to_braze(a) for name, a in inputs.items()}
        else:
            given = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(given) != len(declared):
                raise BindingError(
                    f"the model has {len(declared)} inputs but {len(given)} arrays are given"
                )
            arrays = {i.name: _to_braze(a) for i, a in zip(declared, given, strict=True)}
        results = self._runner(arrays)(arrays)
        outputs = self._model.graph.outputs
        values = tuple(results[o.name] for o in outputs)
        return tuple(namedtupledict("Outputs", [o.name for o in outputs])(*values))

    def _runner(self, arrays: Arrays) -> Runner:
        """The engine for these shapes; contents are fixed only where a build asks for them."""
        shapes = {name: tuple(a.shape) for name, a in arrays.items()}
        while True:
            values = {n: a for n, a in arrays.items() if n in self._content_names}
            contents = tuple((n, a.tobytes()) for n, a in sorted(values.items()))
            key = (tuple(sorted(shapes.items())), contents)
            if key in self._built:
                return self._built[key]
            try:
                self._built[key] = self._compile(self._model, shapes, values)
            except ImportRefusal as e:
                asked = {name for f in e.findings for name in f.inputs}
                if asked <= self._content_names:
                    raise
                self._content_names |= asked


class BrazeBackend(Backend):
    """The backend class; see the module's functions for use without it."""

    compile_model: Compile = staticmethod(compile_engine)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """True for every device braze has; whether a model can be built shows at its first run."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> BrazeRep:
        """Decode the model.

        Raises ModelError when it is damaged and UnsupportedOpError when an input is no tensor of a
        type that braze has; what else is refused shows at the first run.
        """
        record = load_model(model)
        for declared in record.runtime_inputs:
            if isinstance(declared.dtype, Unreadable):
                raise UnsupportedOpError(
                    f"graph input {declared.name!r} has {declared.dtype.why}, which braze does not "
                    "run"
                )
        return BrazeRep(record, cls.compile_model)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Array, ...]:
        """Prepare and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Run one node at the newest opset (or `opset_version`) on `inputs`."""
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        named = dict(zip([n for n in node.input if n], inputs, strict=True))
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [_value_info(name, np.asarray(a)) for name, a in named.items()],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        opsets = [onnx.helper.make_opsetid(node.domain, opset)]
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.run_model(model, named, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


prepare = BrazeBackend.prepare
run_model = BrazeBackend.run_model
run_node = BrazeBackend.run_node
supports_device = BrazeBackend.supports_device
is_compatible = BrazeBackend.is_compatible


def _value_info(name: str, array: Array) -> onnx.ValueInfoProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_value_info(name, kind, array.shape)


def _to_braze(array: Any) -> Array:
    """TensorProtos as arrays."""
    if isinstance(array, onnx.TensorProto):
        array = onnx.numpy_helper.to_array(array)
    return np.asarray(array)
