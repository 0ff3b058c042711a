"""INT8 by calibrators and dynamic ranges, as releases before 11 had it: Q/DQ nodes of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braze.core.errors import ConfigError
from braze.frontend.onnx.proto import load_model
from braze.frontend.onnx.records import ModelRecord
from braze.quantization.flow import Quantized, quantize_model
from braze.quantization.options import Options
from braze.quantization.table import Table, read_table, write_table
from braze.quantization.thresholds import Method, Range
from braze.tensorrt.addresses import bytes_at
from braze.tensorrt.dtypes import array_type
from braze.tensorrt.enums_build import BuilderFlag, CalibrationAlgoType
from braze.tensorrt.logger import Severity
from braze.tensorrt.onnx_proto import to_proto

if TYPE_CHECKING:
    from braze.tensorrt.config import IBuilderConfig
    from braze.tensorrt.model import NamedModel
    from braze.tensorrt.network import INetworkDefinition

_METHODS: Final = {
    CalibrationAlgoType.ENTROPY_CALIBRATION_2: "entropy",
    CalibrationAlgoType.ENTROPY_CALIBRATION: "entropy1",
    CalibrationAlgoType.MINMAX_CALIBRATION: "minmax",
    CalibrationAlgoType.LEGACY_CALIBRATION: "percentile",
}
Ranges = Mapping[str, tuple[float, float]]  # of tensors in the model
Feeds = Iterator[dict[str, np.ndarray[Any, Any]]]


def wants_int8(network: INetworkDefinition, config: IBuilderConfig) -> bool:
    """Whether INT8 is allowed and something tells the scales; Q/DQ layers do that themselves."""
    ranged = any(t._range is not None for t in _tensors(network))
    known = ranged or config.int8_calibrator is not None
    return config.get_flag(BuilderFlag.INT8) and not network.strongly_typed and known


def quantized(
    network: INetworkDefinition, config: IBuilderConfig, model: NamedModel
) -> tuple[ModelRecord, Ranges]:
    """The model with Q/DQ nodes and the ranges they are of; as it is, with a warning and none,
    where nothing can become INT8.
    """
    ranges = {
        model.tensors[t]: Range(*t._range)
        for t in _tensors(network)
        if t._range is not None and t in model.tensors
    }
    try:
        if config.int8_calibrator is None:
            table = Table(ranges)
            made = quantize_model(to_proto(model.record), None, Options(), table=table)
        else:
            made = _calibrated(network, config, model.record, ranges)
    except ConfigError as e:
        network._say(Severity.WARNING, f"no layer becomes INT8: {e}")
        return model.record, {}
    return load_model(made.model), {
        name: (float(r.low), float(r.high)) for name, r in made.table.ranges.items()
    }


def with_ranges(record: ModelRecord, ranges: Ranges) -> ModelRecord:
    """A model with Q/DQ nodes by ranges that `quantized` told."""
    table = Table({name: Range(low, high) for name, (low, high) in ranges.items()})
    return load_model(quantize_model(to_proto(record), None, Options(), table=table).model)


def _calibrated(
    network: INetworkDefinition,
    config: IBuilderConfig,
    record: ModelRecord,
    ranges: Mapping[str, Range],
) -> Quantized:
    """By the cache of a calibrator, or by its batches."""
    calibrator = config.int8_calibrator
    calibrator.get_batch_size()
    options = Options(method=_method(calibrator))
    proto = to_proto(record)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calibration.cache"
        cache = calibrator.read_calibration_cache()
        if cache:
            path.write_bytes(bytes(cache))
            table = read_table(path)
            return quantize_model(
                proto, None, options, table=Table({**table.ranges, **ranges}, table.kind)
            )
        given = Table(ranges) if ranges else None
        batches = list(_batches(network, config))
        if not batches:
            raise ConfigError("the calibrator gives no batches")
        made = quantize_model(proto, batches, options, table=given)
        write_table(made.table, path)
        calibrator.write_calibration_cache(memoryview(path.read_bytes()))
    return made


def _method(calibrator: Any) -> Method:
    kind = calibrator.get_algorithm()
    if kind is CalibrationAlgoType.LEGACY_CALIBRATION:
        return Method("percentile", min(100.0, max(1e-6, calibrator.get_quantile() * 100)))
    return Method(_METHODS[kind])


def _batches(network: INetworkDefinition, config: IBuilderConfig) -> Feeds:
    """The inputs at the addresses that a calibrator gives, at the sizes of its profile."""
    profile = config.get_calibration_profile() or next(iter(config._profiles), None)
    shapes = {}
    for tensor in network._inputs:
        given = profile.get_shape(tensor.name) if profile is not None else []
        shapes[tensor.name] = tuple(given[1] if given else tensor._declared_shape)
    names = list(shapes)
    while True:
        addresses = config.int8_calibrator.get_batch(names)
        if not addresses:
            return
        if len(addresses) != len(names):
            raise ConfigError(
                f"the calibrator gives {len(addresses)} addresses for {len(names)} inputs"
            )
        feed = {}
        for tensor, address in zip(network._inputs, addresses, strict=True):
            kind, shape = array_type(tensor.dtype), shapes[tensor.name]
            size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
            data = bytes_at(int(address), size, f"get_batch gives input {tensor.name!r}")
            feed[tensor.name] = data.copy().view(kind).reshape(shape)
        yield feed


def _tensors(network: INetworkDefinition) -> list[Any]:
    made = [t for x in network._layers for t in x._outputs]
    return [*network._inputs, *made]
