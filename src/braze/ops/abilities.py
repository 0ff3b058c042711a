"""What passes and fusion may ask of the backend that a graph is compiled for."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from braze.core.target import PREFERENCES, Preferences
from braze.expr.loops import TensorSpec
from braze.ir.graph import Node, Value
from braze.ops.lowering import Anchor, AnchorSpec


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

    preferences: Preferences = PREFERENCES

    def supports(
        self, spec: AnchorSpec, inputs: Sequence[TensorSpec], constant: frozenset[int]
    ) -> str | None:
        """Always None."""
        return None


UNLIMITED: Final = Unlimited()


def refusal(
    abilities: Abilities, node: Node, anchor: Anchor, constants: Container[Value]
) -> str | None:
    """Why `node` cannot stay the anchor it lowers to, None when it can.

    constants: the values whose content is known.
    """
    present = [v for v in node.inputs if v is not None]
    specs = [TensorSpec(v.dtype, v.shape) for v in present]
    known = frozenset(i for i, v in enumerate(present) if v in constants)
    return abilities.supports(anchor.spec, specs, known)
