"""Pictures of a folder as input of a network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braze.core.errors import ConfigError, FileError

if TYPE_CHECKING:
    from braze.quantization.data import Input

Array = np.ndarray[Any, Any]
SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".gif", ".tif", ".tiff")
_CHANNELS: Final = (1, 3)


@dataclass(frozen=True, slots=True)
class Pictures:
    """(pixel / 255 - mean) / std of every picture of a folder, in the order of their names.

    Pictures are resized to `size`, (height, width), or to what the input has; channels come first
    or last as in the input's shape. mean, std: one number, or one for each channel, in the order
    that the network takes, which is red, green, blue unless `bgr`.
    """

    folder: str | os.PathLike[str]
    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False

    def arrays(self, to: Input) -> Iterator[Array]:
        """A batch of one picture after another."""
        try:
            from PIL import Image
        except ImportError:
            raise ConfigError(
                "pictures need the pillow package; install it, or give arrays (.npy files)"
            ) from None
        channels, first, size = self._form(to)
        files = sorted(p for p in Path(self.folder).iterdir() if p.suffix.lower() in SUFFIXES)
        for path in files:
            try:
                with Image.open(path) as opened:
                    rgb = opened.convert("RGB" if channels == 3 else "L")
            except OSError as e:
                raise FileError(f"calibration data: {path} is no picture that is read: {e}") from e
            small = rgb.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            x = np.asarray(small, np.float32).reshape(*size, channels) / np.float32(255)
            x = x[..., ::-1] if self.bgr else x
            x = (x - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
            x = np.ascontiguousarray(x.transpose(2, 0, 1) if first else x)
            yield np.repeat(x[None], to.batch, 0) if to.batch > 1 else x[None]

    def _form(self, to: Input) -> tuple[int, bool, tuple[int, int]]:
        """(channels, whether they come first, (height, width))."""
        shape = to.shape or ()
        if len(shape) == 4 and (shape[1] in _CHANNELS or shape[3] in _CHANNELS):
            first = shape[1] in _CHANNELS
            height, width = (shape[2], shape[3]) if first else (shape[1], shape[2])
            size = self.size or (height and width and (height, width))
            if size:
                return int(shape[1 if first else 3] or 3), first, size
            raise ConfigError(
                f"input {to.name!r} takes pictures of any size; say which calibration uses: "
                "Pictures(folder, size=(height, width)), on the command line --pictureSize"
            )
        raise ConfigError(
            f"input {to.name!r} of shape {list(shape)} takes no pictures (four axes, one of 1 or 3 "
            "channels); give arrays"
        )
