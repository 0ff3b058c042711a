"""Values of `braze exec`'s options that have a form of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from braze.cli.callers import WeightBudget
from braze.core.errors import ConfigError

MOST_BYTES: Final = float(1 << 62)
# trtexec's names of element types -> braze's
IO_TYPES: Final = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int32": "int32",
    "int64": "int64",
    "int8": "int8",
    "uint8": "uint8",
    "bool": "bool",
}
FORMATS: Final = (
    "chw", "chw2", "hwc8", "chw4", "chw16", "chw32", "dhwc8", "cdhw32", "hwc", "dla_linear",
    "dla_hwc4", "hwc16", "dhwc",
)  # fmt: skip
DEBUG_FORMATS: Final = ("summary", "numpy", "string", "raw")
ALGORITHMS: Final = ("l0", "l1", "l2", "lInf", "cos")


@dataclass(frozen=True, slots=True)
class IoFormat:
    """The type and layout asked of an input or output; "" for the type of the model."""

    dtype: str
    text: str


def parse_formats(text: str | None, option: str) -> tuple[IoFormat, ...]:
    """`fp32:chw,fp16:chw+hwc8`, or layouts alone; raises ConfigError for others than chw."""
    if text is None:
        return ()
    found = []
    for item in text.split(","):
        kind, colon, layouts = item.rpartition(":")
        names = layouts.split("+")
        if (colon and kind not in IO_TYPES) or any(n not in FORMATS for n in names):
            raise ConfigError(
                f"{option}: {item!r} is not of the form fp32:chw; types are "
                f"{', '.join(IO_TYPES)}, and layouts {', '.join(FORMATS)}"
            )
        if "chw" not in names:
            raise ConfigError(
                f"{option}: {item!r} leaves out chw, the one layout of inputs and outputs here; "
                "transpose them in the model"
            )
        found.append(IoFormat(IO_TYPES.get(kind, ""), item))
    return tuple(found)


def check_formats(formats: Sequence[IoFormat], types: dict[str, str], option: str) -> None:
    """Raise ConfigError unless formats name the types that a network's tensors have."""
    if not formats:
        return
    if len(formats) not in (1, len(types)):
        raise ConfigError(
            f"{option} has {len(formats)} entries, and there are {len(types)} tensors; give one "
            "for all, or one for each"
        )
    given = [*formats] * (len(types) if len(formats) == 1 else 1)
    for (name, dtype), wanted in zip(types.items(), given, strict=True):
        if wanted.dtype not in ("", dtype):
            raise ConfigError(
                f"{option} asks for {wanted.text} of {name!r}, which is {dtype} in the model; "
                "put a Cast there"
            )


def parse_percentiles(text: str) -> tuple[float, ...]:
    """`90,95,99`."""
    try:
        out = tuple(float(p) for p in text.split(","))
    except ValueError:
        out = ()
    if not out or not all(0 <= p <= 100 for p in out):
        raise ConfigError(f"--percentile={text} is not a list of numbers from 0 to 100")
    return out


def parse_budget(text: str | None) -> WeightBudget | None:
    """Bytes, `30%`, -1 (braze chooses) or -2 (all); the last two are no limit."""
    if text in (None, "-2", "-1"):
        return None
    amount = text.removesuffix("%")
    part = amount != text
    try:
        value = float(amount) if part else float(int(amount))
    except (ValueError, OverflowError):
        value = -1.0
    if not 0 <= value <= (100 if part else MOST_BYTES):
        raise ConfigError(
            f"--weightStreamingBudget={text} is neither bytes, nor a part as 30%, nor -1 or "
            "-2 (all)"
        )
    return WeightBudget(value, part)


def parse_duration(text: str) -> float:
    """Seconds; -1 goes on until it is interrupted."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if value == -1:
        return math.inf
    if not 0 <= value <= 1e9:
        raise ConfigError(f"--duration={text} is no number of seconds; -1 goes on forever")
    return value


def parse_choices(text: str | None, option: str, choices: Sequence[str]) -> tuple[str, ...]:
    """A list of known words."""
    words = () if text is None else tuple(text.split(","))
    unknown = [w for w in words if w not in choices]
    if unknown:
        raise ConfigError(f"{option}: {unknown[0]!r} is none of {', '.join(choices)}")
    return words
