"""Anchor kernels for tests: building them, running their code, and what it is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from braze.codegen.cpu.anchors import anchor_tactics, compile_anchor
from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.cpu.target import ISAS, CpuTarget
from braze.codegen.reference import run_kernel
from braze.core.config import EFFORTS
from braze.core.dims import Dim, evaluate
from braze.core.dtypes import F32, I64, DType
from braze.expr.loops import TensorSpec
from braze.expr.scalar import Expr, axis, binary, cast, const, hole, load, unary
from braze.fusion.kernel import AnchorKernel, CompiledKernel, Tactic
from braze.ops.lowering import (
    AttentionSpec,
    ConvSpec,
    MatmulSpec,
    Operand,
    SuppressSpec,
    window_block,
)
from braze.ops.writing.precision import compute_type
from braze.runtime.native import LoadedKernel, host_isa, require_isa

Array = NDArray[Any]
Env = Mapping[str, int]
Shape = tuple[Dim, ...]
EPILOGUES = ("none", "bias", "relu", "residual", "exp", "rows", "middle")


def host_isas() -> list[str]:
    """Instruction sets whose code this machine runs, widest first."""
    names = list(ISAS)
    host = host_isa()
    return names[names.index(host) :] if host in names else []


def contiguous(shape: Shape) -> tuple[Dim, ...]:
    """Row-major strides in elements."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = step * size
    return tuple(strides)


def epilogue(kind: str, out: Shape, first: int, dtype: DType = F32) -> tuple[Expr, list[Shape]]:
    """An epilogue of `kind` and the shapes of the tensors it reads, from slot `first` on."""
    ax = tuple(axis(i) for i in range(len(out)))
    value: Expr = cast(hole(0, compute_type(dtype)), dtype)
    if kind == "none":
        return value, []
    shapes: list[Shape] = [(out[-1],)]
    value = binary("add", value, load(first, (ax[-1],), dtype))
    if kind == "relu":
        value = binary("max", value, const(0.0, dtype))
    elif kind == "residual":
        shapes.append(out)
        value = binary("add", value, load(first + 1, ax, dtype))
    elif kind == "exp":
        damped = binary("mul", value, const(-0.1, dtype))
        value = binary("mul", value, unary("exp", damped))
    elif kind == "rows":
        shapes.append((out[0], *([1] * (len(out) - 1))))
        zeros = (const(0, I64),) * (len(out) - 1)
        value = binary("mul", value, load(first + 1, (ax[0], *zeros), dtype))
    elif kind == "middle":
        shapes.append(out[:-1])
        value = binary("add", value, load(first + 1, ax[:-1], dtype))
    return value, shapes


def matmul(
    batch: Shape,
    m: Dim,
    n: Dim,
    k: Dim,
    *,
    shared: bool = True,
    constant: bool = True,
    turned: bool = False,
    dtype: DType = F32,
    kind: str = "none",
) -> AnchorKernel:
    """[*batch, m, k] x [k, n]; `shared`: one right matrix for all; `turned`: stored as [n, k]."""
    lhs_shape, out = (*batch, m, k), (*batch, m, n)
    matrix: Shape = (n, k) if turned else (k, n)
    rhs_shape = matrix if shared else (*batch, *matrix)
    strides = contiguous(rhs_shape)
    if turned:
        strides = (*strides[:-2], strides[-1], strides[-2])
    if shared:
        strides = (0,) * len(batch) + strides
    spec = MatmulSpec(
        batch,
        m,
        n,
        k,
        Operand(0, contiguous(lhs_shape)),
        Operand(1, strides),
        Operand(0, contiguous(out)),
        compute_type(dtype),
    )
    expr, extra = epilogue(kind, out, 2, dtype)
    inputs = tuple(TensorSpec(dtype, s) for s in (lhs_shape, rhs_shape, *extra))
    slots = frozenset({1} if constant else ())
    return AnchorKernel(spec, inputs, TensorSpec(dtype, out), expr, slots)


def conv(
    n: Dim,
    h: Dim,
    w: Dim,
    channels: tuple[int, int],
    kernel: tuple[int, int],
    *,
    groups: int = 1,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dtype: DType = F32,
    kind: str = "none",
) -> AnchorKernel:
    """A channels-last convolution with a constant weight."""
    c, k = channels
    spatial = []
    for i, size in enumerate((h, w)):
        reach = dilations[i] * (kernel[i] - 1) + 1
        spatial.append((size + pads[i] + pads[i + 2] - reach) // strides[i] + 1)
    out: Shape = (n, *spatial, k)
    acc, block = compute_type(dtype), window_block(kernel, c // groups)
    spec = ConvSpec(
        n, (h, w), tuple(spatial), c, k, groups, kernel, strides, dilations, pads, acc, block
    )
    expr, extra = epilogue(kind, out, 2, dtype)
    shapes: list[Shape] = [(n, h, w, c), (k, c // groups, *kernel), *extra]
    inputs = tuple(TensorSpec(dtype, s) for s in shapes)
    return AnchorKernel(spec, inputs, TensorSpec(dtype, out), expr, frozenset({1}))


def conv3d(
    n: Dim, spatial: tuple[Dim, Dim, Dim], channels: tuple[int, int], kernel: tuple[int, ...],
    strides: tuple[int, ...], pads: tuple[int, ...], groups: int = 1, kind: str = "none",
    dtype: DType = F32,
) -> AnchorKernel:  # fmt: skip
    """A channels-last convolution over three axes with a constant weight."""
    c, k = channels
    sizes = zip(spatial, kernel, strides, pads[:3], pads[3:], strict=True)
    out: Shape = (n, *((x + lo + hi - taps) // s + 1 for x, taps, s, lo, hi in sizes), k)
    spec = ConvSpec(
        n, spatial, out[1:-1], c, k, groups, kernel, strides, (1, 1, 1), pads, compute_type(dtype),
    )  # fmt: skip
    expr, extra = epilogue(kind, out, 2, dtype)
    shapes: list[Shape] = [(n, *spatial, c), (k, c // groups, *kernel), *extra]
    inputs = tuple(TensorSpec(dtype, s) for s in shapes)
    return AnchorKernel(spec, inputs, TensorSpec(dtype, out), expr, frozenset({1}))


def attention(
    sizes: tuple[Dim, Dim, Dim, Dim, int, int],
    *,
    layouts: Sequence[str] = ("bshd", "bshd", "bshd", "bshd"),
    causal: bool = False,
    mask: str = "none",
    dtype: DType = F32,
) -> AnchorKernel:
    """sizes: batch, heads, q_len, kv_len, head_dim, value_dim; mask: none, keys or full."""
    b, h, q, s, d, dv = sizes

    def strides(length: Dim, depth: int, layout: str) -> tuple[Dim, ...]:
        if layout == "bhsd":
            return (h * length * depth, length * depth, depth, 1)
        if layout == "bshd":
            return (length * h * depth, depth, h * depth, 1)
        return (h * length * depth, length * depth, 1, length)

    operands = [
        Operand(slot, strides(length, depth, layout))
        for slot, length, depth, layout in zip(
            (0, 1, 2, 0), (q, s, s, q), (d, d, dv, dv), layouts, strict=True
        )
    ]
    shapes: list[Shape] = [(b, h, q, d), (b, h, s, d), (b, h, s, dv)]
    extra = None
    if mask == "keys":
        extra = Operand(3, (0, 0, 0, 1))
        shapes.append((s,))
    elif mask == "full":
        shapes.append((b, h, q, s))
        extra = Operand(3, contiguous(shapes[-1]))
    spec = AttentionSpec(b, h, q, s, d, dv, 0.3, *operands, F32, extra, causal)
    inputs = tuple(TensorSpec(dtype, shape) for shape in shapes)
    output = TensorSpec(dtype, (b, h, q, dv))
    return AnchorKernel(spec, inputs, output, cast(hole(0, F32), dtype))


def suppression(
    batch: Dim, classes: Dim, count: Dim, most: Dim, threshold: bool, centered: bool = False
) -> AnchorKernel:
    """Scores lie as [batch, count, classes + 1], of which the first class is left out."""
    n, c = count, classes + 1
    spec = SuppressSpec(
        batch, classes, count, most, centered, threshold,
        Operand(0, contiguous((batch, n, 4))), Operand(1, (n * c, 1, c), 1),
    )  # fmt: skip
    shapes: list[Shape] = [(batch, n, 4), (batch, n, c), (1,)] + [(1,)] * threshold
    inputs = tuple(TensorSpec(F32, shape) for shape in shapes)
    return AnchorKernel(spec, inputs, TensorSpec(I64, spec.out_shape), hole(0, I64))


def inside(kernel: AnchorKernel, offset: int) -> AnchorKernel:
    """The same with every operand that is no constant a slice of a tensor with rows twice as long;
    offset: where it begins in them, no more than a row's length."""
    inputs, changed = list(kernel.inputs), {}
    for field, (operand, _) in kernel.spec.operands.items():
        if operand.slot in kernel.constant:
            continue
        shape = kernel.inputs[operand.slot].shape
        strides = tuple(s if s == 1 else 2 * s for s in operand.strides)
        changed[field] = replace(operand, strides=strides, offset=offset)
        inputs[operand.slot] = replace(
            kernel.inputs[operand.slot], shape=(*shape[:-1], 2 * shape[-1])
        )
    assert changed, kernel.spec
    spec = replace(kernel.spec, **changed)  # type: ignore[arg-type]
    return replace(kernel, spec=spec, inputs=tuple(inputs))


def random_inputs(kernel: AnchorKernel, env: Env, seed: int = 0) -> list[Array]:
    """Standard normal values for every input."""
    rng = np.random.default_rng(seed)
    return [
        rng.standard_normal([evaluate(d, env) for d in t.shape]).astype(t.dtype.numpy)
        for t in kernel.inputs
    ]


class Compiled:
    """A kernel compiled by one tactic, to run at several shapes and worker counts."""

    def __init__(self, kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> None:
        self.kernel = kernel
        self.tactic = tactic
        self.code: CompiledKernel = compile_anchor(kernel, tactic, target)
        require_isa(self.code.own_code.needs)
        self.loaded = LoadedKernel(self.code.code.data, self.code.code.entry)

    def __call__(self, inputs: Sequence[Array], env: Env, workers: int = 1) -> Array:
        """The output; every byte outside of it must keep its content."""
        arrays = list(inputs)
        for slot, packing in self.code.packings:
            arrays[slot] = pack_anchor(arrays[slot], packing)
        shape = [evaluate(d, env) for d in self.kernel.output.shape]
        size = int(np.prod(shape))
        guard = 64
        kind = self.kernel.output.dtype.numpy
        memory = np.full((size + 2 * guard) * kind.itemsize, 0xA5, np.uint8).view(kind)
        around = memory[:guard].copy()
        out = memory[guard : guard + size]
        buffers: list[Array] = [*arrays, out]
        scratch = evaluate(self.code.launch.scratch_bytes, env)
        if self.code.launch.scratch_bytes != 0:
            # what is in scratch must not matter
            buffers.append(np.full(max(1, scratch * workers), 0xFF, np.uint8))
        params = [evaluate(d, env) for d in self.code.params]
        assert self.loaded.run(buffers, params, workers=workers) == 0
        for outside in (memory[:guard], memory[guard + size :]):
            assert outside.tobytes() == around.tobytes(), "bytes beside the output were written"
        return out.reshape(shape)


def variants(kernel: AnchorKernel, isa: str, level: int | None = None) -> Iterator[Compiled]:
    """The kernel compiled by every tactic of `level` (0 and 3 on the widest host ISA, else 0 and 2:
    the simple tactic, and what is estimated to be best)."""
    levels = [level] if level is not None else [0, 3 if isa == host_isa() else 2]
    target = CpuTarget(isa, 2)
    tactics = [anchor_tactics(kernel, target, EFFORTS[x]) for x in levels]
    assert all(tactics), "no tactic for a kernel that has templates"
    for tactic in dict.fromkeys(t for found in tactics for t in found):
        yield Compiled(kernel, tactic, target)


def check(kernel: AnchorKernel, env: Env, isa: str, depth: int, level: int | None = None) -> None:
    """Every tactic is right and gives the same bits for any number of workers; so do all that sum
    in the order of the spec (transformed convolutions, by their size, have rounding of their own).

    The bound is the worst case of `depth` float32 roundings on sums of normal values, with room
    for the epilogue.
    """
    inputs = random_inputs(kernel, env, depth)
    want = run_kernel(kernel, inputs, env, float64=True)[0]
    tolerance = 4e-6 * max(4, depth)
    first: dict[object, Array] = {}
    for compiled in variants(kernel, isa, level):
        rounding = compiled.tactic["size"] if compiled.tactic.template == "winograd" else None
        for workers in (1, 2, 3, 7):
            got = compiled(inputs, env, workers)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
            np.testing.assert_array_equal(got, first.setdefault(rounding, got))
