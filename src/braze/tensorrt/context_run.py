"""Runs of a context: what is checked before one, and how it gets to a stream."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from braze.core.errors import BrazeError
from braze.runtime.context import ExecutionContext
from braze.runtime.native import check
from braze.shim.device import HostDevice
from braze.shim.memory import is_writable
from braze.tensorrt.addresses import as_address
from braze.tensorrt.allocator import IOutputAllocator
from braze.tensorrt.content_sizes import ContentSizes, sizes_of
from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_runtime import ErrorCodeTRT
from braze.tensorrt.execution import Listeners, Run, ask_allocator
from braze.tensorrt.recorder import RAISED, Reporter
from braze.tensorrt.tensor_table import DYNAMIC, TensorEntry

if TYPE_CHECKING:
    from braze.tensorrt.debug import IDebugListener
    from braze.tensorrt.engine import ICudaEngine
    from braze.tensorrt.profiler import IProfiler

Shape = tuple[int, ...]
MOST_KNOWN: Final = 1024  # addresses of outputs that are known to be writable


class ContextRun:
    """The part of IExecutionContext that runs."""

    _engine: ICudaEngine
    _reporter: Reporter
    _device: HostDevice
    _core: ExecutionContext
    _profile: int
    _sizes: ContentSizes
    _shapes: dict[str, Shape]
    _told: dict[str, Shape]  # those that the core knows
    _addresses: dict[str, int]
    _allocators: dict[str, IOutputAllocator]
    _listener: IDebugListener | None
    _debug_on: set[str]
    _consumed_event: int | None
    _memory: tuple[int, int] | None
    profiler: IProfiler | None
    enqueue_emits_profile: bool

    if TYPE_CHECKING:

        @property
        def user_managed(self) -> bool: ...
        def unset_shapes(self) -> list[str]: ...

    def _init_runs(self) -> None:
        self._contents: dict[str, Any] = {}
        self._unreported: Run | None = None
        self._ran_with: list[bytes] = []
        self._written: set[tuple[int, int]] = set()
        self._beside: dict[str, Any] = {}  # memory for outputs that lie over an input
        core = self._engine.core
        self._has_late = any(b.shape_from_run for b in core.loaded.bindings)
        self._steers = core.on_gpu and not core.plan.is_straight  # the host, between its pieces

    def execute_async_v3(self, stream_handle: int) -> bool:
        """Run on a stream with the shapes and addresses set; False where that cannot be."""
        return self._enqueue("IExecutionContext::enqueueV3", stream_handle)

    def report_to_profiler(self) -> bool:
        """Give the profiler the times of the last run; False where there are none."""
        run, self._unreported = self._unreported, None
        if run is None:
            return False
        try:
            self._wait(run.stream)
            return run.report()
        except RAISED as e:  # of the profiler, or of what was on the stream
            self._reporter.raised("IExecutionContext::reportToProfiler", e)
            return False

    # ---- how a run goes -----------------------------------------------------------------

    def _run_now(self, where: str) -> bool:
        run = self._prepare(where, 0)
        return run is not None and self._finish(where, run)

    def _enqueue(self, where: str, stream: int) -> bool:
        handle = as_address(stream, where)
        run = self._prepare(where, handle)
        if run is None:
            return False
        hears = run.listeners.profiler is not None or run.plugins is not None
        waits = hears or run.late or run.listeners.debug_names or self._steers
        try:
            if waits:  # what hears of the run is called by this thread, before this call returns
                if not self._finish(where, run):
                    return False
            elif self._engine.core.on_gpu:
                self._enqueue_on_gpu(run)
            else:
                self._device.enqueue(handle, lambda: self._reported(where, run))
            if self._consumed_event is not None:
                self._record(self._consumed_event, handle)
        except BrazeError as e:
            self._reporter.raised(where, e)
            return False
        return True

    def _enqueue_on_gpu(self, run: Run) -> None:
        for entry, place in zip(run.tensors, run.places, strict=True):
            self._core.bind(entry.name, *place)
        self._core.enqueue(run.stream)

    def _record(self, event: int, stream: int) -> None:
        """Mark that the inputs of a run are read, which they are when it is over."""
        if self._engine.core.on_gpu:
            driver = ctypes.CDLL("libcuda.so.1")
            driver.cuEventRecord(ctypes.c_void_p(event), ctypes.c_void_p(stream))
        else:
            self._device.record_event(event, stream)

    def _finish(self, where: str, run: Run) -> bool:
        """Run after all that is on the stream, and wait."""
        try:
            self._wait(run.stream)
            self._reported(where, run)
        except RAISED:  # reported already, or another run's that was
            return False
        return True

    def _wait(self, stream: int) -> None:
        """Until all that is on a stream is done; raises what was wrong there."""
        if self._engine.core.on_gpu:
            loaded = self._engine.core.loaded
            check(loaded.lib.braze_engine_wait_cuda(loaded.handle, stream))
            return
        found = self._device.stream(stream)
        if found is None:
            self._device.synchronize()
        else:
            found.synchronize()

    def _reported(self, where: str, run: Run) -> None:
        """Run; what fails is reported and raised."""
        try:
            run()
        except RAISED as e:
            self._reporter.raised(where, e)
            raise

    # ---- what is checked before a run ---------------------------------------------------

    def _prepare(self, where: str, stream: int) -> Run | None:
        """A run of what is set now; None with an error reported where something is wrong."""
        unset = self.unset_shapes()
        if unset:
            self._reporter.wrong(where, f"Input shapes are not set: {', '.join(unset)}.")
            return None
        try:
            if not self._engine.core.on_gpu:
                self._device.stream(stream)
            self._infer()
            if self.user_managed and not self._has_memory(where):
                return None
            places, late = self._places(where, stream)
            over = [] if places is None else self._put_beside(places)
        except RAISED as e:  # of braze, of the device, or of an output allocator
            self._reporter.raised(where, e)
            return None
        if places is None:
            return None
        self._ran_with = self._size_bytes()
        table = self._engine.table
        run = Run(
            self._core,
            self._engine.core.loaded,
            table.tensors,
            self._engine.step_names,
            tuple(self._shapes[t.name] for t in table.inputs),
            places,
            late,
            Listeners(
                self.profiler,
                self.enqueue_emits_profile,
                self._listener,
                frozenset(self._debug_on) if self._listener is not None else frozenset(),
                dict(self._allocators),
            ),
            stream,
            self._device,
            self._engine.plugins,
            over,
        )
        if self.profiler is not None and not self.enqueue_emits_profile:
            self._unreported = run
        return run

    def _has_memory(self, where: str) -> bool:
        """Whether the program brought enough memory for the shapes set; reports that it did not."""
        needed = self._core.profile_in_use()[1]
        if self._memory is not None and self._memory[1] >= needed:
            return True
        given = "none" if self._memory is None else f"{self._memory[1]} bytes"
        self._reporter.error(
            where,
            ErrorCodeTRT.INVALID_STATE,
            f"The context was made without memory, and needs {needed} bytes for these shapes; "
            f"{given} were set with set_device_memory.",
        )
        return False

    def _places(
        self, where: str, stream: int
    ) -> tuple[list[tuple[int, int]] | None, dict[int, int]]:
        """Memory of every tensor; nothing with an error reported where there is none."""
        places: list[tuple[int, int]] = []
        late: dict[int, int] = {}
        for entry in self._engine.table.tensors:
            address = self._addresses.get(entry.name, 0)
            allocator = None if entry.is_input else self._allocators.get(entry.name)
            if not address and allocator is None:
                side = "input" if entry.is_input else "output"
                self._reporter.wrong(
                    where,
                    f"Address is not set for {side} tensor {entry.name}. Call "
                    "set_tensor_address before the run.",
                )
                return None, {}
            if not entry.is_input and self._is_late(entry):
                late[entry.index] = address
                places.append((0, 0))
                continue
            shape = self._shape(entry)
            size = entry.bytes_of(shape)
            if allocator is not None:
                known = None if self._engine.core.on_gpu else self._device
                address = ask_allocator(allocator, entry.name, address, size, stream, known)
                self._addresses[entry.name] = address
                allocator.notify_shape(entry.name, Dims(self._engine.table.told(shape)))
            elif not self._usable(entry, address, size, where):
                return None, {}
            places.append((address, size))
        return places, late

    def _put_beside(self, places: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Give outputs that lie over the input they are made of memory of their own for the run.

        Kernels may read an input after they wrote an output, so that goes over it at the end.
        """
        over, by_name = [], self._engine.table.by_name
        for name, source in self._engine.aliases.items():
            index = by_name[name].index
            place = places[index]
            if place[1] and place == places[by_name[source].index]:
                memory = self._beside.get(name)
                if memory is None or len(memory) < place[1]:
                    memory = self._beside[name] = (ctypes.c_uint64 * -(-place[1] // 8))()
                address = ctypes.addressof(memory)
                places[index] = (address, place[1])
                over.append((*place, address))
        return over

    def _usable(self, entry: TensorEntry, address: int, size: int, where: str) -> bool:
        if self._engine.core.on_gpu or (
            self._device.memory.usable(address, size)
            and (entry.is_input or self._may_write(address, size))
        ):
            return True
        self._reporter.error(
            where,
            ErrorCodeTRT.INVALID_ARGUMENT,
            f"Tensor {entry.name} takes {size} bytes at {address:#x}, which are no memory of this "
            "process, or more than its allocation has; it may have been freed.",
        )
        return False

    def _may_write(self, address: int, size: int) -> bool:
        """Whether an output may lie there: memory of the device, or what was looked up before."""
        if self._device.memory.room(address) is not None or (address, size) in self._written:
            return True
        if not size or not is_writable(address, size):
            return not size
        if len(self._written) > MOST_KNOWN:
            self._written.clear()
        self._written.add((address, size))
        return True

    # ---- shapes by the core -------------------------------------------------------------

    def _infer(self) -> None:
        """Let the core know the shapes of the inputs; raises what it raises."""
        if self._told == self._shapes:
            return
        for name, shape in self._shapes.items():
            self._core.set_input_shape(name, shape)
        for t in self._engine.table.outputs:
            self._core.shape(t.name)
        self._told = dict(self._shapes)

    def _shape(self, entry: TensorEntry) -> Shape:
        """The shape now; -1 where it is not known.

        What only a run knows is known after one with the shapes that are set.
        """
        if entry.is_input:
            return self._shapes[entry.name]
        if not entry.dynamic or self.unset_shapes():
            return entry.shape
        try:
            self._infer()
            shape = self._core.shape(entry.name)
        except BrazeError as e:
            self._reporter.raised("IExecutionContext::getTensorShape", e)
            return entry.shape
        if not self._is_late(entry):
            return shape
        if self._ran_with != self._size_bytes():
            shape = entry.shape  # those of the last run were of other contents
        if not self._sizes.read:
            return shape
        told = sizes_of(entry.dims, self._sizes.known(self._shapes, self._read_contents()))
        return tuple(a if b == DYNAMIC else b for a, b in zip(shape, told, strict=True))

    def _is_late(self, entry: TensorEntry) -> bool:
        """Whether only a run knows all sizes of an output."""
        return self._engine.core.loaded.bindings[entry.index].shape_from_run

    def _largest(self, entry: TensorEntry) -> Shape:
        """The most that an output may be with the shapes and contents set now, else the profile's.

        -1 where nothing limits a size.
        """
        if not self._is_late(entry):
            return self._shape(entry)
        values = self._engine.table.values[self._profile]
        contents = {name: values[name][2] for name in self._sizes.read if name in values}
        env = self._sizes.known(self._shapes, {**contents, **self._read_contents()})
        return sizes_of(entry.dims, self._sizes.most(self._profile, env))

    def _size_bytes(self) -> list[bytes]:
        """What inputs hold that decide sizes, as far as it is set and on the host."""
        found = []
        for entry in self._engine.table.inputs if self._has_late else ():
            address, shape = self._addresses.get(entry.name, 0), self._shapes[entry.name]
            if entry.holds_sizes and address and DYNAMIC not in shape:
                size = entry.bytes_of(shape)
                usable = self._device.memory.usable(address, size)
                found.append(ctypes.string_at(address, size) if usable else b"")
        return found

    def _read_contents(self) -> dict[str, list[int]]:
        """What inputs hold that sizes are read from, where it is set and on the host."""
        found = {}
        for name in self._sizes.read:
            entry, shape = self._engine.table.by_name[name], self._shapes[name]
            address = self._addresses.get(name, 0)
            if address and DYNAMIC not in shape:
                size = entry.bytes_of(shape)
                if self._device.memory.usable(address, size):
                    kind = ctypes.c_int32 if entry.bits == 32 else ctypes.c_int64
                    found[name] = list((kind * (size * 8 // entry.bits)).from_address(address))
        return found
