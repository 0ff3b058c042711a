"""What one step of a recurrent cell computes: formulas for kernels, and their numpy meaning.

A step has one or two stages. A stage takes the recurrent sums of some gates (a state row times the
gates' weights) and computes, for each hidden unit, new values from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.expr.scalar import Expr, binary, cast, hole
from braze.ops.base import Array
from braze.ops.lowering import RECURRENT_GATES, RecurrenceSpec
from braze.ops.recurrent.activations import parse_activation
from braze.ops.writing.formulas import add, mul, number, sub

# those of a direction, by default
ACTIVATIONS: Final = {
    "rnn": ("Tanh",),
    "gru": ("Sigmoid", "Tanh"),
    "lstm": ("Sigmoid", "Tanh", "Tanh"),
}


@dataclass(frozen=True)
class Stage:
    """source: the state whose rows are multiplied ("h", or "rh", which an earlier stage made);
    gates: whose sums are taken; reads: what hole(k) of the formulas is; makes: name -> formula.

    A read is "sum<gate>", "x<gate>" (what the input gives the gate), "h", "c" (states of the step
    before), "z" (made by an earlier stage), "bias" (of the last gate's sum) or "p<gate>" (a
    peephole weight of an LSTM's gate). Everything is in the type of sums; "h" and "c" that are made
    are rounded to the element type.
    """

    source: str
    gates: tuple[int, ...]
    reads: tuple[str, ...]
    makes: tuple[tuple[str, Expr], ...]


def stages(spec: RecurrenceSpec, direction: int) -> tuple[Stage, ...]:
    """The stages of one step."""
    return _FORMULAS[spec.cell](_Terms(spec, direction))


def stage_gates(spec: RecurrenceSpec) -> tuple[tuple[int, ...], ...]:
    """The gates whose sums each stage takes."""
    if spec.cell == "gru" and not spec.reset_after:
        return ((0, 1), (2,))
    return (tuple(range(spec.gates)),)


class _Terms:
    """Makes holes as formulas ask for them."""

    def __init__(self, spec: RecurrenceSpec, direction: int) -> None:
        self.spec = spec
        count = len(spec.activations) // len(spec.reverse)
        own = spec.activations[direction * count : (direction + 1) * count]
        self._activations = [parse_activation(text) for text in own]
        self.reads: list[str] = []

    def read(self, name: str) -> Expr:
        """The hole that `name` is read through."""
        if name not in self.reads:
            self.reads.append(name)
        return hole(self.reads.index(name), self.spec.acc)

    def sum(self, gate: int) -> Expr:
        """What the input and the state give a gate."""
        return add(self.read(f"x{gate}"), self.read(f"sum{gate}"))

    def peep(self, total: Expr, gate: int, cell: Expr) -> Expr:
        """`total` with what the gate sees of the cell."""
        if self.spec.peephole is None:
            return total
        return add(total, mul(self.read(f"p{gate}"), cell))

    def active(self, index: int, x: Expr) -> Expr:
        """Activation `index` of `x`, which is clipped before."""
        if math.isfinite(self.spec.clip):
            low, high = number(-self.spec.clip, x), number(self.spec.clip, x)
            x = binary("min", binary("max", x, low), high)
        return self._activations[index].expr(x)

    def plain(self, index: int, x: Expr) -> Expr:
        """Activation `index` of what is not clipped."""
        return self._activations[index].expr(x)

    def state(self, x: Expr) -> Expr:
        """`x` rounded to the element type."""
        return cast(cast(x, self.spec.dtype), self.spec.acc)

    def stage(self, source: str, gates: Sequence[int], **makes: Expr) -> Stage:
        """The stage of what was read since the last one."""
        reads, self.reads = tuple(self.reads), []
        return Stage(source, tuple(gates), reads, tuple(makes.items()))


def _rnn(t: _Terms) -> tuple[Stage, ...]:
    return (t.stage("h", (0,), h=t.state(t.active(0, t.sum(0)))),)


def _gru(t: _Terms) -> tuple[Stage, ...]:
    z, r = t.active(0, t.sum(0)), t.active(0, t.sum(1))
    if t.spec.reset_after:
        new = mul(r, add(t.read("sum2"), t.read("bias")) if t.spec.bias else t.read("sum2"))
        made = _between(z, t.active(1, add(t.read("x2"), new)), t.read("h"))
        return (t.stage("h", (0, 1, 2), h=t.state(made)),)
    first = t.stage("h", (0, 1), z=z, rh=mul(r, t.read("h")))
    made = _between(t.read("z"), t.active(1, t.sum(2)), t.read("h"))
    return first, t.stage("rh", (2,), h=t.state(made))


def _between(z: Expr, new: Expr, old: Expr) -> Expr:
    return add(mul(sub(number(1, z), z), new), mul(z, old))


def _lstm(t: _Terms) -> tuple[Stage, ...]:
    old = t.read("c")
    i = t.active(0, t.peep(t.sum(0), 0, old))
    f = sub(number(1, i), i)
    if not t.spec.coupled:
        f = t.active(0, t.peep(t.sum(2), 2, old))
    c = t.state(add(mul(f, old), mul(i, t.active(1, t.sum(3)))))
    o = t.active(0, t.peep(t.sum(1), 1, c))
    h = t.state(mul(o, t.plain(2, c)))
    gates = (0, 1, 2, 3)
    return (t.stage("h", gates, c=c, h=h),)


_FORMULAS: Final[Mapping[str, Callable[[_Terms], tuple[Stage, ...]]]] = {
    "rnn": _rnn,
    "gru": _gru,
    "lstm": _lstm,
}


class NumpyCell:
    """One step of one direction in numpy, for all rows of a batch.

    bias: of the last gate's recurrent sum; peephole: [i, o, f] weights. Both may be None.
    """

    def __init__(
        self,
        kind: str,
        activations: Sequence[str],
        clip: float,
        flags: tuple[bool, bool],
        weights: tuple[Array, Array | None, Array | None],
    ) -> None:
        self.kind, self.clip = kind, clip
        self.reset_after, self.coupled = flags
        recurrent, self.bias, self.peephole = weights
        self._activations = [parse_activation(text) for text in activations]
        self._weights = np.split(recurrent, RECURRENT_GATES[kind])

    def step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """(h, c) behind a step; x: what the input gives, gate beside gate; c as it is, if unused"""
        gates = np.split(x, RECURRENT_GATES[self.kind], axis=-1)
        with np.errstate(all="ignore"):
            if self.kind == "lstm":
                return self._lstm(gates, h, c)
            return (self._gru(gates, h) if self.kind == "gru" else self._rnn(gates, h)), c

    def _sum(self, gate: int, h: Array) -> Any:
        return h @ self._weights[gate].T

    def _active(self, index: int, x: Array) -> Any:
        if math.isfinite(self.clip):
            x = np.clip(x, x.dtype.type(-self.clip), x.dtype.type(self.clip))
        return self._activations[index].apply(x)

    def _rnn(self, x: Sequence[Array], h: Array) -> Any:
        return self._active(0, x[0] + self._sum(0, h))

    def _gru(self, x: Sequence[Array], h: Array) -> Any:
        z = self._active(0, x[0] + self._sum(0, h))
        r = self._active(0, x[1] + self._sum(1, h))
        if self.reset_after:
            last = r * (self._sum(2, h) + (0 if self.bias is None else self.bias))
        else:
            last = self._sum(2, r * h)
        return (1 - z) * self._active(1, x[2] + last) + z * h

    def _lstm(self, x: Sequence[Array], h: Array, c: Array) -> tuple[Any, Any]:
        i = self._active(0, x[0] + self._sum(0, h) + self._peep(0, c))
        f = 1 - i if self.coupled else self._active(0, x[2] + self._sum(2, h) + self._peep(2, c))
        c = f * c + i * self._active(1, x[3] + self._sum(3, h))
        o = self._active(0, x[1] + self._sum(1, h) + self._peep(1, c))
        return o * self._activations[2].apply(c), c

    def _peep(self, gate: int, c: Array) -> Any:
        """What a gate sees of the cell; without peepholes not 0 times it, which may be infinite."""
        return 0 if self.peephole is None else np.split(self.peephole, 3)[gate] * c
