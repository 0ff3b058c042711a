"""Timing of one kernel on the GPU: launches inside a CUDA graph, so that the host costs nothing."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from braze.codegen.cuda.driver import Driver, placed
from braze.codegen.cuda.libraries.equal_rows import equal_inputs, input_slot, outputs_agree
from braze.codegen.cuda.libraries.tactics import prepare_call
from braze.codegen.cuda.packing import pack_constant
from braze.codegen.spread import spread
from braze.core.dims import Dim, evaluate, product
from braze.core.dtypes import BOOL, I8, U8
from braze.expr.loops import LoopKernel, TensorSpec
from braze.fusion.kernel import CompiledKernel, GridLaunch, Kernel, LibraryCode

LAUNCHES, REPEATS = 20, 5
HOPELESS = 3.0  # times the best so far: not worth repeating
COLD_BYTES = 64 << 20  # more than any card's cache holds beside activations
PATTERN = 1 << 20  # elements of a sample that is repeated
STATUS_BYTES = 16
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
Stream = ctypes.c_void_p | None
# enqueues a launch on tensors (inputs, then outputs), given the stream and whether a launch stands
# before it there; tells whether one does now
Enqueue = Callable[[list[int], Stream, bool], bool]


def sample(
    spec: TensorSpec, sizes: Mapping[str, int], most: int | None = None
) -> np.ndarray[Any, Any]:
    """Small random floats, bytes and truths (a card clocks differently on zeros, and wrong places
    are not seen among them); zeros for wider integers, which may be indexes. most: of so many
    elements, flat."""
    shape = tuple(evaluate(d, sizes) for d in spec.shape)
    if most is not None:
        shape = (min(most, math.prod(shape)),)
    random = np.random.default_rng(0)
    if spec.dtype in (I8, U8, BOOL):
        low, high = {I8: (-128, 128), U8: (0, 256), BOOL: (0, 2)}[spec.dtype]
        return random.integers(low, high, shape, np.int16).astype(spec.dtype.numpy)
    if not spec.dtype.is_float:
        return np.zeros(shape, spec.dtype.numpy)
    values = random.random(shape, np.float32) * 2 - 1
    return values.astype(spec.dtype.numpy)


def contents(kernel: Kernel, sizes: Mapping[str, int]) -> list[np.ndarray[Any, Any]]:
    """What the inputs of a workload hold: activations repeat a pattern."""
    constant = frozenset() if isinstance(kernel, LoopKernel) else kernel.constant
    found = []
    for slot, spec in enumerate(kernel.inputs):
        shape = tuple(evaluate(d, sizes) for d in spec.shape)
        part = sample(spec, sizes, None if slot in constant else PATTERN)
        found.append(np.resize(part, shape))
    return found


class CudaWorkload:
    """Device buffers for one kernel at given sizes, shared by all tactics that are tried on it.

    In a network, weights come from memory and activations from the cache, where the kernel before
    has left them. So each launch of a timing reads another copy of the constants, as many as do
    not fit into the cache together, and the activations of all are the same.
    """

    def __init__(self, kernel: Kernel, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        self._driver = Driver()
        outputs = kernel.outputs if isinstance(kernel, LoopKernel) else (kernel.output,)
        constant = frozenset() if isinstance(kernel, LoopKernel) else kernel.constant
        self._held: list[int] = []  # addresses to free
        self._scratch = (0, 0)  # address and bytes
        self._constants = {slot: sample(kernel.inputs[slot], sizes) for slot in constant}
        weights = sum(array.nbytes for array in self._constants.values())
        self._copies = max(1, min(LAUNCHES, -(-COLD_BYTES // max(1, weights))))
        # of each slot the addresses that launches take in turns
        self._slots = [
            self._uploaded(self._constants[slot]) if slot in constant else [self._filled(spec)]
            for slot, spec in enumerate(kernel.inputs)
        ]
        self._slots += [[self._allocate(self._bytes(s))] for s in outputs]
        self._status = self._allocate(STATUS_BYTES)
        self._driver.clear(self._status, STATUS_BYTES)
        self._packed: dict[tuple[int, Any], list[int]] = {}
        self._counters: dict[int, int] = {}  # address by number
        self._inputs = kernel.inputs
        self._outputs = outputs
        # of each library, addresses of inputs that make every row the same
        self._equal_inputs: dict[str, list[int]] = {}
        self._nan_input: dict[str, int] = {}  # of each, an input of which all is NaN

    def _value(self, d: Dim) -> int:
        return evaluate(d, self._sizes)

    def _bytes(self, spec: TensorSpec) -> int:
        return self._value(product(spec.shape)) * spec.dtype.itemsize

    def _allocate(self, count: int) -> int:
        self._held.append(self._driver.allocate(count))
        return self._held[-1]

    def _uploaded(self, array: np.ndarray[Any, Any]) -> list[int]:
        """As many copies of a constant as launches take in turns."""
        first = self._allocate(array.nbytes)
        self._driver.write(first, array)
        others = [self._allocate(array.nbytes) for _ in range(self._copies - 1)]
        for address in others:
            self._driver.copy(address, first, array.nbytes)
        return [first, *others]

    def _filled(self, spec: TensorSpec) -> int:
        """A tensor of sample values, the same ones again and again."""
        size, address = self._bytes(spec), self._allocate(self._bytes(spec))
        part = sample(spec, self._sizes, PATTERN)
        self._driver.write(address, part)
        done = part.nbytes
        while done < size:
            step = min(done, size - done)
            self._driver.copy(address + done, address, step)
            done += step
        return address

    def seconds(self, compiled: CompiledKernel, give_up_above: float) -> float:
        """Median time of one launch of everything the kernel consists of; a single time where
        that is far above `give_up_above`."""
        slots = list(self._slots)
        for slot, packing in compiled.packings:
            if (slot, packing) not in self._packed:
                packed = np.ascontiguousarray(pack_constant(self._constants[slot], packing))
                self._packed[slot, packing] = self._uploaded(packed)
            slots[slot] = self._packed[slot, packing]
        if not self._keeps_promises(compiled, [taken[0] for taken in slots]):
            return math.inf
        stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
        d = self._driver
        for spec, address in zip(self._outputs, self._slots[len(self._inputs) :], strict=True):
            # what another tactic has left there proves nothing
            d.clear(address[0], self._bytes(spec), 0xFF)
        d.call("cuStreamCreate", ctypes.byref(stream), 1)
        pieces, early = self._pieces(compiled), False
        d.call("cuStreamBeginCapture_v2", stream, RELAXED)
        for turn in range(LAUNCHES):
            for enqueue in pieces:
                early = enqueue([taken[turn % len(taken)] for taken in slots], stream, early)
        d.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        ready = ctypes.c_void_p()
        d.call("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_uint64(0))
        self._timed(ready, stream)
        times = [self._timed(ready, stream)]
        if times[0] < HOPELESS * LAUNCHES * give_up_above:
            times += [self._timed(ready, stream) for _ in range(REPEATS - 1)]
        d.call("cuGraphExecDestroy", ready)
        d.call("cuGraphDestroy", graph)
        d.call("cuStreamDestroy_v2", stream)
        return float(np.median(times)) / LAUNCHES

    def results(self) -> list[np.ndarray[Any, Any]]:
        """See `braze.codegen.backend.Workload`."""
        found = []
        for spec, (address,) in zip(self._outputs, self._slots[len(self._inputs) :], strict=True):
            parts = []
            for place in spread(self._value(product(spec.shape))):
                parts.append(np.empty(place.stop - place.start, spec.dtype.numpy))
                self._driver.read(address + place.start * spec.dtype.itemsize, parts[-1])
            found.append(np.concatenate(parts))
        return found

    def _room(self, launch: GridLaunch) -> list[int]:
        """Addresses of the workspace, the status word and the counters of a launch."""
        room = [self._status]
        if launch.scratch_bytes != 0:
            room.insert(0, self._scratch[0])
        if launch.counters:
            if launch.counters not in self._counters:
                address = self._allocate(4 * launch.counters)
                self._driver.clear(address, 4 * launch.counters)
                self._counters[launch.counters] = address
            room.append(self._counters[launch.counters])
        return room

    def _pieces(self, compiled: CompiledKernel) -> list[Enqueue]:
        """What enqueues each launch of a kernel."""
        pieces: list[CompiledKernel] = []
        piece: CompiledKernel | None = compiled
        while piece is not None:
            pieces.append(piece)
            piece = piece.then
        self._reserve(max(self._value(p.launch.workspace(1)) for p in pieces))
        return [self._piece(p) for p in pieces]

    def _piece(self, piece: CompiledKernel) -> Enqueue:
        if isinstance(piece.code, LibraryCode):
            call = prepare_call(piece.code)

            def enqueue_call(tensors: list[int], stream: Stream, early: bool) -> bool:
                call.run(piece.passed(tensors), self._scratch[0], stream)
                return True

            return enqueue_call
        launch, code = piece.launch, piece.code
        assert isinstance(launch, GridLaunch)
        function = self._driver.function(code.data, code.entry, launch.block, launch.shared_bytes)
        sizes = [self._value(p) for p in piece.params]
        maps = [placed(m, self._sizes) for m in launch.maps]
        grid, room = self._value(launch.grid), self._room(launch)

        def enqueue_kernel(tensors: list[int], stream: Stream, early: bool) -> bool:
            if not grid:
                return early
            pointers = [*piece.passed(tensors), *room]
            early = early and launch.waits
            self._driver.launch(function, grid, pointers, sizes, stream, early, maps)
            return True

        return enqueue_kernel

    def _keeps_promises(self, compiled: CompiledKernel, tensors: list[int]) -> bool:
        """Whether a library's algorithm gives equal rows equal bits, and keeps NaN; what braze
        generates does."""
        code = compiled.code
        if not isinstance(code, LibraryCode):
            return True
        if code.library not in self._equal_inputs:
            arrays = equal_inputs(code, [sample(spec, self._sizes) for spec in self._inputs])
            for slot, packing in compiled.packings:
                arrays[slot] = np.ascontiguousarray(pack_constant(arrays[slot], packing))
            self._equal_inputs[code.library] = [self._written(array) for array in arrays]
        inputs = list(self._equal_inputs[code.library])
        if not outputs_agree(code, self._output_of(compiled, inputs, tensors[-1])):
            return False
        slot = input_slot(code)
        if not self._inputs[slot].dtype.is_float:
            return True
        if code.library not in self._nan_input:
            # all bits of a NaN of any type may be set
            ones = np.full(self._bytes(self._inputs[slot]), 0xFF, np.uint8)
            self._nan_input[code.library] = self._written(ones)
        inputs[slot] = self._nan_input[code.library]
        return bool(np.isnan(self._output_of(compiled, inputs, tensors[-1])).all())

    def _written(self, array: np.ndarray[Any, Any]) -> int:
        address = self._allocate(array.nbytes)
        self._driver.write(address, array)
        return address

    def _output_of(
        self, compiled: CompiledKernel, inputs: list[int], output: int
    ) -> np.ndarray[Any, Any]:
        """What the first launch of a kernel makes of these inputs."""
        (enqueue,) = self._pieces(replace(compiled, then=None))
        enqueue([*inputs, output], None, False)
        self._driver.synchronize()
        (spec,) = self._outputs
        out = np.empty([self._value(d) for d in spec.shape], spec.dtype.numpy)
        self._driver.read(output, out)
        return out

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
        for address in (*self._held, self._scratch[0]):
            driver.free(address)
