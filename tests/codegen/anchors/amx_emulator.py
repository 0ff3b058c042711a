"""AMX in Python, for machines without it: a kernel's tile instructions become calls of these.

Kernels in tiles are LLVM IR whose tile instructions are intrinsics. Here their names are replaced
by ones that Python answers, and the rest is compiled for this machine. What the processor would
refuse (shapes that do not match, no configuration) is an error, and so is a load that reaches out
of the kernel's buffers, which the processor would not notice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from braze.codegen.cpu.anchors import compile_anchor
from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import evaluate
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Tactic

Array = NDArray[Any]
_PREFIX: Final = "llvm.x86."
_INT, _TILE = ctypes.c_int64, ctypes.c_int8
_SIGNATURES: Final = {
    "ldtilecfg": (_INT,),
    "tilerelease": (),
    "tilezero": (_TILE,),
    "tileloadd64": (_TILE, _INT, _INT),
    "tilestored64": (_TILE, _INT, _INT),
    "tdpbusd": (_TILE, _TILE, _TILE),
    "tdpbf16ps": (_TILE, _TILE, _TILE),
}


class Tiles:
    """Eight tile registers; `errors`: what a processor would have refused, or read elsewhere."""

    def __init__(self, buffers: Sequence[Array]) -> None:
        self.errors: list[str] = []
        self.counts = dict.fromkeys(_SIGNATURES, 0)
        self._ranges = [(b.ctypes.data, b.ctypes.data + b.nbytes) for b in buffers]
        self._shapes: list[tuple[int, int]] | None = None
        self._data = np.zeros((8, 16, 64), np.uint8)

    def call(self, name: str, *args: int) -> None:
        """The instruction `name`."""
        self.counts[name] += 1
        try:
            getattr(self, name)(*args)
        except Exception as e:  # an exception cannot pass through compiled code
            self.errors.append(f"{name}{args}: {type(e).__name__} {e}")

    def ldtilecfg(self, address: int) -> None:
        raw = ctypes.string_at(address, 64)
        assert raw[0] == 1 and not any(raw[1:16]), "palette"
        sizes = [int.from_bytes(raw[i : i + 2], "little") for i in range(16, 48, 2)]
        rows = raw[48:]
        assert not any(sizes[8:]) and not any(rows[8:]), "more than eight registers"
        for r, size in zip(rows[:8], sizes[:8], strict=True):
            assert r <= 16 and size <= 64 and size % 4 == 0 and bool(r) == bool(size), (r, size)
        self._shapes = list(zip(rows[:8], sizes[:8], strict=True))
        self._data[:] = 0

    def tilerelease(self) -> None:
        self._shapes = None

    def _shape(self, tile: int) -> tuple[int, int]:
        assert self._shapes is not None and self._shapes[tile][0], f"tile {tile} has no shape"
        return self._shapes[tile]

    def tilezero(self, tile: int) -> None:
        self._shape(tile)
        self._data[tile] = 0

    def tileloadd64(self, tile: int, address: int, stride: int) -> None:
        rows, size = self._shape(tile)
        self._data[tile] = 0
        for r in range(rows):
            at = address + r * stride
            assert any(low <= at and at + size <= high for low, high in self._ranges), "outside"
            self._data[tile, r, :size] = np.frombuffer(ctypes.string_at(at, size), np.uint8)

    def tilestored64(self, tile: int, address: int, stride: int) -> None:
        rows, size = self._shape(tile)
        for r in range(rows):
            ctypes.memmove(address + r * stride, self._data[tile, r, :size].tobytes(), size)

    def _operands(self, sums: int, left: int, right: int) -> tuple[Array, Array, Array]:
        (m, n), (rows, depth), (words, columns) = map(self._shape, (sums, left, right))
        assert (rows, columns, words * 4) == (m, n, depth), (m, n, rows, depth, words, columns)
        a = self._data[left, :m, :depth].copy()
        b = self._data[right, :words, :columns].reshape(words, n // 4, 4)
        return a, np.ascontiguousarray(b), self._data[sums, :m, :n]

    def tdpbusd(self, sums: int, left: int, right: int) -> None:
        a, b, c = self._operands(sums, left, right)
        matrix = b.view(np.int8).transpose(0, 2, 1).reshape(a.shape[1], -1).astype(np.int64)
        total = a.astype(np.int64) @ matrix + np.ascontiguousarray(c).view(np.int32)
        c[:] = total.astype(np.int32).view(np.uint8)

    def tdpbf16ps(self, sums: int, left: int, right: int) -> None:
        a, b, c = self._operands(sums, left, right)
        x = _widened(a.view(np.uint16))
        y = _widened(b.view(np.uint16).transpose(0, 2, 1).reshape(x.shape[1], -1))
        with np.errstate(invalid="ignore", over="ignore"):
            parts = []
            for first in (0, 1):
                part = np.zeros((x.shape[0], y.shape[1]), np.float32)
                for k in range(first, x.shape[1], 2):
                    exact = x[:, k, None].astype(np.float64) * y[k].astype(np.float64) + part
                    part = exact.astype(np.float32)
                parts.append(part)
            total = np.ascontiguousarray(c).view(np.float32) + (parts[0] + parts[1])
        c[:] = total.astype(np.float32).view(np.uint8)


def _widened(bits: Array) -> Array:
    """bfloat16 as float32, denormals as zeros."""
    wide = bits.astype(np.uint32) << 16
    wide[(wide & 0x7F800000) == 0] &= 0x80000000
    return wide.view(np.float32)


class Emulated:
    """A kernel compiled by one tactic, whose tile instructions are calls of `Tiles`."""

    def __init__(self, kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> None:
        self.kernel, self.tactic = kernel, tactic
        listing = CpuTarget(target.isa, target.threads, extras=target.extras, emit="llvm")
        self.code: CompiledKernel = compile_anchor(kernel, tactic, listing)
        text = self.code.own_code.data.decode()
        self._tiles: Tiles | None = None
        self._callbacks = []
        for name, kinds in _SIGNATURES.items():
            if f"@{_PREFIX}{name}" in text or f'@"{_PREFIX}{name}"' in text:
                answer = ctypes.CFUNCTYPE(None, *kinds)(self._answer(name))
                self._callbacks.append(answer)
                own = f"emulated.{id(self)}.{name}"
                llvm.add_symbol(own, ctypes.cast(answer, ctypes.c_void_p).value)
                text = text.replace(f'"{_PREFIX}{name}"', f'"{own}"')
        lines = [line for line in text.splitlines() if not line.startswith("target triple")]
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten()
        )
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly("\n".join(lines)), machine)
        self._engine.finalize_object()
        address = self._engine.get_function_address(self.code.own_code.entry)
        self._entry = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_void_p, _INT, _INT, ctypes.c_void_p
        )(address)

    def _answer(self, name: str) -> Callable[..., None]:
        def answer(*args: int) -> None:
            assert self._tiles is not None
            self._tiles.call(name, *args)

        return answer

    def __call__(self, inputs: Sequence[Array], env: dict[str, int], workers: int = 1) -> Array:
        """The output; no byte outside of it is written, nothing outside of buffers is loaded."""
        assert isinstance(self.code.launch, HostLaunch)
        arrays = [np.ascontiguousarray(a) for a in inputs]
        for slot, packing in self.code.packings:
            arrays[slot] = np.ascontiguousarray(pack_anchor(arrays[slot], packing))
        shape = [evaluate(d, env) for d in self.kernel.output.shape]
        kind, guard = self.kernel.output.dtype.numpy, 64
        size = int(np.prod(shape))
        memory = np.full((size + 2 * guard) * kind.itemsize, 0xA5, np.uint8).view(kind)
        buffers = [*arrays, memory[guard : guard + size]]
        scratch = evaluate(self.code.launch.scratch_bytes, env)
        if scratch:
            buffers.append(np.full(scratch * workers, 0xFF, np.uint8))
        params = np.array([evaluate(d, env) for d in self.code.params] or [0], np.int64)
        pointers = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
        self._tiles, status = Tiles(buffers), ctypes.c_int32(0)
        for worker in range(workers):
            self._entry(
                ctypes.addressof(pointers), params.ctypes.data, worker, workers,
                ctypes.addressof(status),
            )  # fmt: skip
        assert not self._tiles.errors, self._tiles.errors[:3]
        assert status.value == 0
        outside = [*memory[:guard].tobytes(), *memory[guard + size :].tobytes()]
        assert set(outside) == {0xA5}, "bytes beside the output were written"
        return memory[guard : guard + size].reshape(shape)

    @property
    def counts(self) -> dict[str, int]:
        """How often each instruction ran in the last call."""
        assert self._tiles is not None
        return self._tiles.counts
