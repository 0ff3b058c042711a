"""What a caller passes as inputs, checked against what an engine takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from braze.core.errors import BindingError, ShapeError
from braze.runtime.arrays import Array, as_input
from braze.runtime.loaded import TensorRow


def input_arrays(rows: Sequence[TensorRow], inputs: Mapping[str, Any]) -> list[Array]:
    """The array for each input of an engine, contiguous and of its element type.

    Raises BindingError for names that are missing or unknown, ShapeError for another number of
    axes, and what `as_input` raises.
    """
    if not isinstance(inputs, Mapping):
        raise BindingError(
            f"inputs must be a dict of arrays by input name, not {type(inputs).__name__}; "
            f"the engine takes the inputs {[row.name for row in rows]}"
        )
    arrays = []
    for row in rows:
        if row.name not in inputs:
            _reject_names(rows, inputs)
        array = as_input(row.name, row.dtype, row.storage, inputs[row.name])
        if array.ndim != row.rank:
            raise ShapeError(
                f"input {row.name!r} has shape {array.shape} but the engine takes "
                f"{row.rank} axes; reshape it"
            )
        arrays.append(array)
    if len(inputs) != len(arrays):
        _reject_names(rows, inputs)
    return arrays


def _reject_names(rows: Sequence[TensorRow], inputs: Mapping[str, Any]) -> None:
    expected = [row.name for row in rows]
    missing = [name for name in expected if name not in inputs]
    extra = [name for name in inputs if name not in expected]
    raise BindingError(
        f"the engine takes the inputs {expected}"
        + (f"; missing: {missing}" if missing else "")
        + (f"; unknown: {extra}" if extra else "")
    )
