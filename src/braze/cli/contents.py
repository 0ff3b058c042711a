"""Contents of inputs in files of the user, read before a build so that it is not in vain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import numpy as np

from braze.cli.shapes import Shape
from braze.core.dtypes import DType
from braze.core.elements import relabelled, size_of, unpack
from braze.core.errors import DTypeError, FileError, ShapeError
from braze.core.files import readable_source

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds: the array of a .npy file, or the raw bytes of any other."""

    path: str
    data: Union[Array, bytes]

    def array(self, dtype: DType, shape: Shape) -> Array:
        """The array for an input of this type: that of a .npy file whatever its shape is.

        Raw bytes are in native order and must fill `shape` exactly. Raises ShapeError, DTypeError.
        """
        if isinstance(self.data, bytes):
            need = size_of(math.prod(shape), dtype)
            if len(self.data) != need:
                raise ShapeError(
                    f"{self.path} holds {len(self.data)} bytes, but {dtype} of shape {shape} needs "
                    f"{need}; give the right --shapes"
                )
            return unpack(np.frombuffer(self.data, np.uint8), dtype, math.prod(shape)).reshape(
                shape
            )
        array: Array = relabelled(self.data, dtype)
        if array.dtype != dtype.numpy:
            raise DTypeError(
                f"{self.path} holds {array.dtype} but the input is {dtype}; save it as that type"
            )
        return array


def read_contents(files: Mapping[str, str]) -> dict[str, Content]:
    """The files that --loadInputs names, by input; raises FileError."""
    return {name: _read(f"input {name!r}", path) for name, path in files.items()}


def _read(what: str, path: str) -> Content:
    source = readable_source(path, what)
    if Path(path).suffix != ".npy":
        return Content(path, source.read_bytes())
    with source.open("rb") as file:
        try:
            array = np.lib.format.read_array(file, allow_pickle=False)
        except (MemoryError, OSError):
            raise
        except Exception as e:  # what numpy raises depends on where the file stops making sense
            raise FileError(
                f"{what}: {path} is not a .npy file of numbers; write one with numpy.save"
            ) from e
    return Content(path, array)
