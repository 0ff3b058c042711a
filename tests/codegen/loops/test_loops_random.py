"""Random loop nests against the reference: layouts, reshapes, padding, gathers and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braze.codegen.cpu.loops.template import loop_tactics
from braze.codegen.cpu.target import CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import Dim, evaluate, product, sym
from braze.core.dtypes import F32, I32, I64, DType
from braze.expr.loops import LoopKernel, LoopNest, Reduce, Store, TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, dim, load, red, select, unary
from tests.codegen.loops.kernels import within
from tests.codegen.loops.pointwise import host_isas
from tests.codegen.loops.test_loops import run

Array = np.ndarray[Any, Any]
SIZES = (1, 2, 3, 5, 8, 12, 16, 17, 33)
REDUCTIONS = ("sum", "max", "min", "argmax", "argmin_last")


class Builder:
    """Draws a nest over axes with static or symbolic sizes, and inputs for it."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.env: dict[str, int] = {}
        self.inputs: list[Array] = []
        self.specs: list[TensorSpec] = []
        self.extents: list[Dim] = []
        self.rng = np.random.default_rng(draw(st.integers(0, 2**30)))

    def size(self) -> Dim:
        n = self.draw(st.sampled_from(SIZES))
        if self.draw(st.booleans()):
            return n
        name = f"s{len(self.env)}"
        self.env[name] = n
        return sym(name)

    def length(self, size: Dim) -> int:
        return size if isinstance(size, int) else self.env[str(size)]

    def tensor(self, shape: list[Dim], dtype: DType = F32, top: int = 9) -> int:
        lengths = []
        for d in shape:
            lengths.append(evaluate(d, self.env))
        if dtype is F32:
            data = self.rng.integers(-8, 9, lengths).astype(np.float32) / 4
        else:
            data = self.rng.integers(0, top, lengths).astype(dtype.numpy)
        self.inputs.append(np.asarray(data))
        self.specs.append(TensorSpec(dtype, tuple(shape)))
        return len(self.specs) - 1

    def operand(self) -> Expr:
        """A load that walks some of the axes in some way."""
        numbers = list(range(len(self.extents)))
        kind = self.draw(st.sampled_from(
            ["plain", "permuted", "broadcast", "flat", "split", "padded", "reversed", "strided",
             "gather"]
        ))  # fmt: skip
        if kind == "broadcast":
            numbers = [k for k in numbers if self.draw(st.booleans())]
        if kind == "permuted":
            numbers = self.draw(st.permutations(numbers))
        shape = [self.extents[k] for k in numbers]
        index = [axis(k) for k in numbers]
        if kind == "flat" and numbers:
            return self.flat(index, shape)
        if kind == "split" and numbers:
            return self.split(index, shape)
        if not numbers or kind in ("plain", "permuted", "broadcast"):
            return load(self.tensor(shape), tuple(index), F32)
        at = self.draw(st.integers(0, len(numbers) - 1))
        return self.bent(kind, index, shape, at)

    def flat(self, index: list[Expr], shape: list[Dim]) -> Expr:
        """All axes merged into one."""
        total = index[0]
        for i, n in zip(index[1:], shape[1:], strict=True):
            total = binary("add", binary("mul", total, dim(n)), i)
        return load(self.tensor([product(shape)]), (total,), F32)

    def split(self, index: list[Expr], shape: list[Dim]) -> Expr:
        """The last axis as quotient and remainder by a size that may not divide it."""
        by = self.draw(st.sampled_from([2, 3, 4, 8]))
        last, n = index[-1], shape[-1]
        new = [*shape[:-1], (n + by - 1) // by, by]
        parts = (binary("floordiv", last, dim(by)), binary("mod", last, dim(by)))
        return load(self.tensor(new), (*index[:-1], *parts), F32)

    def bent(self, kind: str, index: list[Expr], shape: list[Dim], at: int) -> Expr:
        n, i = shape[at], index[at]
        if kind == "padded":
            moved = binary("sub", i, const(self.draw(st.integers(-2, 2)), I64))
            index[at] = moved
            inside = within(moved, n)
            return select(inside, load(self.tensor(shape), tuple(index), F32), const(7.0, F32))
        if kind == "reversed":
            index[at] = binary("sub", dim(n - 1), i)
        elif kind == "strided":
            index[at] = binary("mul", i, const(2, I64))
            shape = [*shape[:at], n * 2, *shape[at + 1 :]]
        else:
            table = self.tensor([n], I32, self.length(n))
            index[at] = cast(load(table, (i,), I32), I64)
        return load(self.tensor(shape), tuple(index), F32)

    def value(self, count: int) -> Expr:
        total = self.operand()
        for _ in range(count - 1):
            op = self.draw(st.sampled_from(["add", "sub", "max", "mul"]))
            total = binary(op, total, self.operand())
        return total


@st.composite
def kernels(draw: Any) -> tuple[LoopKernel, list[Array], dict[str, int]]:
    b = Builder(draw)
    outer = draw(st.integers(0, 3))
    inner = draw(st.integers(0, 2))
    b.extents = [b.size() for _ in range(outer + inner)]
    reduces: list[Reduce] = []
    for _ in range(draw(st.integers(1, 2)) if inner else 0):
        kind = draw(st.sampled_from(REDUCTIONS))
        reduces.append(Reduce(kind, b.value(1)))
    results = [
        cast(red(k, I64 if r.kind.startswith("arg") else F32), F32) for k, r in enumerate(reduces)
    ]
    everywhere = inner > 0 and draw(st.booleans())
    full = b.extents
    b.extents = full if everywhere or not inner else full[:outer]
    value = b.value(draw(st.integers(1, 2)))
    for r in results:
        value = binary("add", value, unary("neg", r))
    numbers = list(range(len(b.extents)))
    order = draw(st.permutations(numbers))
    shape = tuple(b.extents[k] for k in order)
    store = Store(0, tuple(axis(k) for k in order), value, "all" if everywhere else "outer")
    nest = LoopNest(tuple(full[:outer]), tuple(full[outer:]), tuple(reduces), (store,))
    kernel = LoopKernel(tuple(b.specs), (TensorSpec(F32, shape),), (nest,))
    return kernel, b.inputs, b.env


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(kernels(), st.sampled_from(host_isas()))
def test_random_nests(case: tuple[LoopKernel, list[Array], dict[str, int]], isa: str) -> None:
    """Inputs are small multiples of 1/4, so that short sums are exact in any order."""
    kernel, inputs, env = case
    want = run_kernel(kernel, inputs, env, float64=True)
    for tactic in loop_tactics(kernel, CpuTarget(isa, 2), EFFORTS[4])[:3]:
        status, got = run(kernel, inputs, env, isa, tactic)
        assert status == 0
        np.testing.assert_array_equal(got[0], want[0], err_msg=str(tactic))
