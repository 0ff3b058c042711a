"""Steps that compute: launches, library calls and copies, over the memory of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from braze.codegen.reference import library
from braze.codegen.reference.library import Routine
from braze.codegen.reference.memory import Memory, View, overlap
from braze.codegen.reference.run import run_kernel
from braze.codegen.reference.shapes import Shapes
from braze.codegen.reference.symbols import kernel_symbols
from braze.core.dims import evaluate as evaluate_dim
from braze.core.errors import EngineFormatError, ExecutionError, ModelError
from braze.engine.plan import Module
from braze.engine.steps import BufferRef, Copy, Launch, LibraryCall
from braze.expr.loops import LoopKernel, TensorSpec
from braze.fusion.in_place import in_place_slots
from braze.fusion.kernel import Kernel
from braze.fusion.kernel_text import parse_kernel

Array = np.ndarray[Any, Any]
Straight: TypeAlias = Launch | LibraryCall | Copy


@dataclass(frozen=True)
class Program:
    """A kernel ready to run: parsed once, with what the interpreter asks about it."""

    kernel: Kernel
    symbols: tuple[str, ...]
    in_place: frozenset[int]

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors it writes."""
        k = self.kernel
        return k.outputs if isinstance(k, LoopKernel) else (k.output,)


def read_program(module: Module) -> Program:
    """The program of a kernel's text; raises EngineFormatError."""
    try:
        kernel = parse_kernel(module.code.decode("ascii"))
    except (ModelError, UnicodeDecodeError) as e:
        raise EngineFormatError(f"a kernel of the engine is not readable: {e}") from e
    return Program(kernel, kernel_symbols(kernel), frozenset(in_place_slots(kernel)))


def check_early(routines: Mapping[int, Routine], shapes: Shapes, memory: Memory) -> None:
    """Refuse copies and calls without the room, and displacements, that input shapes settle.

    routines: as for Machine. Raises EngineFormatError, whether the step would run or not.
    """
    for number, step in enumerate(memory.plan.every_step):
        if not isinstance(step, Straight):
            continue
        params = (step.bytes,) if isinstance(step, Copy) else step.params
        refs = (step.source, step.target) if isinstance(step, Copy) else step.buffers
        if shapes.is_late(*params) or any(map(memory.is_late, refs)):
            continue
        rooms = [memory.room(ref) for ref in refs]
        if isinstance(step, Copy):
            library.copy_sizes(shapes.shape(params), rooms)
        elif number in routines:
            routines[number].sizes(shapes.shape(params), rooms)


@dataclass(frozen=True)
class Machine:
    """What straight steps of one run need.

    programs: of Plan.modules; routines: of the library calls by the number of their step; float64:
    accumulate float32 sums and products in float64.
    """

    programs: Sequence[Program]
    routines: Mapping[int, Routine]
    shapes: Shapes
    memory: Memory
    float64: bool

    def run(self, step: Straight, number: int, where: str) -> None:
        """Run one step.

        Raises ExecutionError for data it refuses, EngineFormatError where the plan lets buffers
        overlap that must be apart or a step read what nobody wrote.
        """
        if isinstance(step, Launch):
            self._launch(step, where)
        elif isinstance(step, Copy):
            source, target = self._views((step.source, step.target))
            library.copy(source, target, self.shapes.at(step.bytes), where)
        else:
            params = self.shapes.shape(step.params)
            self.routines[number].run(self._views(step.buffers), params, where)

    def _views(self, refs: Sequence[BufferRef]) -> list[View]:
        return [self.memory.view(ref) for ref in refs]

    def _launch(self, step: Launch, where: str) -> None:
        program = self.programs[self.memory.plan.kernels[step.kernel].module]
        kernel = program.kernel
        env = dict(zip(program.symbols, self.shapes.shape(step.params), strict=True))
        views, tensors = self._views(step.buffers), []
        for view, spec in zip(views, (*kernel.inputs, *program.outputs), strict=True):
            shape = tuple(evaluate_dim(d, env) for d in spec.shape)
            tensors.append(view.tensor(shape, spec.dtype.numpy, where))
        split = len(kernel.inputs)
        inputs, outputs = tensors[:split], tensors[split:]
        for view, tensor in zip(views, inputs, strict=False):
            view.check_read(tensor.nbytes, where)
        _check_apart(program, inputs, outputs, where)
        try:
            results = run_kernel(kernel, inputs, env, self.float64)
        except ExecutionError as e:
            raise ExecutionError(
                f"{where}: an index in the data is out of range ({e}); check the inputs of this run"
            ) from e
        for view, tensor, result in zip(views[split:], outputs, results, strict=True):
            tensor[...] = result
            view.mark(tensor.nbytes)


def _check_apart(
    program: Program, inputs: Sequence[Array], outputs: Sequence[Array], where: str
) -> None:
    """An output may lie exactly over an input whose every element is read where it is replaced."""
    for o, output in enumerate(outputs):
        for other in outputs[:o]:
            if overlap(output, other):
                raise _planner_mistake(where, f"output {o} overlaps another output")
        for slot, tensor in enumerate(inputs):
            same = tensor.ctypes.data == output.ctypes.data and tensor.nbytes == output.nbytes
            if overlap(tensor, output) and not (same and slot in program.in_place):
                raise _planner_mistake(where, f"output {o} overlaps input {slot}")


def _planner_mistake(where: str, what: str) -> EngineFormatError:
    return EngineFormatError(f"{where}: {what}; this is a mistake of the planner, please report it")
