"""IProgressMonitor: watches a build, and may end it."""

from __future__ import annotations


class IProgressMonitor:
    """Hears of the phases of a build; derive from it and override all methods."""

    def __init__(self) -> None:
        return None

    def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
        """A phase begins."""
        raise NotImplementedError("IProgressMonitor.phase_start is to be overridden")

    def step_complete(self, phase_name: str, step: int) -> bool:
        """A step of a phase is done; False ends the build."""
        raise NotImplementedError("IProgressMonitor.step_complete is to be overridden")

    def phase_finish(self, phase_name: str) -> None:
        """A phase is over."""
        raise NotImplementedError("IProgressMonitor.phase_finish is to be overridden")
