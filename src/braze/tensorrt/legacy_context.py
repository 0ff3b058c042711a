"""Runs and shapes by bindings, as contexts had them up to TensorRT 9."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from braze.tensorrt.addresses import as_address
from braze.tensorrt.deprecation import Scoped, warn_deprecated
from braze.tensorrt.dims import Dims
from braze.tensorrt.recorder import Reporter

if TYPE_CHECKING:
    from braze.tensorrt.engine import ICudaEngine

API = "IExecutionContext"


class LegacyContext(Scoped):
    """The part of IExecutionContext that goes by bindings."""

    _engine: ICudaEngine
    _reporter: Reporter
    _profile: int
    _shapes: dict[str, tuple[int, ...]]
    _addresses: dict[str, int]

    if TYPE_CHECKING:

        def set_input_shape(self, name: str, shape: Any) -> bool: ...
        def get_tensor_shape(self, name: str) -> Dims: ...
        def get_tensor_strides(self, name: str) -> Dims: ...
        def _put_shape(self, name: str, sizes: tuple[int, ...]) -> None: ...
        def _run_now(self, where: str) -> bool: ...
        def _enqueue(self, where: str, stream: int) -> bool: ...

    def execute_v2(self, bindings: Sequence[int]) -> bool:
        """Run with these addresses, in the order of the tensors; returns when it is done."""
        return self._bind_all(bindings, "executeV2") and self._run_now(f"{API}::executeV2")

    def execute_async_v2(
        self, bindings: Sequence[int], stream_handle: int, input_consumed: Any = None
    ) -> bool:
        """Run on a stream with these addresses."""
        warn_deprecated("IExecutionContext.execute_async_v2", "8.5", "execute_async_v3")
        where = f"{API}::enqueueV2"
        return self._bind_all(bindings, "enqueueV2") and self._enqueue(where, stream_handle)

    def execute(self, batch_size: int = 1, bindings: Sequence[int] = ()) -> bool:
        """Run a network whose shapes have no batch; returns when it is done."""
        warn_deprecated("IExecutionContext.execute", "8.4", "execute_v2")
        return (
            self._set_batch(batch_size, "execute")
            and self._bind_all(bindings, "execute")
            and self._run_now(f"{API}::execute")
        )

    def execute_async(
        self,
        batch_size: int = 1,
        bindings: Sequence[int] = (),
        stream_handle: int = 0,
        input_consumed: Any = None,
    ) -> bool:
        """The same on a stream."""
        warn_deprecated("IExecutionContext.execute_async", "8.4", "execute_async_v3")
        return (
            self._set_batch(batch_size, "enqueue")
            and self._bind_all(bindings, "enqueue")
            and self._enqueue(f"{API}::enqueue", stream_handle)
        )

    def _set_batch(self, batch: int, where: str) -> bool:
        if not self._engine.table.batched:
            if batch == 1:
                return True
            self._reporter.wrong(
                f"{API}::{where}",
                "The engine was built with an explicit batch; set the shapes of its inputs.",
            )
            return False
        most = self._engine.table.record.get("max_batch_size", 1)
        if not 1 <= batch <= most:
            self._reporter.wrong(
                f"{API}::{where}",
                f"Batch size {batch} is not from 1 to the max batch size of the engine, {most}.",
            )
            return False
        for t in self._engine.table.inputs:
            self._put_shape(t.name, (batch, *t.shape[1:]))
        return True

    def _bind_all(self, bindings: Sequence[int], where: str) -> bool:
        """Set all addresses, those of this context's profile where there are more."""
        count, total = self._engine.num_io_tensors, len(self._engine)
        if len(bindings) not in (count, total):
            self._reporter.wrong(
                f"{API}::{where}",
                f"{len(bindings)} bindings are given, and the engine has {count} inputs and outputs"
                + (f" ({total} bindings in all its profiles)." if total > count else "."),
            )
            return False
        first = self._profile * count if len(bindings) == total else 0
        for entry in self._engine.table.tensors:
            address = bindings[first + entry.index]
            self._addresses[entry.name] = 0 if address is None else as_address(address, where)
        return True

    # ---- shapes by number ---------------------------------------------------------------

    def set_binding_shape(self, binding: int, shape: Any) -> bool:
        """Set the shape of an input."""
        warn_deprecated("IExecutionContext.set_binding_shape", "8.5", "set_input_shape")
        name, profile = self._engine.tensor_of(binding)
        if not self._is_of_mine(f"Binding {binding}", profile, "setBindingDimensions"):
            return False
        return self.set_input_shape(name, shape)

    def _is_of_mine(self, what: str, profile: int, where: str) -> bool:
        """Whether a binding is one of the profile in use; reports where it is not."""
        if profile == self._profile:
            return True
        self._reporter.wrong(
            f"{API}::{where}",
            f"{what} is of optimization profile {profile}, and the context uses {self._profile}.",
        )
        return False

    def get_binding_shape(self, binding: int) -> Dims:
        """The shape of a binding."""
        warn_deprecated("IExecutionContext.get_binding_shape", "8.5", "get_tensor_shape")
        return self.get_tensor_shape(self._engine.tensor_of(binding)[0])

    def get_strides(self, binding: int) -> Dims:
        """The strides of a binding."""
        warn_deprecated("IExecutionContext.get_strides", "8.5", "get_tensor_strides")
        return self.get_tensor_strides(self._engine.tensor_of(binding)[0])

    def set_shape_input(self, binding: int, shape: Sequence[int]) -> bool:
        """Set the content of an input that holds sizes."""
        warn_deprecated("IExecutionContext.set_shape_input", "8.5", "set_tensor_address")
        name, profile = self._engine.tensor_of(binding)
        entry = self._engine.table.by_name[name]
        if not self._is_of_mine(f"Binding {binding}", profile, "setInputShapeBinding"):
            return False
        if not entry.holds_sizes:
            self._reporter.wrong(f"{API}::setInputShapeBinding", f"{name} holds no sizes.")
            return False
        kind = ctypes.c_int32 if entry.bits == 32 else ctypes.c_int64
        content = (kind * max(1, len(shape)))(*shape)
        self._contents[name] = content
        self._addresses[name] = ctypes.addressof(content)
        return True

    _contents: dict[str, Any]

    def get_shape(self, binding: int) -> list[int]:
        """The content of an input that holds sizes."""
        warn_deprecated("IExecutionContext.get_shape", "8.5", "get_tensor_address")
        name, _ = self._engine.tensor_of(binding)
        return list(self._contents.get(name, ()))
