"""The numpy meaning of one op on constants: what folding at import and the folding pass share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from braze.core.dtypes import DType, from_numpy
from braze.core.elements import number_type, numbers, stored
from braze.core.errors import BrazeError
from braze.ir.graph import TensorType

Array = np.ndarray[Any, Any]


def evaluate_constants(
    op: Any, arrays: Sequence[Array | None], types: Sequence[TensorType]
) -> list[Array] | None:
    """Outputs of `op.reference` as stored arrays of the element types in `types`.

    arrays: stored ones, None where an operand is absent. None where the op refuses its data (an
    index out of range): the engine reports it when it runs. Whether results have the shapes and
    element types that were promised is for the caller to check.
    """
    wide = [None if a is None else numbers(a, from_numpy(a.dtype)) for a in arrays]
    try:
        with np.errstate(all="ignore"):
            results = [np.asarray(r) for r in op.reference(*wide)]
    except (BrazeError, IndexError, ValueError, TypeError):
        return None
    return [_stored(r, t.dtype) for r, t in zip(results, types, strict=True)]


def _stored(result: Array, dtype: DType) -> Array:
    """Only from the type that numbers of `dtype` have: another one is a mistake that must show."""
    return stored(result, dtype) if result.dtype == number_type(dtype) else result
