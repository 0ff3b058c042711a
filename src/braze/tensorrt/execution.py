"""One run of a context: where its memory is, and what hears of it while it goes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from braze.core.errors import BindingError, ExecutionError
from braze.runtime.context import ExecutionContext
from braze.runtime.loaded import LoadedEngine
from braze.runtime.native import ALLOCATE_FN, DEBUG_FN, PROFILE_FN, RunOptions, run_options
from braze.shim.device import HostDevice
from braze.shim.memory import copy
from braze.tensorrt.allocator import IOutputAllocator
from braze.tensorrt.debug import IDebugListener
from braze.tensorrt.dims import Dims
from braze.tensorrt.dtypes import from_core
from braze.tensorrt.enums_runtime import TensorLocation
from braze.tensorrt.plugin_runs import EnginePlugins, PluginRun
from braze.tensorrt.profiler import IProfiler
from braze.tensorrt.tensor_table import TensorEntry

ALIGNMENT: Final = 256  # of the memory that allocators are asked for


@dataclass
class Listeners:
    """What hears of a run: times of layers, debug tensors, outputs that get their memory."""

    profiler: IProfiler | None = None
    emits_profile: bool = True  # as soon as the run is over
    debug: IDebugListener | None = None
    debug_names: frozenset[str] = frozenset()
    allocators: Mapping[str, IOutputAllocator] = field(default_factory=dict)


@dataclass
class Run:
    """A run with everything it needs, so that the context may change while it waits its turn."""

    context: ExecutionContext
    engine: LoadedEngine
    tensors: Sequence[TensorEntry]
    step_names: Sequence[str]
    shapes: tuple[tuple[int, ...], ...]  # of the inputs
    places: list[tuple[int, int]]  # (address, bytes) of every tensor
    late: Mapping[int, int]  # tensor -> address or 0, for outputs whose size only the run knows
    listeners: Listeners
    stream: int
    device: HostDevice
    plugins: EnginePlugins | None = None
    # (address, bytes, memory of the run): outputs that go over an input when it was read
    over: Sequence[tuple[int, int, int]] = ()
    spent: list[int] | None = None  # nanoseconds of every step, once it ran

    def __call__(self) -> None:
        """Run; raises what the runtime or a listener raised."""
        errors: list[BaseException] = []
        options, spent = self._options(errors)
        try:
            self.context.run_at(self.shapes, self.places, options)
        finally:
            if errors:
                raise errors[0]
        for target, size, source in self.over:
            copy(target, source, size)
        self.spent = spent
        if self.listeners.emits_profile:
            self.report()

    def report(self) -> bool:
        """Give the profiler the times of the run; False where there was none, or no profiler."""
        if self.spent is None or self.listeners.profiler is None:
            return False
        for name, nanoseconds in zip(self.step_names, self.spent, strict=True):
            self.listeners.profiler.report_layer_time(name, nanoseconds / 1e6)
        return True

    def _options(self, errors: list[BaseException]) -> tuple[RunOptions, list[int]]:
        options = run_options(0)
        spent = [0] * len(self.step_names)
        if self.listeners.profiler is not None:

            def note(_user: Any, step: int, nanoseconds: int) -> None:
                spent[step] += nanoseconds

            options.profile = PROFILE_FN(note)
        if self.plugins is not None or self.listeners.debug_names:
            options.debug = DEBUG_FN(self._debug_hook(self.listeners.debug, errors))
        if self.late:
            options.allocate = ALLOCATE_FN(self._allocate_hook(errors))
        return options, spent

    def _debug_hook(self, listener: IDebugListener | None, errors: list[BaseException]) -> Any:
        rows, wanted = self.engine.debug_tensors, self.listeners.debug_names
        plugins = None if self.plugins is None else PluginRun(self.plugins, self.stream)

        def tell(_user: Any, index: int, data: int, dims: Any, rank: int, size: int) -> None:
            row = rows[index]
            if errors:
                return
            try:
                if plugins is not None:
                    plugins.tell(row.name, data, tuple(dims[:rank]))
                if row.name not in wanted or listener is None:
                    return
                dtype = from_core(row.dtype, f"debug tensor {row.name!r}")
                shape = Dims(tuple(dims[:rank]))
                where = TensorLocation.DEVICE
                listener.process_debug_tensor(data, where, dtype, shape, row.name, self.stream)
            except BaseException as e:  # it cannot pass through the native runtime
                errors.append(e)

        return tell

    def _allocate_hook(self, errors: list[BaseException]) -> Any:
        def allocate(_user: Any, index: int, dims: Any, rank: int, size: int) -> int | None:
            entry, shape = self.tensors[index], tuple(dims[:rank])
            try:
                address = self._late_memory(entry, size)
                allocator = self.listeners.allocators.get(entry.name)
                if allocator is not None:
                    allocator.notify_shape(entry.name, Dims(shape))
            except BaseException as e:  # it cannot pass through the native runtime
                errors.append(e)
                return None
            return address

        return allocate

    def _late_memory(self, entry: TensorEntry, size: int) -> int:
        bound = self.late[entry.index]
        allocator = self.listeners.allocators.get(entry.name)
        if allocator is not None:
            return ask_allocator(allocator, entry.name, bound, size, self.stream, self.device)
        if not self.device.memory.usable(bound, size):
            raise BindingError(
                f"output {entry.name} takes {size} bytes in this run, which are not at the address "
                "that is set; give get_max_output_size bytes, or an output allocator"
            )
        return bound


def ask_allocator(
    allocator: IOutputAllocator,
    name: str,
    bound: int,
    size: int,
    stream: int,
    device: HostDevice | None,
) -> int:
    """The address an output allocator gives; raises ExecutionError where it has no memory.

    device: whose memory it must be; a GPU's (None) is not known here.
    """
    address = allocator.reallocate_output_async(name, bound, max(size, 1), ALIGNMENT, stream)
    found = 0 if address is None else int(address)
    if not found or (device is not None and not device.memory.usable(found, size)):
        raise ExecutionError(
            f"the output allocator of {name} gave no memory of {size} bytes; check what "
            "reallocate_output returns"
        )
    return found


def element_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index to the next along each axis of a dense array."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
