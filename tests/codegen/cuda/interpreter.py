"""Generated Triton kernels on numpy arrays, in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from braze.codegen.cuda.triton.cubin import function_of
from braze.codegen.cuda.triton.nests import TritonSource
from braze.core.dims import evaluate
from braze.core.dtypes import from_numpy
from braze.expr.loops import TensorSpec

Array = np.ndarray[Any, Any]


class Tensor:
    """The few methods the interpreter asks of a tensor, over a numpy array."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def new_empty(self, *_: Any, **__: Any) -> Tensor:
        return Tensor(self.array)

    def set_(self, storage: Tensor, *_: Any) -> None:
        self.array = storage.array

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def copy_(self, _: Tensor) -> None:
        """The interpreter works on the memory itself: nothing to copy back."""


def memory(array: Array) -> Array:
    """`array` as kernels see it: contiguous, bool and 8-bit floats as bytes, never without an
    element."""
    stored = np.ascontiguousarray(array)
    stored = stored.view(np.int8) if stored.dtype == bool else stored
    stored = stored.view(np.uint8) if from_numpy(stored.dtype).is_narrow else stored
    return stored if stored.size else np.zeros(1, stored.dtype)


def run(
    launches: Sequence[TritonSource],
    inputs: Sequence[Array],
    outputs: Sequence[TensorSpec],
    env: Mapping[str, int],
) -> tuple[list[Array], int]:
    """The outputs (poisoned before the run) and the status word."""
    made = []
    for spec in outputs:
        out = np.zeros(tuple(evaluate(d, env) for d in spec.shape), spec.dtype.numpy)
        out.reshape(-1).view(np.uint8)[:] = 0x55
        made.append(out)
    status = np.zeros(1, np.int32)
    tensors = [Tensor(memory(a)) for a in (*inputs, *made)]
    needed = [evaluate(s.scratch_bytes, env) for s in launches]
    scratch = np.full(max(1, *needed, 1), 0xFF, np.uint8)
    counters = np.zeros(max(1, *(s.counters for s in launches), 1), np.int32)
    for source in launches:
        kind = source.pointers[len(tensors)][1]  # of what follows the tensors
        words = [Tensor(scratch.view(kind))] if source.scratch_bytes != 0 else []
        words += [Tensor(status), *([Tensor(counters)] if source.counters else [])]
        programs = evaluate(source.grid, env)
        sizes = [evaluate(p, env) for p in source.params]
        if programs:
            function_of(source)[(programs,)](*tensors, *words, *sizes)
    assert not counters.any(), "a launch left its counters as they are not to be"
    return made, int(status[0])
