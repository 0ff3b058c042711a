"""TensorProto -> numpy, with every length checked; external data is memory-mapped."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from braze.core.dtypes import BF16, BY_ONNX, I64, DType
from braze.core.elements import size_of, unpack
from braze.core.errors import ModelError
from braze.frontend.onnx.records import TensorRecord, Unreadable

Array = np.ndarray[Any, Any]

# typed fields of TensorProto that carry each element type when raw_data is absent
_FIELDS = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint64": "uint64_data",
    "uint32": "uint64_data",
}
_DEFAULT_FIELD = "int32_data"
MAX_RANK = 64
MAX_BYTES = 1 << 46
MAX_DENSE_BYTES = 1 << 32  # of a sparse tensor, which takes no room in the file


class ExternalData:
    """Files beside the model that hold tensor bytes; each is mapped once.

    model: the model's path, or None for a model that came as bytes or a ModelProto (external data
    is then refused, because nothing tells where its files are). A model behind a link has two
    folders: that of the link and that of the file itself. Data is looked for in both in this order,
    by a name that stays inside; if that is a link, its file must be in one of them as well. That
    is how download caches are laid out (model and data are links into one folder of blobs), and no
    model can read what lies elsewhere.
    """

    def __init__(self, model: Path | None) -> None:
        named = () if model is None else (model.absolute().parent, model.resolve().parent)
        self._folders = tuple(dict.fromkeys(named))
        self._maps: dict[Path, Array] = {}

    def read(self, proto: onnx.TensorProto, num_bytes: int, where: str) -> Array:
        """The `num_bytes` bytes (uint8) that an external tensor refers to."""
        info = {e.key: e.value for e in proto.external_data}
        if not all(isinstance(s, str) for pair in info.items() for s in pair):
            raise ModelError(f"{where}: external data fields are not valid UTF-8")
        data = self._map(info.get("location", ""), where)
        offset = _whole_number(info.get("offset", "0"), "offset", where)
        length = _whole_number(info.get("length", str(num_bytes)), "length", where)
        if length != num_bytes:
            raise ModelError(
                f"{where}: external data has length {length} but the tensor needs {num_bytes} "
                "bytes; save the model again"
            )
        if offset + length > data.size:
            raise ModelError(
                f"{where}: external data at offset {offset} with length {length} ends after the "
                f"file's {data.size} bytes; the file is truncated or belongs to another model"
            )
        return data[offset : offset + length]

    def _map(self, location: str, where: str) -> Array:
        if not self._folders:
            raise ModelError(
                f"{where}: its data is in the external file {location!r}; pass the model as a path "
                "so that the file can be found"
            )
        path = self._inside(location, where)
        if path not in self._maps:
            try:
                size = path.stat().st_size
                empty = np.zeros(0, np.uint8)
                self._maps[path] = np.memmap(path, np.uint8, "r") if size else empty
            except (OSError, ValueError) as e:
                raise ModelError(
                    f"{where}: external data file {location!r} cannot be read ({e}); put it beside "
                    "the model"
                ) from e
        return self._maps[path]

    def _inside(self, location: str, where: str) -> Path:
        if not location or "\0" in location:
            raise ModelError(f"{where}: external data has no file name; save the model again")
        steps = location.replace("\\", "/").split("/")
        if steps[0] == "" or location[1:2] == ":" or ".." in steps:
            raise ModelError(
                f"{where}: external data path {location!r} leaves the model's folder; only files "
                "in the model's folder are read"
            )
        places = [folder / location for folder in self._folders]
        path = next((p for p in places if os.path.lexists(p)), None)
        if path is None:
            raise ModelError(
                f"{where}: external data file {location!r} does not exist beside the model; "
                "copy it there"
            )
        real = Path(os.path.realpath(path))
        if not any(real.is_relative_to(folder.resolve()) for folder in self._folders):
            raise ModelError(
                f"{where}: external data path {location!r} is a symbolic link that leaves the "
                f"model's folder (to {str(real)!r}); put the file itself beside the model"
            )
        if not real.exists():
            raise ModelError(
                f"{where}: external data path {location!r} is a symbolic link to {str(real)!r}, "
                "which does not exist; download or copy that file again"
            )
        if not real.is_file():
            raise ModelError(
                f"{where}: external data path {location!r} is not a regular file; save the model "
                "again with its data in a file"
            )
        return real


def _whole_number(text: str, what: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ModelError(f"{where}: external data has {what} {text!r}; save the model again")
    return int(text)


def decode_tensor(
    proto: onnx.TensorProto, external: ExternalData, where: str
) -> TensorRecord | Unreadable:
    """The tensor of a TensorProto; Unreadable for types that braze has no arithmetic for.

    Raises ModelError, naming `where`, when dims, field lengths or external data do not fit.
    """
    dtype = BY_ONNX.get(proto.data_type)
    if dtype is None:
        return Unreadable(f"element type {onnx_type_name(proto.data_type)}")
    if proto.HasField("segment"):
        raise ModelError(f"{where}: segmented tensors are not supported; save the model again")
    shape = tuple(proto.dims)
    if any(d < 0 for d in shape):
        raise ModelError(f"{where}: dims {list(shape)} hold a negative size")
    if len(shape) > MAX_RANK:
        raise ModelError(f"{where}: rank {len(shape)} is larger than {MAX_RANK}")
    count = math.prod(shape)
    num_bytes = size_of(count, dtype)
    if num_bytes > MAX_BYTES:
        raise ModelError(f"{where}: dims {list(shape)} need more than {MAX_BYTES} bytes")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        flat = unpack(external.read(proto, num_bytes, where), dtype, count)
    elif proto.HasField("raw_data"):
        flat = _from_raw(proto.raw_data, dtype, count, where)
    else:
        flat = _from_field(proto, dtype, count, where)
    if dtype.kind == "b":
        flat = flat.view(np.uint8) != 0
    return TensorRecord(proto.name, dtype, flat.reshape(shape))


def decode_sparse(
    proto: onnx.SparseTensorProto, external: ExternalData, where: str
) -> TensorRecord | Unreadable:
    """A sparse tensor as a dense one (zeros where it holds nothing).

    indices: positions in row-major order [count], or an index an axis [count, rank]. Raises
    ModelError, naming `where`, when they do not fit or the dense tensor is too large.
    """
    values = decode_tensor(proto.values, external, f"{where}: its values")
    places = decode_tensor(proto.indices, external, f"{where}: its indices")
    if isinstance(values, Unreadable):
        return values
    if isinstance(places, Unreadable) or places.dtype is not I64:
        raise ModelError(f"{where}: its indices are no int64 numbers; it is damaged")
    shape, found, count = tuple(proto.dims), places.array, values.array.size
    if len(shape) > MAX_RANK or any(d < 0 for d in shape):
        raise ModelError(f"{where}: dims {list(shape)} are no shape; it is damaged")
    if size_of(math.prod(shape), values.dtype) > MAX_DENSE_BYTES:
        raise ModelError(
            f"{where}: dims {list(shape)} need more than {MAX_DENSE_BYTES} bytes as a dense "
            "tensor, which is how braze stores it"
        )
    linear = found.shape == (count,)
    if not linear and found.shape != (count, len(shape)):
        raise ModelError(f"{where}: its indices do not fit {count} values; it is damaged")
    limits = (math.prod(shape),) if linear else shape
    columns = found.reshape(count, len(limits))
    if (columns < 0).any() or (columns >= np.array(limits, np.int64)).any():
        raise ModelError(f"{where}: an index lies outside dims {list(shape)}; it is damaged")
    dense = np.zeros(limits, values.array.dtype)
    dense[tuple(columns.T)] = values.array.reshape(-1)
    return TensorRecord(proto.values.name, values.dtype, dense.reshape(shape))


def _from_raw(raw: bytes, dtype: DType, count: int, where: str) -> Array:
    if len(raw) != size_of(count, dtype):
        raise ModelError(
            f"{where}: raw data has {len(raw)} bytes but {count} elements of {dtype} need "
            f"{size_of(count, dtype)}; the model is damaged"
        )
    if dtype.is_narrow:
        return unpack(np.frombuffer(raw, np.uint8), dtype, count)
    # ONNX stores little-endian bytes whatever the machine is
    little = np.frombuffer(raw, dtype.numpy.newbyteorder("<"))
    return little.astype(dtype.numpy, copy=False)


def _from_field(proto: onnx.TensorProto, dtype: DType, count: int, where: str) -> Array:
    field = _FIELDS.get(dtype.name, _DEFAULT_FIELD)
    data = getattr(proto, field)
    if len(data) != (size_of(count, dtype) if dtype.is_narrow else count):
        raise ModelError(
            f"{where}: {field} has {len(data)} elements but its dims ask for {count}; the model "
            "is damaged"
        )
    if field != _DEFAULT_FIELD:
        return _narrow(np.array(data, _FIELD_DTYPES[field]), dtype, where)
    ints = np.array(data, np.int32)
    if dtype.name == "float16" or dtype is BF16:
        # the low 16 bits of each int32 are the bit pattern
        return ints.astype(np.uint16).view(dtype.numpy)
    if dtype.is_narrow:  # each int32 is a packed byte
        return unpack(ints.astype(np.uint8), dtype, count)
    return _narrow(ints, dtype, where)


_FIELD_DTYPES = {
    "float_data": np.float32,
    "double_data": np.float64,
    "int64_data": np.int64,
    "uint64_data": np.uint64,
}


def _narrow(data: Array, dtype: DType, where: str) -> Array:
    if dtype.is_int and data.size:
        info = np.iinfo(dtype.name)
        if int(data.min()) < info.min or int(data.max()) > info.max:
            raise ModelError(f"{where}: its data holds values that {dtype} cannot; it is damaged")
    return data.astype(np.uint8 if dtype.kind == "b" else dtype.numpy)


def onnx_type_name(number: int) -> str:
    """ONNX's name of an element type number ("STRING", "FLOAT8E4M3FN"), or the number."""
    try:
        return str(onnx.TensorProto.DataType.Name(number))
    except ValueError:
        return f"number {number}"
