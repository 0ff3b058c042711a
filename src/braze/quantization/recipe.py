"""Quantization as a step of a build."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import onnx

from braze.core.config import BuildConfig
from braze.core.errors import ConfigError
from braze.core.trace import Trace
from braze.core.words import shown, worded
from braze.frontend.onnx.whole import whole_model
from braze.quantization.data import ARRAYS
from braze.quantization.flow import quantize_model
from braze.quantization.options import Options
from braze.quantization.search import search
from braze.quantization.table import read_table
from braze.quantization.thresholds import in_range

# ops that only quantized models have
_QUANTIZED: Final = (
    "QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger", "MatMulNBits"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a build quantizes: data or the path of a calibration cache, or both, and the options.

    `options.form` is overruled by the precision of the build. budget: the largest error of the
    outputs (`search.py`); layers stay float until it holds. It needs data, and no cache.
    """

    data: Any = None
    options: Options = field(default_factory=Options)
    cache: str | os.PathLike[str] | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.options, Options):
            raise ConfigError(f"options={shown(self.options)} are no Options; give those")
        if self.budget is not None and not in_range(self.budget, 0, float("inf")):
            raise ConfigError(f"budget={shown(self.budget)} is no error; give one like 0.01")


def quantized_for_build(
    model: Any, config: BuildConfig, calibration: Any, threads: int, trace: Trace
) -> Any:
    """The model of a build whose precision has int8 or fp8, or that was given a calibration.

    A model that is quantized already stays as it is. Raises ConfigError for a calibration that no
    precision asks for, and where one is missing.
    """
    forms = [name for name in ("int8", "fp8") if name in config.asked]
    if "best" in config.asked and calibration is not None:
        forms = forms or ["int8"]
    if not forms:
        raise ConfigError(
            *worded(
                lambda words: (
                    f"there is calibration data, but {words.option('precision', config.precision)} "
                    f"quantizes nothing; use {words.option('precision', 'int8')}"
                )
            )
        )
    if len(forms) > 1:
        raise ConfigError("int8 and fp8 are both asked for; give one of them")
    source = whole_model(model)
    if any(n.op_type in _QUANTIZED or n.op_type.startswith("QLinear") for n in source.graph.node):
        trace.decide("note", text="the model is quantized already, and runs as it is written")
        return model
    if calibration is None:
        raise ConfigError(
            *worded(
                lambda words: (
                    f"{words.option('precision', forms[0])} needs data, as the model is not "
                    f"quantized; give {words.option('calibration', '...')}"
                )
            )
        )
    return _quantized(source, forms[0], as_recipe(calibration), config, threads, trace)


def as_recipe(calibration: Any) -> Recipe:
    """What `calibration` of a build stands for: the path of a file without arrays is a cache."""
    if isinstance(calibration, Recipe):
        return calibration
    if isinstance(calibration, (str, os.PathLike)):
        path = Path(calibration)
        if path.suffix not in ARRAYS and not path.is_dir():
            return Recipe(cache=path)
    return Recipe(calibration)


def _quantized(
    model: onnx.ModelProto,
    form: str,
    recipe: Recipe,
    config: BuildConfig,
    threads: int,
    trace: Trace,
) -> onnx.ModelProto:
    kept = tuple(pattern for pattern, _ in config.layer_precisions)
    options = replace(recipe.options, form=form, exclude=(*recipe.options.exclude, *kept))
    with trace.stage("quantize"):
        if recipe.budget is not None:
            return _searched(model, options, recipe, threads, trace)
        done = quantize_model(
            model,
            recipe.data,
            options,
            table=None if recipe.cache is None else read_table(recipe.cache),
            threads=threads,
            progress=trace.progress,
        )
    for name, why in done.kept.items():
        trace.decide("precision", at=name, runs="float32", why=f"not quantized: {why}")
    for note in done.notes:
        trace.decide("note", text=note)
    return done.model


def _searched(
    model: onnx.ModelProto, options: Options, recipe: Recipe, threads: int, trace: Trace
) -> onnx.ModelProto:
    """Quantized as far as the budget allows; the record has each layer's own error."""
    if recipe.data is None or recipe.budget is None:
        raise ConfigError("a precision budget needs data to measure errors on, not only ranges")
    found = search(
        model, recipe.data, recipe.budget, options, threads=threads, progress=trace.progress
    )
    for x in found.layers:
        why = f"asked; alone it makes an error of {x.error:.1e}"
        if x.runs == "float32":
            why = f"kept for accuracy: alone it would make an error of {x.error:.1e}"
        trace.decide("precision", at=x.name, runs=x.runs, why=why)
    text = f"quantized with an error of {found.error:.1e}, within {found.bound:g}"
    trace.decide("note", text=text)
    return found.quantized.model
