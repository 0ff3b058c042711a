"""Timing of one kernel on the GPU: launches inside a CUDA graph, so that the host costs nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from braze.codegen.cuda.driver import Driver
from braze.codegen.cuda.packing import pack_constant
from braze.core.dims import Dim, evaluate, product
from braze.core.dtypes import BOOL
from braze.expr.loops import LoopKernel, TensorSpec
from braze.fusion.kernel import CompiledKernel, GridLaunch, Kernel

LAUNCHES, REPEATS = 20, 5
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


class CudaWorkload:
    """Device buffers for one kernel at given sizes, shared by all tactics that are tried on it."""

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._driver = Driver()
        outputs = kernel.outputs if isinstance(kernel, LoopKernel) else (kernel.output,)
        self._arrays = [self._sample(s, i) for i, s in enumerate(kernel.inputs)]
        self._addresses = [self._driver.upload(a) for a in self._arrays]
        self._addresses += [self._driver.allocate(self._bytes(s)) for s in outputs]
        self._status = self._driver.upload(np.zeros(4, np.int32))
        self._packed: dict[tuple[int, Any], int] = {}
        self._scratch = (0, 0)  # address and bytes
        self._counters: dict[int, int] = {}  # address by number

    def _value(self, d: Dim) -> int:
        return evaluate(d, self._sizes)

    def _bytes(self, spec: TensorSpec) -> int:
        return self._value(product(spec.shape)) * spec.dtype.itemsize

    def _sample(self, spec: TensorSpec, seed: int) -> np.ndarray[Any, Any]:
        """Small random floats (a card clocks differently on zeros); zeros for integers, which may
        be indexes."""
        shape = tuple(self._value(d) for d in spec.shape)
        if spec.dtype is BOOL or not spec.dtype.is_float:
            return np.zeros(shape, spec.dtype.numpy)
        values = np.random.default_rng(seed).uniform(-1, 1, shape)
        return values.astype(spec.dtype.numpy)

    def seconds(self, compiled: CompiledKernel, give_up_above: float) -> float:
        """Median time of one launch of everything the kernel consists of."""
        addresses = list(self._addresses)
        for slot, packing in compiled.packings:
            if (slot, packing) not in self._packed:
                packed = np.ascontiguousarray(pack_constant(self._arrays[slot], packing))
                self._packed[slot, packing] = self._driver.upload(packed)
            addresses[slot] = self._packed[slot, packing]
        stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
        d = self._driver
        d.call("cuStreamCreate", ctypes.byref(stream), 1)
        pieces, early = self._pieces(compiled), False
        d.call("cuStreamBeginCapture_v2", stream, RELAXED)
        for _ in range(LAUNCHES):
            for function, launch, sizes in pieces:
                if grid := self._value(launch.grid):
                    pointers = [*addresses, *self._room(launch)]
                    d.launch(function, grid, pointers, sizes, stream, early and launch.waits)
                    early = True
        d.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        ready = ctypes.c_void_p()
        d.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
        times = [self._timed(ready, stream) for _ in range(REPEATS + 1)][1:]
        d.call("cuGraphExecDestroy", ready)
        d.call("cuGraphDestroy", graph)
        d.call("cuStreamDestroy_v2", stream)
        return float(np.median(times)) / LAUNCHES

    def _room(self, launch: GridLaunch) -> list[int]:
        """Addresses of the workspace, the status word and the counters of a launch."""
        room = [self._status]
        if launch.scratch_bytes != 0:
            room.insert(0, self._scratch[0])
        if launch.counters:
            if launch.counters not in self._counters:
                zeros = np.zeros(launch.counters, np.int32)
                self._counters[launch.counters] = self._driver.upload(zeros)
            room.append(self._counters[launch.counters])
        return room

    def _pieces(self, compiled: CompiledKernel) -> list[tuple[Any, GridLaunch, list[int]]]:
        found = []
        piece: CompiledKernel | None = compiled
        while piece is not None:
            launch = piece.launch
            assert isinstance(launch, GridLaunch)
            code = piece.code
            function = self._driver.function(
                code.data, code.entry, launch.block, launch.shared_bytes
            )
            sizes = [self._value(p) for p in piece.params]
            found.append((function, launch, sizes))
            piece = piece.then
        self._reserve(max(self._value(launch.scratch_bytes) for _, launch, _ in found))
        return found

    def _reserve(self, wanted: int) -> None:
        """A workspace of at least `wanted` bytes."""
        if wanted > self._scratch[1]:
            self._driver.free(self._scratch[0])
            self._scratch = (0, 0)
            self._scratch = (self._driver.allocate(wanted), wanted)

    def _timed(self, graph: ctypes.c_void_p, stream: ctypes.c_void_p) -> float:
        """Seconds of one replay, by events."""
        d = self._driver
        events = [ctypes.c_void_p(), ctypes.c_void_p()]
        for e in events:
            d.call("cuEventCreate", ctypes.byref(e), 0)
        d.call("cuEventRecord", events[0], stream)
        d.call("cuGraphLaunch", graph, stream)
        d.call("cuEventRecord", events[1], stream)
        d.call("cuEventSynchronize", events[1])
        milliseconds = ctypes.c_float()
        d.call("cuEventElapsedTime", ctypes.byref(milliseconds), *events)
        for e in events:
            d.call("cuEventDestroy_v2", e)
        return milliseconds.value / 1e3

    def __del__(self) -> None:
        driver = getattr(self, "_driver", None)
        if driver is None:
            return
        held = (*self._packed.values(), *self._counters.values(), self._scratch[0], self._status)
        for address in (*self._addresses, *held):
            driver.free(address)
