"""DynamicQuantizeLSTM of com.microsoft: an LSTM whose products are of 8-bit integers.

The input is quantized by its range, all steps at once, and the state anew at every step. Sums are
exact, so a step is what DynamicQuantizeMatMul is, and then gates in float32; steps are the
iterations of a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from braze.core.dims import Dim
from braze.core.dtypes import F32, I64
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.base import OnnxNode
from braze.ops.flow.building import BodyBuilder
from braze.ops.flow.loop import COUNTER, Loop
from braze.ops.index.gather import Gather
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import Expand, SizeTensor, reshape
from braze.ops.move.slice_pad import Slice, slice_axis
from braze.ops.pointwise.cast import cast_to
from braze.ops.pointwise.elementwise import Binary, constant_like
from braze.ops.quant.integer import IntegerMatMul
from braze.ops.quant.linear_import import dynamic_quantize
from braze.ops.quant.parameters import zero_point
from braze.ops.recurrent.activations import parse_activation, read_activations
from braze.ops.recurrent.cells import ACTIVATIONS
from braze.ops.recurrent.recurrent_import import REVERSE

_GATES = 4  # input, output, forget, cell
_UNUSED = {4: "sequence_lens", 7: "peephole weights"}


def import_dynamic_quantize_lstm(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
    """Y [t, d, b, unit], the last states and cells [d, b, unit], as many as the node has."""
    for i, what in _UNUSED.items():
        if n.input(i) is not None:
            raise n.unsupported(f"{what} (input {i}) are not; leave them out or use LSTM")
    if n.attr("input_forget", 0):
        raise n.unsupported("input_forget is not; leave it out or use LSTM")
    direction = n.attr("direction", "forward")
    if direction not in REVERSE:
        raise n.invalid(f"direction {direction!r} is none of {', '.join(REVERSE)}")
    for i in range(3):
        if len(n.need(i).shape) != 3:
            raise ShapeError(f"node {n.name!r} ({n.op_type}): input {i} needs rank 3")
    for i in (1, 2):
        g.unify(n.need(i).shape[0], len(REVERSE[direction]), f"{n.op_type} directions")
    reverse = REVERSE[direction]
    made = [_Direction(n, g, d, back, len(reverse)).outputs() for d, back in enumerate(reverse)]
    joined = []
    for k, parts in enumerate(zip(*made, strict=True)):
        axis = 1 if k == 0 else 0
        placed = [_with_axis(g, v, axis) for v in parts]
        joined.append(placed[0] if len(placed) == 1 else g.add1(Concat(axis), *placed))
    return tuple(joined[: max(1, n.num_outputs)])


def _with_axis(g: GraphBuilder, v: Value, axis: int) -> Value:
    return reshape(g, v, (*v.shape[:axis], 1, *v.shape[axis:]))


@dataclass(frozen=True)
class _Direction:
    """One direction of a node. back: whether it begins at the last step."""

    n: OnnxNode
    g: GraphBuilder
    number: int
    back: bool
    directions: int

    @property
    def hidden(self) -> int:
        """Units of the state."""
        found = self.n.need(2).shape[1]
        if not isinstance(found, int):
            raise self.n.unsupported("the hidden size must be a number; fix the shape of R")
        return found

    def outputs(self) -> tuple[Value, Value, Value]:
        """Every h [t, b, unit], the last h and the last c [b, unit]."""
        g, x = self.g, self.n.need(0)
        steps, batch, size = x.shape
        given = _product(g, reshape(g, x, (steps * batch, size)), self._weight(1, 8))
        bias = self._bias()
        given = given if bias is None else g.add1(Binary("add"), given, bias)
        given = reshape(g, given, (steps, batch, _GATES * self.hidden))
        first = [self._state(i, batch) for i in (5, 6)]
        weight = self._weight(2, 10)
        body = BodyBuilder(g, f"{self.n.name}/{self.number}")
        made = self._step(body, given, weight, [v.type for v in first])
        op = Loop((body.builder.finish(made),), True, False, 2, steps)
        trip = g.add1(SizeTensor((steps,), (), I64))
        h, c, every = g.add(op, trip, *first, *body.captured)
        if self.back:
            every = g.add1(Slice((steps - 1, 0, 0), every.shape, (-1, 1, 1)), every)
        return every, h, c

    def _step(
        self, body: BodyBuilder, given: Value, weight: _Weight, states: Sequence[TensorType]
    ) -> list[tuple[str, Value]]:
        """The body: h and c of the step, and h as its slice."""
        g = body.builder
        at = g.input("iteration", COUNTER)
        h, c = (g.input(name, t) for name, t in zip("hc", states, strict=True))
        if self.back:
            last = g.add1(SizeTensor((given.shape[0] - 1,), (), I64))
            at = g.add1(Binary("sub"), last, at)
        x = g.add1(Gather(0), body.capture(given), at)
        inner = _Weight(*(None if v is None else body.capture(v) for v in weight))
        total = g.add1(Binary("add"), x, _product(g, h, inner))
        gates = [slice_axis(g, total, 1, k * self.hidden, self.hidden) for k in range(_GATES)]
        clip = self.n.attr("clip")
        if clip is not None:
            most = constant_like(g, float(clip), F32)
            least = constant_like(g, -float(clip), F32)
            gates = [g.add1(Binary("min"), g.add1(Binary("max"), v, least), most) for v in gates]
        count = len(ACTIVATIONS["lstm"])
        names = read_activations(self.n, ACTIVATIONS["lstm"], self.directions)
        own = names[self.number * count : (self.number + 1) * count]
        sigma, tanh, last_one = (parse_activation(text) for text in own)
        i, o, f = (g.add1(sigma, v) for v in gates[:3])
        fresh = g.add1(Binary("mul"), i, g.add1(tanh, gates[3]))
        c = g.add1(Binary("add"), g.add1(Binary("mul"), f, c), fresh)
        h = g.add1(Binary("mul"), o, g.add1(last_one, c))
        return [("h", h), ("c", c), ("slice", h)]

    def _weight(self, index: int, scale: int) -> _Weight:
        """A weight [inputs, gates and units] with the scale and zero point behind it."""
        g = self.g
        codes, step = (self._part(self.n.need(i)) for i in (index, scale))
        zero = zero_point(self.n, g, scale + 1)
        return _Weight(codes, step, None if zero is None else self._part(zero))

    def _part(self, v: Value) -> Value:
        """What of a tensor is this direction's; of a parameter [directions], a scalar."""
        part = slice_axis(self.g, v, 0, self.number, 1)
        return reshape(self.g, part, v.shape[1:])

    def _bias(self) -> Value | None:
        b = self.n.input(3)
        if b is None:
            return None
        wide = _GATES * self.hidden
        own = self._part(b)
        parts = [slice_axis(self.g, own, 0, start, wide) for start in (0, wide)]
        return self.g.add1(Binary("add"), *parts)

    def _state(self, index: int, batch: Dim) -> Value:
        given = self.n.input(index)
        if given is not None:
            return self._part(given)
        zero = constant_like(self.g, 0.0, F32)
        return self.g.add1(Expand((batch, self.hidden)), zero)


class _Weight(NamedTuple):
    """8-bit numbers, their scale, and their zero point, None for 0."""

    codes: Value | None
    scale: Value | None
    zero: Value | None


def _product(g: GraphBuilder, x: Value, weight: _Weight) -> Value:
    """x @ weight in float32, with x quantized by its range."""
    q, scale, zero = dynamic_quantize(g, x)
    total = g.add1(IntegerMatMul(), q, weight.codes, zero, weight.zero)
    return g.add1(Binary("mul"), cast_to(g, total, F32), g.add1(Binary("mul"), scale, weight.scale))
