"""Kernels of quantized products: bytes in, int32 sums, a byte out of a requantizing epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from braze.core.dims import evaluate
from braze.core.dtypes import F8E4M3FN, F16, F32, I8, I32, DType
from braze.expr.loops import TensorSpec
from braze.expr.scalar import axis, binary, cast, const, hole, load, unary
from braze.fusion.kernel import AnchorKernel
from braze.ops.quant.linear import saturated
from braze.ops.writing.minifloat import encode

Array = np.ndarray[Any, Any]
SCALE = 0.0371  # of the output
RESIDUAL_SCALE = 0.0625


def quantized(kernel: AnchorKernel, kind: str = "bytes") -> AnchorKernel:
    """A float kernel as one of signed bytes.

    kind: "sums" gives int32; "bytes": scale and bias of each column, ReLU and the code of the
    result; "residual": codes of a residual are added before the ReLU.
    """
    spec = replace(kernel.spec, acc=I32)
    out = spec.out_shape
    inputs = [TensorSpec(I8, t.shape) for t in kernel.inputs[:2]]
    if kind == "sums":
        output = TensorSpec(I32, out)
        return AnchorKernel(spec, tuple(inputs), output, hole(0, I32), kernel.constant)
    here = tuple(axis(i) for i in range(len(out)))
    inputs += [TensorSpec(F32, out[-1:])] * 2
    real = binary("mul", cast(hole(0, I32), F32), load(2, here[-1:], F32))
    real = binary("add", real, load(3, here[-1:], F32))
    if kind == "residual":
        inputs.append(TensorSpec(I8, out))
        codes = binary("mul", cast(load(4, here, I8), F32), const(RESIDUAL_SCALE, F32))
        real = binary("add", real, codes)
    real = binary("max", real, const(0.0, F32))
    q = unary("round", binary("div", real, const(float(np.float32(SCALE)), F32)))
    constant = kernel.constant | {2, 3}
    return AnchorKernel(spec, tuple(inputs), TensorSpec(I8, out), saturated(q, I8, 8), constant)


def drawn(kernel: AnchorKernel, env: Mapping[str, int]) -> list[Array]:
    """Bytes over their whole range, and scales that spread sums over the codes."""
    rng = np.random.default_rng(1)
    found: list[Array] = []
    shapes = [[evaluate(d, env) for d in t.shape] for t in kernel.inputs]
    depth = np.prod(shapes[1]) / kernel.spec.out_shape[-1]
    for slot, (t, shape) in enumerate(zip(kernel.inputs, shapes, strict=True)):
        if t.dtype is I8:
            found.append(rng.integers(-128, 128, shape).astype(np.int8))
        elif slot == 2:
            found.append((rng.uniform(0.5, 2, shape) / (5000 * depth**0.5)).astype(np.float32))
        else:
            found.append(rng.standard_normal(shape).astype(np.float32))
    return found


def float8(kernel: AnchorKernel, kind: str = "sums", element: DType = F8E4M3FN) -> AnchorKernel:
    """A float kernel as one of 8-bit floats.

    kind: "sums" gives float32; "codes": scale and bias of each column, and the quotient by a scale
    as float8_e4m3fn; "halves": a float16 residual is added, and the result is float16.
    """
    spec = kernel.spec
    out = spec.out_shape
    inputs = [TensorSpec(element, t.shape) for t in kernel.inputs[:2]]
    if kind == "sums":
        output = TensorSpec(F32, out)
        return AnchorKernel(spec, tuple(inputs), output, hole(0, F32), kernel.constant)
    here = tuple(axis(i) for i in range(len(out)))
    inputs += [TensorSpec(F32, out[-1:])] * 2
    real = binary("mul", hole(0, F32), load(2, here[-1:], F32))
    real = binary("add", real, load(3, here[-1:], F32))
    constant = kernel.constant | {2, 3}
    if kind == "codes":
        done = encode(binary("div", real, const(float(np.float32(SCALE)), F32)), F8E4M3FN, True)
        return AnchorKernel(spec, tuple(inputs), TensorSpec(F8E4M3FN, out), done, constant)
    inputs.append(TensorSpec(F16, out))
    real = binary("add", real, cast(load(4, here, F16), F32))
    return AnchorKernel(spec, tuple(inputs), TensorSpec(F16, out), cast(real, F16), constant)


def with_codes(kernel: AnchorKernel) -> AnchorKernel:
    """A kernel that gives the quotient by a scale as float8_e4m3fn."""
    wide = cast(kernel.epilogue, F32)
    done = encode(binary("div", wide, const(float(np.float32(SCALE)), F32)), F8E4M3FN, True)
    return replace(kernel, output=TensorSpec(F8E4M3FN, kernel.output.shape), epilogue=done)


def drawn_floats(kernel: AnchorKernel, env: Mapping[str, int]) -> list[Array]:
    """Normal numbers of each type."""
    rng = np.random.default_rng(2)
    shapes = [[evaluate(d, env) for d in t.shape] for t in kernel.inputs]
    return [
        rng.standard_normal(shape).astype(np.float32).astype(t.dtype.numpy)
        for t, shape in zip(kernel.inputs, shapes, strict=True)
    ]
