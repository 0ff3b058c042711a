"""If: one of two bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braze.core.dtypes import BOOL
from braze.core.errors import DTypeError, ShapeError
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext
from braze.ops.flow.base import Bodies, FlowOp, check_passed
from braze.ops.lowering import Branch, Lowering


@dataclass(frozen=True)
class If(FlowOp):
    """bodies: (then, else); inputs: a condition, then the inputs of both bodies."""

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        """The types of the outputs of both bodies."""
        condition, *passed = inputs
        if condition is None or condition.dtype is not BOOL or not is_single(condition):
            raise DTypeError(f"the condition of If must be one bool, not {condition}")
        then, otherwise = self.bodies
        check_passed("the first branch of If", then, 0, passed)
        check_passed("the second branch of If", otherwise, 0, passed)
        types, others = ([v.type for _, v in b.outputs] for b in self.bodies)
        if types != others:
            raise ShapeError(
                f"the branches of If give {', '.join(map(str, types))} and "
                f"{', '.join(map(str, others))}"
            )
        return tuple(types)

    def run(self, inputs: Sequence[Array | None], bodies: Bodies) -> list[Array]:
        """What the body gives that the condition chooses."""
        condition, *passed = inputs
        assert condition is not None
        taken = self.bodies[0 if condition.reshape(-1)[0] else 1]
        return bodies.run(taken, [a for a in passed if a is not None])

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        """A step of the plan that decides."""
        then, otherwise = self.bodies
        return Branch((then, otherwise))


def is_single(t: TensorType) -> bool:
    """Whether tensors of the type have one element."""
    return all(d == 1 for d in t.shape)
