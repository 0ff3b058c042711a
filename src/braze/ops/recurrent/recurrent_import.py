"""ONNX RNN, GRU and LSTM: the products of all steps as one, then a Recurrence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from braze.core.dtypes import I32
from braze.core.errors import ShapeError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import Value
from braze.ops.base import Importer, OnnxNode
from braze.ops.lowering import RECURRENT_GATES
from braze.ops.move.concat_split import Concat
from braze.ops.move.shape import reshape, transpose
from braze.ops.move.slice_pad import slice_axis
from braze.ops.pointwise.elementwise import Binary
from braze.ops.product.matmul import MatMul
from braze.ops.recurrent.activations import read_activations
from braze.ops.recurrent.cells import ACTIVATIONS
from braze.ops.recurrent.recurrence import Recurrence

REVERSE: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_FIRST_OPSET: Final = 7  # before it, states and outputs were laid out otherwise


def recurrent_importer(cell: str) -> Importer:
    """Importer of "rnn", "gru" or "lstm"."""

    def import_recurrent(n: OnnxNode, g: GraphBuilder) -> tuple[Value, ...]:
        return _Importer(n, g, cell).outputs()

    return import_recurrent


class _Importer:
    """Builds one node. Inside, sequences are [t, b, ..] and states [d, b, unit]."""

    def __init__(self, n: OnnxNode, g: GraphBuilder, cell: str) -> None:
        self.n, self.g, self.cell = n, g, cell
        self.gates = RECURRENT_GATES[cell]
        if n.opset < _FIRST_OPSET:
            raise n.unsupported(f"opset {_FIRST_OPSET} and later are; convert the model to one")
        direction = n.attr("direction", "forward")
        if direction not in REVERSE:
            raise n.invalid(f"direction {direction!r} is none of {', '.join(REVERSE)}")
        self.reverse = REVERSE[direction]
        self.batch_first = bool(n.attr("layout", 0))
        self.reset_after = cell == "gru" and bool(n.attr("linear_before_reset", 0))
        self.hidden = self._check()

    def _check(self) -> int:
        """The hidden size, of weights whose shapes fit each other."""
        n, w, r = self.n, self.n.need(1), self.n.need(2)
        for i in (0, 1, 2):
            if len(n.need(i).shape) != 3:
                raise ShapeError(f"node {n.name!r} ({n.op_type}): input {i} needs rank 3")
        hidden = r.shape[2]
        if not isinstance(hidden, int) or hidden < 1:
            raise n.unsupported("the hidden size must be a number from 1 up; fix the shape of R")
        if int(n.attr("hidden_size", hidden)) != hidden:
            raise n.invalid(f"hidden_size is {n.attr('hidden_size')} but R has {hidden} columns")
        count = len(self.reverse)
        for what, value in (("W", w), ("R", r)):
            self.g.unify(value.shape[0], count, f"{n.op_type} directions of {what}")
            self.g.unify(value.shape[1], self.gates * hidden, f"{n.op_type} rows of {what}")
        self.g.unify(w.shape[2], n.need(0).shape[2], f"{n.op_type} input size")
        return hidden

    def outputs(self) -> tuple[Value, ...]:
        """Y, Y_h and Y_c, as many as the node has."""
        n, g = self.n, self.g
        asked = max(1, n.num_outputs)
        finals = min(asked, 3 if self.cell == "lstm" else 2) - 1
        clip = n.attr("clip")
        op = Recurrence(
            self.cell,
            self.reverse,
            read_activations(n, ACTIVATIONS[self.cell], len(self.reverse)),
            math.inf if clip is None else float(clip),
            self.reset_after,
            self.cell == "lstm" and bool(n.attr("input_forget", 0)),
            True,
            finals,
        )
        x, bias = self._products()
        peephole = n.input(7) if self.cell == "lstm" else None
        found = g.add1(op, x, n.need(2), bias, self._lens(), *self._states(), peephole)
        steps = x.shape[0]
        every = [found if not finals else slice_axis(g, found, 0, 0, steps)]
        for i in range(finals):
            last = slice_axis(g, found, 0, steps + i, 1)
            every.append(reshape(g, last, found.shape[1:]))
        if self.batch_first:
            every = [transpose(g, every[0], (2, 0, 1, 3))] + [
                transpose(g, v, (1, 0, 2)) for v in every[1:]
            ]
        return tuple(every)

    def _products(self) -> tuple[Value, Value | None]:
        """What the input gives the gates, [t, b, n], and the bias that stays with the state."""
        g, x, w = self.g, self.n.need(0), self.n.need(1)
        if self.batch_first:
            x = transpose(g, x, (1, 0, 2))
        steps, batch, size = x.shape
        wide = len(self.reverse) * self.gates * self.hidden
        flat = transpose(g, reshape(g, w, (wide, w.shape[2])), (1, 0))
        y = g.add1(MatMul(), reshape(g, x, (steps * batch, size)), flat)
        bias, apart = self._bias()
        if bias is not None:
            y = g.add1(Binary("add"), y, bias)
        return reshape(g, y, (steps, batch, wide)), apart

    def _bias(self) -> tuple[Value | None, Value | None]:
        """The bias of all gates, flat, and what of it is inside the reset of a GRU, [d, unit]."""
        n, g, b = self.n, self.g, self.n.input(3)
        if b is None:
            return None, None
        half, count = self.gates * self.hidden, len(self.reverse)
        if len(b.shape) != 2:
            raise ShapeError(f"node {n.name!r} ({n.op_type}): B needs rank 2")
        g.unify(b.shape[0], count, f"{n.op_type} directions of B")
        g.unify(b.shape[1], 2 * half, f"{n.op_type} columns of B")
        first, second = (slice_axis(g, b, 1, start, half) for start in (0, half))
        if not self.reset_after:
            return reshape(g, g.add1(Binary("add"), first, second), (count * half,)), None
        shared = 2 * self.hidden
        both = g.add1(Binary("add"), *(slice_axis(g, v, 1, 0, shared) for v in (first, second)))
        joint = g.add1(Concat(1), both, slice_axis(g, first, 1, shared, self.hidden))
        apart = slice_axis(g, second, 1, shared, self.hidden)
        return reshape(g, joint, (count * half,)), apart

    def _lens(self) -> Value | None:
        n, lens = self.n, self.n.input(4)
        if lens is None:
            return None
        if lens.dtype is not I32 or len(lens.shape) != 1:
            raise n.invalid("sequence_lens (input 4) must be an int32 vector; insert a Cast")
        return lens

    def _states(self) -> Sequence[Value | None]:
        """(h, c) before the first step."""
        count = 2 if self.cell == "lstm" else 1
        found = [self.n.input(5 + i) for i in range(count)]
        if self.batch_first:
            found = [None if v is None else transpose(self.g, v, (1, 0, 2)) for v in found]
        return [*found, None][:2]
