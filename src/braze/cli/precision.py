"""The options of a build that say in which types it computes, in trtexec's names too."""

from __future__ import annotations

import argparse
from typing import Any, Final

from braze.cli.numbers import number
from braze.core.config import LAYER_PRECISIONS, precision_text
from braze.core.errors import ConfigError

_FLAGS: Final = ("fp16", "bf16", "int8", "fp8", "best")
_CONSTRAINTS: Final = ("none", "prefer", "obey")


def add_precision_arguments(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Declare the types that may be computed in, and the data that quantization needs."""
    add = group.add_argument
    add("--precision", metavar="NAMES",
        help="fp32 (the default), tf32 (factors of 11 bits on a GPU), fp16, bf16, int8, fp8, best, "
        "or several joined by commas")  # fmt: skip
    for name in _FLAGS:
        add(f"--{name}", action="append_const", const=name, dest="precision_flags",
            help=argparse.SUPPRESS)  # fmt: skip
    add("--calib", metavar="FILE", help="ranges for --precision=int8: a calibration cache")
    add("--calibData", metavar="PATH", help="data for it: what `braze quantize --data` takes")
    add("--precisionBudget", type=number(0, 1e6), metavar="E",
        help="largest relative error of int8; layers stay float until it holds")  # fmt: skip
    add("--layerPrecisions", metavar="SPEC",
        help="types of single layers by name or pattern, e.g. conv1:fp32,head*:fp16")  # fmt: skip
    add("--precisionConstraints", choices=_CONSTRAINTS, default="obey",
        help="none: leave --layerPrecisions out of account")  # fmt: skip


def precision_keywords(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `braze.build` that they stand for."""
    names = [*(args.precision.split(",") if args.precision else ()), *(args.precision_flags or ())]
    if args.calib and args.calibData:
        raise ConfigError("--calib and --calibData both give ranges; leave one out")
    layers = {} if args.precisionConstraints == "none" else _layers(args.layerPrecisions)
    return {
        "precision": precision_text(names or "fp32"),
        "layer_precisions": layers,
        "calibration": _calibration(args),
    }


def _calibration(args: argparse.Namespace) -> Any:
    """The path of data or of a cache; with a budget, a recipe."""
    if args.precisionBudget is None:
        return args.calib or args.calibData
    if not args.calibData:
        raise ConfigError("--precisionBudget needs data to measure errors on; give --calibData")
    from braze.quantization.recipe import Recipe  # other builds do without

    return Recipe(args.calibData, budget=args.precisionBudget)


def _layers(text: str | None) -> dict[str, str]:
    found = {}
    for part in text.split(",") if text else ():
        name, colon, precision = part.rpartition(":")
        if not (colon and name and precision in LAYER_PRECISIONS):
            raise ConfigError(
                f"--layerPrecisions: {part!r} is not a name and one of "
                f"{', '.join(LAYER_PRECISIONS)}, joined by a colon"
            )
        found[name] = precision
    return found
