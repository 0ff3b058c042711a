"""The anchor of docs/extending.md with a template: its four files are all that a build asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from braze.builder import build_plan
from braze.codegen.catalog import find_backend
from braze.codegen.cpu import anchors
from braze.codegen.cpu.llvm.function import KernelFunction, i64
from braze.codegen.cpu.llvm.object import elf
from braze.core.config import BuildConfig
from braze.core.dtypes import F32
from braze.core.trace import Trace
from braze.fusion.kernel import AnchorKernel, CompiledKernel, HostLaunch, Tactic
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType
from braze.ops.lowering import Anchor, Nest
from braze.ops.pointwise.activation import Relu
from braze.ops.reduce.scan import Cumulative
from tests.frontend.test_extending import block, scan_spec

__all__ = ["scan_spec"]  # a fixture
FLOAT = ir.FloatType()


def scan_support(spec: Any, inputs: Any, constant: Any) -> str | None:
    fits = spec.acc is F32 and len(spec.shape) == 2 and spec.axis == 1
    return None if fits else "only rows of a float32 matrix"


def scan_tactics(kernel: Any, target: Any, effort: Any) -> tuple[Tactic, ...]:
    return (Tactic("scan"),)


def compile_scan(kernel: AnchorKernel, tactic: Tactic, target: Any) -> CompiledKernel:
    fn = KernelFunction("scan", target, 2)
    rows, width = (fn.dim(d) for d in kernel.spec.out_shape)
    x, y = (fn.buffer(slot, FLOAT) for slot in (0, 1))
    with fn.loop(0, rows) as row:
        start = fn.builder.mul(row, width)
        with fn.carry_loop(i64(0), width, 1, [ir.Constant(FLOAT, 0.0)]) as it:
            at = fn.builder.add(start, it.index)
            total = fn.builder.fadd(it.values[0], fn.load(fn.at(x, at, FLOAT), FLOAT))
            fn.store(total, fn.at(y, at, FLOAT))
            it.next = [total]
    code, params = fn.finish(speed=0)
    return CompiledKernel(elf("scan", target, code), params, HostLaunch(False, 0))


@pytest.fixture
def row(scan_spec: Any, monkeypatch: pytest.MonkeyPatch) -> Mapping[Any, Any]:
    """The row of the doc, in the table."""
    line = block("src/braze/codegen/cpu/anchors.py, in FAMILIES").splitlines()[1:]
    names = {**vars(anchors), **globals(), "ScanSpec": scan_spec}
    made: Mapping[Any, Any] = eval("{" + "\n".join(line) + "}", names)
    monkeypatch.setattr(anchors, "FAMILIES", {**anchors.FAMILIES, **made})
    return made


@pytest.mark.parametrize("level", [0, 1, 3])
@pytest.mark.parametrize("between", [False, True])
def test_it_builds_and_runs(row: Any, scan_spec: Any, level: int, between: bool) -> None:
    """Alone, and between pointwise ops, which it takes in neither before nor behind it."""

    class Scan(Cumulative):
        def lower(self, inputs: Any, outputs: Any) -> Any:
            nest = super().lower(inputs, outputs)
            assert isinstance(nest, Nest)
            return Anchor(scan_spec(inputs[0].shape, self.axis, inputs[0].dtype), nest.kernel)

    g = GraphBuilder()
    x = g.input("x", TensorType(F32, (3, 5)))
    value = g.add1(Relu(), x) if between else x
    value = g.add1(Scan("sum", 1), value)
    graph = g.finish([("y", g.add1(Relu(), value) if between else value)])
    backend = find_backend("cpu", 1)
    plan = build_plan(graph, [{}], BuildConfig(optimization_level=level), backend, Trace())
    assert any(getattr(step, "tactic", "") == "scan()" for step in plan.steps)
    given = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    want = np.cumsum(np.maximum(given, 0) if between else given, axis=1)
    want = np.maximum(want, 0) if between else want
    np.testing.assert_allclose(backend.load(plan)({"x": given})["y"], want, rtol=1e-6, atol=1e-6)
