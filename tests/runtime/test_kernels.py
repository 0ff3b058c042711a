"""Loading and running single kernels: the ELF loader and the tuner's interface."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from braze.core.errors import BindingError, BrazeError, CompileError, ExecutionError, TargetError
from braze.runtime import native
from braze.runtime.native import LoadedKernel
from tests.runtime import kernels

UNDEFINED = """
declare float @expf(float)
define void @entry(ptr %b, ptr %p, i64 %w, i64 %n, ptr %s) {
  %x = call float @expf(float 1.0)
  store float %x, ptr %s
  ret void
}
"""

WRITABLE = """
@counter = global i64 5
define void @entry(ptr %b, ptr %p, i64 %w, i64 %n, ptr %s) {
  %x = load i64, ptr @counter
  %y = add i64 %x, 1
  store i64 %y, ptr @counter
  ret void
}
"""

# Two functions in one object; both read vector constants and one calls the other.
TWO_ENTRIES = """
define void @first(ptr %b, ptr %p, i64 %w, i64 %n, ptr %s) {
  %out = load ptr, ptr %b
  %v = load <8 x float>, ptr %out, align 4
  %r = fmul <8 x float> %v, <float 1.5, float 2.5, float 3.5, float 4.5,
                             float 5.5, float 6.5, float 7.5, float 8.5>
  store <8 x float> %r, ptr %out, align 4
  ret void
}
define void @second(ptr %b, ptr %p, i64 %w, i64 %n, ptr %s) {
  call void @first(ptr %b, ptr %p, i64 %w, i64 %n, ptr %s)
  %out = load ptr, ptr %b
  %v = load <8 x float>, ptr %out, align 4
  %r = fadd <8 x float> %v, <float 0.25, float 0.5, float 0.75, float 1.0,
                             float 1.25, float 1.5, float 1.75, float 2.0>
  store <8 x float> %r, ptr %out, align 4
  ret void
}
"""

FACTORS = np.arange(1.5, 9, 1, dtype=np.float32)


@pytest.mark.parametrize("workers", [1, 2, 7])
def test_add(workers: int) -> None:
    kernel = LoadedKernel(kernels.add_object(), "entry")
    a, b = np.arange(1000, dtype=np.float32), np.full(1000, 0.5, np.float32)
    out = np.zeros(1000, np.float32)
    assert kernel.run([a, b.ctypes.data, out], [1000], workers) == 0
    np.testing.assert_array_equal(out, a + b)


def test_constant_pool_jump_table_and_call() -> None:
    kernel = LoadedKernel(kernels.table_object(), "entry")
    a, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    assert kernel.run([a, a, out], [64]) == 0
    expected = [kernels.table_reference(float(x), i) for i, x in enumerate(a)]
    np.testing.assert_array_equal(out, np.array(expected, np.float32))


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_several_entries_and_vector_constants(cpu: str) -> None:
    if cpu == "x86-64-v4" and native.host_isa() != "avx512":
        pytest.skip("needs AVX-512")
    data = kernels.compile_ir(TWO_ENTRIES, cpu)
    x = np.arange(8, dtype=np.float32)
    LoadedKernel(data, "first").run([x])
    np.testing.assert_array_equal(x, np.arange(8, dtype=np.float32) * FACTORS)
    LoadedKernel(data, "second").run([x])
    expected = np.arange(8, dtype=np.float32) * FACTORS * FACTORS
    np.testing.assert_array_equal(x, expected + np.arange(1, 9, dtype=np.float32) / 4)


def test_status_of_bad_data() -> None:
    kernel = LoadedKernel(kernels.gather_object(), "entry")
    a, out = np.arange(4, dtype=np.float32), np.zeros(3, np.float32)
    assert kernel.run([a, np.array([3, 0, 1]), out], [3, 4]) == 0
    np.testing.assert_array_equal(out, [3, 0, 1])
    assert kernel.run([a, np.array([3, -1, 1]), out], [3, 4]) == 1


def test_timing_gives_one_duration_a_run() -> None:
    kernel = LoadedKernel(kernels.add_object(), "entry")
    x = np.ones(4096, np.float32)
    times = kernel.time([x, x, x.copy()], [4096], workers=2, warmup=2, repeats=7)
    assert len(times) == 7
    assert all(0 < t < 1 for t in times)


def test_refusals_name_what_is_wrong() -> None:
    with pytest.raises(CompileError, match="expf is undefined"):
        LoadedKernel(kernels.compile_ir(UNDEFINED), "entry")
    with pytest.raises(CompileError, match=r"section \.data"):
        LoadedKernel(kernels.compile_ir(WRITABLE), "entry")
    with pytest.raises(CompileError, match="no function other"):
        LoadedKernel(kernels.add_object(), "other")
    with pytest.raises(CompileError, match="not a 64-bit"):
        LoadedKernel(b"not an object" * 20, "entry")
    kernel = LoadedKernel(kernels.add_object(), "entry")
    with pytest.raises(BindingError, match="not contiguous"):
        kernel.run([np.zeros((4, 4))[:, 0]], [1])
    for workers in (0, -1, 5000):
        with pytest.raises(ExecutionError, match="num_workers"):
            kernel.run([np.zeros(4)], [0], workers)


@pytest.mark.parametrize("make", [kernels.add_object, kernels.table_object])
def test_damaged_objects_never_crash_the_loader(make: object) -> None:
    data, random = make(), np.random.default_rng(3)  # type: ignore[operator]
    for size in range(0, len(data), 13):
        with pytest.raises(BrazeError):
            LoadedKernel(data[:size], "entry")
    for _ in range(2000):
        bad = bytearray(data)
        for at in random.integers(len(data), size=int(random.integers(1, 5))):
            bad[at] = int(random.integers(256))
        with contextlib.suppress(BrazeError):
            LoadedKernel(bytes(bad), "entry")


def test_host_features() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split())
    names = {"avx2": "avx2", "fma": "fma", "avx512f": "avx512f", "avx512vnni": "avx512_vnni"}
    for name, flag in names.items():
        assert (name in native.host_features()) == (flag in flags)
    native.require_isa(native.host_isa())
    native.require_isa("x86-64+" + "+".join(native.host_features()))
    remedy = f"build it with target='cpu:{native.host_isa()}'$"
    for isa in ("sparc", "avx2+unobtainium", ""):
        with pytest.raises(TargetError, match=remedy):
            native.require_isa(isa)
    assert native.host_cpus() >= 1
