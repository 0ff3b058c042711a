"""The processor of a machine is read from its /proc and /sys, and what is missing is assumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from braze.codegen.cpu.backend import cpu_backend
from braze.codegen.cpu.host import L1_BYTES, L2_BYTES, host_cpu
from braze.codegen.cpu.target import ISAS, CpuTarget
from braze.runtime.native import host_isa

CPUINFO = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 97
model name\t: AMD Ryzen 9 7950X
stepping\t: 2
flags\t\t: fpu

processor\t: 1
vendor_id\t: Other
"""


def machine(root: Path, caches: list[tuple[str, str, str]], cpuinfo: str = CPUINFO) -> Path:
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(cpuinfo)
    for i, (level, kind, size) in enumerate(caches):
        folder = root / f"sys/devices/system/cpu/cpu0/cache/index{i}"
        folder.mkdir(parents=True)
        for name, value in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(value + "\n")
    return root


def test_caches_and_model(tmp_path: Path) -> None:
    sizes = [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M")]
    found = host_cpu(machine(tmp_path, [*sizes, ("3", "Unified", "32768K")]))
    assert (found.l1_bytes, found.l2_bytes) == (48 << 10, 2 << 20)
    assert found.model == (
        "vendor_id AuthenticAMD, cpu family 25, model 97, stepping 2, model name AMD Ryzen 9 7950X"
    )


@pytest.mark.parametrize("size", ["", "0K", "big"])
def test_a_size_that_is_none_is_assumed(tmp_path: Path, size: str) -> None:
    found = host_cpu(machine(tmp_path, [("1", "Data", size), ("x", "Data", "1K")]))
    assert (found.l1_bytes, found.l2_bytes) == (L1_BYTES, L2_BYTES)


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    found = host_cpu(tmp_path)
    assert (found.l1_bytes, found.l2_bytes) == (L1_BYTES, L2_BYTES)


def test_times_belong_to_processor_caches_threads_and_instruction_set() -> None:
    targets = [CpuTarget("avx2", 1)]
    targets += [CpuTarget("avx512", 1), CpuTarget("avx2", 2), CpuTarget("avx2", 1, 48 << 10)]
    targets += [CpuTarget("avx2", 1, l2_bytes=2 << 20), CpuTarget("avx2", 1, model="other")]
    assert len({t.fingerprint for t in targets}) == len(targets)


def test_a_named_instruction_set_is_the_same_target_on_every_machine() -> None:
    for isa in ISAS:
        target = cpu_backend(isa, 2).target
        assert (target.l1_bytes, target.l2_bytes) == (L1_BYTES, L2_BYTES)
    here = cpu_backend("", 2).target
    assert here.isa == host_isa() and here.l1_bytes == host_cpu().l1_bytes
