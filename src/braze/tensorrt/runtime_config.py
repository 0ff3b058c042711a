"""IRuntimeConfig and ISerializationConfig: how contexts are made and engines written."""

from __future__ import annotations

from braze.tensorrt.deprecation import Scoped
from braze.tensorrt.enums_runtime import ExecutionContextAllocationStrategy, SerializationFlag


class IRuntimeConfig(Scoped):
    """How a context is made. Get one from `ICudaEngine.create_runtime_config`."""

    def __init__(self) -> None:
        self._strategy = ExecutionContextAllocationStrategy.STATIC

    def get_execution_context_allocation_strategy(self) -> ExecutionContextAllocationStrategy:
        """When a context gets its memory."""
        return self._strategy

    def set_execution_context_allocation_strategy(
        self,
        strategy: ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy.STATIC,
    ) -> None:
        """Say when a context gets its memory."""
        if not isinstance(strategy, ExecutionContextAllocationStrategy):
            raise TypeError(f"{strategy!r} is no ExecutionContextAllocationStrategy")
        self._strategy = strategy


class ISerializationConfig(Scoped):
    """What of an engine is written. Get one from `ICudaEngine.create_serialization_config`."""

    def __init__(self) -> None:
        self.flags = 0

    def set_flag(self, flag: SerializationFlag) -> bool:
        """Set a flag."""
        self.flags |= 1 << int(flag)
        return True

    def clear_flag(self, flag: SerializationFlag) -> bool:
        """Clear a flag."""
        self.flags &= ~(1 << int(flag))
        return True

    def get_flag(self, flag: SerializationFlag) -> bool:
        """Whether a flag is set."""
        return bool(self.flags >> int(flag) & 1)
