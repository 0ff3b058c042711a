"""Networks that programs in other languages describe, as braze.hpp does: a folder of two files.

`network.json` tells how the network was made call by call, and the configuration; `weights.bin`
holds the numbers. The calls are replayed: what a layer means is said in one place, the network's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from braze.core.errors import BrazeError, ConfigError, ModelError
from braze.core.files import readable_source, replacing
from braze.tensorrt import enums
from braze.tensorrt.builder import Builder
from braze.tensorrt.building import build
from braze.tensorrt.config import IBuilderConfig
from braze.tensorrt.dtypes import packed_bytes
from braze.tensorrt.enums_build import MemoryPoolType, ProfilingVerbosity
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.logger import ILogger, Severity
from braze.tensorrt.network import INetworkDefinition
from braze.tensorrt.numbers import Number
from braze.tensorrt.params import Param
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.timing_cache import ITimingCache
from braze.tensorrt.weights import IHostMemory, Weights

FORMAT: Final = 1
T = TypeVar("T")
# the calls that a description may have, those of braze_network.hpp
_CALLS: Final = """
add_input add_convolution_nd add_deconvolution_nd add_pooling_nd add_padding_nd add_activation
add_unary add_elementwise add_scale_nd add_identity add_cast add_select add_parametric_relu
add_matrix_multiply add_fully_connected add_einsum add_reduce add_softmax add_lrn add_normalization
add_constant add_shuffle add_concatenation add_slice add_gather add_gather_v2 add_topk add_resize
add_shape
"""
CALLS: Final = frozenset(_CALLS.split())


class _Log(ILogger):
    """Passes messages on and keeps the last error, which is why a call gave nothing."""

    def __init__(self, tell: Callable[[Severity, str], None]) -> None:
        super().__init__()
        self.tell, self.error = tell, ""

    def log(self, severity: Severity, msg: str) -> None:
        """Take a message."""
        if severity <= Severity.ERROR:
            self.error = msg
        else:
            self.tell(severity, msg)


def build_described(folder: str, tell: Callable[[Severity, str], None]) -> IHostMemory:
    """The engine of the network described in a folder; raises a BrazeError that says why not.

    tell: what hears of warnings.
    """
    description = _read(folder)
    replay = Replay(description, _numbers(folder), tell)
    network = replay.network()
    config = replay.config()
    path = description["config"]["timing_cache"]
    if not path:
        return build(network, config)
    file = Path(path)
    cache = config.create_timing_cache(file.read_bytes() if file.exists() else b"")
    if cache is None:
        raise ConfigError(f"{path} is no timing cache; delete it or name another file")
    config.set_timing_cache(cache, False)
    data = build(network, config)
    _keep(file, cache)
    return data


def _keep(file: Path, cache: ITimingCache) -> None:
    with replacing(file) as out:
        out.write(cache.serialize())


def _read(folder: str) -> dict[str, Any]:
    path = str(Path(folder) / "network.json")
    try:
        found = json.loads(readable_source(path, "network description").read_bytes())
    except ValueError as e:
        raise ModelError(f"network description {path} cannot be read: {e}; write it anew") from e
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ModelError(
            f"network description {path} is not of format {FORMAT}; use braze.hpp and braze of one "
            "release"
        )
    return found


def _numbers(folder: str) -> np.ndarray[Any, Any]:
    path = Path(folder) / "weights.bin"
    return np.frombuffer(readable_source(str(path), "weights").read_bytes(), np.uint8)


class Replay:
    """Makes a network and a configuration as told; raises ModelError and ConfigError."""

    def __init__(
        self,
        description: Mapping[str, Any],
        numbers: np.ndarray[Any, Any],
        tell: Callable[[Severity, str], None],
    ) -> None:
        self._said, self._numbers = description, numbers
        self._log = _Log(tell)
        self._builder = Builder(self._log)
        self._tensors: list[list[ITensor]] = []  # by step
        self._later: list[tuple[ILayer, Mapping[str, Any]]] = []  # inputs to be given

    def network(self) -> INetworkDefinition:
        """The network."""
        return self._guarded("network", self._network)

    def config(self) -> IBuilderConfig:
        """The configuration."""
        return self._guarded("configuration", self._config)

    def _guarded(self, what: str, make: Callable[[], T]) -> T:
        try:
            return make()
        except BrazeError:
            raise
        except (KeyError, IndexError, AttributeError) as e:
            raise ModelError(
                f"the {what} is not as braze.hpp describes it ({type(e).__name__}: {e}); use "
                "braze.hpp and braze of one release"
            ) from e
        except (TypeError, ValueError) as e:
            raise ConfigError(str(e)) from e

    def _network(self) -> INetworkDefinition:
        network = self._builder.create_network(self._said["network_flags"])
        if self._said["name"]:
            network.name = self._said["name"]
        for number, step in enumerate(self._said["steps"]):
            try:
                self._tensors.append(self._step(network, step))
            except (TypeError, ValueError) as e:
                name = step["name"] or f"number {number}"
                raise ConfigError(f"layer {name} ({step['call']}): {e}") from e
        for layer, inputs in self._later:  # they may be of layers that came after
            self._give_inputs(layer, inputs)
        for weights, name in self._said["weights_names"]:
            if not network.set_weights_name(self._value(weights), name):
                raise ConfigError(f"weights {name!r} are read by no layer, or the name is taken")
        for output in self._said["outputs"]:
            network.mark_output(self._value(output))
        return network

    def _step(self, network: INetworkDefinition, step: Mapping[str, Any]) -> list[ITensor]:
        call = step["call"]
        if call not in CALLS:
            raise ModelError(f"{call!r} is no layer that descriptions have; upgrade braze")
        made = getattr(network, call)(*map(self._value, step["arguments"]))
        if made is None:
            raise ConfigError(f"{call}: {self._log.error}")
        if isinstance(made, ITensor):
            tensors = [made]
        else:
            self._set(made, step)
            tensors = made._outputs
        for tensor, (name, kind) in zip(tensors, step["tensors"], strict=True):
            if name:
                tensor.name = name
            if kind is not None:
                tensor.dtype = self._value(kind)
        return tensors

    def _set(self, layer: ILayer, step: Mapping[str, Any]) -> None:
        if step["name"]:
            layer.name = step["name"]
        for name, value in step["set"].items():
            if not isinstance(getattr(type(layer), name, None), (Param, property)):
                raise ModelError(f"{step['call']} has no attribute {name!r}; upgrade braze")
            setattr(layer, name, self._value(value))
        for index, kind in step["types"].items():
            layer.set_output_type(int(index), self._value(kind))
        self._later.append((layer, step["inputs"]))

    def _give_inputs(self, layer: ILayer, inputs: Mapping[str, Any]) -> None:
        for index, tensor in inputs.items():
            self._log.error = ""
            layer.set_input(int(index), self._value(tensor))
            if self._log.error:
                raise ConfigError(self._log.error)

    def _value(self, said: Any) -> Any:
        """An argument: a number, a text, or an object with one key that tells what it is."""
        if not isinstance(said, dict):
            return said
        ((tag, content),) = said.items()
        if tag == "tensor":
            step, output = content
            return self._tensors[step][output]
        if tag == "several":
            return [self._value(part) for part in content]
        if tag == "weights":
            return self._weights(*content)
        if tag == "float":
            return float.fromhex(content)
        if tag == "floats":
            return [float.fromhex(part) for part in content]
        if tag == "member":
            name, number = content
            kind = getattr(enums, name)
            return kind(number) if issubclass(kind, Number) else None
        if tag == "list":
            return list(content)
        raise KeyError(tag)

    def _weights(self, kind: int, offset: int, count: int) -> Weights:
        dtype = DataType(kind)
        size = packed_bytes(dtype, count)
        if not count:  # none, wherever they are said to be
            return Weights(dtype)
        if offset < 0 or offset + size > self._numbers.size:
            raise ModelError("the numbers of the description are cut short; write it anew")
        return Weights(dtype, self._numbers.ctypes.data + offset, count)

    def _config(self) -> IBuilderConfig:
        said = self._said["config"]
        config = self._builder.create_builder_config()
        config.flags = said["flags"]
        config.builder_optimization_level = said["level"]
        config.profiling_verbosity = ProfilingVerbosity(said["verbosity"])
        for pool, size in said["pools"].items():
            config.set_memory_pool_limit(MemoryPoolType(int(pool)), size)
        for shapes in said["profiles"]:
            profile = self._builder.create_optimization_profile()
            for name, (low, best, high) in shapes.items():
                profile.set_shape(name, low, best, high)
            config.add_optimization_profile(profile)
        return config
