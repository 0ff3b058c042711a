"""The execution context of a reference engine: the face of the native one over numpy."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from braze.codegen.reference.bindings import NO_MEMORY, Allocate, Bindings, Span
from braze.codegen.reference.flow import Run, Watch
from braze.codegen.reference.loaded import LoadedReference
from braze.codegen.reference.memory import Memory
from braze.codegen.reference.shapes import Shapes
from braze.codegen.reference.steps import Machine, check_early
from braze.core.errors import BindingError, ProfileError, ShapeError
from braze.engine.plan import DebugTensor
from braze.runtime.arguments import names_of
from braze.runtime.arrays import Array, address_of, empty_output
from braze.runtime.context import ExecutionContext
from braze.runtime.inputs import check_bound_shape, input_arrays, passed_memory
from braze.runtime.native import thread_count
from braze.runtime.stream import Stream

Dims = tuple[tuple[int, ...], ...]


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
        self._array_shapes: dict[str, tuple[int, ...] | None] = {}
        self._chosen: dict[str, tuple[int, ...]] = {}
        self._sizes: Shapes | None = None  # for the input shapes that were last used

    # ---- one call -----------------------------------------------------------------------

    def run(
        self, inputs: Mapping[str, Any], *, workers: int = 0, debug: Iterable[str] = ()
    ) -> dict[str, Array]:
        """See ExecutionContext.run."""
        thread_count(workers)
        wanted = names_of("debug", debug)
        known = [t.name for t in self._plan.debug]
        if unknown := wanted - set(known):
            raise BindingError(
                f"the engine has no debug tensors {sorted(unknown, key=str)}; it has {known} "
                "(build with debug tensors marked)"
            )
        copies: dict[str, Array] = {}

        def watch(tensor: DebugTensor, view: Array) -> None:
            if tensor.name in wanted:
                copies[tensor.name] = view.copy()

        outputs, _ = self._call(inputs, watch if wanted else None)
        return {**outputs, **copies}

    def profile(self, inputs: Mapping[str, Any], *, workers: int = 0) -> list[int]:
        """See ExecutionContext.profile."""
        thread_count(workers)
        return self._call(inputs, None)[1]

    def _call(
        self, inputs: Mapping[str, Any], watch: Watch | None
    ) -> tuple[dict[str, Array], list[int]]:
        arrays = input_arrays(self._reference.inputs, inputs)
        rows = self._reference.outputs
        made: dict[str, Array] = {}

        def allocate(index: int, shape: tuple[int, ...], size: int) -> Span:
            row = rows[index]
            made[row.name], address = empty_output(row.name, shape, row.storage, size)
            return Span(address, size)

        with self._lock:
            given = [Span(address_of(a), a.nbytes) for a in arrays]
            given += [NO_MEMORY] * len(rows)
            spent = self._execute(tuple(a.shape for a in arrays), given, allocate, watch)
        return {row.name: made[row.name] for row in rows}, spent

    def _prepare(self, dims: Dims, contents: Mapping[int, int] = MappingProxyType({})) -> Shapes:
        """The sizes for these input shapes: with what the last run made known, if it had them."""
        known = self._sizes
        if known is None or known.dims != dims or not known.admits(contents):
            sizes = Shapes(self._plan, dims, self._profile, contents)
            check_early(self._reference.routines, sizes, self._laid_out(sizes))
            self._sizes = known = sizes
        return known

    def _contents(self, given: Sequence[Span]) -> dict[int, int]:
        """What inputs hold whose content a profile bounds, by symbol."""
        found: dict[int, int] = {}
        for binding, span in zip(self._plan.inputs, given, strict=False):
            size = len(binding.content) * binding.dtype.itemsize
            if size and span.address and span.bytes >= size:  # others are refused where bound
                numbers = span.array()[:size].view(binding.dtype.numpy)
                found.update(zip(binding.content, numbers.tolist(), strict=True))
        return found

    def _laid_out(self, sizes: Shapes) -> Memory:
        return Memory(self._plan, sizes, Bindings(self._plan, sizes))

    def _execute(
        self,
        dims: Dims,
        given: Sequence[Span],
        allocate: Allocate | None = None,
        watch: Watch | None = None,
    ) -> list[int]:
        engine, shapes = self._reference, self._prepare(dims, self._contents(given))
        memory = self._laid_out(shapes)
        shapes.forget_run()
        memory.bindings.bind(given, allocate)
        machine = Machine(engine.programs, engine.routines, shapes, memory, engine.float64)
        run = Run(machine, engine.given, watch)
        run.execute()
        return run.spent

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
            return self._prepare(self._current()).known_shape(bindings[name].shape)

    def profile_in_use(self) -> tuple[int, int]:
        """See ExecutionContext.profile_in_use."""
        with self._lock:
            index = self._prepare(self._current()).profile
        return index, self._plan.profiles[index].arena_bytes

    def bind(self, name: str, memory: Array | int, size: int | None = None) -> None:
        """See ExecutionContext.bind."""
        given = passed_memory(self._reference.row(name), memory, size)
        with self._lock:
            self._given[name] = Span(given.address, given.nbytes)
            self._bound[name] = given.keep
            self._array_shapes[name] = given.shape

    def _check_bound_shapes(self) -> None:
        for name, bound in self._array_shapes.items():
            if bound is not None:
                check_bound_shape(self._reference.row(name), bound, self.shape(name))

    def _spans(self) -> list[Span]:
        bindings = (*self._plan.inputs, *self._plan.outputs)
        return [self._given.get(b.name, NO_MEMORY) for b in bindings]

    def execute(self, *, workers: int = 0, graph: bool = True, sleep: bool = False) -> None:
        """See ExecutionContext.execute."""
        thread_count(workers)
        with self._lock:
            dims = self._current()
            self._check_bound_shapes()
            self._execute(dims, self._spans())

    def enqueue(self, stream: Stream) -> None:
        """See ExecutionContext.enqueue."""
        with self._lock:
            dims, spans = self._current(), self._spans()
            self._prepare(dims)
            self._check_bound_shapes()

            def run() -> None:
                with self._lock:
                    self._execute(dims, spans)

            stream.call(run)
            stream.keep_alive(self, dict(self._bound))
