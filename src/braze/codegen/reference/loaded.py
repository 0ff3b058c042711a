"""A plan of the reference backend, read and checked once for all its contexts."""

from __future__ import annotations

from collections.abc import Sequence

from braze.codegen.reference.order import check_order
from braze.codegen.reference.steps import Program, read_program
from braze.core.errors import BindingError, TargetError
from braze.engine.plan import Binding, Plan
from braze.engine.steps import Launch
from braze.runtime.loaded import TensorRow


class LoadedReference:
    """plan: read from an engine file, so its bounds are checked; programs: its modules, parsed."""

    def __init__(self, plan: Plan, float64: bool) -> None:
        """Raises EngineFormatError for a damaged kernel or steps that do not wait for others."""
        self.plan = plan
        self.float64 = float64
        self.programs: tuple[Program, ...] = tuple(map(read_program, plan.modules))
        steps = _launches(plan)
        modules = [plan.kernels[s.kernel].module for s in steps]
        splits = [len(self.programs[m].kernel.inputs) for m in modules]
        buffers = [[r.buffer for r in s.buffers] for s in steps]
        check_order(
            [s.after for s in steps],
            [b[:split] for b, split in zip(buffers, splits, strict=True)],
            [b[split:] for b, split in zip(buffers, splits, strict=True)],
        )
        self.inputs = _rows(plan.inputs, False)
        self.outputs = _rows(plan.outputs, True)
        self._rows = {r.name: r for r in (*self.inputs, *self.outputs)}

    def row(self, name: str) -> TensorRow:
        """The input or output called `name`; raises BindingError."""
        if name not in self._rows:
            raise BindingError(f"the engine has no tensor {name!r}; it has {list(self._rows)}")
        return self._rows[name]


def _launches(plan: Plan) -> list[Launch]:
    launches = [s for s in plan.steps if isinstance(s, Launch)]
    if len(launches) < len(plan.steps):
        other = next(s for s in plan.steps if not isinstance(s, Launch))
        raise TargetError(
            f"step {other.name!r} is a {other.TAG}, which target='reference' does not run yet; "
            "build the engine with target='cpu'"
        )
    return launches


def _rows(bindings: Sequence[Binding], is_output: bool) -> tuple[TensorRow, ...]:
    return tuple(
        TensorRow(b.name, b.dtype, len(b.shape), is_output, False, b.dtype.numpy) for b in bindings
    )
