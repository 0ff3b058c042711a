"""What passes and fusion may ask of the backend that a graph is compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from braze.core.target import Preferences
from braze.expr.loops import TensorSpec
from braze.ops.lowering import AnchorSpec


class Abilities(Protocol):
    """The part of a backend (`braze.codegen.backend.Backend`) that is known before kernels are."""

    @property
    def preferences(self) -> Preferences:
        """What pays on its target."""

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        """None when a template runs this anchor under every epilogue, or why there is none.

        inputs: the anchor's operands in slot order; constant: slots whose content is known.
        """


@dataclass(frozen=True, slots=True)
class Unlimited:
    """Abilities of a backend that has a template for everything."""

    preferences: Preferences = field(default_factory=Preferences)

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        """Always None."""
        return None
