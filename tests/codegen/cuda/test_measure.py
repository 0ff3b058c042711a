"""What a timing launches, recorded by a driver that has no card."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from braze.codegen.cuda import measure
from braze.codegen.cuda.driver import Function
from braze.codegen.spread import LENGTH, PIECES
from braze.core.dtypes import BOOL, F16, F32, I8, I64, U8, DType
from braze.expr.loops import LoopKernel, LoopNest, Store, TensorSpec
from braze.expr.scalar import axis, hole, load
from braze.fusion.kernel import AnchorKernel, Code, CompiledKernel, GridLaunch, Packing
from braze.ops.lowering import ConvSpec

START = 1 << 20


@dataclass
class Recorder:
    """Addresses by counting, memory by address as the bytes written, launches as their pointers."""

    memory: dict[int, int] = field(default_factory=dict)
    launches: list[list[int]] = field(default_factory=list)
    filled: dict[int, int] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)  # what memory was set to
    reads: list[tuple[int, int]] = field(default_factory=list)
    next: int = START

    def call(self, name: str, *arguments: Any) -> None:
        if name == "cuEventElapsedTime":
            arguments[0]._obj.value = 2.0

    def allocate(self, count: int) -> int:
        address, self.next = self.next, self.next + count + 256
        self.memory[address] = count
        return address

    def free(self, address: int) -> None:
        self.memory.pop(address, None)

    def write(self, address: int, array: np.ndarray[Any, Any]) -> None:
        self._fill(address, array.nbytes)

    def copy(self, to: int, source: int, count: int) -> None:
        self._fill(to, count)

    def clear(self, address: int, count: int, byte: int = 0) -> None:
        self._fill(address, count)
        self.bytes[address] = byte

    def read(self, address: int, array: np.ndarray[Any, Any]) -> None:
        base = max(a for a in self.memory if a <= address)
        assert address + array.nbytes <= base + self.memory[base], "outside of the allocation"
        self.reads.append((address, array.nbytes))
        array.reshape(-1).view(np.uint8)[...] = self.bytes[base]

    def _fill(self, address: int, count: int) -> None:
        base = max(a for a in self.memory if a <= address)
        assert address + count <= base + self.memory[base], "outside of the allocation"
        self.filled[base] = self.filled.get(base, 0) + count

    def function(self, code: bytes, entry: str, threads: int, shared: int) -> Function:
        return Function(ctypes.c_void_p(), threads, shared)

    def launch(self, function: Function, grid: int, addresses: Sequence[int], *_: Any) -> None:
        self.launches.append(list(addresses))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(measure, "Driver", lambda: found)
    return found


def convolution(channels: int, dtype: DType = F16) -> AnchorKernel:
    spec = ConvSpec(
        batch=1, in_spatial=(8, 8), out_spatial=(8, 8), in_channels=channels,
        out_channels=channels, groups=1, kernel=(3, 3), strides=(1, 1), dilations=(1, 1),
        pads=(1, 1, 1, 1), acc=F32,
    )  # fmt: skip
    x = TensorSpec(dtype, (1, 8, 8, channels))
    w = TensorSpec(dtype, (channels, channels, 3, 3))
    return AnchorKernel(spec, (x, w), x, hole(0, dtype), frozenset({1}))


def code(*packings: tuple[int, Packing]) -> CompiledKernel:
    return CompiledKernel(Code("cubin", "k", "sm_90", b""), (), GridLaunch(4, 128, 0), packings)


# of 3 x 3 taps of 512 channels
TAPS = (1, Packing("taps", F16, (("taps", 9), ("channels", 512), ("length", 9 * 512))))


def test_constants_are_cold_and_activations_warm(recorder: Recorder) -> None:
    kernel = convolution(512)  # 4.5 MiB of weights: 15 copies are 64 MiB
    seconds = measure.CudaWorkload(kernel, {}).seconds(code(TAPS), float("inf"))
    assert seconds == pytest.approx(2e-3 / measure.LAUNCHES)
    assert len(recorder.launches) == measure.LAUNCHES
    inputs, weights, outputs = (
        {pointers[slot] for pointers in recorder.launches} for slot in range(3)
    )
    assert (len(inputs), len(weights), len(outputs)) == (1, 15, 1)


@pytest.mark.parametrize(("channels", "copies"), [(16, measure.LAUNCHES), (2048, 1)])
def test_no_more_copies_than_launches_or_than_are_cold(
    recorder: Recorder, channels: int, copies: int
) -> None:
    measure.CudaWorkload(convolution(channels), {}).seconds(code(), float("inf"))
    assert len({pointers[1] for pointers in recorder.launches}) == copies


def test_tensors_are_filled_whole_and_freed(recorder: Recorder) -> None:
    spec = TensorSpec(F32, (3, measure.PATTERN + 5))  # more than the pattern, and no multiple
    nest = LoopNest(
        spec.shape, (), (), (Store(0, (axis(0), axis(1)), load(0, (axis(0), axis(1)), F32)),)
    )
    work = measure.CudaWorkload(LoopKernel((spec,), (spec,), (nest,)), {})
    work.seconds(code(), float("inf"))
    source = recorder.launches[0][0]
    assert recorder.filled[source] == recorder.memory[source] == 12 * (measure.PATTERN + 5)
    del work
    assert not recorder.memory


def test_what_a_kernel_did_not_write_is_no_number_and_large_outputs_are_read_in_pieces(
    recorder: Recorder,
) -> None:
    kernel = convolution(512)  # 32768 elements a tensor
    work = measure.CudaWorkload(kernel, {})
    work.seconds(code(TAPS), float("inf"))
    (found,) = work.results()
    assert np.isnan(found).all() and found.shape == (PIECES * LENGTH,)
    output = recorder.launches[0][2]
    begins = [address - output for address, _ in recorder.reads]
    assert begins[0] == 0 and begins[-1] + 2 * LENGTH == 2 * 32768 and len(begins) == PIECES
    assert all(size == 2 * LENGTH for _, size in recorder.reads)


def test_contents_are_what_the_buffers_hold_and_no_zeros() -> None:
    specs = [TensorSpec(t, (3, 700_000)) for t in (F16, I8, U8, BOOL)]
    nest = LoopNest((1,), (), (), ())
    found = measure.contents(LoopKernel((*specs, TensorSpec(I64, (5,))), (), (nest,)), {})
    for array in found[:4]:
        flat = array.reshape(-1)
        np.testing.assert_array_equal(flat[:10], flat[measure.PATTERN :][:10])
        assert np.count_nonzero(flat) / flat.size > 0.4 and flat.min() < flat.max()
    assert not found[4].any()  # which may be places
