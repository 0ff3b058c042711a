"""ExecutionContext: shapes, memory and runs of one engine, one run at a time."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from ctypes import c_int32, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.core.dtypes import DType
from braze.core.errors import BrazeError
from braze.runtime.arguments import INT64_MAX, names_of, shape_of, small_number
from braze.runtime.arrays import Array, address_of, empty_output
from braze.runtime.device import DeviceArray, DeviceTensor, device_tensor, stream_handle
from braze.runtime.hooks import Hooks
from braze.runtime.inputs import (
    PassedMemory,
    check_bound_shape,
    host_array,
    is_ready,
    ordered,
    passed_memory,
)
from braze.runtime.loaded import LoadedEngine, TensorRow
from braze.runtime.native import (
    ContextOptions,
    Memory,
    RunOptions,
    RunTimes,
    check,
    run_options,
)
from braze.runtime.stream import Stream

AUTOMATIC_PROFILE: Final = -1


@dataclass(frozen=True, slots=True)
class _Output:
    """What a run needs to make an output array, for the shapes set now."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    storage: np.dtype[Any]
    bytes: int
    slot: Memory


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of a run: copying inputs, launching by the host, computing, copying outputs."""

    h2d: float
    enqueue: float
    compute: float
    d2h: float


class ExecutionContext:
    """The mutable state of running an engine. Make one with `Engine.create_context`.

    `run` is the easy way. The stateful way is set_input_shape, bind, then execute or enqueue.
    Threads that share a context take turns.
    """

    def __init__(
        self,
        engine: LoadedEngine,
        profile: int | None = None,
        *,
        priority: int = 0,
        extra_streams: int = -1,
    ) -> None:
        self._handle = c_void_p()
        self._engine = engine
        self._lib = engine.lib
        options = ctypes.byref(
            ContextOptions(
                ctypes.sizeof(ContextOptions),
                AUTOMATIC_PROFILE if profile is None else small_number("profile", profile),
                small_number("priority", priority),
                small_number("extra_streams", extra_streams),
            )
        )
        out = ctypes.byref(self._handle)
        check(self._lib.braze_context_create_with(engine.handle, options, out))
        self._lock = threading.RLock()
        self._bound: dict[str, Any] = {}
        self._bound_shapes: dict[int, tuple[int, ...]] = {}  # of arrays, by binding
        self._unchecked = False  # whether some were bound, or shapes set, since they were compared
        self._inputs = engine.bindings[: engine.num_inputs]
        self._num_dims = sum(b.rank for b in self._inputs)
        self._dims = (c_int64 * max(1, self._num_dims))()
        self._num_bindings = len(engine.bindings)
        self._memory = (Memory * max(1, self._num_bindings))()
        self._slots = list(self._memory)  # views of the entries, made once
        self._shapes: tuple[tuple[int, ...], ...] | None = None
        self._outputs: list[_Output] = []
        self._late = any(b.shape_from_run for b in engine.bindings)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.braze_context_destroy(self._handle)
            del self._handle  # no name of a module: they may be gone when the interpreter ends

    # ---- one call -----------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        workers: int = 0,
        debug: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Run on `inputs`; returns the outputs, then the debug tensors asked for, by name.

        Where an input is a tensor of the engine's GPU (of any library with `__dlpack__` or
        `__cuda_array_interface__`) it is used in place, and outputs are `DeviceArray`s there.
        workers: threads of this run, at most what the engine was built for; 0 for its own number.
        """
        plain = type(debug) is tuple and not debug
        wanted = frozenset() if plain else names_of("debug", debug)
        if not wanted and type(workers) is int and not workers:
            return self._run(inputs, None)
        hooks = Hooks(workers)
        if wanted:
            hooks.copy_debug_tensors(self._engine, wanted)
        return {**self._run(inputs, hooks), **hooks.debug}

    def profile(self, inputs: Mapping[str, Any], *, workers: int = 0) -> list[int]:
        """Run on `inputs` and return the nanoseconds of every step, as in `Plan.every_step`."""
        hooks = Hooks(workers)
        hooks.record_times(self._lib.braze_engine_num_steps(self._engine.handle))
        self._run(inputs, hooks)
        return hooks.spent

    def _run(self, inputs: Mapping[str, Any], hooks: Hooks | None) -> dict[str, Any]:
        arrays = ordered(self._inputs, inputs)
        on_device = self._take(arrays)
        if self._late:
            hooks = hooks or Hooks(0)
            hooks.make_outputs(self._engine, on_device)
        with self._lock:
            self._set_shapes(arrays)
            outputs: dict[str, Any] = {}
            for slot, array in zip(self._slots, arrays, strict=False):
                if isinstance(array, DeviceTensor):
                    slot.data = array.address
                else:
                    slot.data = address_of(array)
            for out in self._outputs:
                if on_device:
                    made = DeviceArray(self._engine, out.dtype, out.shape)
                    outputs[out.name], out.slot.data = made, made.address
                    continue
                outputs[out.name], out.slot.data = empty_output(
                    out.name, out.shape, out.storage, out.bytes
                )
            pointer = None if hooks is None else ctypes.byref(hooks.options)
            status = self._lib.braze_context_run(
                self._handle, self._dims, self._num_dims, self._memory, self._num_bindings, pointer
            )
            if hooks is not None:
                hooks.raise_errors()
            if status:
                check(status)
        if hooks is None or not self._late:
            return outputs
        outputs |= hooks.outputs
        return {b.name: outputs[b.name] for b in self._engine.bindings if b.is_output}

    def _take(self, values: list[Any]) -> bool:
        """Make each value what its input takes, in place; whether some lie on the device."""
        others = False
        for i, row in enumerate(self._inputs):
            if not is_ready(row, values[i]):
                values[i], others = self._passed(row, values[i]), True
        return others and self._wait_for_tensors(values)

    def _passed(self, row: TensorRow, value: Any) -> Array | DeviceTensor:
        if isinstance(value, np.ndarray):
            return host_array(row, value)
        tensor = device_tensor(self._engine, row, value, ordered=True)
        return host_array(row, value) if tensor is None else tensor

    def _wait_for_tensors(self, arrays: Sequence[Array | DeviceTensor]) -> bool:
        """Until tensors of the device are filled; whether there are any."""
        tensors = [a for a in arrays if isinstance(a, DeviceTensor)]
        for stream in {t.stream for t in tensors if t.stream is not None}:
            check(self._lib.braze_engine_wait_cuda(self._engine.handle, stream))
        return bool(tensors)

    def run_at(
        self,
        shapes: Sequence[Sequence[int]],
        memory: Sequence[tuple[int, int]],
        options: RunOptions | None = None,
    ) -> None:
        """Run once with the shapes of the inputs and (address, bytes) of every binding given here.

        The memory stays the caller's, who knows that it is there: an address is just used. An
        output whose shape only the run knows gets its memory from `options`.
        """
        flat = [size for shape in shapes for size in shape]
        slots = (Memory * max(1, len(memory)))(*(Memory(*place) for place in memory))
        dims = (c_int64 * max(1, len(flat)))(*flat)
        pointer = None if options is None else ctypes.byref(options)
        with self._lock:
            self._shapes, self._unchecked = None, True
            check(
                self._lib.braze_context_run(
                    self._handle, dims, len(flat), slots, len(memory), pointer
                )
            )

    def _set_shapes(self, arrays: Sequence[Array | DeviceTensor]) -> None:
        shapes = tuple([array.shape for array in arrays])
        if shapes == self._shapes:
            return
        flat = [dim for shape in shapes for dim in shape]
        self._shapes, self._unchecked = None, True
        self._dims[: len(flat)] = flat
        check(self._lib.braze_context_set_shapes(self._handle, self._dims, self._num_dims))
        for slot, array in zip(self._slots, arrays, strict=False):
            slot.bytes = array.nbytes
        self._outputs = []
        for i in range(len(self._inputs), len(self._engine.bindings)):
            b, slot = self._engine.bindings[i], self._slots[i]
            if b.shape_from_run:
                slot.data, slot.bytes = None, 0  # hooks.make_outputs gives it memory in the run
                continue
            shape = self._shape(i)
            slot.bytes = math.prod(shape) * b.storage.itemsize
            self._outputs.append(_Output(b.name, shape, b.dtype, b.storage, slot.bytes, slot))
        self._shapes = shapes

    # ---- the stateful way ---------------------------------------------------------------

    def set_input_shape(self, name: str, shape: Sequence[int]) -> None:
        """Set the shape of input `name` for execute and enqueue."""
        with self._lock:
            self._shapes, self._unchecked = None, True
            sizes = shape_of(f"input {name!r}", shape, -INT64_MAX)  # the runtime names the axis
            dims = (c_int64 * max(1, len(sizes)))(*sizes)
            index = self._engine.binding_index(name)
            check(self._lib.braze_context_set_input_shape(self._handle, index, dims, len(sizes)))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an input or output for the input shapes set now.

        An axis that only a run knows is -1 until there was one with these input shapes.
        """
        return self._shape(self._engine.binding_index(name))

    def _shape(self, index: int) -> tuple[int, ...]:
        rank = self._engine.bindings[index].rank
        dims, size = (c_int64 * max(1, rank))(), c_int64()
        check(self._lib.braze_context_binding_shape(self._handle, index, dims, ctypes.byref(size)))
        return tuple(dims[:rank])

    def profile_in_use(self) -> tuple[int, int]:
        """(profile index, bytes of its arena) for the input shapes set now."""
        index, size = c_int32(), c_int64()
        check(
            self._lib.braze_context_profile(self._handle, ctypes.byref(index), ctypes.byref(size))
        )
        return index.value, size.value

    def bind(self, name: str, memory: Any, size: int | None = None) -> None:
        """Bind memory for execute and enqueue: an array (kept alive), or an address with a size.

        Arrays are numpy's or, on a GPU, those of any library with `__dlpack__` or
        `__cuda_array_interface__`. An output array receives the result in place. An array has the
        shape of the run, which refuses others; one of a single axis is also flat memory for a
        tensor of another rank, and may then be larger, as memory at an address may always.
        """
        index = self._engine.binding_index(name)
        row = self._engine.bindings[index]
        given: DeviceTensor | PassedMemory | None = None
        if not isinstance(memory, (int, np.ndarray)):
            given = device_tensor(self._engine, row, memory, ordered=False)
        if given is None:
            given = passed_memory(row, memory, size)
        with self._lock:
            check(self._lib.braze_context_bind(self._handle, index, given.address, given.nbytes))
            self._bound[name] = given.keep
            self._unchecked = True
            if given.shape is None:
                self._bound_shapes.pop(index, None)
            else:
                self._bound_shapes[index] = given.shape

    def _check_bound_shapes(self) -> None:
        """Raise ShapeError where an array is bound to a tensor of another shape."""
        with self._lock:
            for index, bound in self._bound_shapes.items() if self._unchecked else ():
                try:
                    shape = self._shape(index)
                except BrazeError:
                    return  # shapes are missing, which the run tells better
                check_bound_shape(self._engine.bindings[index], bound, shape)
            self._unchecked = False

    def execute(self, *, workers: int = 0, graph: bool = True, sleep: bool = False) -> None:
        """Run with the shapes and memory set before; returns when it is done.

        On a GPU: graph=False launches the steps one by one; sleep=True waits without using a CPU.
        """
        options = run_options(workers, graph=graph, sleep=sleep)
        self._check_bound_shapes()
        check(self._lib.braze_context_execute(self._handle, ctypes.byref(options)))

    def timed(self, *, graph: bool = True, sleep: bool = False) -> Times:
        """Run as `execute` does, and say what the time went to."""
        options = run_options(0, graph=graph, sleep=sleep)
        self._check_bound_shapes()
        times = RunTimes(ctypes.sizeof(RunTimes))
        options.times = ctypes.pointer(times)
        check(self._lib.braze_context_execute(self._handle, ctypes.byref(options)))
        spent = (times.h2d_ns, times.enqueue_ns, times.compute_ns, times.d2h_ns)
        return Times(*(ns / 1e6 for ns in spent))

    def enqueue(self, stream: Any) -> None:
        """Run on `stream` with the shapes and memory set now; returns at once.

        A `braze.Stream` raises the errors of the run in its synchronize. Engines of a GPU also take
        the streams of CUDA libraries, or the integer of a CUstream: memory must lie on the GPU or
        be pinned then, and errors show in this context's `synchronize` or its next run.
        """
        with self._lock:
            self._check_bound_shapes()
            if isinstance(stream, Stream):
                check(self._lib.braze_context_enqueue(self._handle, stream.handle, None))
                stream.keep_alive(self, dict(self._bound))
            else:
                handle = stream_handle(stream)
                check(self._lib.braze_context_enqueue_cuda(self._handle, handle, None))

    def synchronize(self) -> None:
        """Wait for the runs enqueued on CUDA streams; raises the error of one."""
        check(self._lib.braze_context_synchronize(self._handle))
