"""`pycuda.autoinit`: the host device needs no initialization, so it just is."""

from __future__ import annotations

from typing import Final

from braze.shim.pycuda.device import Context, Device

device: Final = Device(0)
context: Final = Context()
