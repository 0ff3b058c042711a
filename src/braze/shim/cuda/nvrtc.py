"""`cuda.nvrtc`: its status type, which error checks of scripts name; it compiles nothing here."""

from __future__ import annotations

from braze.shim.cuda.types import nvrtcResult

__all__ = ["nvrtcResult"]
