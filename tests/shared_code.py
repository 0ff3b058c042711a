"""Code of kernels that tests share, and which of them do.

Tests of what a network computes build much the same kernels over and over: of the compiler's time
nearly half went into code that the process had made before. A build compiles equal kernels once
(`braze.tuning.select.Tuner`); here so do all tests of a worker. Tests of code generation, of what a
build leaves behind and of builds being equal have no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from braze.codegen.cpu.backend import CpuBackend
    from braze.fusion.kernel import CompiledKernel, Kernel, Tactic

    Compile = Callable[[CpuBackend, Kernel, Tactic], CompiledKernel]

SHARING = tuple(
    f"tests/{place}"
    for place in (
        "cli/", "contributed/", "e2e/", "flow/", "fuzz/test_found.py", "meta/test_networks.py",
        "ml/", "models/", "onnx_backend/", "ops/", "passes/", "quantization/", "quantized/",
        "random/", "recurrent/", "tensorrt/",
    )
)  # fmt: skip
# builds that must be equal, and compilers that run out of memory
APART = ("tests/e2e/test_build.py", "tests/e2e/test_out_of_memory.py")
KEPT = 4000  # kernels, of some 20 KiB each; then a worker begins anew


def shares(test: str) -> bool:
    """Whether a test, by its name, takes code that others had made."""
    return test.startswith(SHARING) and not test.startswith(APART)


def sharing(compile_new: Compile) -> Compile:
    """`CpuBackend.compile` that remembers what it compiled, for which target."""
    from braze.fusion.kernel_text import kernel_text

    known: dict[tuple[str, Tactic, CpuBackend], CompiledKernel] = {}

    def compile_once(self: CpuBackend, kernel: Kernel, tactic: Tactic) -> CompiledKernel:
        key = (kernel_text(kernel), tactic, self)
        if key not in known:
            if len(known) >= KEPT:
                known.clear()
            known[key] = compile_new(self, kernel, tactic)
        return known[key]

    return compile_once
