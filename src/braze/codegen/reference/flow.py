"""Control flow: walks lists of steps and runs those that decide what runs next.

Sizes, If, Loop and Call mean what native/src/executor.cc makes of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from braze.codegen.reference.library import write
from braze.codegen.reference.memory import View
from braze.codegen.reference.shapes import tensor_bytes
from braze.codegen.reference.steps import Machine
from braze.core.errors import EngineFormatError
from braze.engine.plan import DebugTensor, ElementSource, Plan
from braze.engine.steps import BufferRef, Call, If, Loop, Sizes, Step

Array = np.ndarray[Any, Any]
Steering = Sizes | If | Loop | Call
# called with a debug tensor and a view of it, whenever the step that makes it has run
Watch = Callable[[DebugTensor, Array], None]
NUMBER_BYTES = 8


def symbols_given(plan: Plan) -> tuple[frozenset[int], ...]:
    """For every body, the symbols that are known after it and were not before.

    Those that the body of a loop gives are unknown again after the loop.
    """
    given: list[frozenset[int]] = []
    for body in plan.bodies:
        symbols: set[int] = set()
        for step in body.steps:
            match step:
                case Sizes():
                    symbols.update(k.symbol for k in step.known)
                case Loop():
                    symbols.update(s.symbol for s in step.sizes)
                case If():
                    for taken in (step.then, step.otherwise):
                        symbols |= given[taken] if taken >= 0 else frozenset()
                case Call():
                    symbols |= given[step.body]
        given.append(frozenset(symbols))
    return tuple(given)


class Run:
    """One run of a plan.

    given: see symbols_given; watch: wants all debug tensors, or is None. Afterwards `spent` has the
    nanoseconds of every step in all of its runs, numbered as Plan.every_step; a step that steers
    counts what ran in it.
    """

    def __init__(
        self, machine: Machine, given: Sequence[frozenset[int]], watch: Watch | None
    ) -> None:
        self._plan = plan = machine.memory.plan
        self._machine = machine
        self._shapes = machine.shapes
        self._memory = machine.memory
        self._given = given
        self._watch = watch
        self._first = [len(plan.steps)]  # the number of each body's first step
        for body in plan.bodies:
            self._first.append(self._first[-1] + len(body.steps))
        self.spent = [0] * self._first[-1]

    def execute(self) -> None:
        """Run the plan; raises what its steps raise."""
        self._list(self._plan.steps, 0)
        self._memory.finish()

    def _list(self, steps: Sequence[Step], first: int) -> None:
        for number, step in enumerate(steps, first):
            start = time.perf_counter_ns()
            where = f"step {number} '{step.name}'{_origins(step)}"
            if isinstance(step, Steering):
                self._steer(step, where)
            else:
                self._machine.run(step, number, where)
            self.spent[number] += time.perf_counter_ns() - start
            if self._watch is not None:
                self._show(number, self._watch)

    def _steer(self, step: Steering, where: str) -> None:
        match step:
            case Sizes():
                self._give(step, where)
            case Call():
                self._body(step.body)
            case If():
                taken = step.then if self._flag(step.condition, where) else step.otherwise
                if taken >= 0:
                    self._body(taken)
            case Loop():
                self._loop(step, where)

    def _body(self, index: int) -> None:
        self._list(self._plan.bodies[index].steps, self._first[index])

    def _loop(self, step: Loop, where: str) -> None:
        self._carry(step, True, frozenset(), where)
        trips = sys.maxsize if step.trip is None else self._integer(step.trip, where)
        for i in range(max(trips, 0)):
            if step.condition is not None and not self._flag(step.condition, where):
                break
            if step.counter >= 0:
                self._count(step.counter, i)
            self._body(step.body)
            self._carry(step, False, self._given[step.body], where)

    def _carry(self, loop: Loop, first: bool, forgotten: frozenset[int], where: str) -> None:
        """Carry values and sizes into the first or the next iteration."""
        # all is read for the old sizes before anything changes
        values = {s.symbol: self._shapes.at(s.first if first else s.next) for s in loop.sizes}
        sources: list[tuple[int, View]] = []
        for c in loop.carried:
            ref = c.first if first else c.next
            if ref is not None:
                sources.append((c.target, self._memory.view(ref)))
        if values or forgotten:
            self._shapes.assign(values, forgotten)
        for buffer, source in sources:
            needed = self._memory.buffer_bytes(buffer)
            if needed > source.data.size:
                raise EngineFormatError(
                    f"loop '{loop.name}' carries {source.data.size} bytes where {needed} are "
                    "needed; build the engine again"
                )
            source.check_read(needed, where)
            content = source.data[:needed].copy()
            write(self._memory.view(BufferRef(buffer)), content)

    # ---- what steering steps read and write -----------------------------------------------

    def _give(self, step: Sizes, where: str) -> None:
        values: dict[int, int] = {}
        for known in step.known:
            if known.size >= 0:
                values[known.symbol] = self._shapes.at(known.size)
                continue
            source = self._plan.symbols[known.symbol].source
            assert isinstance(source, ElementSource)  # checked when the plan was read
            view = self._memory.view(BufferRef(source.buffer))
            at = source.element * NUMBER_BYTES
            if at + NUMBER_BYTES > view.data.size:
                raise EngineFormatError(
                    f"buffer {source.buffer} of the engine has no element {source.element}, which "
                    "is a size; build the engine again"
                )
            view.part(at).check_read(NUMBER_BYTES, where)
            values[known.symbol] = _number(view.data[at:])
        self._shapes.assign(values)

    def _integer(self, ref: BufferRef, where: str) -> int:
        view = self._memory.view(ref)
        if view.data.size < NUMBER_BYTES:
            raise EngineFormatError(
                f"buffer {ref.buffer} of the engine has no integer where a step reads one; "
                "build the engine again"
            )
        view.check_read(NUMBER_BYTES, where)
        return _number(view.data)

    def _flag(self, ref: BufferRef, where: str) -> bool:
        view = self._memory.view(ref)
        if not view.data.size:
            raise EngineFormatError(
                f"buffer {ref.buffer} of the engine has no byte where a step reads a condition; "
                "build the engine again"
            )
        view.check_read(1, where)
        return bool(view.data[0])

    def _count(self, buffer: int, value: int) -> None:
        view = self._memory.view(BufferRef(buffer))
        if view.data.size < NUMBER_BYTES:
            raise EngineFormatError(
                f"buffer {buffer} of the engine has no room for a counter; build the engine again"
            )
        write(view, np.array([value], np.int64))

    def _show(self, number: int, watch: Watch) -> None:
        for tensor in self._plan.debug:
            if tensor.step != number:
                continue
            view, shape = self._memory.view(tensor.ref), self._shapes.shape(tensor.shape)
            size = tensor_bytes(shape, tensor.dtype, tensor.name)
            if size > view.data.size:
                raise EngineFormatError(
                    f"debug tensor '{tensor.name}' leaves its buffer; build it again"
                )
            watch(tensor, view.data[:size].view(tensor.dtype.numpy).reshape(shape))


def _number(data: Array) -> int:
    return int(data[:NUMBER_BYTES].view(np.int64)[0])


def _origins(step: Step) -> str:
    return f" (from {', '.join(step.origins)})" if step.origins else ""
