"""Build options: frozen data, checked on construction."""

from __future__ import annotations

import os
from dataclasses import dataclass

from braze.core.errors import ConfigError

ShapeRange = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # min, opt, max
PRECISIONS = ("fp32",)


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """What `braze.build` was asked for.

    optimization_level: 0 no fusion and no tuning, 1 fusion only, 2 cost model,
    3 measured (default), 4-5 measured over more tactics; debug: intermediate tensor names that can
    be read back.
    """

    precision: str = "fp32"
    optimization_level: int = 3
    timing_cache: str | os.PathLike[str] | None = None
    debug: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"precision {self.precision!r} is not available; use one of {', '.join(PRECISIONS)}"
            )
        if self.optimization_level not in range(6):
            raise ConfigError(f"optimization_level={self.optimization_level} is not in 0..5")
        if not isinstance(self.timing_cache, (str, os.PathLike, type(None))):
            raise ConfigError(f"timing_cache={self.timing_cache!r} is not the name of a file")
        if not all(isinstance(name, str) for name in self.debug):
            raise ConfigError(f"debug={self.debug!r} is not a sequence of tensor names")
