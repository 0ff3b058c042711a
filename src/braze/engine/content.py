"""Contents of constant inputs as bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from braze.core.dtypes import DType


def pack_content(dtype: DType, values: Sequence[int | float]) -> bytes:
    """The stored bytes of `values`, rounded to nearest even."""
    return bytes(np.asarray(values, dtype.numpy.newbyteorder("<")).tobytes())


def unpack_content(dtype: DType, data: bytes) -> tuple[int | float, ...]:
    """The values of stored bytes, flat."""
    array = np.frombuffer(data, dtype.numpy.newbyteorder("<"))
    return tuple(array.view(np.uint8).tolist() if dtype.kind == "b" else array.tolist())
