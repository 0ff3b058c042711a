"""What the native runtime calls back during a run, and the errors of those calls.

An exception cannot pass through the native runtime: it is kept and raised when the run is over.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from braze.core.errors import BindingError
from braze.runtime.arrays import Array, empty_output, memory_for
from braze.runtime.device import DeviceArray
from braze.runtime.loaded import LoadedEngine, TensorRow
from braze.runtime.native import ALLOCATE_FN, DEBUG_FN, PROFILE_FN, RunOptions, run_options


class Hooks:
    """The callbacks of one run; `options` is what the run takes."""

    def __init__(self, workers: int) -> None:
        self.options: RunOptions = run_options(workers)
        self.debug: dict[str, Array] = {}
        self.outputs: dict[str, Array | DeviceArray] = {}
        self.spent: list[int] = []
        self._errors: list[BaseException] = []

    def raise_errors(self) -> None:
        """Raise the first exception of a callback, if any."""
        if self._errors:
            raise self._errors[0]

    def record_times(self, num_steps: int) -> None:
        """Keep the nanoseconds of every step in `spent`; those that ran several times add up."""
        spent = self.spent = [0] * num_steps

        def note(_user: Any, step: int, nanoseconds: int) -> None:
            spent[step] += nanoseconds

        self.options.profile = PROFILE_FN(note)

    def make_outputs(self, engine: LoadedEngine, on_device: bool = False) -> None:
        """Make the outputs whose shape only the run knows; they come into `outputs`.

        on_device: in memory of the engine's device.
        """
        rows, errors, outputs = engine.bindings, self._errors, self.outputs

        def allocate(_user: Any, index: int, dims: Any, rank: int, size: int) -> int | None:
            row = rows[index]
            try:
                shape = tuple(dims[:rank])
                if on_device:
                    made = DeviceArray(engine, row.dtype, shape)
                    outputs[row.name], address = made, made.address
                else:
                    outputs[row.name], address = empty_output(row.name, shape, row.storage, size)
            except BaseException as e:  # Ctrl-C included: it would be printed and forgotten
                errors.append(e)
                return None
            return address

        self.options.allocate = ALLOCATE_FN(allocate)

    def copy_debug_tensors(self, engine: LoadedEngine, names: Iterable[str]) -> None:
        """Copy the debug tensors called `names` into `debug`; raises BindingError."""
        tensors, wanted = engine.debug_tensors, frozenset(names)
        unknown = wanted - {t.name for t in tensors}
        if unknown:
            raise BindingError(
                f"the engine has no debug tensors {sorted(unknown, key=str)}; it has "
                f"{[t.name for t in tensors]} (build with debug tensors marked)"
            )

        def copy(_user: Any, index: int, data: int, dims: Any, rank: int, size: int) -> None:
            tensor = tensors[index]
            if tensor.name in wanted:
                self._keeping_errors(lambda: self._copy(tensor, data, tuple(dims[:rank]), size))

        self.options.debug = DEBUG_FN(copy)

    def _copy(self, tensor: TensorRow, data: int, shape: tuple[int, ...], size: int) -> None:
        with memory_for(f"a copy of debug tensor {tensor.name!r}", size):
            array = np.empty(shape, tensor.dtype.numpy)
        ctypes.memmove(array.ctypes.data, data or 0, size)
        self.debug[tensor.name] = array

    def _keeping_errors(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as e:  # Ctrl-C included: it would be printed and forgotten
            self._errors.append(e)
