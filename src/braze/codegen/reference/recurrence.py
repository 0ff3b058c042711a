"""Recurrences in numpy: the formulas of a step as kernels have them, sums in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from braze.codegen.reference.sums import Env, blocked_product, view
from braze.core.dims import evaluate as evaluate_dim
from braze.expr.evaluate import evaluate_all
from braze.ops.lowering import RecurrenceSpec
from braze.ops.recurrent.cells import Stage, stages

Array = np.ndarray[Any, Any]


def recurrence(spec: RecurrenceSpec, values: Sequence[Array], env: Env, work: Any) -> Array:
    """The rows of states that `spec` asks for; sums are taken in the type `work`."""
    given = {
        name: view(values[o.slot], o, [evaluate_dim(d, env) for d in shape], env)
        for name, (o, shape) in spec.operands.items()
    }
    out = np.zeros([evaluate_dim(d, env) for d in spec.out_shape], spec.acc.numpy)
    for d in range(len(spec.reverse)):
        _Direction(spec, d, given, work, env).run(out[:, d])
    return out


class _Direction:
    """One direction: its operands, and the states by name."""

    def __init__(
        self, spec: RecurrenceSpec, d: int, given: Mapping[str, Array], work: Any, env: Env
    ) -> None:
        self.spec, self.reverse, self.work, self.env = spec, spec.reverse[d], work, env
        acc = spec.acc.numpy
        x = given["x"]
        self.steps, self.batch = x.shape[:2]
        wide = spec.gates * spec.hidden
        self.x = x[..., d * wide : (d + 1) * wide].astype(acc)
        self.weight = given["weight"][d].astype(work)
        zero = np.zeros((self.batch, spec.hidden), acc)
        self.known = {
            name: given[key][d].astype(acc) if key in given else zero
            for name, key in (("h", "h0"), ("c", "c0"), ("bias", "bias"))
        }
        if "peephole" in given:
            for gate, part in enumerate(np.split(given["peephole"][d].astype(acc), 3)):
                self.known[f"p{gate}"] = part
        self.lens = given.get("lens", np.full(self.batch, self.steps))
        self.stages = stages(spec, d)

    def run(self, out: Array) -> None:
        """All steps; out: [row, b, unit]."""
        for t in reversed(range(self.steps)) if self.reverse else range(self.steps):
            old = {name: self.known[name] for name in ("h", "c")}
            for stage in self.stages:
                self.known |= self._stage(stage, t)
            active = (t < self.lens)[:, None]
            for name, value in old.items():
                self.known[name] = np.where(active, self.known[name], value)
            if self.spec.sequence:
                out[t] = np.where(active, self.known["h"], 0)
        for i, name in enumerate(("h", "c")[: self.spec.finals]):
            out[len(out) - self.spec.finals + i] = self.known[name]

    def _stage(self, stage: Stage, t: int) -> dict[str, Array]:
        reads = [self._read(name, stage, t) for name in stage.reads]
        made = evaluate_all([e for _, e in stage.makes], {}, [], self.env, holes=reads)
        return {name: value for (name, _), value in zip(stage.makes, made, strict=True)}

    def _read(self, name: str, stage: Stage, t: int) -> Array:
        if name in self.known:
            return self.known[name]
        gate, size = int(name[-1]), self.spec.hidden
        rows = slice(gate * size, (gate + 1) * size)
        if name.startswith("x"):
            given: Array = self.x[t][:, rows]
            return given
        source = self.known[stage.source].astype(self.work)
        total: Array = blocked_product(source, self.weight[rows].T, self.spec.block)
        rounded: Array = total.astype(self.spec.acc.numpy)
        return rounded
