"""Engine: a loaded plan that runs; safe to call from several threads."""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braze.core.dtypes import F32, DType, from_name
from braze.core.errors import EngineFormatError, TargetError
from braze.core.files import path_text, readable_source
from braze.engine.plan import Binding, Plan
from braze.engine.read import check_section, from_bytes, read_file
from braze.engine.write import aligned_bytes, to_array, write_image
from braze.runtime.arrays import Array
from braze.runtime.context import ExecutionContext
from braze.runtime.device import DeviceArray, pinned_empty
from braze.runtime.dlpack import CUDA
from braze.runtime.inputs import NO_INPUTS
from braze.runtime.loaded import LoadedEngine
from braze.runtime.native import check, engine_options, library
from braze.runtime.report import describe_plan, shape_text


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """An input or output as users see it; dynamic axes show as size expressions."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        """As `x: float32[n, 3]`."""
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


class Engine:
    """A loaded engine. Make one with `load`, `from_bytes` or `from_plan`."""

    def __init__(self, loaded: LoadedEngine) -> None:
        if not isinstance(loaded, LoadedEngine):
            raise EngineFormatError(
                f"an engine is no {type(loaded).__name__}; use braze.load for a file, "
                "Engine.from_bytes for bytes, or braze.build for a model"
            )
        self.loaded = loaded
        self._free_contexts: list[ExecutionContext] = []

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        threads: int = 0,
        weight_budget: int | None = None,
    ) -> Engine:
        """The engine in the file at `path`, which stays mapped into memory.

        threads: workers of a run, at most what it was built for; 0 for that number (at most the
        CPUs of this machine). weight_budget: bytes of a GPU's memory for weights, those of one
        context counted; what does not fit is copied from the host for each step that reads it.
        """
        options = ctypes.byref(engine_options(threads, weight_budget))
        name, handle = os.fsencode(readable_source(path, "engine")), c_void_p()
        try:
            out = ctypes.byref(handle)
            check(library().braze_engine_load_with(name, None, 0, options, out))
        except TargetError as refusal:
            return _of_other_backend(read_file(path_text(path)), refusal)
        return cls(LoadedEngine(handle))

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        *,
        threads: int = 0,
        weight_budget: int | None = None,
    ) -> Engine:
        """The engine in `data`, which is copied once (loading a file copies nothing)."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise EngineFormatError(
                f"an engine in memory must be bytes, not {type(data).__name__}; "
                "use braze.load for a file"
            )
        if isinstance(data, memoryview) and not data.c_contiguous:
            data = data.tobytes()
        source = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
        if not source.size:
            raise EngineFormatError("the engine is empty; build one with braze.build")
        image = aligned_bytes(source.size)
        image[:] = source
        return cls._from_image(image, threads, weight_budget)

    @classmethod
    def from_plan(cls, plan: Plan, *, threads: int = 0) -> Engine:
        """The engine of a plan: written to memory and run from there without another copy."""
        if not isinstance(plan, Plan):
            raise EngineFormatError(f"{type(plan).__name__} is no plan; braze.compile makes one")
        return cls._from_image(to_array(plan), threads)

    @classmethod
    def _from_image(
        cls, image: npt.NDArray[np.uint8], threads: int, weight_budget: int | None = None
    ) -> Engine:
        handle = c_void_p()
        address, out = image.ctypes.data, ctypes.byref(handle)
        options = ctypes.byref(engine_options(threads, weight_budget))
        try:
            check(library().braze_engine_load_with(None, address, image.size, options, out))
        except TargetError as refusal:
            return _of_other_backend(from_bytes(image.data), refusal)
        return cls(LoadedEngine(handle, keep=image))

    # ---- running ------------------------------------------------------------------------

    def __call__(
        self,
        inputs: Mapping[str, Any] = NO_INPUTS,
        *,
        workers: int = 0,
        debug: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Run on arrays by input name; returns arrays by output name. Any thread may call it.

        Tensors of the engine's GPU are used in place, and outputs are `DeviceArray`s then.
        """
        context = self._take_context()
        try:
            return context.run(inputs, workers=workers, debug=debug)
        finally:
            self._free_contexts.append(context)

    def profile(self, inputs: Mapping[str, Any] = NO_INPUTS, *, workers: int = 0) -> list[int]:
        """Run on `inputs` and return the nanoseconds of every step, as in Plan.every_step.

        Steps in bodies count in the time of the step that ran the body too.
        """
        context = self._take_context()
        try:
            return context.profile(inputs, workers=workers)
        finally:
            self._free_contexts.append(context)

    def _take_context(self) -> ExecutionContext:
        try:
            return self._free_contexts.pop()  # list operations are atomic: no lock is needed
        except IndexError:
            return self.create_context()

    def create_context(
        self, profile: int | None = None, *, priority: int = 0, extra_streams: int = -1
    ) -> ExecutionContext:
        """A context of your own; profile: an index, or None to choose by the shapes.

        On a GPU: priority, from 0, of its work against that of others; extra_streams for branches
        of the network side by side (-1: as braze thinks).
        """
        return ExecutionContext(
            self.loaded, profile, priority=priority, extra_streams=extra_streams
        )

    def device_empty(self, shape: Sequence[int], dtype: DType | str = F32) -> DeviceArray:
        """A zeroed array in memory of the engine's device; raises ExecutionError without memory."""
        return DeviceArray(self.loaded, _dtype(dtype), shape)

    def pinned_empty(self, shape: Sequence[int], dtype: DType | str = F32) -> Array:
        """A zeroed numpy array in memory of the host that the engine's device copies fastest."""
        return pinned_empty(self.loaded, _dtype(dtype), shape)

    # ---- descriptions -------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """Workers of a run."""
        return int(self.loaded.lib.braze_engine_threads(self.loaded.handle))

    @property
    def on_gpu(self) -> bool:
        """Whether its code runs on an NVIDIA GPU."""
        return self.loaded.device[0] == CUDA

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan behind the engine, read when first asked for; its weights are views."""
        return from_bytes(self.image().data, verify_weights=False)

    @functools.cached_property
    def inputs(self) -> tuple[TensorDescription, ...]:
        """The inputs, in the model's order."""
        return self._describe(self.plan.inputs)

    @functools.cached_property
    def outputs(self) -> tuple[TensorDescription, ...]:
        """The outputs, in the model's order."""
        return self._describe(self.plan.outputs)

    def _describe(self, bindings: Sequence[Binding]) -> tuple[TensorDescription, ...]:
        plan = self.plan
        return tuple(
            TensorDescription(b.name, b.dtype, shape_text(plan, b.shape)) for b in bindings
        )

    def __repr__(self) -> str:
        plan = self.plan
        target = " ".join(str(value) for _, value in sorted(plan.target.about.items()))
        tensors = (", ".join(map(str, side)) or "nothing" for side in (self.inputs, self.outputs))
        return f"<braze.{type(self).__name__} {' -> '.join(tensors)} on {target}>"

    def inspect(self) -> str:
        """A report for people: tensors, profiles, steps with tactics and origins, record."""
        return describe_plan(self.plan)

    def verify(self) -> None:
        """Wait until all of the file is checked; raises EngineFormatError where it is damaged.

        Loading does not wait for large weights, and never reads the record of the build.
        """
        check(self.loaded.lib.braze_engine_verify(self.loaded.handle))
        check_section(self.image().data, "record")

    def image(self) -> npt.NDArray[np.uint8]:
        """The bytes of the engine file where they lie; read-only, keeps the engine alive."""
        return self.loaded.image()

    def to_bytes(self) -> bytes:
        """The engine file as bytes."""
        return self.image().tobytes()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies are engines of their own, made from the engine file's bytes."""
        return functools.partial(type(self).from_bytes, threads=self.threads), (self.to_bytes(),)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the engine file to `path`, whole or not at all; raises FileError."""
        write_image(self.image(), path)


def _of_other_backend(plan: Plan, refusal: TargetError) -> Engine:
    """The engine of a plan whose code is for no processor: its target names the backend to ask.

    The catalog is imported by name, since running an engine of this processor needs no backend.
    """
    name = plan.target.about.get("backend")
    if name is None:
        raise refusal
    catalog = importlib.import_module("braze.codegen.catalog")
    engine: Engine = catalog.find_backend(name, plan.threads).load(plan)
    return engine


def _dtype(dtype: DType | str) -> DType:
    return dtype if isinstance(dtype, DType) else from_name(dtype)
