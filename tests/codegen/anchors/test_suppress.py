"""Suppression kernels: strided operands and guarded memory, as the numpy meaning has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from braze.codegen.cpu.anchors import anchor_tactics, compile_anchor
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import evaluate, sym
from braze.fusion.kernel import AnchorKernel
from braze.fusion.kernel_text import kernel_text, parse_kernel
from braze.runtime.native import LoadedKernel
from tests.codegen.anchors.harness import host_isas, suppression

Array = np.ndarray[Any, Any]


def run(kernel: AnchorKernel, inputs: list[Array], isa: str, workers: int, env: Any) -> Array:
    (tactic,) = anchor_tactics(kernel, CpuTarget(isa, 2), EFFORTS[3])
    code = compile_anchor(kernel, tactic, CpuTarget(isa, 2))
    shape = [evaluate(d, env) for d in kernel.output.shape]
    size, guard = int(np.prod(shape)), 8
    filled = np.full(size + 2 * guard, -7, np.int64)
    buffers: list[Array] = [*inputs, filled[guard : guard + size]]
    if code.launch.scratch_bytes != 0:
        needed = evaluate(code.launch.scratch_bytes, env) * workers
        buffers.append(np.full(max(1, needed), 0xFF, np.uint8))
    loaded = LoadedKernel(code.code.data, code.code.entry)
    assert loaded.run(buffers, [evaluate(d, env) for d in code.params], workers=workers) == 0
    assert (filled[:guard] == -7).all() and (filled[guard + size :] == -7).all()
    return buffers[len(inputs)].reshape(shape)


@pytest.mark.parametrize("isa", host_isas())
@pytest.mark.parametrize("threshold", [False, True])
def test_strided_scores_and_sizes_of_the_run(threshold: bool, isa: str) -> None:
    names = ("b", "c", "n", "k")
    kernel = suppression(*map(sym, names), threshold)
    rng = np.random.default_rng(0)
    for sizes in (
        (2, 3, 20, 5),
        (1, 1, 1, 1),
        (3, 2, 7, 7),
        (0, 2, 4, 4),
        (1, 2, 0, 0),
        (2, 2, 9, 0),
    ):
        b, c, n, _ = sizes
        inputs = [rng.random((b, n, 4)), rng.random((b, n, c + 1)).round(1), np.array([0.2])]
        inputs += [np.array([0.3])] * threshold
        inputs = [x.astype(np.float32) for x in inputs]
        env = dict(zip(names, sizes, strict=True))
        (want,) = run_kernel(kernel, inputs, env)
        for workers in (1, 3):
            np.testing.assert_array_equal(run(kernel, inputs, isa, workers, env), want)


def test_nothing_is_kept() -> None:
    inputs = [np.ones(s, np.float32) for s in ((2, 5, 4), (2, 5, 4), (1,))]
    kernel = suppression(2, 3, 5, 0, threshold=False)
    assert run(kernel, inputs, host_isas()[0], 2, {}).shape == (2, 3, 0)


def test_text() -> None:
    kernel = suppression(2, 3, sym("n"), 4, threshold=True)
    assert parse_kernel(kernel_text(kernel)) == kernel
