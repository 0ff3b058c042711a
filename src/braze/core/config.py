"""Build options: frozen data, checked on construction, and what each optimization level does."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from braze.core.errors import ConfigError
from braze.core.words import shown, worded

if TYPE_CHECKING:
    from typing import TypeGuard

ShapeRange = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # min, opt, max
MAX_SIZE: Final = (1 << 31) - 1  # of an axis
MAX_ELEMENTS: Final = (1 << 62) - 1  # of a tensor
PRECISIONS: Final = ("fp32", "tf32", "fp16", "bf16", "int8", "fp8", "best")
LAYER_PRECISIONS: Final = ("fp32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Effort:
    """What one optimization level does. The compiler asks this, never the number of a level.

    fuse: rewrite the graph and fuse its ops into kernels; without, a kernel an op.
    estimate: let cost models rank templates and their parameters; without, the simplest template
    with parameters that compile fast.
    measure: time tactics on this machine and keep the fastest; without, take the first.
    tactics: the most tactics that are offered for a product, a convolution or an attention.
    transforms: how many sizes of transformed convolutions (Winograd) are offered where a rule on
    the sizes says that they pay; they round differently from the direct sum. With 1 the rule
    chooses, so that two builds of one model agree; with 2 measurement does.
    loop_slack: how much dearer than the best, by estimate, a schedule of a loop nest may be and
    still be offered; unrolls: the vectors per step it is offered with (0: by the nest).
    again: how many tactics of a product are timed that was timed behind another epilogue before:
    those that were fastest there; 0 for all.
    in_place: of how many kernels, those that take most time, other tactics are tried in the
    finished network; for devices.
    tf32: operands of float32 products may be rounded to 11 bits where that is faster.
    """

    fuse: bool
    estimate: bool
    measure: bool
    tactics: int = 1
    transforms: int = 0
    loop_slack: float = 1.0
    unrolls: tuple[int, ...] = (0,)
    again: int = 0
    in_place: int = 0
    tf32: bool = False


# optimization level -> what it does; `about` in the help of the command line says it in words
EFFORTS: Final = (
    Effort(fuse=False, estimate=False, measure=False),
    Effort(fuse=True, estimate=False, measure=False),
    Effort(fuse=True, estimate=True, measure=False, transforms=1),
    Effort(True, True, True, 4, 1, loop_slack=1.5, unrolls=(0, 1, 4), again=2, in_place=6),
    Effort(True, True, True, 8, 2, loop_slack=4.0, unrolls=(0, 1, 4), again=8, in_place=16),
    Effort(True, True, True, 16, 2, loop_slack=1e3, unrolls=(0, 1, 2, 4, 8), again=16, in_place=48),
)


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """What `braze.build` was asked for.

    precision: of PRECISIONS, one or several joined by commas (`precision_text`). "fp32", where
    products of float32 keep its 24 bits, or "tf32", where a target that has TF32 rounds their
    operands to its 11; networks keep their types in both. "fp16" and "bf16" compute in that type
    what is float32, where that is safe; "int8" and "fp8" were quantized before they got here.
    layer_precisions: (pattern of ONNX node names, one of LAYER_PRECISIONS); the last that matches
    counts.
    optimization_level: an index of EFFORTS; debug: intermediate tensor names that can be read
    back.
    """

    precision: str = "fp32"
    optimization_level: int = 3
    timing_cache: str | os.PathLike[str] | None = None
    debug: tuple[str, ...] = ()
    layer_precisions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in self.asked:
            if name not in PRECISIONS:
                raise ConfigError(
                    f"precision {name!r} is not available; use one of {', '.join(PRECISIONS)}"
                )
        for pattern, name in self.layer_precisions:
            if not isinstance(pattern, str):
                raise ConfigError(
                    f"layer_precisions names layer {shown(pattern)}, which is no text; give ONNX "
                    "node names or patterns of them"
                )
            if not isinstance(name, str) or name not in LAYER_PRECISIONS:
                raise ConfigError(
                    f"precision {shown(name)} of layer {pattern!r} is not available; use one of "
                    f"{', '.join(LAYER_PRECISIONS)} (what is int8 or fp8 is decided by Q/DQ nodes)"
                )
        _check_level(self.optimization_level)
        if not isinstance(self.timing_cache, (str, os.PathLike, type(None))):
            raise ConfigError(f"timing_cache={shown(self.timing_cache)} is no path; give a file's")
        if not all(isinstance(name, str) for name in self.debug):
            raise ConfigError(f"debug={shown(self.debug)} holds what is no text; give tensor names")

    @property
    def asked(self) -> tuple[str, ...]:
        """The names in `precision`."""
        return tuple(self.precision.split(","))

    @property
    def lowers(self) -> bool:
        """Whether types of the network may change."""
        return bool(self.layer_precisions) or not {"fp32", "tf32"}.issuperset(self.asked)

    @property
    def effort(self) -> Effort:
        """What the optimization level does, in the precision asked for."""
        effort = EFFORTS[self.optimization_level]
        return replace(effort, tf32=True) if {"tf32", "best"} & set(self.asked) else effort


def _check_level(level: object) -> None:
    form = f"a number from 0 (no fusion) to {len(EFFORTS) - 1} (measures most)"
    if type(level) is not int:
        what = f"optimization_level={shown(level)} is a {type(level).__name__}"
        raise ConfigError(f"{what}, not a whole number; give {form}")
    if level not in range(len(EFFORTS)):
        raise ConfigError(
            f"optimization_level={level} is outside 0..{len(EFFORTS) - 1}; give {form}"
        )


def _are_names(given: object) -> TypeGuard[Collection[str]]:
    """Whether it is a collection of texts, and not an empty one."""
    if not isinstance(given, Collection) or getattr(given, "shape", None) == ():
        return False  # an array of no axes only looks like one
    return len(given) > 0 and all(isinstance(name, str) for name in given)


def names_layer(pattern: str, name: str) -> bool:
    """Whether a pattern of `layer_precisions` stands for the ONNX node called `name`."""
    return pattern == name or fnmatchcase(name, pattern)


def check_layers(config: BuildConfig, names: Collection[str]) -> None:
    """Raise ConfigError for a pattern of `layer_precisions` that none of `names` matches."""
    for pattern, _ in config.layer_precisions:
        if any(names_layer(pattern, name) for name in names):
            continue
        close = difflib.get_close_matches(pattern.strip("*?"), names, 1, 0.4)
        hint = f"did you mean {close[0]!r}?" if close else "give the name of one"
        text = f"names {pattern!r}, but no node of the model is called so; {hint}"
        options = worded(lambda words: words.option("layer_precisions"))
        raise ConfigError(*(f"{option} {text}" for option in options))


def precision_text(given: object) -> str:
    """A precision, or several of them, as one text: in the order of PRECISIONS, each once.

    What is no name of a precision stays in it, and BuildConfig refuses it.
    """
    if isinstance(given, str):
        names = [name.strip() for name in given.split(",")]
    elif _are_names(given):
        names = list(given)
    else:
        raise ConfigError(
            f"precision={shown(given)} is no name; use one of {', '.join(PRECISIONS)}, or a set "
            "of them"
        )
    order = {name: i for i, name in enumerate(PRECISIONS)}
    return ",".join(sorted(dict.fromkeys(names), key=lambda n: (order.get(n, -1), n)))
