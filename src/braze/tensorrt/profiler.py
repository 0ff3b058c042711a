"""IProfiler, which scripts derive from, and Profiler, which prints."""

from __future__ import annotations


class IProfiler:
    """Gets the time of every layer; derive from it and override report_layer_time."""

    def __init__(self) -> None:
        return None

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Take the milliseconds of a layer."""
        raise NotImplementedError("IProfiler.report_layer_time is to be overridden")


class Profiler(IProfiler):
    """Prints the time of every layer."""

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        """Print the milliseconds of a layer."""
        print(f"{layer_name}: {ms}ms")
