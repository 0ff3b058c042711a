"""What can be set on a context beside shapes and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braze.shim.device import HostDevice
from braze.tensorrt.addresses import as_address
from braze.tensorrt.allocator import IGpuAllocator
from braze.tensorrt.debug import IDebugListener
from braze.tensorrt.enums_build import ProfilingVerbosity
from braze.tensorrt.enums_runtime import ErrorCodeTRT
from braze.tensorrt.profiler import IProfiler
from braze.tensorrt.recorder import Reporter, Reporting

if TYPE_CHECKING:
    from braze.tensorrt.engine import ICudaEngine


class ContextOptions(Reporting):
    """The part of IExecutionContext that holds listeners and settings."""

    _engine: ICudaEngine
    _reporter: Reporter
    _device: HostDevice

    def _init_options(self) -> None:
        self.name = ""
        self.debug_sync = False
        self.profiler: IProfiler | None = None
        self.enqueue_emits_profile = True
        self.nvtx_verbosity = self._engine.profiling_verbosity
        self.persistent_cache_limit = 0
        self.temporary_allocator: IGpuAllocator | None = None
        self.unfused_tensors_debug_state = False
        self._listener: IDebugListener | None = None
        self._debug_on: set[str] = set()
        self._consumed_event: int | None = None
        self._memory: tuple[int, int] | None = None

    nvtx_verbosity: ProfilingVerbosity

    # ---- debug tensors ------------------------------------------------------------------

    def set_debug_listener(self, listener: IDebugListener | None) -> bool:
        """Let a listener get the debug tensors that are switched on."""
        if not isinstance(listener, (IDebugListener, type(None))):
            raise TypeError(f"{listener!r} is no IDebugListener")
        self._listener = listener
        return True

    def get_debug_listener(self) -> IDebugListener | None:
        """The listener."""
        return self._listener

    def set_tensor_debug_state(self, name: str, flag: bool) -> bool:
        """Switch a debug tensor on or off."""
        if not self._engine.is_debug_tensor(name):
            self._reporter.wrong(
                "IExecutionContext::setTensorDebugState",
                f"{name} is no debug tensor; mark it while the network is built.",
            )
            return False
        (self._debug_on.add if flag else self._debug_on.discard)(name)
        return True

    def set_all_tensors_debug_state(self, flag: bool) -> bool:
        """Switch all debug tensors on or off."""
        names = {t.name for t in self._engine.core.plan.debug}
        self._debug_on = names if flag else set()
        return True

    def get_debug_state(self, name: str) -> bool:
        """Whether a debug tensor is on."""
        return name in self._debug_on

    # ---- events, streams and memory -----------------------------------------------------

    def set_input_consumed_event(self, event: int | None) -> bool:
        """Let an event be recorded when the inputs may be written again."""
        self._consumed_event = int(event) if event else None
        return True

    def get_input_consumed_event(self) -> int:
        """That event; 0 without one."""
        return self._consumed_event or 0

    def set_aux_streams(self, aux_streams: Any) -> None:
        """Streams for branches side by side; engines here use none beside the run's own."""
        for stream in aux_streams:
            as_address(stream, "set_aux_streams")

    def set_communicator(self, communicator: Any) -> bool:
        """Take a communicator of NCCL: False, as an engine runs on one device."""
        self._reporter.error(
            "IExecutionContext::setCommunicator",
            ErrorCodeTRT.UNSUPPORTED_STATE,
            "An engine runs on one device; run one in each process and combine what they give.",
        )
        return False

    def set_device_memory(self, memory: int, size: int) -> None:
        """Bring the memory for activations; a run checks its size, though the core uses its own."""
        self._memory = (as_address(memory, "set_device_memory"), int(size))

    @property
    def device_memory(self) -> Any:
        """Only to be set."""
        raise AttributeError("device_memory can be set, not read")

    @device_memory.setter
    def device_memory(self, memory: int) -> None:
        address = as_address(memory, "device_memory")
        self._memory = (address, self._engine.device_memory_size)
