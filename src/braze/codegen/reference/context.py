"""The execution context of a reference engine: the face of the native one over numpy."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from braze.codegen.reference.loaded import LoadedReference
from braze.codegen.reference.memory import Memory, Span
from braze.codegen.reference.shapes import Shapes, evaluate_shapes, tensor_bytes
from braze.codegen.reference.steps import Run
from braze.core.errors import BindingError, ExecutionError, ProfileError, ShapeError
from braze.engine.content import pack_content
from braze.engine.plan import DebugTensor
from braze.runtime.arrays import Array, address_of, empty_output
from braze.runtime.context import ExecutionContext
from braze.runtime.inputs import input_arrays, passed_memory
from braze.runtime.native import thread_count
from braze.runtime.stream import Stream

Dims = tuple[tuple[int, ...], ...]
UNSET = -1


class ReferenceContext(ExecutionContext):
    """Shapes, memory and runs of one reference engine; workers are checked and not used."""

    def __init__(self, engine: LoadedReference, profile: int | None = None) -> None:
        plan = engine.plan
        if profile is not None and not 0 <= profile < len(plan.profiles):
            raise ProfileError(
                f"profile {profile} does not exist; the engine has profiles "
                f"0..{len(plan.profiles) - 1}"
            )
        self._reference = engine
        self._plan = plan
        self._profile = profile
        self._lock = threading.RLock()
        self._given: dict[str, Span] = {}
        self._bound = {}
        self._chosen: dict[str, tuple[int, ...]] = {}

    # ---- one call -----------------------------------------------------------------------

    def run(
        self, inputs: Mapping[str, Any], *, workers: int = 0, debug: Iterable[str] = ()
    ) -> dict[str, Array]:
        """See ExecutionContext.run."""
        thread_count(workers)
        wanted = frozenset(debug)
        known = [t.name for t in self._plan.debug]
        if unknown := wanted - set(known):
            raise BindingError(
                f"the engine has no debug tensors {sorted(unknown)}; it has {known} "
                "(build with debug tensors marked)"
            )
        copies: dict[str, Array] = {}

        def watch(tensor: DebugTensor, view: Array) -> None:
            if tensor.name in wanted:
                copies[tensor.name] = view.copy()

        outputs, _ = self._call(inputs, watch)
        return {**outputs, **copies}

    def profile(self, inputs: Mapping[str, Any], *, workers: int = 0) -> list[int]:
        """See ExecutionContext.profile."""
        thread_count(workers)
        return self._call(inputs, _ignore)[1]

    def _call(self, inputs: Mapping[str, Any], watch: Any) -> tuple[dict[str, Array], list[int]]:
        arrays = input_arrays(self._reference.inputs, inputs)
        with self._lock:
            shapes = self._evaluate(tuple(a.shape for a in arrays))
            spans = [Span(address_of(a), a.nbytes) for a in arrays]
            outputs: dict[str, Array] = {}
            for b in self._plan.outputs:
                shape = shapes.shape(b.shape)
                size = tensor_bytes(shape, b.dtype, b.name)
                array, address = empty_output(b.name, shape, b.dtype.numpy, size)
                outputs[b.name] = array
                spans.append(Span(address, size))
            return outputs, self._execute(shapes, spans, watch)

    def _evaluate(self, dims: Dims) -> Shapes:
        return evaluate_shapes(self._plan, dims, self._profile)

    def _execute(self, shapes: Shapes, spans: Sequence[Span], watch: Any) -> list[int]:
        self._check_memory(shapes, spans)
        memory = Memory(self._plan, shapes, spans)
        engine = self._reference
        return Run(self._plan, engine.programs, shapes, memory, engine.float64).execute(watch)

    def _check_memory(self, shapes: Shapes, spans: Sequence[Span]) -> None:
        """The rules of the native runtime (native/src/launch_table.cc)."""
        bindings = (*self._plan.inputs, *self._plan.outputs)
        for i, (b, span) in enumerate(zip(bindings, spans, strict=True)):
            needed = tensor_bytes(shapes.shape(b.shape), b.dtype, b.name)
            if span.bytes < needed:
                raise BindingError(
                    f"tensor '{b.name}' has {span.bytes} bytes of memory but needs {needed}; "
                    "bind a larger buffer"
                )
            if span.address % b.dtype.itemsize:
                raise BindingError(
                    f"the memory of tensor '{b.name}' is not aligned to its elements"
                )
            content = pack_content(b.dtype, b.value)
            if content and span.array()[:needed].tobytes() != content:
                raise ExecutionError(
                    f"input '{b.name}' differs from the constant content the engine was built "
                    "for; pass that content or build the engine again"
                )
            for j, other in enumerate(spans[:i]):
                written = i >= len(self._plan.inputs)
                apart = span.address >= other.address + other.bytes
                if written and needed and not apart and other.address < span.address + needed:
                    raise BindingError(
                        f"the memory of tensor '{b.name}' overlaps that of '{bindings[j].name}', "
                        "and one of them is an output; give each output memory of its own"
                    )

    # ---- the stateful way ---------------------------------------------------------------

    def set_input_shape(self, name: str, shape: Sequence[int]) -> None:
        """See ExecutionContext.set_input_shape."""
        row = self._reference.row(name)
        if row.is_output:
            raise BindingError(f"binding '{name}' is an output")
        if len(shape) != row.rank:
            raise ShapeError(
                f"input '{name}' has {row.rank} axes but was given {len(shape)}; "
                "pass a shape of that rank"
            )
        with self._lock:
            self._chosen[name] = tuple(shape)

    def _current(self) -> Dims:
        dims = []
        for b in self._plan.inputs:
            static = [self._plan.sizes[i] for i in b.shape]
            if b.name in self._chosen:
                dims.append(self._chosen[b.name])
            elif all(s.op == "const" for s in static):
                dims.append(tuple(s.a for s in static))
            else:
                raise ShapeError(
                    f"input '{b.name}' has a dynamic shape that is not set; set it before asking "
                    "for sizes or running"
                )
        return tuple(dims)

    def shape(self, name: str) -> tuple[int, ...]:
        """See ExecutionContext.shape."""
        self._reference.row(name)
        bindings = {b.name: b for b in (*self._plan.inputs, *self._plan.outputs)}
        with self._lock:
            return self._evaluate(self._current()).shape(bindings[name].shape)

    def profile_in_use(self) -> tuple[int, int]:
        """See ExecutionContext.profile_in_use."""
        with self._lock:
            index = self._evaluate(self._current()).profile
        return index, self._plan.profiles[index].arena_bytes

    def bind(self, name: str, memory: Array | int, size: int | None = None) -> None:
        """See ExecutionContext.bind."""
        given = passed_memory(self._reference.row(name), memory, size)
        with self._lock:
            self._given[name] = Span(given.address, given.bytes)
            self._bound[name] = given.keep

    def _spans(self) -> list[Span]:
        bindings = (*self._plan.inputs, *self._plan.outputs)
        return [self._given.get(b.name, Span(0, 0)) for b in bindings]

    def execute(self, *, workers: int = 0) -> None:
        """See ExecutionContext.execute."""
        thread_count(workers)
        with self._lock:
            self._execute(self._evaluate(self._current()), self._spans(), _ignore)

    def enqueue(self, stream: Stream) -> None:
        """See ExecutionContext.enqueue."""
        with self._lock:
            shapes, spans = self._evaluate(self._current()), self._spans()

            def run() -> None:
                with self._lock:
                    self._execute(shapes, spans, _ignore)

            stream.call(run)
            stream.keep_alive(self, dict(self._bound))


def _ignore(_tensor: DebugTensor, _view: Array) -> None:
    """Watch nothing."""
