"""Post-training quantization from end to end: a float model and data in, a Q/DQ model out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import onnx

from braze.core.errors import ConfigError, ModelError
from braze.core.files import replacing
from braze.core.trace import Progress
from braze.frontend.onnx.whole import whole_model
from braze.quantization.channels import Channels
from braze.quantization.collect import add_all, collect, histograms, make_runner
from braze.quantization.correct import correct_biases
from braze.quantization.data import Calibration, as_calibration
from braze.quantization.declare import declare_outputs
from braze.quantization.equalize import equalize
from braze.quantization.grid import Grid, activation_grid
from braze.quantization.layers import Layer, layers_of
from braze.quantization.network import CHANNELS_OPSET, FLOAT8_OPSET, Network
from braze.quantization.options import Options
from braze.quantization.placement import Placement, place
from braze.quantization.smooth import smooth, smoothed
from braze.quantization.table import KINDS, Table
from braze.quantization.thresholds import Range, find_range
from braze.quantization.write import Writer

MOST_BYTES: Final = (1 << 31) - (1 << 20)  # of a model in one protobuf file


@dataclass(frozen=True)
class Quantized:
    """A quantized model and how it came about.

    model: with QuantizeLinear and DequantizeLinear nodes; table: the ranges found, by tensor;
    layers: the products that are quantized; kept: node -> why it stays float; notes: the rest.
    """

    model: onnx.ModelProto
    table: Table
    layers: tuple[str, ...]
    kept: Mapping[str, str]
    notes: tuple[str, ...]
    feeds: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; weights go to a file beside it where one file cannot hold them."""
        if self.model.ByteSize() > MOST_BYTES:
            name = f"{os.path.basename(os.fspath(path))}.data"
            onnx.save(self.model, os.fspath(path), save_as_external_data=True, location=name)
            return
        with replacing(path) as file:
            file.write(self.model.SerializeToString())


def quantize_model(
    model: Any,
    data: Any = None,
    options: Options | None = None,
    *,
    table: Table | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Quantized:
    """Quantize a float model.

    model: a path, the bytes of a model, or an onnx.ModelProto; data: see `Calibration`; table:
    ranges that are known, then no data is needed. Raises ConfigError where nothing gives ranges or
    nothing can be quantized, and what `braze.build` raises of the float model.
    """
    options = options or Options()
    feeds = None if data is None else as_calibration(data)
    if feeds is not None and options.smooth is not None:
        feeds = repeatable(feeds)
    if feeds is None and (table is None or options.smooth is not None or options.correct_bias):
        raise ConfigError(
            "quantization needs data to calibrate with, or ranges from a calibration cache where "
            "neither smooth nor correct_bias is asked for"
        )
    net, notes = transformed(model, feeds, options, threads, progress)
    placement = place(net, options)
    if not placement.reads:
        reasons = sorted(set(placement.kept.values())) or ["it has no product with a constant"]
        raise ConfigError(f"nothing of this model can be quantized: {'; '.join(reasons)}")
    ranges, count = dict(table.ranges) if table else {}, 0
    if feeds is not None:
        found, count = _calibrate(net, options, placement, feeds, threads, progress, notes)
        ranges = found | ranges
    grids = grids_of(placement, ranges, options)
    writer = Writer(net, options, place(net, options), grids)
    writer.write()
    _check_model(net.model)
    return Quantized(
        net.model,
        Table({name: ranges[name] for name in placement.reads},
              table.kind if table else KINDS.get(options.method.name, "EntropyCalibration2")),
        tuple(placement.layers), placement.kept, (*notes, *writer.notes), count,
    )  # fmt: skip


def _check_model(model: onnx.ModelProto) -> None:
    """Raise ModelError for a model that ONNX refuses, mostly because the one given was such."""
    declare_outputs(model)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as e:
        why = " ".join(str(e).split())
        raise ModelError(
            f"the quantized model is no valid ONNX model: {why}; mend that in the float model: "
            "onnx.checker.check_model tells whether it is one"
        ) from e


def repeatable(calibration: Calibration) -> Calibration:
    """Data that can be gone through as often as it is needed; what a generator gives is kept."""
    data = calibration.data
    if hasattr(data, "__next__"):
        return Calibration(list(islice(data, calibration.most or None)))
    return calibration


def transformed(
    model: Any,
    feeds: Calibration | None,
    options: Options,
    threads: int,
    progress: Progress | None,
) -> tuple[Network, list[str]]:
    """The float network as it is quantized, equalized and smoothed where that is asked for."""
    opset = FLOAT8_OPSET if options.form == "fp8" else CHANNELS_OPSET
    net, notes = Network(whole_model(model), opset), []
    if options.equalize:
        notes.append(f"{equalize(net, _layers(net, options))} pairs of layers equalized")
        net.reindex()
    if options.smooth is not None and feeds is not None:
        notes.append(_smooth(net, options, feeds, threads, progress))
    return net, notes


def _layers(net: Network, options: Options) -> list[Layer]:
    return layers_of(net, place(net, options).layers)


def _smooth(
    net: Network, options: Options, feeds: Calibration, threads: int, progress: Progress | None
) -> str:
    layers = _layers(net, options)
    channels = Channels(dict.fromkeys(smoothed(layers), -1))
    if not channels.axes:
        return "no matrix products to smooth"
    runner = make_runner(net.model, list(channels.axes), threads)
    collect(runner, feeds, channels.add, progress)
    assert options.smooth is not None
    return f"{len(smooth(net, layers, channels, options.smooth))} tensors smoothed"


def _calibrate(
    net: Network,
    options: Options,
    placement: Placement,
    feeds: Calibration,
    threads: int,
    progress: Progress | None,
    notes: list[str],
) -> tuple[dict[str, Range], int]:
    """The range of each tensor that is read quantized, and how many feeds were used."""
    names = list(placement.reads)
    found = histograms(names)
    layers = layers_of(net, placement.layers) if options.correct_bias else []
    channels = Channels({layer.data: layer.data_axis for layer in layers})
    add = add_all(found)

    def use(tensors: Mapping[str, Any]) -> None:
        add(tensors)
        channels.add(tensors)

    count = collect(make_runner(net.model, names, threads), feeds, use, progress)
    if options.correct_bias:
        kind = "e4m3" if options.form == "fp8" else "s8"
        done = correct_biases(layers, channels, options.per_channel, kind)
        notes.append(f"{done} biases corrected")
    notes += [f"{n} holds {h.odd} NaN or infinities" for n, h in found.items() if h.odd]
    ranges: dict[str, Range] = {}
    symmetric = options.symmetric or options.form == "fp8"
    for done, (name, h) in enumerate(found.items(), 1):
        ranges[name] = find_range(h, options.method, symmetric, options.activations == "u8")
        if progress is not None:
            progress("ranges", done, len(found))
    return ranges, count


def grids_of(
    placement: Placement, ranges: Mapping[str, Range], options: Options
) -> dict[str, Grid]:
    """A grid for each group of tensors that share one: it covers all of them."""
    missing = [name for name in placement.reads if name not in ranges]
    if missing:
        raise ConfigError(
            f"there is no range for {_listed(missing)}; calibrate with data, or exclude what reads "
            "them"
        )
    groups: dict[str, list[Range]] = {}
    for name in placement.reads:
        groups.setdefault(placement.root(name), []).append(ranges[name])
    return {
        root: activation_grid(
            Range(min(r.low for r in members), max(r.high for r in members)),
            options.kind,
            options.symmetric,
        )
        for root, members in groups.items()
    }


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"
