"""What tests share (tests/shared_code.py) is the code that they would have compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from braze.codegen.cpu.backend import CpuBackend, cpu_backend
from braze.core.config import EFFORTS
from tests.codegen.loops.kernels import cases
from tests.shared_code import shares, sharing


def test_a_kernel_is_compiled_once_for_a_tactic_and_a_target() -> None:
    compiled: list[object] = []

    def compile_new(self: CpuBackend, kernel: object, tactic: object) -> object:
        compiled.append((self, kernel, tactic))
        return len(compiled)

    once = sharing(compile_new)
    here, (first, second, *_) = cpu_backend("", 1), [c.kernel for c in cases()]
    tactic = here.tactics(first, EFFORTS[1])[0]
    there = CpuBackend(replace(here.target, threads=2))
    other = replace(tactic, parameters=(*tactic.parameters, ("of", "another")))
    asked = [(here, first, tactic), (here, second, tactic), (there, first, tactic)]
    asked.append((here, first, other))
    assert [once(*each) for each in asked * 2] == [1, 2, 3, 4] * 2
    assert compiled == asked


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tests/e2e/test_unique.py::test_as_numpy[a]", True),
        ("tests/meta/test_networks.py::test_static_equals_dynamic[x]@x", True),
        ("tests/e2e/test_build.py::test_two_builds_give_the_same_bytes", False),
        ("tests/meta/test_promises.py::test_two_builds_give_the_same_bytes", False),
        ("tests/codegen/test_objects.py::test_kernels_leave_no_memory_behind", False),
    ],
)
def test_who_shares(name: str, found: bool) -> None:
    assert shares(name) is found
