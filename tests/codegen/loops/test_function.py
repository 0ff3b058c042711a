"""The kernel function builder: sizes, loops, the split over workers, and object files."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
from llvmlite import ir

from braze.codegen.cpu.llvm.function import I64, STATUS_DATA, KernelFunction, i64
from braze.codegen.cpu.llvm.object import compile_ir, undefined_symbols
from braze.codegen.cpu.target import CpuTarget
from braze.core.dims import sym
from braze.core.errors import CompileError
from braze.runtime.native import LoadedKernel
from tests.codegen.loops.pointwise import host_isas

TARGET = CpuTarget(host_isas()[0], 2)
F32 = ir.FloatType()
PAGE_KIB = resource.getpagesize() // 1024


def mark_split(total: int, grain: int, workers: int) -> np.ndarray:
    """How often each element is visited, and in which worker's part it lies."""
    fn = KernelFunction("split", TARGET, 1)
    out = fn.buffer(0, I64)
    begin, end = fn.split(fn.dim(sym("n")), grain)
    with fn.loop(begin, end) as i:
        place = fn.at(out, i, I64)
        fn.store(fn.builder.add(fn.load(place, I64), i64(1)), place)
    data, params = fn.finish()
    assert params == (sym("n"),)
    counts = np.zeros(total + 8, np.int64)
    LoadedKernel(data, "split").run([counts], [total], workers=workers)
    return counts


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize(("total", "grain"), [(0, 1), (1, 16), (17, 16), (1000, 1), (1003, 64)])
def test_split_visits_everything_once(total: int, grain: int, workers: int) -> None:
    counts = mark_split(total, grain, workers)
    np.testing.assert_array_equal(counts[:total], 1)
    np.testing.assert_array_equal(counts[total:], 0)


def test_sizes_are_parameters_in_first_use_order() -> None:
    fn = KernelFunction("sizes", TARGET, 1)
    n, m = sym("n"), sym("m")
    out = fn.buffer(0, I64)
    for k, size in enumerate((m * 2, 7, n, m * 2)):
        fn.store(fn.dim(size), fn.at(out, k, I64))
    data, params = fn.finish()
    assert params == (m * 2, n)
    got = np.zeros(4, np.int64)
    LoadedKernel(data, "sizes").run([got], [10, 3])
    assert got.tolist() == [10, 7, 3, 10]


def test_loops_that_do_not_run_keep_their_start_values() -> None:
    fn = KernelFunction("none", TARGET, 1)
    with fn.carry_loop(3, fn.dim(sym("n")), 2, [i64(41)]) as it:
        it.next = [fn.builder.add(it.values[0], it.index)]
    fn.store(it.results[0], fn.buffer(0, I64))
    data, _ = fn.finish()
    kernel = LoadedKernel(data, "none")
    for n, want in ((0, 41), (3, 41), (4, 44), (8, 41 + 3 + 5 + 7)):
        got = np.zeros(1, np.int64)
        kernel.run([got], [n])
        assert got[0] == want


def test_status_and_while() -> None:
    """Counts the halvings of n; reports a data error when there are none."""
    fn = KernelFunction("halve", TARGET, 1)
    b = fn.builder
    left, count = fn.while_loop(
        [fn.dim(sym("n")), i64(0)],
        lambda v: b.icmp_signed(">", v[0], i64(1)),
        lambda v: [b.sdiv(v[0], i64(2)), b.add(v[1], i64(1))],
    )
    assert left.type == I64
    fn.store(count, fn.buffer(0, I64))
    with fn.if_(b.icmp_signed("==", count, i64(0))):
        fn.set_status(STATUS_DATA)
    data, _ = fn.finish()
    got = np.zeros(1, np.int64)
    kernel = LoadedKernel(data, "halve")
    assert kernel.run([got], [1000]) == 0 and got[0] == 9
    assert kernel.run([got], [1]) == STATUS_DATA


def test_library_calls_are_refused_by_name() -> None:
    fn = KernelFunction("calls", TARGET, 1)
    place = fn.buffer(0, F32)
    fn.store(fn.intrinsic("llvm.exp.f32", F32, [fn.load(place, F32)]), place)
    with pytest.raises(CompileError, match="expf"):
        fn.finish()


@pytest.mark.parametrize("isa", host_isas())
def test_clearing_loops_do_not_become_calls(isa: str) -> None:
    fn = KernelFunction("clear", CpuTarget(isa, 1), 2)
    n = fn.dim(sym("n"))
    with fn.loop(0, n) as i:
        fn.store(ir.Constant(F32, 0.0), fn.at(fn.buffer(0, F32), i, F32))
    with fn.loop(0, n) as i:
        value = fn.load(fn.at(fn.buffer(0, F32), i, F32), F32)
        fn.store(value, fn.at(fn.buffer(1, F32), i, F32))
    text = fn.text()
    for speed in (1, 2, 3):
        assert undefined_symbols(compile_ir(text, fn.target, speed)) == ()


def test_invalid_ir_is_our_bug() -> None:
    with pytest.raises(CompileError, match="report"):
        compile_ir("define void @f( {", TARGET)


@pytest.mark.parametrize("isa", host_isas())
def test_constant_tables_are_told_apart_by_content(isa: str) -> None:
    # equal in length and, as tuples, in hash()
    tables = [(-1, 7, 9), (-2, 7, 9), (-1, 7, 9)]
    assert hash(tables[0]) == hash(tables[1])
    fn = KernelFunction("tables", CpuTarget(isa, 1), 1)
    out = fn.buffer(0, I64)
    for i, table in enumerate(tables):
        fn.store(fn.load(fn.words(table), I64), fn.at(out, i, I64))
    assert len({id(fn.words(table)) for table in tables}) == 2
    found = np.zeros(len(tables), np.int64)
    LoadedKernel(fn.finish()[0], "tables").run([found], [])
    np.testing.assert_array_equal(found, [-1, -2, -1])


def test_compiling_keeps_no_memory() -> None:
    def compile_one() -> None:
        fn = KernelFunction("small", TARGET, 1)
        with fn.loop(0, fn.dim(sym("n"))) as i:
            fn.store(ir.Constant(F32, 1.0), fn.at(fn.buffer(0, F32), i, F32))
        fn.finish()

    def resident_kib() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KIB

    for _ in range(20):
        compile_one()
    before = resident_kib()
    for _ in range(60):
        compile_one()
    # a pass pipeline that is not freed is 50 KiB a kernel; the allocator's own noise is far less
    assert resident_kib() - before < 1024
