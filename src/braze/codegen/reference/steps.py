"""The steps of a plan, executed one after another over its memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from braze.codegen.reference.memory import Memory, overlap
from braze.codegen.reference.run import run_kernel
from braze.codegen.reference.shapes import Shapes
from braze.codegen.reference.symbols import kernel_symbols
from braze.core.dims import evaluate as evaluate_dim
from braze.core.errors import EngineFormatError, ExecutionError, ModelError
from braze.engine.plan import DebugTensor, Module, Plan
from braze.engine.steps import Launch, Step
from braze.expr.loops import LoopKernel, TensorSpec
from braze.fusion.in_place import in_place_slots
from braze.fusion.kernel import Kernel
from braze.fusion.kernel_text import parse_kernel

Array = np.ndarray[Any, Any]
# called with a debug tensor and a view of it, after the step that makes it
Watch = Callable[[DebugTensor, Array], None]


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


@dataclass(frozen=True)
class Run:
    """One run of a plan; float64: accumulate float32 sums and products in float64."""

    plan: Plan
    programs: Sequence[Program]
    shapes: Shapes
    memory: Memory
    float64: bool

    def execute(self, watch: Watch) -> list[int]:
        """Run every step in order; returns the nanoseconds each took."""
        spent = []
        for i, step in enumerate(self.plan.steps):
            start = time.perf_counter_ns()
            STEPS[type(step)](self, step, f"step {i} '{step.name}'{_origins(step)}")
            spent.append(time.perf_counter_ns() - start)
            for tensor in self.plan.debug:
                if tensor.step == i:
                    shape = self.shapes.shape(tensor.shape)
                    where = f"debug tensor {tensor.name!r}"
                    dtype = tensor.dtype.numpy
                    watch(tensor, self.memory.tensor(tensor.ref, shape, dtype, where))
        return spent

    def launch(self, step: Launch, where: str) -> None:
        """Run one kernel on the buffers of `step`.

        Raises ExecutionError for data the kernel refuses, EngineFormatError where the plan lets
        buffers overlap that this kernel needs apart.
        """
        program = self.programs[self.plan.kernels[step.kernel].module]
        kernel = program.kernel
        env = dict(zip(program.symbols, self.shapes.shape(step.params), strict=True))
        specs = (*kernel.inputs, *program.outputs)
        tensors = []
        for ref, spec in zip(step.buffers, specs, strict=True):
            shape = tuple(evaluate_dim(d, env) for d in spec.shape)
            tensors.append(self.memory.tensor(ref, shape, spec.dtype.numpy, where))
        split = len(kernel.inputs)
        inputs, outputs = tensors[:split], tensors[split:]
        for ref, tensor in zip(step.buffers, inputs, strict=False):
            self.memory.check_read(ref, tensor, where)
        _check_apart(program, inputs, outputs, where)
        try:
            results = run_kernel(kernel, inputs, env, self.float64)
        except ExecutionError as e:
            raise ExecutionError(
                f"{where}: an index in the data is out of range ({e}); check the inputs of this run"
            ) from e
        for ref, tensor, result in zip(step.buffers[split:], outputs, results, strict=True):
            tensor[...] = result
            self.memory.mark_written(ref, tensor)


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


def _origins(step: Step) -> str:
    return f" (from {', '.join(step.origins)})" if step.origins else ""


STEPS: Final[Mapping[type, Callable[[Run, Any, str], None]]] = {Launch: Run.launch}
