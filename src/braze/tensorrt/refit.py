"""Refitter and OnnxParserRefitter: an engine that was built for it gets other weights.

The engine is built anew from the model it keeps, with the options it was built with: so its results
are those of a fresh build with these weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import braze.runtime.engine as core
from braze.core.errors import BrazeError
from braze.tensorrt.addresses import AddressError, bytes_at
from braze.tensorrt.deprecation import Scoped, warn_deprecated
from braze.tensorrt.enums_layers import WeightsRole
from braze.tensorrt.enums_runtime import DataType, ErrorCodeTRT, TensorLocation
from braze.tensorrt.logger import ILogger
from braze.tensorrt.record import WeightsEntry
from braze.tensorrt.recorder import Reporter, Reporting
from braze.tensorrt.weights import Weights, as_weights

if TYPE_CHECKING:
    from braze.tensorrt.engine import ICudaEngine

API = "IRefitter"
Array = np.ndarray[Any, Any]


class Refitter(Reporting, Scoped):
    """Gives an engine other weights."""

    def __init__(self, engine: ICudaEngine, logger: ILogger) -> None:
        self._reporter = Reporter(logger, engine.error_recorder)
        self._engine = engine
        self._given: dict[str, Weights] = {}  # by constant
        self._locations: dict[str, TensorLocation] = {}
        self.weights_validation = True
        self.max_threads = 1
        if not engine.refittable or not engine.table.record.get("model"):
            text = "the engine keeps no model to be refitted; build it with BuilderFlag.REFIT"
            self._reporter.error("createInferRefitter", ErrorCodeTRT.INVALID_STATE, text)
            raise TypeError(text)

    @property
    def logger(self) -> ILogger:
        """Where its messages go."""
        return self._reporter.logger

    # ---- what there is ------------------------------------------------------------------

    @property
    def entries(self) -> list[WeightsEntry]:
        """The weights that can be replaced."""
        return list(self._engine.table.record.get("weights", ()))

    def get_all(self) -> tuple[list[str], list[WeightsRole]]:
        """Layers and roles of all weights."""
        return _layers_and_roles(self.entries)

    def get_all_weights(self) -> list[str]:
        """Names of all weights."""
        return _names(self.entries)

    def get_missing(self) -> tuple[list[str], list[WeightsRole]]:
        """Layers and roles of weights that must be given before the engine runs."""
        return _layers_and_roles(self._missing())

    def get_missing_weights(self) -> list[str]:
        """Names of weights that must be given before the engine runs."""
        return _names(self._missing())

    def _missing(self) -> list[WeightsEntry]:
        """Those that were left out; others keep what they have.

        Weights of one name are given at once wherever the network uses them.
        """
        left_out = self._engine.table.record.get("left_out", {})
        named = {e["name"] for e in self.entries if e["name"] and e["constant"] in self._given}
        return [
            e
            for e in self.entries
            if e["constant"] in left_out
            and e["constant"] not in self._given
            and e["name"] not in named
        ]

    # ---- new weights --------------------------------------------------------------------

    def set_named_weights(
        self, name: str, weights: Any, location: TensorLocation = TensorLocation.HOST
    ) -> bool:
        """Give the weights of a name; False where they do not fit."""
        entry = next((e for e in self.entries if e["name"] == name and name), None)
        if entry is None:
            self._reporter.wrong(f"{API}::setNamedWeights", f"{name!r} names no weights.")
            return False
        return self._give(entry, as_weights(weights, "set_named_weights"), location)

    def set_weights(self, layer_name: str, role: WeightsRole, weights: Any) -> bool:
        """Give the weights of a layer; False where they do not fit."""
        entry = next(
            (e for e in self.entries if e["layer"] == layer_name and e["role"] == role.name), None
        )
        if entry is None:
            self._reporter.wrong(
                f"{API}::setWeights", f"Layer {layer_name!r} has no weights {role.name}."
            )
            return False
        return self._give(entry, as_weights(weights, "set_weights"), TensorLocation.HOST)

    def _give(self, entry: WeightsEntry, weights: Weights, location: TensorLocation) -> bool:
        name = entry["name"] or entry["layer"]
        wanted = DataType[entry["dtype"]]
        if weights.size != entry["count"] or weights.dtype is not wanted:
            self._reporter.wrong(
                f"{API}::setNamedWeights",
                f"Weights {name!r} are {entry['count']} of {wanted.name}, and {weights.size} of "
                f"{weights.dtype.name} are given.",
            )
            return False
        try:
            weights.elements()
        except AddressError as e:
            self._reporter.wrong(f"{API}::setNamedWeights", f"{name!r}: {e}")
            return False
        self._given[entry["constant"]] = weights
        self._locations[entry["constant"]] = location
        return True

    def unset_named_weights(self, weights_name: str) -> bool:
        """Take given weights back."""
        entry = self._entry(weights_name)
        return entry is not None and self._given.pop(entry["constant"], None) is not None

    def get_named_weights(self, weights_name: str) -> Weights:
        """The weights that were given; none with an error reported where there are none."""
        entry = self._entry(weights_name)
        found = None if entry is None else self._given.get(entry["constant"])
        if found is None:
            self._reporter.wrong(
                f"{API}::getNamedWeights", f"No weights were given for {weights_name!r}."
            )
            return Weights()
        return found

    def get_weights_location(self, weights_name: str) -> TensorLocation:
        """Where given weights lie."""
        entry = self._entry(weights_name)
        if entry is None or entry["constant"] not in self._locations:
            self._reporter.wrong(
                f"{API}::getWeightsLocation", f"No weights were given for {weights_name!r}."
            )
            return TensorLocation.HOST
        return self._locations[entry["constant"]]

    def get_weights_prototype(self, weights_name: str) -> Weights:
        """Type and number of the weights of a name, without content; -1 of them for no name."""
        entry = self._entry(weights_name)
        if entry is None:
            return Weights(DataType.FLOAT, 0, -1)
        return Weights(DataType[entry["dtype"]], 0, entry["count"])

    def _entry(self, name: str) -> WeightsEntry | None:
        return next((e for e in self.entries if e["name"] == name and name), None)

    # ---- the refit ----------------------------------------------------------------------

    def refit_cuda_engine(self) -> bool:
        """Give the engine its weights; False with an error reported where that failed."""
        where = f"{API}::refitCudaEngine"
        missing = self._missing()
        if missing:
            names = ", ".join(dict.fromkeys(e["name"] or e["layer"] for e in missing))
            self._reporter.error(where, ErrorCodeTRT.INVALID_STATE, f"missing weights: {names}")
            return False
        try:
            weights = {key: w.elements() for key, w in self._given.items()}
            if self.weights_validation and not self._all_finite(where, weights):
                return False
            rebuild = importlib.import_module("braze.tensorrt.rebuild").rebuild
            plan = rebuild(self._engine.table.record, weights)
            self._engine.renew(core.Engine.from_plan(plan))
        except (BrazeError, MemoryError) as e:
            self._reporter.raised(where, e)
            return False
        return True

    def refit_cuda_engine_async(self, stream_handle: int) -> bool:
        """The same; it is done when this returns."""
        return self.refit_cuda_engine()

    def _all_finite(self, where: str, weights: Mapping[str, Array]) -> bool:
        """Whether weights hold only numbers; reports those that do not."""
        for key, array in weights.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                self._reporter.wrong(where, f"Weights {key!r} hold NaN or infinities.")
                return False
        return True

    # ---- ranges of tensors, which explicit types have replaced --------------------------

    def set_dynamic_range(self, tensor_name: str, range: Any) -> bool:
        """No engine has ranges of tensors: types are those of the network."""
        warn_deprecated("Refitter.set_dynamic_range", "10.1", "scales of Q/DQ layers")
        return False

    def get_dynamic_range(self, tensor_name: str) -> tuple[float, float]:
        """No range."""
        warn_deprecated("Refitter.get_dynamic_range", "10.1", "scales of Q/DQ layers")
        return (-1.0, -1.0)

    def get_tensors_with_dynamic_range(self) -> list[str]:
        """None."""
        warn_deprecated("Refitter.get_tensors_with_dynamic_range", "10.1", "scales of Q/DQ layers")
        return []


def _names(entries: list[WeightsEntry]) -> list[str]:
    return list(dict.fromkeys(e["name"] for e in entries if e["name"]))


def _layers_and_roles(entries: list[WeightsEntry]) -> tuple[list[str], list[WeightsRole]]:
    found = [e for e in entries if e["layer"]]
    return [e["layer"] for e in found], [WeightsRole[e["role"]] for e in found]


class OnnxParserRefitter(Scoped):
    """Gives an engine the weights of an ONNX model that has the same nodes."""

    def __init__(self, refitter: Refitter, logger: ILogger) -> None:
        self._refitter = refitter
        self._reporter = Reporter(logger, refitter.error_recorder)
        self._errors: list[str] = []
        self._loaded: dict[str, Array] | None = None

    @property
    def num_errors(self) -> int:
        """How many errors there were."""
        return len(self._errors)

    def get_error(self, index: int) -> Any:
        """One of them."""
        made = importlib.import_module("braze.tensorrt.parser_error").ParserError
        code = importlib.import_module("braze.tensorrt.enums_build").ErrorCode.REFIT_FAILED
        return made(code, self._errors[index])

    def clear_errors(self) -> None:
        """Forget them."""
        self._errors.clear()

    def refit_from_file(self, model: str) -> bool:
        """Give the engine the weights of the model in a file."""
        return self._load(str(model), None) and self.refit_model_proto()

    def refit_from_bytes(self, model: Any, path: str | None = None) -> bool:
        """Give the engine the weights of a model; path: where its external data lie."""
        return self._load(bytes(model), path) and self.refit_model_proto()

    def load_model_proto(self, model: Any, path: str | None = None) -> bool:
        """Take a model whose weights are used later."""
        if self._loaded is not None:
            return self._fail("a model is loaded already")
        return self._load(bytes(model), path)

    def load_initializer(self, name: str, data: int, size: int) -> bool:
        """Other content for an initializer of the model: `size` bytes at an address."""
        if self._loaded is None or name not in self._loaded:
            return self._fail(f"initializer {name!r} is not in the model")
        old = self._loaded[name]
        if size != old.nbytes:
            return self._fail(f"initializer {name!r} has {old.nbytes} bytes, not {size}")
        try:
            held = bytes_at(int(data), int(size), f"initializer {name!r}")
        except AddressError as e:
            return self._fail(str(e))
        self._loaded[name] = held.view(old.dtype).reshape(old.shape)
        return True

    def refit_model_proto(self) -> bool:
        """Give the engine the weights of the model that was taken."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            return self._fail("no model is loaded")
        entries = self._refitter.entries
        found = [e for e in entries if e["name"] in loaded]
        if entries and not found:
            return self._fail("the model has none of the engine's weights by their names")
        for entry in found:
            array = loaded[entry["name"]]
            if not self._refitter.set_named_weights(entry["name"], array):
                return self._fail(f"initializer {entry['name']!r} does not fit the engine")
        return self._refitter.refit_cuda_engine()

    def _load(self, model: str | bytes, path: str | None) -> bool:
        try:
            self._loaded = dict(read_initializers(model, path))
        except BrazeError as e:
            return self._fail(str(e))
        return True

    def _fail(self, text: str) -> bool:
        self._errors.append(text)
        self._reporter.error("IParserRefitter::refit", ErrorCodeTRT.INVALID_ARGUMENT, text)
        return False


def read_initializers(model: str | bytes, path: str | None) -> Mapping[str, Array]:
    """The initializers of an ONNX model by name; raises ModelError.

    Where the weights of a model in memory lie in files, the model's own file, `path`, is read.
    """
    load = importlib.import_module("braze.frontend.onnx.proto").load_model
    record = load(model if path is None else path)
    return {name: tensor.array for name, tensor in record.graph.initializers.items()}
