"""Calibration data from whatever holds it, as feeds: an array for each input of the network."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from braze.core.dtypes import from_onnx
from braze.core.errors import BindingError, ConfigError, FileError
from braze.quantization.pictures import SUFFIXES, Pictures

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
ARRAYS: Final = (".npy", ".npz")


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a model: its name, numpy type and shape (None: an open size, or open rank)."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None

    @property
    def batch(self) -> int:
        """How many samples one run takes; 1 where any number is taken."""
        return (self.shape[0] or 1) if self.shape else 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Data, and how many feeds of it are used.

    data: one of
      an array: samples along its first axis, for a network of one input;
      a mapping of input names to arrays: one feed;
      an iterable of such feeds, of arrays for the one input, or of samples of it without a batch
      axis; a generator is read once, as far as it is needed;
      the path of a .npy file (an array), a .npz file (a feed), or of a folder of these or of
      pictures, in the order of their names; `Pictures`, which says how pictures become numbers.
    most: how many feeds are used at most (0: all).
    """

    data: Any
    most: int = 0

    def feeds(self, inputs: Sequence[Input]) -> Iterator[Feed]:
        """The feeds, checked; raises ConfigError where there is none."""
        count = 0
        for item in islice(_items(self.data, inputs), self.most or None):
            count += 1
            yield _feed(item, inputs, count)
        if not count:
            raise ConfigError("there is no calibration data; give at least one feed")

    @property
    def total(self) -> int:
        """How many feeds there will be, 0 where that is not known before."""
        known = len(self.data) if isinstance(self.data, (list, tuple, np.ndarray)) else 0
        return min(known, self.most) if known and self.most else known or self.most


def inputs_of(model: onnx.ModelProto) -> list[Input]:
    """What a run of the model must be given."""
    constants = {t.name for t in model.graph.initializer}
    found = []
    for i in model.graph.input:
        if i.name in constants:
            continue
        tensor = i.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None
                      for d in tensor.shape.dim)  # fmt: skip
        dtype = from_onnx(tensor.elem_type, f"input {i.name!r}").numpy
        found.append(Input(i.name, dtype, shape if tensor.HasField("shape") else None))
    return found


def as_calibration(data: Any, most: int = 0) -> Calibration:
    """`data` as a Calibration; one that is given already stays."""
    return data if isinstance(data, Calibration) else Calibration(data, most)


def _items(data: Any, inputs: Sequence[Input]) -> Iterator[Any]:
    if isinstance(data, (str, os.PathLike)):
        return _of_path(Path(data), inputs)
    if isinstance(data, Pictures):
        return data.arrays(_only(inputs, "pictures"))
    if isinstance(data, Mapping):
        return iter([data])
    if isinstance(data, np.ndarray):
        return _batches(data, _only(inputs, "an array"))
    if isinstance(data, Iterable):
        return iter(data)
    raise ConfigError(
        f"calibration data of type {type(data).__name__} is not read; give arrays, feeds (mappings "
        "of input names to arrays), or the path of a folder"
    )


def _of_path(path: Path, inputs: Sequence[Input]) -> Iterator[Any]:
    if path.is_file() and path.suffix in ARRAYS:
        return _of_file(path, inputs)
    if not path.is_dir():
        what = "is no folder and no .npy or .npz file" if path.exists() else "does not exist"
        raise FileError(
            f"calibration data: {path} {what}; give a .npy or .npz file, or a folder of these or of"
            " pictures"
        )
    files = sorted(p for p in path.iterdir() if p.is_file())
    arrays = [p for p in files if p.suffix in ARRAYS]
    if arrays:
        return (item for p in arrays for item in _of_file(p, inputs))
    if any(p.suffix.lower() in SUFFIXES for p in files):
        return Pictures(path).arrays(_only(inputs, "pictures"))
    raise FileError(
        f"calibration data: folder {path} holds no .npy, .npz or picture files; give another one"
    )


def _of_file(path: Path, inputs: Sequence[Input]) -> Iterator[Any]:
    try:
        held = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        where = f"calibration data: {path} cannot be read as arrays"
        raise FileError(f"{where} ({e}); give others") from e
    if path.suffix == ".npz":
        with held:
            yield {name: held[name] for name in held.files}
    else:
        yield from _batches(held, _only(inputs, f"the array {path}"))


def _batches(array: Array, only: Input) -> Iterator[Array]:
    """The array in pieces of as many samples as a run takes; one sample alone as it is."""
    if only.shape is None or array.ndim != len(only.shape) or not array.ndim:
        yield array
        return
    size = only.batch
    for first in range(0, len(array) - size + 1, size):
        yield array[first : first + size]


def _only(inputs: Sequence[Input], what: str) -> Input:
    if len(inputs) != 1:
        names = ", ".join(i.name for i in inputs)
        raise BindingError(
            f"calibration data is {what}, but the model has the inputs {names}; give feeds, "
            "mappings of these names to arrays"
        )
    return inputs[0]


def _feed(item: Any, inputs: Sequence[Input], number: int) -> Feed:
    if not isinstance(item, Mapping):
        item = {_only(inputs, "arrays").name: item}
    missing = [i.name for i in inputs if i.name not in item]
    if missing or len(item) != len(inputs):
        raise BindingError(
            f"feed {number} of the calibration data is for {', '.join(map(str, item))}; the inputs "
            f"are {', '.join(i.name for i in inputs)}"
        )
    return {i.name: _array(item[i.name], i, number) for i in inputs}


def _array(given: Any, to: Input, number: int) -> Array:
    try:
        array = np.asarray(given)
    except Exception as e:  # whatever the conversions of other libraries raise
        raise BindingError(
            f"feed {number} of the calibration data holds no array for input {to.name!r} ({e}); "
            "give a numpy array"
        ) from e
    if to.shape is not None and array.ndim == len(to.shape) - 1:
        array = array[None]
    if array.dtype != to.dtype:
        if array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and to.dtype.kind in "iu"):
            raise BindingError(
                f"feed {number} of the calibration data holds {array.dtype} for input "
                f"{to.name!r}, which is {to.dtype}; convert it"
            )
        array = array.astype(to.dtype)
    return array
