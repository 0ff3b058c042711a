"""If: one of two bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braze.core.dims import Dim
from braze.core.dtypes import BOOL
from braze.core.errors import DTypeError, ShapeError
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext
from braze.ops.flow.base import Bodies, FlowOp, check_passed
from braze.ops.lowering import Branch, Lowering


@dataclass(frozen=True)
class If(FlowOp):
    """bodies: (then, else); inputs: a condition, then the inputs of both bodies.

    shapes: of the outputs, where those of the bodies differ; their sizes are symbols then, which
    the run reads from further outputs.
    """

    shapes: tuple[tuple[Dim, ...], ...] = ()

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        """The types of the outputs of both bodies, with the sizes in `shapes`."""
        condition, *passed = inputs
        if condition is None or condition.dtype is not BOOL or not is_single(condition):
            raise DTypeError(f"the condition of If must be one bool, not {condition}")
        then, otherwise = self.bodies
        check_passed("the first branch of If", then, 0, passed)
        check_passed("the second branch of If", otherwise, 0, passed)
        types, others = ([v.type for _, v in b.outputs] for b in self.bodies)
        shapes = self.shapes or tuple(t.shape for t in types)
        alike = len(types) == len(others) == len(shapes) and all(
            a.dtype is b.dtype and a.rank == b.rank == len(shape)
            for a, b, shape in zip(types, others, shapes, strict=True)
        )
        if not alike or (not self.shapes and types != others):
            raise ShapeError(
                f"the branches of If give {', '.join(map(str, types))} and "
                f"{', '.join(map(str, others))}"
            )
        return tuple(TensorType(t.dtype, s) for t, s in zip(types, shapes, strict=True))

    def late(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> set[int]:
        """Those that are not of the same type in both bodies."""
        made = [[v.type for _, v in b.outputs] for b in self.bodies]
        return {i for i, t in enumerate(outputs) if any(m[i] != t for m in made)}

    @property
    def captured(self) -> int:
        """All inputs of the bodies."""
        return len(self.bodies[0].inputs)

    def run(self, inputs: Sequence[Array | None], bodies: Bodies) -> list[Array]:
        """What the body gives that the condition chooses."""
        condition, *passed = inputs
        assert condition is not None
        taken = self.bodies[0 if condition.reshape(-1)[0] else 1]
        return bodies.run(taken, [a for a in passed if a is not None])

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        """A step of the plan that decides."""
        then, otherwise = self.bodies
        return Branch((then, otherwise), frozenset(self.late(inputs, outputs)))


def is_single(t: TensorType) -> bool:
    """Whether tensors of the type have one element."""
    return all(d == 1 for d in t.shape)
