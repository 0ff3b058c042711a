"""Backends that passes and fusion are tested with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braze.core.target import PREFERENCES, Preferences
from braze.expr.loops import TensorSpec
from braze.ops.lowering import AnchorSpec, SelectSpec


@dataclass(frozen=True)
class NoTemplates:
    """Abilities of a backend that runs loop nests, and where it must, selections."""

    selects: bool = True
    preferences: Preferences = PREFERENCES

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        if self.selects and isinstance(spec, SelectSpec):
            return None
        return "there are no templates"


NO_TEMPLATES = NoTemplates()
