"""A plan of the reference backend, read and checked once for all its contexts."""

from __future__ import annotations

from collections.abc import Sequence

from braze.codegen.reference.flow import Steering, symbols_given
from braze.codegen.reference.library import Routine, find_routine
from braze.codegen.reference.order import Use, check_order
from braze.codegen.reference.steps import Program, Straight, read_program
from braze.core.errors import BindingError
from braze.engine.checks import require
from braze.engine.plan import Binding, Plan
from braze.engine.steps import Copy, Launch, LibraryCall, Step
from braze.engine.validate import late_sizes
from braze.runtime.loaded import TensorRow


class LoadedReference:
    """plan: read from an engine file, so its bounds are checked; programs: its modules, parsed.

    routines: of the library calls, by the number of their step; given: see flow.symbols_given.
    """

    def __init__(self, plan: Plan, float64: bool) -> None:
        """Raises EngineFormatError for a damaged kernel or steps that do not wait for others."""
        self.plan = plan
        self.float64 = float64
        self.programs: tuple[Program, ...] = tuple(map(read_program, plan.modules))
        self.routines: dict[int, Routine] = {
            number: find_routine(plan, step)
            for number, step in enumerate(plan.every_step)
            if isinstance(step, LibraryCall)
        }
        self.given = symbols_given(plan)
        first = 0
        for steps in (plan.steps, *(body.steps for body in plan.bodies)):
            self._check_list(steps, first)
            first += len(steps)
        self.inputs = _rows(plan, plan.inputs, False)
        self.outputs = _rows(plan, plan.outputs, True)
        self._rows = {r.name: r for r in (*self.inputs, *self.outputs)}

    def row(self, name: str) -> TensorRow:
        """The input or output called `name`; raises BindingError."""
        if name not in self._rows:
            raise BindingError(f"the engine has no tensor {name!r}; it has {list(self._rows)}")
        return self._rows[name]

    def _check_list(self, steps: Sequence[Step], first: int) -> None:
        segment: list[Use] = []
        for i, step in enumerate(steps):
            if isinstance(step, Steering):
                check_order(segment)
                segment = []
            else:
                segment.append(self._use(step, first + i, first))
        check_order(segment)

    def _use(self, step: Straight, number: int, first: int) -> Use:
        after = [first + j for j in step.after]
        if isinstance(step, Copy):
            return Use(number, after, (step.source,), (step.target,), True)
        if isinstance(step, LibraryCall):
            split = self.routines[number].reads
        else:
            split = self._check_launch(step)
        return Use(
            number, after, step.buffers[:split], step.buffers[split:], isinstance(step, LibraryCall)
        )

    def _check_launch(self, step: Launch) -> int:
        """The number of buffers a launch reads; the others it writes."""
        program = self.programs[self.plan.kernels[step.kernel].module]
        reads, where = len(program.kernel.inputs), f"launch of {step.name}"
        tensors = reads + len(program.outputs)
        require(len(step.buffers) == tensors, where, "the number of buffers is wrong")
        right = len(step.params) == len(program.symbols)
        require(right, where, "the number of params is wrong")
        for ref in step.buffers[reads:]:
            writable = self.plan.buffers[ref.buffer].kind in ("arena", "output")
            require(writable, where, "it writes to a buffer that is only read")
        return reads


def _rows(plan: Plan, bindings: Sequence[Binding], is_output: bool) -> tuple[TensorRow, ...]:
    late = late_sizes(plan)
    return tuple(
        TensorRow(
            b.name, b.dtype, len(b.shape), is_output, any(late[d] for d in b.shape), b.dtype.numpy
        )
        for b in bindings
    )
