"""`braze.quantize`: quantization with keyword arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

import numpy as np

from braze.core.errors import ConfigError
from braze.core.files import writable_target
from braze.core.trace import Progress
from braze.core.words import shown
from braze.quantization.data import as_calibration
from braze.quantization.flow import Quantized, quantize_model
from braze.quantization.options import Options
from braze.quantization.table import read_table
from braze.quantization.thresholds import Method, in_range

MOST_SAMPLES: Final = (1 << 63) - 1

if TYPE_CHECKING:
    from typing_extensions import Unpack


class QuantizeOptions(TypedDict, total=False):
    """What `Options` says, by keyword; sequences for its tuples."""

    form: str
    activations: str
    symmetric: bool
    per_channel: bool
    bias: str
    ops: Sequence[str]
    exclude: Sequence[str]
    data_products: bool
    smooth: float | None
    equalize: bool
    correct_bias: bool


def quantize(
    model: Any,
    data: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    method: str = "mse",
    percentile: float = 99.99,
    samples: int = 0,
    calibration_cache: str | os.PathLike[str] | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    **options: Unpack[QuantizeOptions],
) -> Quantized:
    """Quantize a float ONNX model: a standard model with QuantizeLinear and DequantizeLinear nodes.

    model: a path, the bytes of a model, or an onnx.ModelProto.
    data: what activations are calibrated with: an array of samples, feeds (mappings of input names
        to arrays), an iterable of these, or the path of .npy and .npz files or of a folder of
        pictures; see `braze.quantization.data.Calibration`.
    output: file to write the model to.
    method: how ranges are chosen: "mse", "minmax", "average" (of batches' extremes), "percentile",
        "entropy" (TensorRT's second generation) or "entropy1" (its first).
    samples: how many feeds are used at most (0: all).
    calibration_cache: a file of TensorRT or braze with ranges; what it has needs no data.
    threads: of the runs on the data.
    options: see `braze.quantization.options.Options`: `form` ("int8" or "fp8"), `activations`
        ("s8" or "u8"), `symmetric`, `per_channel`, `bias`, `ops`, `exclude` (names or patterns of
        nodes or op types that stay float), `data_products`, `smooth`, `equalize`, `correct_bias`.

    Raises ConfigError, FileError, ModelError and what `braze.build` raises of the float model.
    """
    if not (progress is None or callable(progress)):
        raise ConfigError(f"progress={shown(progress)} cannot be called; give a function")
    if not isinstance(samples, (int, np.integer)) or not in_range(samples, 0, MOST_SAMPLES):
        raise ConfigError(f"samples={shown(samples)} is not a number of feeds; give 0 for all")
    if not isinstance(threads, (int, np.integer)) or isinstance(threads, bool) or threads < 0:
        raise ConfigError(f"threads={shown(threads)} is not a number of threads; give 1 or more")
    if output is not None:
        writable_target(output)  # before the work, not after it
    made: dict[str, Any] = {
        name: tuple(v) if isinstance(v, Sequence) and not isinstance(v, str) else v
        for name, v in options.items()
    }
    quantized = quantize_model(
        model,
        None if data is None else as_calibration(data, samples),
        Options(method=Method(method, percentile), **made),
        table=None if calibration_cache is None else read_table(calibration_cache),
        threads=threads,
        progress=progress,
    )
    if output is not None:
        quantized.save(output)
    return quantized
