"""IDebugListener: gets tensors that were marked for debugging."""

from __future__ import annotations

from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_runtime import DataType, TensorLocation


class IDebugListener:
    """Gets every debug tensor that is switched on; derive from it."""

    def __init__(self) -> None:
        return None

    def process_debug_tensor(
        self, addr: int, location: TensorLocation, type: DataType, shape: Dims, name: str,
        stream: int,
    ) -> bool:  # fmt: skip
        """Look at a tensor, whose memory is valid during this call only."""
        raise NotImplementedError("IDebugListener.process_debug_tensor is to be overridden")
