"""`pycuda.tools`: contexts, of which there is one, and pools, which are just memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from braze.shim.pycuda.allocation import DeviceAllocation
from braze.shim.pycuda.device import Context


def make_default_context(ctx_maker: Any = None) -> Context:
    """The context."""
    return Context()


def clear_context_caches() -> None:
    """Nothing is kept."""


class DeviceMemoryPool:
    """Gives device memory."""

    def allocate(self, size: int) -> DeviceAllocation:
        """New memory."""
        return DeviceAllocation(size)

    def free_held(self) -> None:
        """Nothing is held."""


class PageLockedMemoryPool:
    """Gives memory of the host."""

    def allocate(self, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
        """A new array."""
        return np.empty(shape, dtype)

    def free_held(self) -> None:
        """Nothing is held."""
