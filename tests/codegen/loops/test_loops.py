"""Generated loop kernels against the numpy reference, on every ISA this machine can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.loops.template import compile_loops, loop_tactics
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.codegen.reference.loops import empty_output
from braze.core.config import EFFORTS
from braze.core.dims import evaluate
from braze.expr.loops import LoopKernel
from braze.fusion.kernel import Tactic
from braze.runtime.native import LoadedKernel
from tests.codegen.loops.kernels import Case, cases
from tests.codegen.loops.pointwise import host_isas

Array = np.ndarray[Any, Any]


def run(
    kernel: LoopKernel,
    inputs: Sequence[Array],
    env: Mapping[str, int],
    isa: str,
    tactic: Tactic | None = None,
    workers: int = 1,
) -> tuple[int, list[Array]]:
    """(status, outputs) of the generated code."""
    target = CpuTarget(isa, 2)
    tactic = tactic or loop_tactics(kernel, target, EFFORTS[1])[0]
    compiled = compile_loops(kernel, tactic, target)
    outputs = [empty_output(spec, env) for spec in kernel.outputs]
    params = [evaluate(d, env) for d in compiled.params]
    loaded = LoadedKernel(compiled.code.data, compiled.code.entry)
    workers = workers if compiled.launch.parallel else 1
    status = loaded.run([*inputs, *outputs], params, workers=workers)
    return status, outputs


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_matches_reference(case: Case) -> None:
    """Every tactic of every ISA; sums may differ by their order, everything else may not."""
    expected = run_kernel(case.kernel, case.inputs, case.env, float64=True)
    for isa in host_isas():
        level = 4 if isa == host_isas()[-1] else 1
        for tactic in loop_tactics(case.kernel, CpuTarget(isa, 2), EFFORTS[level]):
            status, got = run(case.kernel, case.inputs, case.env, isa, tactic)
            assert status == 0
            for y, e in zip(got, expected, strict=True):
                np.testing.assert_allclose(
                    y, e, rtol=case.rtol, atol=case.rtol, err_msg=f"{isa} {tactic}"
                )
