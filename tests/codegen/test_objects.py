"""LLVM's pipelines of many kernels in a process: none slows the next, none leaves memory behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from braze.codegen.cpu.llvm.object import TRIPLE, PassBuilders, compile_ir, pass_builders
from braze.codegen.cpu.target import CpuTarget
from braze.core.errors import CompileError

TEXT = f"""target triple = "{TRIPLE}"
define i32 @f(i32 %a) {{
  %b = add i32 %a, 1
  ret i32 %b
}}
"""


def resident() -> int:
    """KiB of this process in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])


def test_a_builder_serves_few_runs_and_another_follows() -> None:
    builders = PassBuilders("avx2", (), 2, True)
    taken = [builders.take() for _ in range(3 * PassBuilders.RUNS)]
    for first in range(0, len(taken), PassBuilders.RUNS):
        assert len({id(b) for b in taken[first : first + PassBuilders.RUNS]}) == 1
    assert len({id(b) for b in taken}) == 3


def test_kernels_of_one_kind_share_builders() -> None:
    assert pass_builders("avx2", (), 2, True) is pass_builders("avx2", (), 2, True)
    assert pass_builders("avx2", (), 2, True) is not pass_builders("avx2", (), 2, False)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_kernels_leave_no_memory_behind() -> None:
    target = CpuTarget("avx2", 1)
    first = compile_ir(TEXT, target)
    for _ in range(100):
        compile_ir(TEXT, target)
    before = resident()
    for _ in range(1000):
        assert compile_ir(TEXT, target) == first
    # a builder of its own for each would be 1.5 KiB: 1,450 KiB
    assert resident() - before < 700


def test_wrong_text_is_an_error_of_the_template() -> None:
    with pytest.raises(CompileError, match="a template produced invalid LLVM IR"):
        compile_ir("define i32 @f( {", CpuTarget("avx2", 1))
