"""Loop: a body that is run again and again, with values carried from one iteration to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from braze.core.dims import Dim, symbols
from braze.core.dtypes import BOOL, I64
from braze.core.errors import DTypeError, ShapeError
from braze.ir.graph import TensorType
from braze.ops.base import Array, InferContext
from braze.ops.flow.base import Bodies, FlowOp, check_passed
from braze.ops.flow.branch import is_single
from braze.ops.lowering import Lowering, Repeat

COUNTER = TensorType(I64, ())
FLAG = TensorType(BOOL, ())


@dataclass(frozen=True)
class Loop(FlowOp):
    """See `braze.ops.lowering.Repeat` for the order of inputs and outputs, here and in the body.

    length: how many iterations there will be, if there are slices to stack; grows: that, or how
    large they are, is known after the loop only; shapes: of the carried outputs, where their sizes
    change; slices: of the slices that are stacked, where only the body knows their sizes. Symbols
    that the loop makes known are read from further outputs in the run.
    """

    trip: bool
    condition: bool
    carried: int
    length: Dim = 0
    shapes: tuple[tuple[Dim, ...], ...] = ()
    grows: bool = False
    slices: tuple[tuple[Dim, ...], ...] = ()

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        """The carried types, and `length` slices of each scanned one."""
        (body,) = self.bodies
        given = list(inputs)
        for wanted, there in ((COUNTER, self.trip), (FLAG, self.condition)):
            t = given.pop(0) if there else wanted
            if t is None or t.dtype is not wanted.dtype or not is_single(t):
                raise DTypeError(f"Loop takes one {wanted.dtype}, not {t}")
        if body.inputs[0].type != COUNTER:
            raise ShapeError("the body of Loop does not take its number first")
        check_passed("the body of Loop", body, 1 + self.carried, given[self.carried :])
        made = [v.type for _, v in body.outputs]
        if self.condition and made.pop(0) != FLAG:
            raise DTypeError("the body of Loop does not give one bool as the next condition")
        carried = []
        for k in range(self.carried):
            first, inner = given[k], body.inputs[1 + k].type
            assert first is not None, "every carried value is there"
            shape = self.shapes[k] if self.shapes else first.shape
            ranks = {first.rank, inner.rank, made[k].rank, len(shape)}
            kinds = {first.dtype, inner.dtype, made[k].dtype}
            fixed = self._is_fixed(k, inner)
            if len(ranks) > 1 or len(kinds) > 1 or (fixed and not first == inner == made[k]):
                raise ShapeError(f"Loop carries {first} as {inner}, but its body gives {made[k]}")
            carried.append(TensorType(first.dtype, shape))
        stacked = made[self.carried :]
        shapes = self.slices or tuple(t.shape for t in stacked)
        pairs = zip(stacked, shapes, strict=True)
        return (*carried, *(TensorType(t.dtype, (self.length, *shape)) for t, shape in pairs))

    def _is_fixed(self, k: int, inner: TensorType) -> bool:
        return not self.shapes or self.shapes[k] == inner.shape

    def late(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> set[int]:
        """Carried values that change their sizes, and slices where an iteration may be the last."""
        carried = [v.type for v in self.bodies[0].inputs[1 : 1 + self.carried]]
        changing = {k for k, t in enumerate(carried) if t != outputs[k]}
        return changing | (set(range(self.carried, len(outputs))) if self.grows else set())

    @property
    def captured(self) -> int:
        """All inputs of the body but its number and what is carried."""
        return len(self.bodies[0].inputs) - 1 - self.carried

    def run(self, inputs: Sequence[Array | None], bodies: Bodies) -> list[Array]:
        """Iterations one after the other."""
        given = [a for a in inputs if a is not None]
        trips = int(given.pop(0).reshape(-1)[0]) if self.trip else None
        going = given.pop(0).reshape(()) if self.condition else np.array(True)
        state, others = given[: self.carried], given[self.carried :]
        slices: list[list[Array]] = []
        for i in count():
            if not going or (trips is not None and i >= trips):
                break
            made = bodies.run(self.bodies[0], [np.array(i, np.int64), *state, *others])
            going = made.pop(0).reshape(()) if self.condition else going
            state = made[: self.carried]
            slices.append(made[self.carried :])
        return [*state, *self._stacked(slices, bodies)]

    def _stacked(self, slices: list[list[Array]], bodies: Bodies) -> list[Array]:
        if slices:
            return [np.stack(rows) for rows in zip(*slices, strict=True)]
        scanned = [v.type for _, v in self.bodies[0].outputs][self.condition + self.carried :]
        own = {s.symbol for s in self.bodies[0].sizes}

        def size(d: Dim) -> int:
            return bodies.size(d) if own.isdisjoint(symbols(d)) else 0

        return [np.zeros((0, *map(size, t.shape)), t.dtype.numpy) for t in scanned]

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        """A step of the plan that repeats a body."""
        (body,) = self.bodies
        late = frozenset(self.late(inputs, outputs))
        return Repeat((body,), self.trip, self.condition, self.carried, late)
